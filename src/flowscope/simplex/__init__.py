"""Probability vectors: how spread, how far apart, how fast they can move, and along which steps.

Every function is batched over leading axes (the last axis holds the outcomes), takes tensors,
numpy arrays or lists, computes in float32 or float64 without any V × V matrix, and has slopes.
"""

from flowscope.simplex.divergence import entropy, kl_divergence, total_variation
from flowscope.simplex.flips import flip_radius
from flowscope.simplex.locking import locking_bound, oscillation
from flowscope.simplex.mirror import mirror_step, replicator_flow
from flowscope.simplex.mobility import (
    apply_mobility,
    effective_mobility,
    mobility_frobenius,
    mobility_trace,
)
from flowscope.simplex.projection import project_to_simplex
from flowscope.simplex.spectrum import mobility_norm, mobility_spectrum
from flowscope.simplex.transplant import TransplantedSteps, transplanted_steps
from flowscope.simplex.windows import (
    PathSteps,
    WindowBounds,
    matched_support,
    path_steps,
    window_bounds,
)

__all__ = [
    "PathSteps",
    "TransplantedSteps",
    "WindowBounds",
    "apply_mobility",
    "effective_mobility",
    "entropy",
    "flip_radius",
    "kl_divergence",
    "locking_bound",
    "matched_support",
    "mirror_step",
    "mobility_frobenius",
    "mobility_norm",
    "mobility_spectrum",
    "mobility_trace",
    "oscillation",
    "path_steps",
    "project_to_simplex",
    "replicator_flow",
    "total_variation",
    "transplanted_steps",
    "window_bounds",
]
