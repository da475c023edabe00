"""What the writes of every block do to the tokens, and whether attention draws them together."""

from flowscope.lab.claim import INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["GAINS", "MIXING", "STAGE", "TABLES"]

MIXING = Claim(
    name="F1",
    title="Mixing",
    says="attention contracts the tokens",
    asks="Does attention draw tokens together, more than the same attention with its keys permuted "
    "(each token's weight on itself and on sinks kept)?",
)


def _quantity(name: str, meaning: str) -> Column:
    return Column(name, f"{meaning}, mean over prompts", "", INTERVAL)


_RESIDUAL = {"{}_low": "lower end of `{}`: a value that was reached",
             "{}_high": "upper end: `{}` and its residual"}  # fmt: skip
_ERROR = {"{}_low": "`{}` less two standard errors over random directions",
          "{}_high": "`{}` and two standard errors"}  # fmt: skip

GAINS = (
    Column(
        "sigma_max",
        "largest gain ‖J‖ of the block's write at one prompt, each token measured by its length; a "
        "lower bound; empty without Jacobians",
        "",
        _RESIDUAL,
    ),
    Column(
        "log_norm",
        "largest growth rate μ₂(J), the critical leak γ_c of this state; a lower bound",
        "",
        _RESIDUAL,
    ),
    Column("mean_gain", "gain of a random direction, ‖J‖_F/√n", "", _ERROR),
)
"""Columns about the Jacobian of a block's write, which the stage of the Jacobians fills."""

TABLES = {
    "blocks": Table(
        purpose="what the writes of each block do to the tokens",
        keys=("layer",),
        columns=(
            Column("layer", "block, from 1"),
            _quantity("energy_attention", "work of attention over the energy of a token"),
            _quantity("energy_feed_forward", "work of the feed-forward part over the energy"),
            _quantity("radial_attention", "share of attention's write along the token"),
            _quantity("radial_feed_forward", "share of the feed-forward write along the token"),
            _quantity("angular_attention", "attention's write across the token over its length"),
            _quantity(
                "angular_feed_forward", "feed-forward write across the token over its length"
            ),
            _quantity(
                "part_self", "size of attention's write from the token itself over the write"
            ),
            _quantity("part_others", "the same from other tokens"),
            _quantity("part_sink", "the same from sinks: the first token and massive tokens"),
            _quantity("spread_attention", "share of attention in the change of the spread"),
            _quantity("spread_feed_forward", "share of the feed-forward part in that change"),
            _quantity("spread_alone", "change of the spread when attention alone writes"),
            _quantity("spread_permuted", "the same with permuted keys"),
            _quantity("mean_cosine", "mean cosine of pairs of tokens after the block"),
            _quantity("effective_rank", "effective rank of centred directions after the block"),
            _quantity("high_frequency_stream", "upper half of the spectrum of the stream"),
            _quantity(
                "high_frequency_attention", "upper half of the spectrum of attention's write"
            ),
            _quantity("high_frequency_feed_forward", "upper half of the feed-forward spectrum"),
            *GAINS,
            _quantity("massive_tokens", "tokens longer than 20 times the median, left out"),
        ),
    ),
    "token_steps": Table(
        purpose="how far each write turns each token of the first prompt",
        keys=("layer", "position"),
        optional=True,
        columns=(
            Column("layer", "block, from 1"),
            Column("position", "position of the token in the prompt, from 0"),
            Column("token", "the token; empty where the prompt is no text"),
            Column("attention", "attention's write across the token over its length"),
            Column("feed_forward", "feed-forward write across the token over its length"),
            Column("massive", "whether the token is longer than 20 times the median"),
        ),
    ),
    "mixing": Table(
        purpose="the change of the spread by attention on each prompt, mean over blocks",
        keys=("prompt",),
        columns=(
            Column("prompt", "number of the prompt, from 0"),
            Column("spread_alone", "change of the spread when attention alone writes"),
            Column("spread_permuted", "the same with permuted keys"),
        ),
    ),
}
"""Tables of the budget."""

STAGE = Stage(
    name="budget",
    home=__name__,
    measure="measure.budget",
    judge="judge.mixing",
    claims=(MIXING,),
    settings=("batch", "seed"),
    tables=TABLES,
)
