"""Tables that only the study of heads as Markov chains writes."""

from flowscope.lab.claim import CLAIMS_TABLE, Column, Table

__all__ = ["TABLES"]

TABLES = {
    "diffusion_attention": CLAIMS_TABLE,
    "identities": Table(
        purpose="the identities of the source and how exactly they hold",
        keys=("identity",),
        columns=(
            Column("identity", "short name of the identity"),
            Column("formula", "the identity"),
            Column("error", "largest error over heads and prompts, in units of `scale`"),
            Column("scale", "size at which rounding works"),
            Column("heads", "heads on which it was checked"),
            Column("bound", "largest error that is rounding"),
            Column("holds", "whether `error` is at most `bound`; empty where no head was checked"),
            Column("refused", "readings of a head that could not be checked"),
        ),
    ),
    "regimes": Table(
        purpose="statistics of the regimes over heads and prompts",
        keys=("quantity",),
        columns=(
            Column("quantity", "name of the statistic"),
            Column("meaning", "what it is"),
            Column("mean", "its mean over heads and prompts"),
            Column("median", "its median over heads and prompts"),
            Column("least", "its smallest value"),
            Column("largest", "its largest value"),
            Column("readings", "number of heads and prompts"),
        ),
        optional=True,
    ),
}
"""Tables of the study by name."""
