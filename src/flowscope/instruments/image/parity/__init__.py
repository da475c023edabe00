"""Whether the ODE and the SDE of a model pass through the same distributions."""

from flowscope.instruments.image import step_sizes
from flowscope.instruments.image.columns import IMAGES, LOG_SNR, NULL, SAMPLER, STEP, TIME
from flowscope.lab.claim import ENDS, INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["LEAST_LOG_SNR", "LIMIT", "PARITY", "STAGE", "TABLES"]


LIMIT = 0.02
"""Total variation beyond the step errors up to which the samplers count as equal."""

LEAST_LOG_SNR = -5.0
"""Log snr below which a time does not count: everything is noise there, for any model."""


PARITY = Claim(
    name="I1",
    title="Parity",
    says="the ODE sampler and the SDE sampler differ by no more than their step errors",
    asks="Do the deterministic and the noisy sampler of a model give the same histogram of pixels "
    "at every time, up to the error of their steps? The reference is how much either sampler "
    "changes when its steps are doubled.",
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
    "step_budget": Table(
        purpose="how far apart ODE and SDE are beyond what their steps explain, by time",
        keys=("step",),
        optional=True,
        columns=(
            STEP,
            TIME,
            LOG_SNR,
            Column("counted", "whether the time is judged: its log snr is −5 or more"),
            Column(
                "distance",
                "total variation distance of ODE and SDE when both take twice the steps, mean over "
                "channels",
            ),
            Column("noise", "distance that noise alone gives between them"),
            Column("flow_change", "distance of the ODE from itself with twice the steps"),
            Column("flow_noise", "distance that noise alone gives between these"),
            Column("sde_change", "distance of the SDE from itself with twice the steps"),
            Column("sde_noise", "distance that noise alone gives between these"),
            Column("budget", "both changes less their noise: what the steps explain"),
            Column(
                "excess",
                "`distance` less its noise less `budget`; its interval covers all judged times "
                "together, and the bias of `distance` by noise",
                beside=INTERVAL,
            ),
            Column("detectable", "excess that a run of this size calls a difference in 80 %"),
            Column("outside", "share of values beyond the bins"),
            IMAGES,
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
