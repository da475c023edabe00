"""Samplers: paths of ODEs and SDEs, processes with equal marginals, and their weak error.

A path is a value with a status. States carry their coordinates on the last axis; fields are
functions of (t, x); noise comes from a ``torch.Generator``.
"""

from flowscope.flows.sampling.budgets import StepBudget, step_budget
from flowscope.flows.sampling.dormand import smooth_path
from flowscope.flows.sampling.doubling import (
    Doubling,
    DoublingSlope,
    doubling_slope,
    step_doubling,
)
from flowscope.flows.sampling.family import FamilyMember, family_drift, score_to_velocity
from flowscope.flows.sampling.heun import heun_path
from flowscope.flows.sampling.histograms import (
    MarginalParity,
    histogram_counts,
    histogram_distances,
    marginal_parity,
)
from flowscope.flows.sampling.ode import OdePath, ode_path
from flowscope.flows.sampling.on_simplex import SimplexPath, simplex_flow
from flowscope.flows.sampling.sde import SdePath, sde_path
from flowscope.flows.sampling.variance_preserving import (
    MergedNoise,
    Prediction,
    euler_step,
    family_step,
    nested_times,
)
from flowscope.flows.sampling.weak_error import (
    LinearWeakError,
    Slope,
    linear_weak_error,
    weak_error_slope,
)

__all__ = [
    "Doubling",
    "DoublingSlope",
    "FamilyMember",
    "LinearWeakError",
    "MarginalParity",
    "MergedNoise",
    "OdePath",
    "Prediction",
    "SdePath",
    "SimplexPath",
    "Slope",
    "StepBudget",
    "doubling_slope",
    "euler_step",
    "family_drift",
    "family_step",
    "heun_path",
    "histogram_counts",
    "histogram_distances",
    "linear_weak_error",
    "marginal_parity",
    "nested_times",
    "ode_path",
    "score_to_velocity",
    "sde_path",
    "simplex_flow",
    "smooth_path",
    "step_budget",
    "step_doubling",
    "weak_error_slope",
]
