"""``flowscope sync``: when two coupled generations of a diffusion model commit to one outcome."""

from flowscope.instruments.sync import commitment, internal_gap, propagation
from flowscope.instruments.sync.config import SyncConfig
from flowscope.lab.instrument import Argument, Instrument

__all__ = ["INSTRUMENT"]

INSTRUMENT = Instrument(
    name="sync",
    home=__name__,
    config=SyncConfig,
    prepare="subject.prepare",
    result="result.Sync",
    page="page.PAGE",
    headline="headline.show",
    main_table="commitment",
    findings="findings.findings",
    arrays=("strip",),
    studies=("synchronization_gap.STUDY",),
    arguments=(
        Argument(
            name="source",
            help="A pipeline folder, a hub id, a pipeline or a model in memory; the bundled "
            "diffusion transformer when nothing is given.",
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
            name="encoder",
            help="What says how alike two images are: a function from images in [−1, 1] to "
            "features, or the folder of an image model. The bundled one reads images of "
            "1 × 28 × 28.",
            setting="encoder",
        ),
        Argument(
            name="classes",
            help="Names of the classes, where the folder has none.",
            annotation="Sequence[str]",
            default=(),
        ),
    ),
    stages=(commitment.STAGE, internal_gap.STAGE, propagation.STAGE),
)
