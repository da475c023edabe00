"""``flowscope reproduce synchronization_gap``: source 004 on a model."""

from flowscope.instruments.sync.config import SyncConfig
from flowscope.lab.claim import CLAIMS_TABLE
from flowscope.lab.config import Config, setting
from flowscope.lab.study import Study

__all__ = ["STUDY", "SynchronizationGap"]


class SynchronizationGap(Config):
    """Settings of the study of coupled replicas."""

    study: str = setting("synchronization_gap", "Name of the study")
    title: str = setting("", "What the study asks, for its table of claims")
    sync: SyncConfig = setting(SyncConfig.model_validate({}), "Settings of the replicas")


STUDY = Study(
    name="synchronization_gap",
    home=__name__,
    source="004",
    config=SynchronizationGap,
    reading="sync",
    settings="study.yaml",
    statements="statements.sync_statement_table",
    tables={"synchronization_gap": CLAIMS_TABLE},
)
