"""What is measured: models, the inputs they read, and how both are loaded."""

from flowscope.models.config import DoctorConfig

__all__ = ["DoctorConfig"]
