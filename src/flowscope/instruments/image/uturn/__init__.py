"""Whether images that are noised and denoised again come back as the same class."""

from flowscope.instruments.image import parity
from flowscope.instruments.image.columns import IMAGES, LOG_SNR
from flowscope.lab.claim import ENDS, INTERVAL, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["STAGE", "TABLES"]


TABLES = {
    "uturn": Table(
        purpose="whether images noised to a time and brought back are of the same class",
        keys=("time",),
        columns=(
            Column("time", "time of the schedule to which the images are noised"),
            LOG_SNR,
            Column("steps", "reverse steps of the way back"),
            Column("same_class", "share of images that come back as the same class", beside=ENDS),
            Column("exact", "that share in closed form; of the mixture alone"),
            Column("chance", "that share if images and returned images are paired at random"),
            Column("correlation_chance", "correlation of two different images, mean over pairs"),
            Column("entropy_at_least", "−log same_class", "nat"),
            Column("correlation", "correlation of an image before and after", beside=INTERVAL),
            IMAGES,
        ),
    )
}
"""Table of the stage that noises images and brings them back."""


STAGE = Stage(
    name="uturn",
    home=__name__,
    measure="measure.uturn",
    uses=("parity",),
    settings=(*parity.STAGE.settings, "uturn_times"),
    tables=TABLES,
)
