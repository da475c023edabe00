"""Paths of logits along depth: their steps, their variation, and where they break."""

from flowscope.flows.meter import DepthMeter
from flowscope.flows.segmentation import Segment, jump_layers, segments_of
from flowscope.flows.steps import (
    StateStatistics,
    StepStatistics,
    joined,
    mass_residual,
    state_statistics,
    step_statistics,
)
from flowscope.flows.variation import (
    centred_gram,
    concentration,
    line_relative_variation,
    quadratic_variation_gram,
    relative_variation,
    tortuosity,
)

__all__ = [
    "DepthMeter",
    "Segment",
    "StateStatistics",
    "StepStatistics",
    "centred_gram",
    "concentration",
    "joined",
    "jump_layers",
    "line_relative_variation",
    "mass_residual",
    "quadratic_variation_gram",
    "relative_variation",
    "segments_of",
    "state_statistics",
    "step_statistics",
    "tortuosity",
]
