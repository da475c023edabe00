"""``flowscope image``: the probability flow of a diffusion model beside its SDE, and its score."""

from flowscope.instruments.image.claims import GRADIENT, ORDER, PARITY
from flowscope.instruments.image.config import ImageConfig
from flowscope.lab.claim import Table
from flowscope.lab.instrument import Argument, Instrument, Stage

__all__ = ["INSTRUMENT"]

_SAMPLES = ("seed", "batch", "integrator", "guidance", "bins")
_FAMILY = (*_SAMPLES, "family_images", "doubling", "lams")
_PATHS = (
    *_FAMILY,
    "images",
    "steps",
    "rank",
    "rotation_times",
    "rotation_images",
    "information_images",
    "uturn_images",
)

# In the order of the file; the keys, which name a row, are beside each table.
_COLUMNS = {
    "weak_error": ("difference", "standard_error", "low", "high", "resolved", "images"),
    "weak_error_slope": (
        "slope", "low", "high", "method", "first", "last", "images", "status", "because",
    ),
    "family": (
        "accuracy", "accuracy_low", "accuracy_high", "tv", "tv_low", "tv_high", "tv_null",
        "tv_null_high", "images",
    ),
    "parity": (
        "time", "log_snr", "tv", "tv_low", "tv_high", "tv_null", "tv_null_high", "tv_p", "ks",
        "ks_low", "ks_high", "ks_null", "ks_null_high", "ks_p", "tv_p_overall", "outside", "images",
        "bins",
    ),
    "smoothness": ("time", "log_snr", "size", "low", "high"),
    "paths": (
        "variation", "variation_low", "variation_high", "tortuosity", "tortuosity_low",
        "tortuosity_high", "quadratic", "quadratic_low", "quadratic_high", "expected_quadratic",
        "images",
    ),
    "rotation": (
        "time", "log_snr", "first", "last", "normalised", "low", "high", "interval_method",
        "energy", "energy_low", "energy_high", "total", "p_value", "linear", "gradient_control",
        "planted_control", "planted_share", "degree", "status", "because", "gradient_error",
        "gradient_error_low", "gradient_error_high", "rank", "points", "images", "mean_low",
        "mean_high", "mean_level", "mean_method",
    ),
    "information": (
        "time", "log_snr", "rate", "rate_low", "rate_high", "entropy", "low", "high",
        "rate_by_distance", "entropy_by_distance", "exact", "images",
    ),
    "uturn": (
        "log_snr", "steps", "same_class", "low", "high", "exact", "chance", "correlation_chance",
        "entropy_at_least", "correlation", "correlation_low", "correlation_high", "images",
    ),
}  # fmt: skip

INSTRUMENT = Instrument(
    name="image",
    home=__name__,
    config=ImageConfig,
    prepare="subject.prepare",
    result="result.Image",
    page="page.PAGE",
    headline="headline.show",
    main_table="parity",
    arrays=("samples", "uturn_strip"),
    identity=(*_PATHS, "uturn_times"),
    studies=("track_i.STUDY",),
    arguments=(
        Argument(
            name="source",
            help="A pipeline folder, a hub id, a pipeline or a model in memory; ``'mixture'`` or a "
            "`MixtureModel` for two Gaussians with their exact score; the bundled diffusion "
            "transformer when nothing is given.",
            positional=True,
            setting="model",
        ),
        Argument(
            name="scheduler",
            help="The schedule the model was trained with (a scheduler of diffusers, or its "
            "folder); that of the pipeline by default. It must be variance preserving.",
            setting="scheduler",
        ),
        Argument(
            name="reader",
            help="What tells the class of an image: a function from images in [−1, 1] to class "
            "numbers, or the folder of an image classifier. The bundled one knows the bundled "
            "model's classes.",
            setting="reader",
        ),
        Argument(
            name="classes",
            help="Names of the classes, where the folder has none.",
            annotation="Sequence[str]",
            default=(),
        ),
    ),
    stages=(
        Stage(name="prediction", home=__name__, measure="measuring.prediction"),
        Stage(
            name="step sizes",
            home=__name__,
            measure="measuring.family",
            judge="judge.order",
            claims=(ORDER,),
            settings=_FAMILY,
            tables={
                "weak_error": Table(
                    purpose="how much an observable moves when the number of steps doubles",
                    keys=("sampler", "observable", "steps"),
                    columns=_COLUMNS["weak_error"],
                ),
                "weak_error_slope": Table(
                    purpose="how fast that falls as the number of steps grows",
                    keys=("sampler", "observable"),
                    columns=_COLUMNS["weak_error_slope"],
                ),
                "family": Table(
                    purpose="accuracy and histograms from ODE to SDE, by number of steps",
                    keys=("lam", "steps"),
                    columns=_COLUMNS["family"],
                ),
            },
        ),
        Stage(
            name="parity",
            home=__name__,
            measure="measuring.paths",
            judge="judge.parity",
            claims=(PARITY,),
            settings=_PATHS,
            tables={
                "parity": Table(
                    purpose="how far apart the histograms of the two samplers are, by time",
                    keys=("channel", "step"),
                    columns=_COLUMNS["parity"],
                ),
                "smoothness": Table(
                    purpose="the size of the steps of both samplers, by time",
                    keys=("sampler", "step"),
                    columns=_COLUMNS["smoothness"],
                ),
                "paths": Table(
                    purpose="the length of the paths of both samplers",
                    keys=("sampler",),
                    columns=_COLUMNS["paths"],
                ),
            },
        ),
        Stage(
            name="rotation",
            home=__name__,
            measure="measuring.rotation",
            judge="judge.gradient",
            claims=(GRADIENT,),
            tables={
                "rotation": Table(
                    purpose="the share of the learned score that rotates, by time",
                    keys=("step",),
                    columns=_COLUMNS["rotation"],
                )
            },
        ),
        Stage(
            name="information",
            home=__name__,
            measure="measuring.information",
            settings=_PATHS,
            tables={
                "information": Table(
                    purpose="the information of the state about its class, by time",
                    keys=("step",),
                    columns=_COLUMNS["information"],
                )
            },
        ),
        Stage(
            name="uturn",
            home=__name__,
            measure="measuring.uturn",
            settings=(*_PATHS, "uturn_times"),
            tables={
                "uturn": Table(
                    purpose="whether images noised to a time and brought back are of the same "
                    "class",
                    keys=("time",),
                    columns=_COLUMNS["uturn"],
                )
            },
        ),
    ),
)
