"""RUN: loading, configuration and the jobs that the commands start."""

from flowscope.nets import bundled_models
from flowscope.runs.audit import Audit, audit, audited, compared_folders, rebuilt
from flowscope.runs.comparison import Comparison, compared
from flowscope.runs.config import (
    AuditConfig,
    Config,
    DoctorConfig,
    HeadsConfig,
    ImageConfig,
    SyncConfig,
)
from flowscope.runs.doctor import Examination, Obstacle, doctor, examined
from flowscope.runs.geometry import Heads, heads, heads_of
from flowscope.runs.image import Image, image, image_of
from flowscope.runs.image_models import MixtureModel
from flowscope.runs.inputs import sample_inputs
from flowscope.runs.loading import Kind, Loaded, load, weight_hash
from flowscope.runs.reproduction import Reproduction, reproduce
from flowscope.runs.studies import (
    DiffusionAttention,
    SynchronizationGap,
    TrackI,
    TrackT,
    studies,
    study_file,
)
from flowscope.runs.sync import Sync, sync, sync_of

__all__ = [
    "Audit",
    "AuditConfig",
    "Comparison",
    "Config",
    "DiffusionAttention",
    "DoctorConfig",
    "Examination",
    "Heads",
    "HeadsConfig",
    "Image",
    "ImageConfig",
    "Kind",
    "Loaded",
    "MixtureModel",
    "Obstacle",
    "Reproduction",
    "Sync",
    "SyncConfig",
    "SynchronizationGap",
    "TrackI",
    "TrackT",
    "audit",
    "audited",
    "bundled_models",
    "compared",
    "compared_folders",
    "doctor",
    "examined",
    "heads",
    "heads_of",
    "image",
    "image_of",
    "load",
    "rebuilt",
    "reproduce",
    "sample_inputs",
    "studies",
    "study_file",
    "sync",
    "sync_of",
    "weight_hash",
]
