r"""How fast the error of a sampler falls with the number of its steps.

A scheme of weak order one has :math:`|E\varphi(X_K) - E\varphi(X)| = c/K + O(K^{-2})`, so the slope
of log error against log K tends to −1, and only tends: for the Gaussian case below it is −1.09 over
K = 25…200 and −1.014 over K = 200…1600. A slope is reported with its range of K. For linear
equations and Gaussian data a scheme maps Gaussians to Gaussians, and its error needs no sampling.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy.typing import NDArray
from scipy.stats import t as student
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling.coefficient import check_diffusion, psd_root
from flowscope.flows.sampling.fields import check_count
from flowscope.flows.sampling.propagation import matrix_propagation
from flowscope.simplex.probability import ArrayLike, as_reals, refuse, within_range

__all__ = [
    "LinearWeakError",
    "Slope",
    "linear_weak_error",
    "log_slope",
    "weak_error_slope",
]


@dataclass(frozen=True, kw_only=True)
class Slope:
    """Slope of log error against log K, its standard error and interval, and the range of K.

    ``standard_error`` and ``interval`` are NaN for two points, which a line fits exactly.
    """

    slope: float
    standard_error: float
    interval: tuple[float, float]
    level: float
    steps: tuple[int, ...]


def weak_error_slope(
    steps: Sequence[int], errors: Sequence[float] | Float[Tensor, " n"], *, level: float = 0.95
) -> Slope:
    r"""Log–log slope of errors against numbers of steps, by least squares.

    .. math:: \log|e_K| \approx \text{const} + \text{slope}\cdot\log K

    Parameters
    ----------
    steps : K, at least two different.
    errors : e_K, none zero; the sign does not count.
    level : of the interval, t with n − 2 degrees of freedom.

    Raises
    ------
    InvalidInputError
        If there are fewer than two points, lengths differ, an error is zero or not finite, or the
        level is not in (0, 1).

    Notes
    -----
    O(n). The standard error measures how far the points are from a line, that is curvature for
    exact errors; sampling noise is what :func:`flowscope.flows.sampling.step_doubling` measures.

    Examples
    --------
    >>> round(weak_error_slope([10, 20, 40], [0.1, 0.05, 0.025]).slope, 6)
    -1.0
    """
    K = _counts(steps)
    e = as_reals(errors, "errors").detach().double().cpu().abs()
    if e.shape != (len(K),):
        raise InvalidInputError(
            f"errors must be one per number of steps, {len(K)}; found shape {tuple(e.shape)}."
        )
    bad = ~(e.isfinite() & (e > 0))
    refuse(bad, e, "errors must be finite and not zero", "Drop the points at rounding level.")
    _check_level(level)
    x, y = np.log(np.array(K, float)), np.log(e.numpy())
    slope = log_slope(x, y)
    residual = (y - y.mean()) - slope * (x - x.mean())
    free = len(K) - 2
    spread = math.sqrt(residual @ residual / free / np.sum((x - x.mean()) ** 2)) if free else np.nan
    half = float(student.ppf(0.5 + level / 2, free)) * spread if free else math.nan
    return Slope(
        slope=slope,
        standard_error=float(spread),
        interval=(slope - half, slope + half),
        level=level,
        steps=tuple(K),
    )


def log_slope(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Least-squares slope of y against x."""
    centred = x - x.mean()
    return float(centred @ y / (centred @ centred))


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearWeakError:
    """Errors of the final mean and covariance for each K: scheme minus truth."""

    steps: tuple[int, ...]
    mean_error: Float64[Tensor, "n d"]
    covariance_error: Float64[Tensor, "n d d"]


