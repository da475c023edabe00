"""Models in consensus beside the cheap ways to combine them; a twin; states put on a sphere."""

from flowscope.instruments.latent.stable_alignment.members import TUNED_WITH
from flowscope.lab.claim import INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["CONSENSUS", "STAGE", "TABLES"]

CONSENSUS = Claim(
    name="L4",
    title="Consensus",
    says="models in consensus predict better than their average",
    asks="Do two models whose states are drawn together while they run predict the next token "
    "better than the mean of their logits, the mean of their probabilities and the mean of their "
    "weights, on every kind of text?",
)

_WAY = (
    Column("domain", "kind of text: first and second were tuned on, general is the run's prompts"),
    Column("members", "children, other seed, or turned twin"),
    Column("method", "a member alone, a way to combine two, or a consensus"),
    Column("layers", "after which blocks states move: all, a third, or the last; empty for none"),
    Column("strength", "λ of the consensus; 0 for none"),
    Column("align", "procrustes where states are turned to each other; none elsewhere"),
)
_KEYS = ("domain", "members", "method", "layers", "strength", "align")

TABLES = {
    "consensus": Table(
        purpose="loss of members, of what combines them and of members in consensus",
        keys=_KEYS,
        columns=(
            *_WAY,
            Column("loss", "loss of the next token, mean over the members", "nat", INTERVAL),
            Column("loss_mixed", "loss of the mean of the members' probabilities", "nat", INTERVAL),
            Column(
                "divergence",
                "Jensen–Shannon divergence between the members' predictions",
                "nat",
                INTERVAL,
            ),
            Column("distance", "distance of states from the middle before a move, relative"),
            Column("matched", "share of tokens that transport matches to themselves", "1"),
            Column("prompts", "texts"),
            Column("tokens", "predicted tokens"),
            Column("seconds", "time of the passes", "s"),
        ),
    ),
    "consensus_prompts": Table(
        purpose="the same losses, text by text",
        keys=(*_KEYS, "prompt"),
        columns=(
            *_WAY,
            Column("prompt", "number of the text"),
            Column("loss", "loss of the next token, mean over tokens and members", "nat"),
            Column("divergence", "Jensen–Shannon divergence between the members", "nat"),
            Column("tokens", "predicted tokens"),
        ),
    ),
    "turned_twin": Table(
        purpose="the model in consensus with itself in other coordinates",
        keys=("align",),
        columns=(
            Column("align", "apart: no consensus; none; procrustes"),
            Column("loss", "loss of the next token, mean over both", "nat", INTERVAL),
            Column("excess", "that less the loss of the model alone", "nat", INTERVAL),
            Column(
                "total_variation",
                "largest total variation distance of an output from that of the model",
                "1",
            ),
            Column("fitted", "tokens that the alignment was fitted on"),
        ),
        optional=True,
    ),
    "one_sphere": Table(
        purpose="the loss when all tokens are given one length after every block",
        keys=("domain",),
        columns=(
            _WAY[0],
            Column("loss", "loss of the model as it is", "nat", INTERVAL),
            Column("excess", "what it loses with states of one length", "nat", INTERVAL),
            Column("spread", "standard deviation of log lengths of states, mean over blocks"),
        ),
    ),
}
"""Tables of the comparison."""

STAGE = Stage(
    name="comparison",
    home=__name__,
    measure="measure.comparison",
    judge="judge.consensus_is_better",
    claims=(CONSENSUS,),
    settings=(*TUNED_WITH, "batch"),
    tables=TABLES,
    uses=("entropy", "members"),
)
"""Score every way on every kind of text, a shard each."""
