"""P4 Transport and P4r Rotation: how much of the motion turns, and whether any of it does."""

from flowscope.instruments.audit.columns import LAYER, STATUS, TOKENS
from flowscope.lab.claim import ENDS, INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["ROTATION", "STAGE", "TABLES", "TRANSPORT"]


_ENERGY = "(logit per unit of depth)²"


_ROTATION = Table(
    purpose="how much of the motion rotates, beside fields that do not, by layer",
    keys=("layer",),
    columns=(
        LAYER,
        Column(
            "normalised",
            "R_norm, the share that rotates of what gradients and fields represent; cross-fitted, "
            "may be below 0 by chance",
            beside=ENDS,
        ),
        Column("control", "mean R_norm of nine log-sum-exp gradients, which do not rotate"),
        Column("control_least", "smallest R_norm of these nine"),
        Column("control_most", "largest R_norm of these nine"),
        Column("margin", "what R_norm must exceed: `control`, or 0.01 where that is more"),
        Column(
            "represented",
            "share of the energy of the whole step that gradients and fields represent",
            beside=INTERVAL,
        ),
        Column(
            "rotation_share",
            "R/E, the share of the whole step that is seen to rotate: at least so much does",
            beside=INTERVAL,
        ),
        Column(
            "gradient_share",
            "G/E, the share of the whole step that is seen to be a gradient: at most 1 − G/E "
            "rotates",
            beside=INTERVAL,
        ),
        Column("energy", "rotational energy R", _ENERGY),
        Column("total", "energy E of the whole step of the logits, noise included", _ENERGY),
        Column(
            "p_value",
            "p value of R_norm being at most `margin`, for this layer alone; empty where less than "
            "0.05 is represented",
        ),
        Column("p_adjusted", "the same, adjusted for the largest of all layers"),
        Column("coordinates", "principal coordinates of the logits that were used"),
        Column("degree", "degree of the polynomial fields"),
        Column("functions", "functions that each component of the field is written in"),
        Column("potentials", "functions that the potential is written in"),
        TOKENS,
        Column("prompts", "different prompts that the tokens come from"),
        STATUS,
        Column("because", "why the layer could not be measured; empty where it could"),
    ),
)


TRANSPORT = Claim(
    name="P4",
    title="Transport",
    says="most of the motion through the layers is transport, not rotation",
    asks="Does most of the motion go downhill on some potential? The share that rotates lies "
    "between what is seen to rotate and what is not seen to be a gradient; noise is in between.",
)


ROTATION = Claim(
    name="P4r",
    title="Rotation",
    says="part of the motion through the layers is a rotation that no potential explains",
    asks="Does any of the motion go in circles, more than gradients on the same states seem to? "
    "Here “holds” means that rotation was found.",
)


TABLES = {"rotation": _ROTATION}

STAGE = Stage(
    name="rotation",
    home=__name__,
    measure="measure.measure",
    judge="judge.judge",
    probes="measure.probes",
    uses=("variation",),
    claims=(TRANSPORT, ROTATION),
    tables=TABLES,
)
