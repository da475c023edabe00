"""Paths of logits along depth: their steps, their variation, and where they break."""

from flowscope.flows.detector import Detection, JumpDetector
from flowscope.flows.gram import centred_gram, quadratic_variation_gram
from flowscope.flows.meter import DepthMeter
from flowscope.flows.segmentation import Jump, Segment, jump_report, segments_of
from flowscope.flows.steps import (
    StateStatistics,
    StepStatistics,
    joined,
    mass_residual,
    state_statistics,
    step_statistics,
)
from flowscope.flows.variation import (
    concentration,
    line_relative_variation,
    path_length,
    quadratic_variation,
    relative_variation,
    tortuosity,
)

__all__ = [
    "DepthMeter",
    "Detection",
    "Jump",
    "JumpDetector",
    "Segment",
    "StateStatistics",
    "StepStatistics",
    "centred_gram",
    "concentration",
    "joined",
    "jump_report",
    "line_relative_variation",
    "mass_residual",
    "path_length",
    "quadratic_variation",
    "quadratic_variation_gram",
    "relative_variation",
    "segments_of",
    "state_statistics",
    "step_statistics",
    "tortuosity",
]
