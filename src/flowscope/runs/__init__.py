"""RUN: loading, configuration and the jobs that the commands start."""

from flowscope.runs.config import Config, DoctorConfig
from flowscope.runs.doctor import Examination, Obstacle, doctor, examined
from flowscope.runs.inputs import sample_inputs
from flowscope.runs.loading import Kind, Loaded, load, weight_hash

__all__ = [
    "Config",
    "DoctorConfig",
    "Examination",
    "Kind",
    "Loaded",
    "Obstacle",
    "doctor",
    "examined",
    "load",
    "sample_inputs",
    "weight_hash",
]
