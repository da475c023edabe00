"""``flowscope reproduce track_i``: the image track of source 000 on a model."""

from flowscope.instruments.image.config import ImageConfig
from flowscope.lab.claim import CLAIMS_TABLE
from flowscope.lab.config import Config, setting
from flowscope.lab.study import Study

__all__ = ["STUDY", "TrackI"]


class TrackI(Config):
    """Settings of the image track."""

    study: str = setting("track_i", "Name of the study")
    title: str = setting("", "What the study asks, for its table of claims")
    image: ImageConfig = setting(ImageConfig.model_validate({}), "Settings of the samplers")


STUDY = Study(
    name="track_i",
    home=__name__,
    source="000",
    config=TrackI,
    reading="image",
    settings="study.yaml",
    statements="statements.image_statement_table",
    tables={"track_i": CLAIMS_TABLE},
)
