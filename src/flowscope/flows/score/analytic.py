r"""Scores in closed form, and what the Ornstein–Uhlenbeck noising makes of them.

.. math:: s(x) = \nabla \log p(x), \qquad
          p = \sum_k w_k\, \mathcal N(m_k, C_k) \;\longmapsto\;
          p_t = \sum_k w_k\, \mathcal N\bigl(\alpha m_k,\; \alpha^2 C_k + (1 - \alpha^2) I\bigr)

The noising has two clocks: ``unit``, dX = −X dt + √2 dW with α = e^{−t}, and ``schedule``,
dX = −½βX dt + √β dW with α = exp(−½∫β). They are one process read at t = ½∫β. Everything here is
differentiable in x, and serves as the truth that learned scores are held against.
"""

import math
from typing import Literal, NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.score.samples import as_spd, check_shape
from flowscope.simplex.probability import ArrayLike, as_reals, refuse, within_range

__all__ = [
    "NoisedMoments",
    "gaussian_score",
    "mixture_log_density",
    "mixture_score",
    "noised_moments",
    "student_t_score",
]

Array: TypeAlias = Tensor | ArrayLike
Clock: TypeAlias = Literal["unit", "schedule"]


class NoisedMoments(NamedTuple):
    """Means and covariances at time t; α is ``signal`` and the noise has variance 1 − α²."""

    means: Float[Tensor, "*batch d"]
    covariances: Float[Tensor, "*batch d d"]
    signal: float


def gaussian_score(
    x: Float[Tensor, "*batch d"] | ArrayLike,
    mean: Float[Tensor, " d"] | ArrayLike,
    covariance: Float[Tensor, "d d"] | ArrayLike | float,
) -> Float[Tensor, "*batch d"]:
    r"""Score of a Gaussian law.

    .. math:: s(x) = -C^{-1}(x - m)

    Parameters
    ----------
    x : where the score is wanted.
    mean : m.
    covariance : C, a matrix, its diagonal, or a number times the identity.

    Raises
    ------
    InvalidInputError
        If the shapes do not match, x is not finite, or C is not symmetric positive definite.

    Notes
    -----
    One Cholesky factor, O(d³ + n d²).

    Examples
    --------
    >>> gaussian_score([[3.0, 0.0]], [1.0, 0.0], [2.0, 1.0])
    tensor([[-1.0000, -0.0000]], dtype=torch.float64)
    """
    points = _as_states(x)
    centred, factor = _standard(points, mean, covariance)
    found = -torch.cholesky_solve(centred[..., None], factor)[..., 0]
    return within_range(found, "The score", infinite=True)


def student_t_score(
    x: Float[Tensor, "*batch d"] | ArrayLike,
    mean: Float[Tensor, " d"] | ArrayLike,
    scatter: Float[Tensor, "d d"] | ArrayLike | float,
    *,
    freedom: float,
) -> Float[Tensor, "*batch d"]:
    r"""Score of a multivariate Student t law: heavy tails, a score that falls off like 1/|x|.

    .. math:: s(x) = -\frac{\nu + d}{\nu + (x-m)^\top C^{-1} (x-m)}\, C^{-1}(x - m)

    Parameters
    ----------
    x : where the score is wanted.
    mean : m, the centre.
    scatter : C, the scale matrix; the covariance is Cν/(ν − 2) for ν > 2.
    freedom : ν > 0, the degrees of freedom.

    Raises
    ------
    InvalidInputError
        If the shapes do not match, ν ≤ 0, or C is not symmetric positive definite.

    Notes
    -----
    O(d³ + n d²). E[s xᵀ] = −I needs ν > 1 to have a mean and holds from there on.

    Examples
    --------
    >>> student_t_score([[1.0]], [0.0], 1.0, freedom=1.0)
    tensor([[-1.]], dtype=torch.float64)
    """
    if not freedom > 0:
        raise InvalidInputError(f"freedom must be > 0; found {freedom:.6g}. Cauchy is 1.")
    points = _as_states(x)
    centred, factor = _standard(points, mean, scatter)
    pulled = torch.cholesky_solve(centred[..., None], factor)[..., 0]
    distance = torch.linalg.vecdot(centred, pulled)[..., None]
    within_range(distance, "The distance of x from the centre", infinite=True)
    found: Tensor = -(freedom + points.shape[-1]) / (freedom + distance) * pulled
    return within_range(found, "The score", infinite=True)


def mixture_log_density(
    x: Float[Tensor, "*batch d"] | ArrayLike,
    weights: Float[Tensor, " K"] | ArrayLike,
    means: Float[Tensor, "K d"] | ArrayLike,
    covariances: Float[Tensor, "K d d"] | ArrayLike,
) -> Float[Tensor, "*batch"]:
    r"""Log density of a mixture of Gaussians.

    .. math:: \log p(x) = \log \sum_k w_k\, \mathcal N(x; m_k, C_k)

    Parameters
    ----------
    x : where it is wanted.
    weights : w, not negative, of sum one.
    means : m_k, one row a component.
    covariances : C_k, one matrix a component.

    Raises
    ------
    InvalidInputError
        As :func:`mixture_score`.

    Notes
    -----
    A log-sum of exponents, so that it stays finite far from every component. O(K(d³ + n d²)).

    Examples
    --------
    >>> mixture_log_density([[0.0]], [1.0], [[0.0]], [[[1.0]]])
    tensor([-0.9189], dtype=torch.float64)
    """
    found = _components(x, weights, means, covariances)[0].logsumexp(-1)
    return within_range(found, "The log density", infinite=True)


