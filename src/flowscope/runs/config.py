"""Settings of the commands; each instrument defines those it takes."""

from flowscope.instruments.audit.config import AuditConfig
from flowscope.instruments.heads.config import HeadsConfig
from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.sync.config import SyncConfig
from flowscope.lab.config import Config, ReadingConfig
from flowscope.models.config import DoctorConfig

__all__ = [
    "AuditConfig",
    "Config",
    "DoctorConfig",
    "HeadsConfig",
    "ImageConfig",
    "ReadingConfig",
    "SyncConfig",
]
