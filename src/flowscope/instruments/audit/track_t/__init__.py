"""``flowscope reproduce track_t``: Track T of source 000 on a model."""

from flowscope.instruments.audit.config import AuditConfig
from flowscope.instruments.audit.track_t import schemas
from flowscope.lab.config import Config, setting
from flowscope.lab.instrument import Stage
from flowscope.lab.study import Study

__all__ = ["STUDY", "TrackT"]


class TrackT(Config):
    """Settings of Track T: an audit, finer steps, the bridge equation, output temperatures."""

    study: str = setting("track_t", "Name of the study")
    title: str = setting("", "What the study asks, for its table of claims")
    audit: AuditConfig = setting(AuditConfig.model_validate({}), "Settings of the audit")
    refinements: tuple[int, ...] = setting(
        (1, 2, 4, 8), "Steps n per layer with the same weights, to see whether depth settles",
        min_length=3,
    )  # fmt: skip
    refined_prompts: int = setting(16, "Prompts that are read with finer steps", ge=5)
    refined_positions: int = setting(16, "Tokens of each of these prompts", ge=1)
    refined_rank: int = setting(16, "Principal coordinates in which the drifts are compared", ge=2)
    output_temperatures: tuple[float, ...] = setting(
        (0.5, 0.7, 0.85, 1.2, 1.5, 2.0), "Temperatures of the output for mobility and calibration"
    )


STUDY = Study(
    name="track_t",
    home=__name__,
    source="000",
    config=TrackT,
    reading="audit",
    settings="study.yaml",
    statements="statements.track_t_statement_table",
    stages=(
        Stage(
            name="identification",
            home=__name__,
            measure="measuring.identification",
            uses=("variation",),
        ),
        Stage(name="bridge", home=__name__, measure="measuring.bridge", uses=("variation",)),
        Stage(name="calibration", home=__name__, measure="measuring.output_temperature"),
    ),
    tables=schemas.TABLES,
)
