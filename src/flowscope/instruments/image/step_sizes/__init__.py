"""How the sampling error depends on the number of steps and on the noise of the sampler."""

from flowscope.instruments.image.columns import IMAGES, NULL, SAMPLER
from flowscope.lab.claim import ENDS, INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["DECIDING", "ORDER", "STAGE", "TABLES"]


ORDER = Claim(
    name="I2",
    title="First order",
    says="the sampling error is in its first-order range: twice the steps halve it",
    asks="Are these numbers of steps large enough that the sampling error falls in proportion to "
    "them? This tells of the steps, not of the model: any smooth score gets there.",
    unit="images",
    gate=True,
    gate_words=("in the first-order range", "not in the first-order range"),
)


DECIDING = "square"
"""The observable whose slope is judged."""


_OBSERVABLE = Column(
    "observable", "mean value, mean square, or roughness (squared difference of neighbours)"
)


_STATUS = Column("status", "ok, or what kept the number from being read")


_BECAUSE = Column("because", "why there is no number; empty where there is one")


TABLES = {
    "weak_error": Table(
        purpose="how much an observable moves when the number of steps doubles",
        keys=("sampler", "observable", "steps"),
        columns=(
            SAMPLER,
            _OBSERVABLE,
            Column("steps", "K: images of K steps are compared with those of 2K"),
            Column("difference", "observable at K less at 2K, mean over images"),
            Column("standard_error", "standard error of the difference"),
            Column("low", ENDS["low"].format("difference")),
            Column("high", ENDS["high"].format("difference")),
            Column("resolved", "whether the interval of the difference excludes 0"),
            IMAGES,
        ),
    ),
    "weak_error_slope": Table(
        purpose="how fast that falls as the number of steps grows",
        keys=("sampler", "observable"),
        columns=(
            SAMPLER,
            _OBSERVABLE,
            Column("slope", "slope of log |difference| in log K; −1 at first order", beside=ENDS),
            Column("method", "how the interval was made"),
            Column("first", "smallest number of steps"),
            Column("last", "largest number of steps"),
            IMAGES,
            _STATUS,
            _BECAUSE,
        ),
    ),
    "family": Table(
        purpose="accuracy and histograms from ODE to SDE, by number of steps",
        keys=("lam", "steps"),
        columns=(
            Column("lam", "member of the family, from 0 (ODE) to 1 (SDE)"),
            Column("steps", "number of reverse steps"),
            Column("accuracy", "share of images read as the class asked for", beside=INTERVAL),
            Column(
                "tv",
                "total variation distance of the histograms of this member and of the finest SDE, "
                "mean over channels",
                beside=INTERVAL | NULL,
            ),
            IMAGES,
        ),
    ),
}
"""Tables of the stage that compares numbers of steps."""


STAGE = Stage(
    name="step sizes",
    home=__name__,
    measure="measure.family",
    judge="judge.order",
    claims=(ORDER,),
    uses=("prediction",),
    settings=(
        "seed",
        "batch",
        "integrator",
        "guidance",
        "bins",
        "family_images",
        "doubling",
        "lams",
    ),
    tables=TABLES,
)
