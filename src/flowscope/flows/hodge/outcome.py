r"""What a decomposition of a velocity found, how sure it is, and what it was asked to do."""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.flows.hodge.resampling import Bounds

__all__ = ["PLANTED", "Extrapolated", "Rotation", "Settings", "Unmeasured"]


PLANTED = 0.05
"""Share of rotation that is planted in a control, to see whether it would be found."""


def _empty() -> Tensor:
    return torch.zeros(0, dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the rotation is estimated; the defaults suit a few thousand points.

    Attributes
    ----------
    level
        Coverage of the intervals.
    draws
        Resamples for the intervals, and signs for the null.
    splits
        Random halvings that the estimate is the mean of.
    folds
        Folds of the cross-validation of the ridge.
    blocks
        Bound on the number of units of resampling; more groups than that are pooled at random.
    degree, waves
        Of the dictionary; None to fit them to the sample.
    step
        Time that a velocity is the mean over, for an estimated diffusion: a is the residual
        covariance of the velocities times this.
    cells
        Cells along each axis of the grid; None to fit them to the sample.
    """

    level: float = 0.95
    draws: int = 1000
    splits: int = 8
    folds: int = 5
    blocks: int = 64
    degree: int | None = None
    waves: int | None = None
    step: float = 1.0
    cells: int | None = None


@dataclass(frozen=True, kw_only=True)
class Unmeasured:
    """A quantity that was not measured, and why."""

    reason: str
    status: Literal["abstained"] = "abstained"


@dataclass(frozen=True, kw_only=True)
class Extrapolated:
    """R and its share with a + εI in place of a diffusion that is nearly singular."""

    epsilon: float
    energy: float
    normalised: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Rotation:
    r"""Rotational energy of a velocity under a law, and its share of all energy.

    .. math:: R = \int \langle w, a^{-1}w\rangle\, d\mu, \qquad
              R_{\rm norm} = R \Big/ \int \langle u - b_R, a^{-1}(u - b_R)\rangle\, d\mu

    Attributes
    ----------
    energy, normalised
        R and R_norm, both cross-fitted: noise has no energy, and either may be below 0 by chance.
    total
        ∫⟨u − b_R, a⁻¹(u − b_R)⟩dμ of the signal.
    energy_interval, interval
        Of R and of R_norm.
    p_value, null
        Share of null draws (no rotation, the same noise) that reach R, and the 50, 90, 95 and 99 %
        quantiles of R_norm under that null.
    hjb
        Residual of the Hamilton–Jacobi–Bellman equation, or why it was not measured.
    status, because
        ``"abstained"`` where the share is not defined, and why; ``because`` may also qualify an
        answer.
    method
        ``"samples"`` or ``"grid"``.
    n, groups, blocks
        Points, groups, and units of resampling that these were pooled into.
    regressors, potentials
        Functions that each component of the field and the potential were written in; cells of the
        grid for both.
    degree, ridge
        Of the regressors; NaN ridge for a grid.
    extrapolation
        Table over ε, decreasing, where the diffusion was regularised; the last row is the answer.
    gamma, condition
        Tikhonov parameter and condition number of the grid; NaN for samples.
    diffusion
        a, as it was given or estimated (regularised with the last ε).
    draws, left_out
        R_norm in every resample of the blocks, and without each block: what a mean over several
        measurements with the same blocks and generator takes its interval from.
    """

    energy: float
    normalised: float
    total: float
    interval: Bounds
    energy_interval: Bounds
    p_value: float
    null: tuple[float, ...]
    hjb: Any
    status: Literal["ok", "abstained"]
    because: str
    n: int
    groups: int
    blocks: int
    method: str = ""
    regressors: int = 0
    potentials: int = 0
    degree: int = 0
    ridge: float = float("nan")
    extrapolation: tuple[Extrapolated, ...] = ()
    gamma: float = float("nan")
    condition: float = float("nan")
    diffusion: Float64[Tensor, "d d"] = field(default_factory=_empty)
    draws: Float64[Tensor, "B"] = field(default_factory=_empty)
    left_out: Float64[Tensor, "b"] = field(default_factory=_empty)
