"""Whether tokens become alike along depth, more than in a network with random weights."""

from flowscope.lab.claim import INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["COLLAPSE", "STAGE", "TABLES"]

COLLAPSE = Claim(
    name="F2",
    title="Collapse",
    says="tokens collapse",
    asks="Are tokens in the last third of the blocks more alike than in networks with random "
    "weights, and does their effective rank fall along depth?",
)

TABLES = {
    "collapse": Table(
        purpose="likeness of the tokens after each block, beside networks with random weights",
        keys=("layer",),
        columns=(
            Column("layer", "block, from 1"),
            Column("mean_cosine", "mean cosine of pairs of tokens, over prompts", "", INTERVAL),
            Column("mean_cosine_twin", "the same in networks with random weights, mean over them"),
            Column(
                "effective_rank",
                "effective rank of centred directions, mean over prompts",
                "",
                INTERVAL,
            ),
            Column("effective_rank_twin", "the same in networks with random weights"),
        ),
    ),
    "collapse_prompts": Table(
        purpose="likeness of the tokens of each prompt, in the first and the last third of blocks",
        keys=("prompt",),
        columns=(
            Column("prompt", "number of the prompt, from 0"),
            Column("cosine", "mean cosine of pairs of tokens in the last third"),
            Column("cosine_twin", "the same in the network with random weights that has the most"),
            Column("rank_first", "effective rank of centred directions in the first third"),
            Column("rank_last", "the same in the last third"),
        ),
    ),
}
"""Tables of the likeness of tokens."""

STAGE = Stage(
    name="collapse",
    home=__name__,
    measure="measure.collapse",
    judge="judge.collapse",
    claims=(COLLAPSE,),
    settings=("batch", "seed", "controls", "twins"),
    tables=TABLES,
    uses=("budget",),
)
