"""P2 Locking: whether certain tokens move less."""

from flowscope.instruments.audit.columns import MOVED
from flowscope.lab.claim import Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["LOCKING", "STAGE", "TABLES"]


_LOCKING = Table(
    purpose="how far a step moves the output, by tail mass",
    keys=("tail_mass_low",),
    columns=(
        Column("tail_mass_low", "least tail mass 1 − p_max of the bin"),
        Column("tail_mass_high", "largest tail mass of the bin"),
        Column("n", "steps of tokens in the bin"),
        Column("tv_median", f"{MOVED}, median over the bin"),
        Column("tv_q25", "25 % quantile of that distance"),
        Column("tv_q75", "75 % quantile of that distance"),
        Column("bound_median", "exact bound on that distance by tail mass and oscillation, median"),
        Column("informative_share", "share of steps whose bound is below 0.99"),
    ),
)


LOCKING = Claim(
    name="P2",
    title="Locking",
    says="the more probability the top token has, the less a layer changes the output",
    asks="Once the top token has nearly all probability, do later layers still change the output?",
)


TABLES = {"locking": _LOCKING}

STAGE = Stage(
    name="locking",
    home=__name__,
    measure="measure.measure",
    uses=("variation",),
    claims=(LOCKING,),
    tables=TABLES,
)
