"""Tables of an image model: purpose, keys, and the unit and meaning of every column."""

from flowscope.lab.claim import ENDS, INTERVAL, Column, Table

__all__ = ["INFORMATION", "PARITY", "ROTATION", "STEP_SIZES", "UTURN"]

_SAMPLER = Column("sampler", "ode (probability flow) or sde")
_OBSERVABLE = Column(
    "observable", "mean value, mean square, or roughness (squared difference of neighbours)"
)
_STEP = Column("step", "reverse steps that were taken")
_TIME = Column("time", "time of the model's schedule")
_LOG_SNR = Column("log_snr", "logarithm of the signal-to-noise ratio at that time", "nat")
_IMAGES = Column("images", "number of images")
_STATUS = Column("status", "ok, or what kept the number from being read")
_BECAUSE = Column("because", "why there is no number; empty where there is one")

_NULL = {
    "{}_null": "median of `{}` between two runs of the SDE",
    "{}_null_high": "95 % quantile of `{}` between two runs of the SDE",
}
_TESTED = INTERVAL | _NULL | {"{}_p": "p value of `{}` at this time, by swaps of images"}

STEP_SIZES = {
    "weak_error": Table(
        purpose="how much an observable moves when the number of steps doubles",
        keys=("sampler", "observable", "steps"),
        columns=(
            _SAMPLER,
            _OBSERVABLE,
            Column("steps", "K: images of K steps are compared with those of 2K"),
            Column("difference", "observable at K less at 2K, mean over images"),
            Column("standard_error", "standard error of the difference"),
            Column("low", ENDS["low"].format("difference")),
            Column("high", ENDS["high"].format("difference")),
            Column("resolved", "whether the difference exceeds twice its standard error"),
            _IMAGES,
        ),
    ),
    "weak_error_slope": Table(
        purpose="how fast that falls as the number of steps grows",
        keys=("sampler", "observable"),
        columns=(
            _SAMPLER,
            _OBSERVABLE,
            Column("slope", "slope of log |difference| in log K; −1 at first order", beside=ENDS),
            Column("method", "how the interval was made"),
            Column("first", "smallest number of steps"),
            Column("last", "largest number of steps"),
            _IMAGES,
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
                beside=INTERVAL | _NULL,
            ),
            _IMAGES,
        ),
    ),
}
"""Tables of the stage that compares numbers of steps."""

PARITY = {
    "parity": Table(
        purpose="how far apart the histograms of the two samplers are, by time",
        keys=("channel", "step"),
        columns=(
            _STEP,
            _TIME,
            _LOG_SNR,
            Column("channel", "number of the channel; all is the mean over channels"),
            Column(
                "tv",
                "total variation distance of the histograms of ODE and SDE",
                beside=_TESTED,
            ),
            Column("ks", "Kolmogorov–Smirnov distance of the same histograms", beside=_TESTED),
            Column("tv_p_overall", "one p value over all times, the same in every row"),
            Column("outside", "share of values beyond the bins"),
            _IMAGES,
            Column("bins", "bins of a histogram"),
        ),
    ),
    "smoothness": Table(
        purpose="the size of the steps of both samplers, by time",
        keys=("sampler", "step"),
        columns=(
            _SAMPLER,
            _STEP,
            _TIME,
            _LOG_SNR,
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
            _SAMPLER,
            Column(
                "variation",
                "sum of the root mean square steps: length of the path, mean over images",
                beside=INTERVAL,
            ),
            Column("tortuosity", "that length over the distance of the ends", beside=INTERVAL),
            Column("quadratic", "sum of the mean squared steps", beside=INTERVAL),
            Column("expected_quadratic", "what a fine SDE would have; 0 for the ODE"),
            _IMAGES,
        ),
    ),
}
"""Tables of the stage that compares ODE and SDE along their paths."""

ROTATION = {
    "rotation": Table(
        purpose="the share of the learned score that rotates, by time",
        keys=("step",),
        columns=(
            Column("step", "middle step of the window that is read together"),
            _TIME,
            _LOG_SNR,
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
            _IMAGES,
            Column("mean_low", "lower end of the interval of the mean of `normalised` over times"),
            Column("mean_high", "upper end of that interval"),
            Column("mean_level", "level of that interval"),
            Column("mean_method", "how it was made, or why there is none"),
        ),
    )
}
"""Table of the stage that reads the learned score."""

INFORMATION = {
    "information": Table(
        purpose="the information of the state about its class, by time",
        keys=("step",),
        columns=(
            _STEP,
            _TIME,
            _LOG_SNR,
            Column(
                "rate",
                "rate at which states learn their class, from the errors of the denoiser",
                "nat per unit of log_snr",
                INTERVAL,
            ),
            Column("entropy", "entropy of the class given the state", "nat", ENDS),
            Column(
                "rate_by_distance",
                "the rate from the distance of the two predictions instead",
                "nat per unit of log_snr",
            ),
            Column("entropy_by_distance", "the entropy from that rate", "nat"),
            Column("exact", "the entropy in closed form; of the mixture alone", "nat"),
            _IMAGES,
        ),
    )
}
"""Table of the stage that asks what a state knows of its class."""

UTURN = {
    "uturn": Table(
        purpose="whether images noised to a time and brought back are of the same class",
        keys=("time",),
        columns=(
            Column("time", "time of the schedule to which the images are noised"),
            _LOG_SNR,
            Column("steps", "reverse steps of the way back"),
            Column("same_class", "share of images that come back as the same class", beside=ENDS),
            Column("exact", "that share in closed form; of the mixture alone"),
            Column("chance", "that share for two different images"),
            Column("correlation_chance", "correlation of two different images, mean over pairs"),
            Column("entropy_at_least", "−log same_class", "nat"),
            Column("correlation", "correlation of an image before and after", beside=INTERVAL),
            _IMAGES,
        ),
    )
}
"""Table of the stage that noises images and brings them back."""
