"""``flowscope reproduce track_d``: the late-window certificate of source 000, and what keeps."""

from flowscope.instruments.decode.config import DecodeConfig
from flowscope.lab.claim import CLAIMS_TABLE
from flowscope.lab.config import Config, setting
from flowscope.lab.study import Study

__all__ = ["STUDY", "TrackD"]


class TrackD(Config):
    """Settings of the track on diffusion language models."""

    study: str = setting("track_d", "Name of the study")
    title: str = setting("", "What the study asks, for its table of claims")
    decode: DecodeConfig = setting(DecodeConfig.model_validate({}), "Settings of the decoding")


STUDY = Study(
    name="track_d",
    home=__name__,
    source="000",
    config=TrackD,
    reading="decode",
    settings="study.yaml",
    statements="statements.certificate_statements",
    tables={"track_d": CLAIMS_TABLE},
)
