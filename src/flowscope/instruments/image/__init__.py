"""``flowscope image``: the probability flow of a diffusion model beside its SDE, and its score."""

from flowscope.instruments.image import schemas
from flowscope.instruments.image.claims import GRADIENT, ORDER, PARITY
from flowscope.instruments.image.config import ImageConfig
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

INSTRUMENT = Instrument(
    name="image",
    home=__name__,
    config=ImageConfig,
    prepare="subject.prepare",
    result="result.Image",
    page="page.PAGE",
    headline="headline.show",
    main_table="parity",
    findings="findings.findings",
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
            uses=("prediction",),
            settings=_FAMILY,
            tables=schemas.STEP_SIZES,
        ),
        Stage(
            name="parity",
            home=__name__,
            measure="measuring.paths",
            judge="judge.parity",
            claims=(PARITY,),
            uses=("step sizes",),
            settings=_PATHS,
            tables=schemas.PARITY,
        ),
        Stage(
            name="rotation",
            home=__name__,
            measure="measuring.rotation",
            judge="judge.gradient",
            claims=(GRADIENT,),
            uses=("parity",),
            tables=schemas.ROTATION,
        ),
        Stage(
            name="information",
            home=__name__,
            measure="measuring.information",
            uses=("parity",),
            settings=_PATHS,
            tables=schemas.INFORMATION,
        ),
        Stage(
            name="uturn",
            home=__name__,
            measure="measuring.uturn",
            uses=("parity",),
            settings=(*_PATHS, "uturn_times"),
            tables=schemas.UTURN,
        ),
    ),
)