def mixture_score(
    x: Float[Tensor, "*batch d"] | ArrayLike,
    weights: Float[Tensor, " K"] | ArrayLike,
    means: Float[Tensor, "K d"] | ArrayLike,
    covariances: Float[Tensor, "K d d"] | ArrayLike,
) -> Float[Tensor, "*batch d"]:
    r"""Score of a mixture of Gaussians.

    .. math:: s(x) = -\sum_k r_k(x)\, C_k^{-1}(x - m_k), \qquad
              r_k(x) = \frac{w_k\, \mathcal N(x; m_k, C_k)}{p(x)}

    Parameters
    ----------
    x : where the score is wanted.
    weights : w, not negative, of sum one.
    means : m_k, one row a component.
    covariances : C_k, one matrix a component.

    Raises
    ------
    InvalidInputError
        If the shapes do not match, w is no probability vector, x is not finite, or a C_k is not
        symmetric positive definite.

    Notes
    -----
    The posteriors r are a softmax of logarithms: no underflow. O(K(d³ + n d²)).

    Examples
    --------
    >>> mixture_score([[0.0], [9.0]], [0.5, 0.5], [[-1.0], [1.0]], [[[1.0]], [[1.0]]])
    tensor([[-0.0000],
            [-8.0000]], dtype=torch.float64)
    """
    logs, pulls = _components(x, weights, means, covariances)
    found = -(logs.softmax(-1)[..., None] * pulls).sum(-2)
    return within_range(found, "The score", infinite=True)


def noised_moments(
    means: Float[Tensor, "*batch d"] | ArrayLike,
    covariances: Float[Tensor, "*batch d d"] | ArrayLike,
    t: float,
    *,
    clock: Clock = "unit",
) -> NoisedMoments:
    r"""Moments of Gaussian components after Ornstein–Uhlenbeck noising up to time t.

    .. math:: m_t = \alpha m, \qquad C_t = \alpha^2 C + (1 - \alpha^2) I, \qquad
              \alpha = e^{-t} \text{ or } e^{-\frac12 \int_0^t \beta}

    Parameters
    ----------
    means : m, of one or several components; the weights of a mixture do not change.
    covariances : C, of the same components.
    t : the time; under the ``schedule`` clock the integral ∫β up to it.
    clock : ``"unit"``, dX = −X dt + √2 dW, or ``"schedule"``, dX = −½βX dt + √β dW.

    Raises
    ------
    InvalidInputError
        If t is negative or not finite, the clock is unknown, the shapes do not match, or a C is
        not symmetric positive definite.

    Notes
    -----
    Exact. The score of the noised law is :func:`mixture_score` of these moments.

    Examples
    --------
    >>> noised_moments([2.0], [[0.25]], math.log(2.0)).covariances
    tensor([[0.8125]], dtype=torch.float64)
    """
    if not (math.isfinite(t) and t >= 0):
        raise InvalidInputError(f"t must be finite and ≥ 0; found {t:.6g}. Noising runs forward.")
    if clock not in ("unit", "schedule"):
        raise InvalidInputError(f"clock must be 'unit' or 'schedule'; found {clock!r}.")
    alpha = math.exp(-t if clock == "unit" else -t / 2)
    m = as_reals(means, "means")
    refuse(~m.isfinite(), m, "means must be finite", "Look for the overflow upstream.")
    C = as_spd(covariances, m.shape[-1], "covariances", m)
    check_shape(C, (*m.shape, m.shape[-1]), "covariances", "the means")
    eye = torch.eye(m.shape[-1]).to(m)
    return NoisedMoments(alpha * m, alpha**2 * C - math.expm1(2 * math.log(alpha)) * eye, alpha)


def _as_states(x: Array) -> Float[Tensor, "*batch d"]:
    points = as_reals(x, "x")
    if points.ndim == 0:
        raise InvalidInputError("x must have coordinates on its last axis; found shape ().")
    detached = points.detach()
    refuse(~detached.isfinite(), detached, "x must be finite", "Remove such points first.")
    return points


def _standard(x: Tensor, mean: Array, covariance: Array | float) -> tuple[Tensor, Tensor]:
    """Deviations from the mean and the Cholesky factor of the covariance."""
    d = x.shape[-1]
    m = as_reals(mean, "mean").to(x)
    check_shape(m, (d,), "mean", "a point")
    return x - m, torch.linalg.cholesky(as_spd(covariance, d, "covariance", x))


def _components(
    x: Array, weights: Array, means: Array, covariances: Array
) -> tuple[Float[Tensor, "*batch K"], Float[Tensor, "*batch K d"]]:
    """Logarithm of w_k N(x; m_k, C_k) and C_k⁻¹(x − m_k) for every component."""
    points = _as_states(x)
    d, w = points.shape[-1], as_reals(weights, "weights").to(points)
    if w.ndim != 1 or bool((w < 0).any()) or not abs(float(w.sum()) - 1) < 1e-5:
        raise InvalidInputError(
            f"weights must be a vector without negative entry and of sum one; found {w.tolist()}. "
            "Divide by the sum."
        )
    m = as_reals(means, "means").to(points)
    check_shape(m, (len(w), d), "means", "the weights and x together")
    C = as_spd(covariances, d, "covariances", points)
    check_shape(C, (len(w), d, d), "covariances", "the weights and x together")
    factor = torch.linalg.cholesky(C)
    centred = points[..., None, :] - m
    pulls = torch.cholesky_solve(centred[..., None], factor)[..., 0]
    volume = 0.5 * d * math.log(2 * math.pi) + factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return w.log() - volume - 0.5 * torch.linalg.vecdot(centred, pulls), pulls
