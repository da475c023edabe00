"""Whether the ODE and the SDE of a model pass through the same distributions."""

from flowscope.instruments.image import step_sizes
from flowscope.instruments.image.columns import IMAGES, LOG_SNR, NULL, SAMPLER, STEP, TIME
from flowscope.lab.claim import ENDS, INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["PARITY", "STAGE", "TABLES"]


PARITY = Claim(
    name="I1",
    title="Parity",
    says="the ODE sampler and the SDE sampler give the same distribution of pixels",
    asks="Do the deterministic and the noisy sampler of a model give the same histogram of pixels "
    "at every time? The reference is the noisy sampler against itself with different noise.",
    unit="images",
)


_TESTED = INTERVAL | NULL | {"{}_p": "p value of `{}` at this time, by swaps of images"}


TABLES = {
    "parity": Table(
        purpose="how far apart the histograms of the two samplers are, by time",
        keys=("channel", "step"),
        columns=(
            STEP,
            TIME,
            LOG_SNR,
            Column("channel", "number of the channel; all is the mean over channels"),
            Column(
                "tv",
                "total variation distance of the histograms of ODE and SDE",
                beside=_TESTED,
            ),
            Column("ks", "Kolmogorov–Smirnov distance of the same histograms", beside=_TESTED),
            Column("tv_p_overall", "one p value over all times, the same in every row"),
            Column("outside", "share of values beyond the bins"),
            IMAGES,
            Column("bins", "bins of a histogram"),
        ),
    ),
    "smoothness": Table(
        purpose="the size of the steps of both samplers, by time",
        keys=("sampler", "step"),
        columns=(
            SAMPLER,
            STEP,
            TIME,
            LOG_SNR,
            Column(
                "size",
                "root mean square change of a value in the step, mean over images",
                beside=ENDS,
            ),
        ),
    ),
    "paths": Table(
        purpose="the length of the paths of both samplers",
        keys=("sampler",),
        columns=(
            SAMPLER,
            Column(
                "variation",
                "sum of the root mean square steps: length of the path, mean over images",
                beside=INTERVAL,
            ),
            Column("tortuosity", "that length over the distance of the ends", beside=INTERVAL),
            Column("quadratic", "sum of the mean squared steps", beside=INTERVAL),
            Column("expected_quadratic", "what a fine SDE would have; 0 for the ODE"),
            IMAGES,
        ),
    ),
}
"""Tables of the stage that compares ODE and SDE along their paths."""


STAGE = Stage(
    name="parity",
    home=__name__,
    measure="measure.paths",
    judge="judge.parity",
    claims=(PARITY,),
    uses=("step sizes",),
    settings=(
        *step_sizes.STAGE.settings,
        "images",
        "steps",
        "rank",
        "rotation_times",
        "rotation_images",
        "information_images",
        "uturn_images",
    ),
    tables=TABLES,
)
