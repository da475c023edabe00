"""What moves: paths along depth, drifts and scores fitted to them, how they turn, where they go.

The depth path itself (steps, variation, segments) is here. `drift` estimates velocity fields,
`sampling` integrates them, `score` learns gradients of log densities, `hodge` splits a velocity
into transport and rotation; their main functions are here too.
"""

from flowscope.flows.detector import Detection, JumpDetector
from flowscope.flows.drift import (
    drift_sample,
    neighbour_drift,
    perceptron_drift,
    ridge_drift,
    select_drift,
)
from flowscope.flows.gram import centred_gram, principal_axes, quadratic_variation_gram
from flowscope.flows.hodge import Rotation, grid_rotation, rotation
from flowscope.flows.locking_slope import (
    Slope,
    SlopeSums,
    common_slope,
    joined_sums,
    log_response,
    slope_sums,
)
from flowscope.flows.meter import DepthMeter
from flowscope.flows.sampling import (
    family_drift,
    ode_path,
    score_to_velocity,
    sde_path,
    simplex_flow,
)
from flowscope.flows.score import fit_denoising_score, score_error, stein_identities
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
    "Rotation",
    "Segment",
    "Slope",
    "SlopeSums",
    "StateStatistics",
    "StepStatistics",
    "centred_gram",
    "common_slope",
    "concentration",
    "drift_sample",
    "family_drift",
    "fit_denoising_score",
    "grid_rotation",
    "joined",
    "joined_sums",
    "jump_report",
    "line_relative_variation",
    "log_response",
    "mass_residual",
    "neighbour_drift",
    "ode_path",
    "path_length",
    "perceptron_drift",
    "principal_axes",
    "quadratic_variation",
    "quadratic_variation_gram",
    "relative_variation",
    "ridge_drift",
    "rotation",
    "score_error",
    "score_to_velocity",
    "sde_path",
    "segments_of",
    "select_drift",
    "simplex_flow",
    "slope_sums",
    "state_statistics",
    "stein_identities",
    "step_statistics",
    "tortuosity",
]