def linear_weak_error(
    steps: Sequence[int],
    *,
    mean: Float[Tensor, " d"] | ArrayLike,
    covariance: Float[Tensor, "d d"] | ArrayLike,
    linear: Float[Tensor, "d d"] | ArrayLike,
    diffusion: Float[Tensor, "d d"] | ArrayLike,
    horizon: float,
    lam: float,
) -> LinearWeakError:
    r"""Exact error of Euler steps of the reverse family with Gaussian data and the true score.

    .. math:: V \leftarrow M V M^\top + \lambda^2 h\, a, \qquad
              M = I - h\bigl(A + \tfrac12(1+\lambda^2)\,a\,\Sigma_t^{-1}\bigr), \qquad
              \Sigma_t = e^{At}\Sigma_0 e^{A^\top t} + \int_0^t e^{As} a\, e^{A^\top s} ds

    Parameters
    ----------
    steps : K, numbers of equal steps from T to 0.
    mean, covariance : m and Σ₀ of the data; Σ₀ positive definite.
    linear, diffusion : A and a of dX = A X dt + σ dW, a = σσᵀ; constant.
    horizon : T > 0; sampling starts from the exact marginal there.
    lam : λ ∈ [0, 1], 0 for the probability flow.

    Raises
    ------
    InvalidInputError
        If shapes do not match, Σ₀ is not positive definite, a is not a diffusion, T ≤ 0 or λ is
        outside [0, 1].

    Notes
    -----
    No sampling and no time error but the scheme's own; O(K d³) in float64. Theory page §9.4.

    Examples
    --------
    >>> found = linear_weak_error([50, 100], mean=[0.0], covariance=[[0.25]], linear=[[-1.0]],
    ...                           diffusion=[[2.0]], horizon=3.0, lam=1.0)
    >>> found.covariance_error.flatten()
    tensor([0.0643, 0.0302], dtype=torch.float64)
    """
    K = _counts(steps, least=1)
    m, S, A, a = _linear_problem(mean, covariance, linear, diffusion)
    if not (0 <= lam <= 1 and horizon > 0 and math.isfinite(horizon)):
        raise InvalidInputError(
            f"lam must be in [0, 1] and horizon > 0; found {lam:.6g} and {horizon:.6g}."
        )
    try:
        ends = [_reverse_moments(k, (m, S, A, a), horizon, lam) for k in K]
    except RuntimeError as error:
        raise InvalidInputError(
            f"the marginal at the horizon {horizon:.3g} must be invertible; it is not in float64 "
            f"({error}). Take a shorter horizon, or a smaller linear part."
        ) from error
    means = torch.stack([mean_end - m for mean_end, _ in ends])
    covariances = torch.stack([covariance_end - S for _, covariance_end in ends])
    return LinearWeakError(
        steps=tuple(K),
        mean_error=within_range(means, "The error of the mean", infinite=True),
        covariance_error=within_range(covariances, "The error of the covariance", infinite=True),
    )


def _reverse_moments(
    K: int, problem: tuple[Tensor, Tensor, Tensor, Tensor], horizon: float, lam: float
) -> tuple[Tensor, Tensor]:
    m, S, A, a = problem
    h, one = horizon / K, torch.eye(len(m), dtype=m.dtype)
    step = matrix_propagation(A, a, h)
    marginals = [(m, S)]
    for _ in range(K):
        m, S = step.transition @ m, step.transition @ S @ step.transition.mT + step.covariance
        marginals.append((m, S))
    for centre, marginal in reversed(marginals[1:]):
        pull = 0.5 * (1 + lam**2) * torch.linalg.solve(marginal, a).mT
        M = one - h * (A + pull)
        m, S = M @ m + h * pull @ centre, M @ S @ M.mT + lam**2 * h * a
    return m, S


def _linear_problem(
    mean: Tensor | ArrayLike,
    covariance: Tensor | ArrayLike,
    linear: Tensor | ArrayLike,
    diffusion: Tensor | ArrayLike,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    m = as_reals(mean, "mean").double().cpu()
    named = {"covariance": covariance, "linear": linear, "diffusion": diffusion}
    S, A, a = (as_reals(x, name).double().cpu() for name, x in named.items())
    for name, found in zip(named, (S, A, a), strict=True):
        if m.ndim != 1 or found.shape != (len(m), len(m)):
            raise InvalidInputError(
                f"mean must have shape [d] and {name} [d, d]; found {tuple(m.shape)} and "
                f"{tuple(found.shape)}. Write a number as a 1 × 1 matrix."
            )
        refuse(~found.isfinite(), found, f"{name} must be finite", "Look for the overflow.")
    refuse(~m.isfinite(), m, "mean must be finite", "Look for the overflow.")
    for name, found in (("covariance", S), ("diffusion", a)):
        check_diffusion(found, "matrix", name)
        psd_root(found, float(found.abs().amax()), name)
    least = torch.linalg.eigvalsh(S)[0]
    refuse(least <= 0, least, "covariance must be positive definite", "The score inverts it.")
    return m, S, A, a


def _counts(steps: Sequence[int], least: int = 2) -> list[int]:
    found = [int(k) for k in steps]
    if len(set(found)) < least:
        raise InvalidInputError(
            f"steps must hold at least {least} different numbers of steps; found {list(steps)}."
        )
    for k in found:
        check_count(k, "steps")
    return found


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise InvalidInputError(f"level must be in (0, 1); found {level:.6g}. Use 0.95.")
