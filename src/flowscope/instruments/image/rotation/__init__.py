"""Whether the learned score is the gradient of a log density."""

from flowscope.instruments.image.columns import IMAGES, LOG_SNR, TIME
from flowscope.lab.claim import ENDS, INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["GRADIENT", "LEAST_LOG_SNR", "STAGE", "TABLES"]


LEAST_LOG_SNR = -3.0
"""Log snr below which a window does not count: the score is nearly −x there, for any model."""


GRADIENT = Claim(
    name="I3",
    title="Gradient",
    says="the learned score is a gradient",
    asks="Is the learned score the gradient of a log density, or does part of it rotate, which no "
    "density can explain? The reference is the same measurement on fields that are gradients.",
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
                "share of rotation in the energy of the score beyond its constant and isotropic "
                "part, R_norm; cross-fitted, may be below 0 by chance",
                beside=ENDS,
            ),
            Column("interval_method", "how the intervals were made"),
            Column("energy", "rotational energy R"),
            Column("total", "energy of the score, without noise"),
            Column("beyond", "share of `total` beyond the constant and isotropic part"),
            Column("represented", "share of the energy beyond it that the fitted fields represent"),
            Column(
                "p_value",
                "p value of a rotation of at most `gradient_control`, or .01 where that is more",
            ),
            Column("gradient_control", "mean R_norm of nine gradient fields with the same noise"),
            Column("planted_control", "the same with a planted rotation"),
            Column("planted_share", "share of rotation that was planted"),
            Column("detectable", "share above the controls that a run of this size finds in 80 %"),
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
            Column(
                "p_adjusted",
                "`p_value` adjusted for all judged windows; empty where a window is not judged",
                optional=True,
            ),
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
