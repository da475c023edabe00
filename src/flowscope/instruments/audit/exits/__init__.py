"""What the last layers are worth: the loss when the output is taken earlier."""

from dataclasses import replace

from flowscope.instruments.audit.columns import TOKENS
from flowscope.lab.claim import INTERVAL, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["STAGE", "TABLES"]


_DEPTH_LOSS = Table(
    purpose="how much the last layers of a language model contribute",
    keys=("removed",),
    columns=(
        Column("removed", "number of last layers that are left out"),
        Column("layer", "layer whose output is read instead"),
        Column("loss", "mean loss per token; of hidden tokens in a masked model", "nat", INTERVAL),
        Column("increase", "loss less that of the whole model", "nat", INTERVAL),
        Column("mobility", "Frobenius norm of J of the output, mean over tokens", beside=INTERVAL),
        TOKENS,
        Column("free", "whether so many layers can go for at most 0.01 nat"),
    ),
)


_VISIBLE_LOSS = replace(
    _DEPTH_LOSS,
    purpose="losses of a masked model where it sees the token to be named, beside depth_loss",
    optional=True,
)


TABLES = {"depth_loss": _DEPTH_LOSS, "visible_loss": _VISIBLE_LOSS}

STAGE = Stage(
    name="exits",
    home=__name__,
    measure="measure.measure",
    probes="measure.probes",
    uses=("variation",),
    tables=TABLES,
)
