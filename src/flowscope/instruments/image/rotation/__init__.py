"""Whether the learned score is the gradient of a log density."""

from flowscope.instruments.image.columns import IMAGES, LOG_SNR, TIME
from flowscope.lab.claim import ENDS, INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["GRADIENT", "STAGE", "TABLES"]


GRADIENT = Claim(
    name="I3",
    title="Gradient",
    says="the learned score is a gradient",
    asks="Is the learned score the gradient of a log density, or does part of it rotate, which no "
    "density can explain? The reference is the same measurement on a field that is a gradient.",
    unit="images",
)


TABLES = {
    "rotation": Table(
        purpose="the share of the learned score that rotates, by time",
        keys=("step",),
        columns=(
            Column("step", "middle step of the window that is read together"),
            TIME,
            LOG_SNR,
            Column("first", "first step of the window"),
            Column("last", "last step of the window"),
            Column(
                "normalised",
                "share of the energy of the score that is rotation, R_norm; cross-fitted, may be "
                "below 0 by chance",
                beside=ENDS,
            ),
            Column("interval_method", "how the intervals were made"),
            Column("energy", "rotational energy R", beside=INTERVAL),
            Column("total", "energy of the whole score"),
            Column("p_value", "p value of no rotation, against draws with the same noise"),
            Column("linear", "R_norm in linear fields alone"),
            Column("gradient_control", "R_norm of a gradient field with the same noise"),
            Column("planted_control", "R_norm of that field with a planted rotation"),
            Column("planted_share", "share of rotation that was planted"),
            Column("degree", "degree of the polynomial fields"),
            Column("status", "ok, or abstained where there is no number"),
            Column("because", "why it abstained, or what qualifies the number"),
            Column(
                "gradient_error",
                "energy of the error of the gradient part of the score, as a share of `total`",
                beside=INTERVAL,
            ),
            Column("rank", "principal coordinates of the images in which the score is read"),
            Column("points", "states that were read"),
            IMAGES,
            Column("mean_low", "lower end of the interval of the mean of `normalised` over times"),
            Column("mean_high", "upper end of that interval"),
            Column("mean_level", "level of that interval"),
            Column("mean_method", "how it was made, or why there is none"),
        ),
    )
}
"""Table of the stage that reads the learned score."""


STAGE = Stage(
    name="rotation",
    home=__name__,
    measure="measure.rotation",
    judge="judge.gradient",
    claims=(GRADIENT,),
    uses=("parity",),
    tables=TABLES,
)
