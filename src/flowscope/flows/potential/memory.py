r"""Whether a few coordinates of a cloud move as a Markov process, and what 003 calls diffusion.

If $y^{\ell+1}=y^\ell+u_\ell(y^\ell)+\varepsilon_\ell$ with noise that is new at every step, the
residuals of two steps are uncorrelated, and the covariance several steps ahead is that of the
steps one after the other,

$$ \Sigma_{\ell+1}=(I+A_\ell)\Sigma_\ell(I+A_\ell)^\top+C_\ell . $$

In a residual stream the "noise" is what other coordinates and other tokens do. They remember.

Source 003 fits $\nu$ to squared steps, $\hat\nu=\mathbb E\lVert\Delta x\rVert^2/(2d\,\Delta t)$.
A smooth flow has $\lVert\Delta x\rVert\propto\Delta t$: refined by n, $\hat\nu$ falls as 1/n.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.entropy.neighbours import read_points
from flowscope.flows.potential.fitting import MeanFlow
from flowscope.simplex.probability import ArrayLike, refuse

__all__ = ["covariance_forecast", "lag_correlation", "squared_step_diffusivity"]


def lag_correlation(first: Float64[Tensor, "N r"], second: Float64[Tensor, "N r"]) -> float:
    r"""Correlation of the residuals of two steps of the same points.

    $$ \frac{\sum_i\langle\varepsilon_i,\varepsilon_i'\rangle}
            {\sqrt{\sum\lVert\varepsilon\rVert^2\sum\lVert\varepsilon'\rVert^2}} $$

    NaN where the residuals of a step do not vary.

    Raises
    ------
    InvalidInputError
        If shapes differ or a residual is not finite.

    Examples
    --------
    >>> lag_correlation(torch.eye(2).double(), -torch.eye(2).double())
    -1.0
    """
    if first.shape != second.shape:
        raise InvalidInputError(
            "residuals of two steps must be of the same points; found shapes "
            f"{tuple(first.shape)} and {tuple(second.shape)}."
        )
    for residuals in (first, second):
        refuse(~residuals.isfinite(), residuals, "residuals must be finite", "Look at the fit.")
    a, b = (x - x.mean(0) for x in (first.double(), second.double()))
    size = float((a.square().sum() * b.square().sum()).sqrt())
    return float((a * b).sum()) / size if size else float("nan")


def covariance_forecast(steps: Sequence[MeanFlow]) -> tuple[float, float]:
    r"""Relative error of the covariance after several steps: steps in turn, and persistence.

    $$ \lVert\hat\Sigma-\Sigma_\text{end}\rVert_F/\lVert\Sigma_\text{end}\rVert_F $$

    Parameters
    ----------
    steps
        Mean flows of consecutive steps of the same points in the same coordinates; of each, the
        mean Jacobian and the covariance of the residuals are used.

    Raises
    ------
    InvalidInputError
        Without a step, or if the points are equal in the end.

    Examples
    --------
    >>> from flowscope.flows.potential.fitting import mean_flow
    >>> y = torch.randn(400, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> group = torch.arange(400) % 20
    >>> flows = [mean_flow(y, 2 * y, group), mean_flow(2 * y, 4 * y, group)]
    >>> [round(error, 3) for error in covariance_forecast(flows)]
    [0.0, 0.938]
    """
    if not steps:
        raise InvalidInputError("a forecast needs at least one step; found none.")
    start = _covariance(steps[0].points)
    end = _covariance(steps[-1].points + steps[-1].velocities)
    ahead = start
    for step in steps:
        move = torch.eye(len(start), dtype=start.dtype) + step.jacobians().mean(0)
        ahead = move @ ahead @ move.mT + _covariance(step.residuals)
    size = float(end.norm())
    if not size > 0:
        raise InvalidInputError(
            "A forecast is compared with the covariance after the last step, which is 0: all "
            "points are equal there. Take fewer steps."
        )
    return float((ahead - end).norm()) / size, float((start - end).norm()) / size


def _covariance(x: Float64[Tensor, "N r"]) -> Float64[Tensor, "r r"]:
    return torch.cov(x.mT).reshape(x.shape[1], x.shape[1])


def squared_step_diffusivity(
    before: Tensor | ArrayLike, after: Tensor | ArrayLike, duration: float
) -> float:
    r"""The $\hat\nu$ of source 003, $\mathbb E\lVert\Delta x\rVert^2/(2d\,\Delta t)$.

    Parameters
    ----------
    before, after
        The same points before and after a step.
    duration
        Δt of the step.

    Raises
    ------
    InvalidInputError
        If shapes differ, a point is not finite, the duration is not above 0, or the result is
        beyond the range of a float.

    Examples
    --------
    >>> squared_step_diffusivity([[0.0, 0.0]], [[0.5, 0.0]], 0.125)
    0.5
    """
    x, end = read_points(before, "before"), read_points(after, "after")
    if x.shape != end.shape or not duration > 0:
        raise InvalidInputError(
            "before and after must be the same points and the duration above 0; found shapes "
            f"{tuple(x.shape)} and {tuple(end.shape)} and {duration}."
        )
    return float((end - x).square().sum(1).mean()) / (2 * x.shape[1] * duration)
