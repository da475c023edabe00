"""RUN: loading, configuration and the jobs that the commands start."""

from flowscope.nets import bundled_models
from flowscope.runs.audit import Audit, audit, audited, compared_folders, rebuilt
from flowscope.runs.comparison import Comparison, compared
from flowscope.runs.config import AuditConfig, Config, DoctorConfig
from flowscope.runs.doctor import Examination, Obstacle, doctor, examined
from flowscope.runs.inputs import sample_inputs
from flowscope.runs.loading import Kind, Loaded, load, weight_hash
from flowscope.runs.reproduction import Reproduction, reproduce, reproduced
from flowscope.runs.studies import TrackT, studies, study_file

__all__ = [
    "Audit",
    "AuditConfig",
    "Comparison",
    "Config",
    "DoctorConfig",
    "Examination",
    "Kind",
    "Loaded",
    "Obstacle",
    "Reproduction",
    "TrackT",
    "audit",
    "audited",
    "bundled_models",
    "compared",
    "compared_folders",
    "doctor",
    "examined",
    "load",
    "rebuilt",
    "reproduce",
    "reproduced",
    "sample_inputs",
    "studies",
    "study_file",
    "weight_hash",
]
