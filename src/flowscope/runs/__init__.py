"""Loading models, and what the instruments measure them with."""

from flowscope.nets import bundled_models
from flowscope.runs.doctor import Examination, Obstacle, doctor, examined
from flowscope.runs.image_models import MixtureModel
from flowscope.runs.inputs import sample_inputs
from flowscope.runs.loading import Kind, Loaded, load, weight_hash

__all__ = [
    "Examination",
    "Kind",
    "Loaded",
    "MixtureModel",
    "Obstacle",
    "bundled_models",
    "doctor",
    "examined",
    "load",
    "sample_inputs",
    "weight_hash",
]
