"""The mean flow of a step of a cloud: its effective potential, and what it does to the entropy."""

from flowscope.flows.potential.balance import TERMS, EntropyChange, entropy_change
from flowscope.flows.potential.fitting import MeanFlow, mean_flow
from flowscope.flows.potential.hessian import (
    CrossedCurvature,
    Curvature,
    crossed_curvature,
    curvature,
    equivalent_stiffness,
)
from flowscope.flows.potential.memory import (
    covariance_forecast,
    lag_correlation,
    squared_step_diffusivity,
)

__all__ = [
    "TERMS",
    "CrossedCurvature",
    "Curvature",
    "EntropyChange",
    "MeanFlow",
    "covariance_forecast",
    "crossed_curvature",
    "curvature",
    "entropy_change",
    "equivalent_stiffness",
    "lag_correlation",
    "mean_flow",
    "squared_step_diffusivity",
]
