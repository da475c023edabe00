"""P4 Low rotation: how much of the motion through the layers rotates."""

from flowscope.instruments.audit.columns import LAYER, STATUS, TOKENS
from flowscope.lab.claim import ENDS, INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["ROTATION", "STAGE", "TABLES"]


_ROTATION = Table(
    purpose="the share of the motion that rotates, by layer",
    keys=("layer",),
    columns=(
        LAYER,
        Column(
            "normalised",
            "share of the energy of the motion that is rotation, R_norm; cross-fitted, may be "
            "below 0 by chance",
            beside=ENDS,
        ),
        Column("interval_method", "how the intervals were made"),
        Column("energy", "rotational energy R", beside=INTERVAL),
        Column("total", "energy of the whole motion"),
        Column("p_value", "p value of no rotation, against draws with the same noise"),
        Column("degree", "degree of the polynomial fields"),
        Column("linear", "R_norm in linear fields alone"),
        Column("gradient_control", "R_norm of a gradient field with the same noise"),
        Column("planted_control", "R_norm of that field with a planted rotation"),
        Column("planted_share", "share of rotation that was planted"),
        Column("epsilon", "regularisation of the diffusion"),
        Column("ridge", "ridge strength of the fit"),
        Column("functions", "functions that each component of the field is written in"),
        TOKENS,
        STATUS,
        Column("because", "why it abstained, or what qualifies the number"),
    ),
)


ROTATION = Claim(
    name="P4",
    title="Low rotation",
    says="most of the motion through the layers is transport, not rotation",
    asks="Does the output move downhill on some potential, or does it rotate, which no potential "
    "can explain?",
)


TABLES = {"rotation": _ROTATION}

STAGE = Stage(
    name="rotation",
    home=__name__,
    measure="measure.measure",
    probes="measure.probes",
    uses=("variation",),
    claims=(ROTATION,),
    tables=TABLES,
)
