"""``flowscope image``: the probability flow of a diffusion model beside its SDE, and its score."""

from flowscope.instruments.image import information, parity, prediction, rotation, step_sizes, uturn
from flowscope.instruments.image.config import ImageConfig
from flowscope.lab.instrument import Argument, Instrument

__all__ = ["INSTRUMENT"]

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
        prediction.STAGE,
        step_sizes.STAGE,
        parity.STAGE,
        rotation.STAGE,
        information.STAGE,
        uturn.STAGE,
    ),
)
