r"""Gaussian laws: where transport, entropic transport and the Schrödinger bridge are closed forms.

Everything is read from one singular value decomposition of the product of the two roots,

.. math:: A^{1/2} B^{1/2} = U\,\mathrm{diag}(s)\,V^\top, \qquad
          C_\varepsilon = A^{1/2}\, U\,\mathrm{diag}\Bigl(
          \frac{2s}{\sqrt{4s^2+\varepsilon^2}+\varepsilon}\Bigr) V^\top B^{1/2},

with C the cross-covariance of the entropic coupling of N(a, A) and N(b, B). The textbook form
½A^½(4A^½BA^½ + ε²I)^½A^{−½} − ½εI divides by a root of A and subtracts nearly equal numbers; this
one multiplies by factors in [0, 1] and holds for singular A and B and for ε = 0, where it is the
Monge coupling; along a direction that one of the laws lacks (s = 0) both are independent.

Convention: cost ½|x − y|² + ε KL(Π‖μ⊗ν); :func:`bures_distance` alone is a distance, W₂ for the
cost |x − y|². Slopes pass ``eigh`` and ``svd``: they are not defined where eigenvalues repeat.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import ConvergenceError, InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_probabilities, as_reals, refuse

__all__ = [
    "BuresBarycenter",
    "Gaussian",
    "GaussianBridge",
    "GaussianCoupling",
    "bures_barycenter",
    "bures_distance",
    "gaussian_bridge",
    "gaussian_coupling",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Gaussian:
    r"""A Gaussian law, or a batch of them.

    .. math:: N(m, \Sigma), \qquad \Sigma = \Sigma^\top \succeq 0

    Parameters
    ----------
    mean : m, shape (…, d).
    covariance : Σ, shape (…, d, d); singular matrices are allowed. Leading axes broadcast.

    Raises
    ------
    InvalidInputError : if a number is not finite, the shapes do not match, or Σ is further than its
        rounding, 8d·eps·max|Σ|, from a symmetric matrix without negative eigenvalue.

    Examples
    --------
    >>> Gaussian(mean=[0.0, 1.0], covariance=[[2.0, 0.0], [0.0, 1.0]]).mean
    tensor([0., 1.], dtype=torch.float64)
    """

    mean: Float[Tensor, "*batch d"]
    covariance: Float[Tensor, "*batch d d"]

    def __post_init__(self) -> None:
        mean = as_reals(self.mean, "mean")
        covariance = as_reals(self.covariance, "covariance", mean.device)
        _check_moments(mean, covariance)
        dtype = torch.promote_types(mean.dtype, covariance.dtype)
        object.__setattr__(self, "mean", mean.to(dtype))
        object.__setattr__(self, "covariance", covariance.to(dtype))


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianCoupling:
    """The optimal coupling of two Gaussians.

    ``cross_covariance`` is C = E[(x−a)(y−b)ᵀ]; ``joint`` the law of (x, y) in 2d dimensions;
    ``cost`` is E ½|x−y|² and ``value`` adds ε times ``divergence``, the KL from the product.
    """

    joint: Gaussian
    cross_covariance: Float[Tensor, "*batch d d"]
    value: Float[Tensor, "*batch"]
    cost: Float[Tensor, "*batch"]
    divergence: Float[Tensor, "*batch"]
    epsilon: float


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianBridge:
    """The bridge at one time: its ``marginal`` law and its drift ``slope`` x + ``offset``."""

    time: float
    marginal: Gaussian
    slope: Float[Tensor, "*batch d d"]
    offset: Float[Tensor, "*batch d"]

    def drift(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Forward drift K_t x + o_t at the points x."""
        return (self.slope @ x[..., None])[..., 0] + self.offset


@dataclass(frozen=True, kw_only=True, eq=False)
class BuresBarycenter:
    """A barycenter with the proof of it: ``residual`` is its relative W₂ gradient norm."""

    gaussian: Gaussian
    residual: float
    iterations: int
    status: Literal["converged", "not converged"]


def bures_distance(first: Gaussian, second: Gaussian) -> Float[Tensor, "*batch"]:
    r"""Wasserstein distance W₂ of two Gaussians, for the cost \|x − y\|² (no ½).

    .. math:: W_2^2 = |a-b|^2 + \mathrm{tr}\bigl(A + B - 2(A^{1/2}BA^{1/2})^{1/2}\bigr)
              = |a-b|^2 + \|A^{1/2} - B^{1/2}VU^\top\|_F^2

    Parameters
    ----------
    first, second : N(a, A) and N(b, B), of one dimension; leading axes broadcast.

    Raises
    ------
    InvalidInputError : if the dimensions or the leading axes do not match.

    Notes
    -----
    O(d³). The second form (module head for U, V) has no cancellation: equal laws are at distance
    eps·‖A^½‖ and not √eps of it. The square root itself is off by √(eps·‖A‖) at a singular A.
    Source: Dowson & Landau (1982); Bhatia, Jain & Lim (2019).

    Examples
    --------
    >>> laws = (Gaussian(mean=[m], covariance=[[v]]) for m, v in ((0.0, 1.0), (3.0, 25.0)))
    >>> bures_distance(*laws)
    tensor(5., dtype=torch.float64)
    """
    pair = _Pair(first, second)
    return pair.distance_squared().sqrt().to(pair.a.dtype)


def gaussian_coupling(first: Gaussian, second: Gaussian, *, epsilon: float) -> GaussianCoupling:
    r"""Entropic optimal coupling of two Gaussians, the Monge coupling at ε = 0.

    .. math:: \min_\Pi\; E\,\tfrac12|x-y|^2 + \varepsilon\,\mathrm{KL}(\Pi\,\|\,\mu\otimes\nu),
              \qquad \mathrm{KL} = \tfrac12\sum_i
              \log\frac{\sqrt{4s_i^2+\varepsilon^2}+\varepsilon}{2\varepsilon}

    Parameters
    ----------
    first, second : μ = N(a, A) and ν = N(b, B); leading axes broadcast.
    epsilon : ε ≥ 0, absolute. At 0 the divergence is infinite where the map is deterministic and
        the value is the cost.

    Raises
    ------
    InvalidInputError : if ε is negative or not finite, or the two laws do not match.

    Notes
    -----
    O(d³), without inverse or subtraction (module head): exact down to ε = 0 and for singular A, B
    (to √eps along directions that are singular up to rounding only).
    The joint covariance is singular at ε = 0. Source: Janati, Muzellec, Peyré & Cuturi (2020) and
    Mallasto, Gerolin & Minh (2022), whose cost |x−y|² + 2σ²KL is twice ours with σ² = ε.

    Examples
    --------
    >>> start, end = (Gaussian(mean=[0.0], covariance=[[v]]) for v in (1.0, 0.49))
    >>> gaussian_coupling(start, end, epsilon=0.5).cross_covariance
    tensor([[0.4933]], dtype=torch.float64)
    """
    if not 0 <= epsilon < float("inf"):
        raise InvalidInputError(f"epsilon must be finite and >= 0; found {epsilon}. Flip its sign?")
    pair = _Pair(first, second)
    s, delta = pair.s, pair.discriminant(epsilon)
    gain = (2 * s / (delta + epsilon)).where(s > 0, 0.0)
    C = (pair.root_a @ pair.U * gain[..., None, :]) @ pair.Vh @ pair.root_b
    # s − tr-part of C, written without the difference of near equals: s(δ + ε − 2s)/(δ + ε).
    slack = s * (epsilon**2 / (delta + 2 * s) + epsilon) / (delta + epsilon)
    cost = (pair.distance_squared() / 2).to(s.dtype) + slack.where(s > 0, 0.0).sum(-1)
    divergence = torch.where((s > 0).any(-1), torch.inf, torch.zeros_like(cost))
    if epsilon > 0:
        divergence = torch.log1p(2 * s * (s / (delta + epsilon) / epsilon)).sum(-1) / 2
    value = cost + epsilon * divergence if epsilon > 0 else cost
    top = torch.cat([pair.A, C], -1)
    bottom = torch.cat([C.mT, pair.B], -1)
    joint = Gaussian(mean=torch.cat([pair.a, pair.b], -1), covariance=torch.cat([top, bottom], -2))
    found = {"cross_covariance": C, "value": value, "cost": cost, "divergence": divergence}
    return GaussianCoupling(joint=joint, epsilon=epsilon, **found)


def gaussian_bridge(
    first: Gaussian, second: Gaussian, *, epsilon: float, time: float
) -> GaussianBridge:
    r"""Marginal and drift at one time of the Schrödinger bridge with reference √ε dB.

    .. math:: \Sigma_t = (1-t)^2 A + t^2 B + t(1-t)(C + C^\top + \varepsilon I), \qquad
              K_t = (T - I)\,((1-t)I + tT)^{-1}, \quad
              T = B^{1/2}V\,\mathrm{diag}\frac{2}{\sqrt{4s^2+\varepsilon^2}+\varepsilon}\,
              V^\top B^{1/2}

    Parameters
    ----------
    first, second : the laws N(a, A) at time 0 and N(b, B) at time 1; leading axes broadcast.
    epsilon : ε ≥ 0; at 0 this is McCann's interpolation and its velocity.
    time : t in [0, 1].

    Raises
    ------
    InvalidInputError : if ε or t is out of range; if ε = 0 and a covariance is singular (there is
        no map); if t = 1 and B is singular (the drift has no limit there).

    Notes
    -----
    The drift is K_t(x − m_t) + b − a, a gradient (K is symmetric), with K' + K² = 0 and
    Σ' = KΣ + ΣKᵀ + εI. T = CᵀA⁻¹ is formed without the inverse, so that A may be singular. O(d³).
    Source: Bunne, Hsieh, Cuturi & Krause (2023), Thm 3.

    Examples
    --------
    >>> start, end = (Gaussian(mean=[0.0], covariance=[[v]]) for v in (1.0, 0.49))
    >>> gaussian_bridge(start, end, epsilon=0.5, time=0.5).marginal.covariance
    tensor([[0.7442]], dtype=torch.float64)
    """
    if not 0 <= time <= 1:
        raise InvalidInputError(f"time must lie in [0, 1]; found {time:.6g}. Rescale the clock.")
    C = gaussian_coupling(first, second, epsilon=epsilon).cross_covariance
    pair = _Pair(first, second)
    noise = epsilon * torch.eye(C.shape[-1], dtype=C.dtype, device=C.device)
    between = time * (1 - time) * (C + C.mT + noise)
    covariance = (1 - time) ** 2 * pair.A + time**2 * pair.B + between
    marginal = Gaussian(mean=(1 - time) * pair.a + time * pair.b, covariance=covariance)
    slope = _bridge_slope(pair, epsilon, time)
    offset = pair.b - pair.a - (slope @ marginal.mean[..., None])[..., 0]
    refuse(~offset.isfinite(), offset, "the offset must be finite", "Divide the means.")
    return GaussianBridge(time=time, marginal=marginal, slope=slope, offset=offset)


def bures_barycenter(
    gaussians: Sequence[Gaussian],
    weights: Float[Tensor, " k"] | ArrayLike | None = None,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
) -> BuresBarycenter:
    r"""Wasserstein barycenter of Gaussians.

    .. math:: \arg\min_S \sum_k \lambda_k W_2^2(S, \Sigma_k), \qquad
              S = \sum_k \lambda_k (S^{1/2}\Sigma_k S^{1/2})^{1/2}

    Parameters
    ----------
    gaussians : at least two laws of one dimension; leading axes broadcast.
    weights : λ, a probability vector; uniform when missing.
    tolerance : bound on the relative W₂ gradient norm (E|T(x) − x|²)^½ / (tr S)^½, T the mean of
        the maps from the barycenter to each law.

    Raises
    ------
    InvalidInputError : if fewer than two laws come, dimensions differ, weights are not
        probabilities, or no law of positive weight is positive definite (not unique then).
    ConvergenceError : if the residual stays above the tolerance; ``partial`` is the result.

    Notes
    -----
    Fixed point S ← TST of Álvarez-Esteban, del Barrio, Cuesta-Albertos & Matrán (2016), Thm 4.2,
    on a factor S = RRᵀ: TR = Σ_k λ_k Σ_k^½ V_kU_kᵀ with RᵀΣ_k^½ = U_k diag(s) V_kᵀ, so that
    nothing is inverted. The residual is that of the iterate before the last step and cannot fall
    below the rounding of the dtype. O(k d³) a step.

    Examples
    --------
    >>> laws = [Gaussian(mean=[m], covariance=[[v]]) for m, v in ((0.0, 1.0), (2.0, 9.0))]
    >>> bures_barycenter(laws).gaussian.covariance
    tensor([[4.]], dtype=torch.float64)
    """
    means, roots, lam = _stacked(gaussians, weights)
    m = (lam[:, None] * means.movedim(0, -2)).sum(-2)
    weighted = lam.reshape(-1, *([1] * (roots.ndim - 1))) * roots
    R = _symmetric_root((weighted @ roots).sum(0))
    residual, iterations = float("inf"), 0
    while residual > tolerance and iterations < max_iterations:
        U, _, Vh = torch.linalg.svd(R.mT @ roots)
        moved = (weighted @ Vh.mT @ U.mT).sum(0)
        change = torch.linalg.matrix_norm(moved - R) / torch.linalg.matrix_norm(R)
        R, residual, iterations = moved, float(change.max()), iterations + 1
    result = BuresBarycenter(
        gaussian=Gaussian(mean=m, covariance=R @ R.mT),
        residual=residual,
        iterations=iterations,
        status="converged" if residual <= tolerance else "not converged",
    )
    if result.status == "not converged":
        message = f"the relative gradient must be at most {tolerance:.3g}; found {residual:.3g}"
        todo = f"after {iterations} iterations. Raise max_iterations or the tolerance."
        raise ConvergenceError(f"{message} {todo}", result)
    return result


class _Pair:
    """Two Gaussians of one shape and the decomposition of the module head."""

    def __init__(self, first: Gaussian, second: Gaussian) -> None:
        means, covariances = _aligned([first, second])
        self.a, self.b = means
        self.A, self.B = covariances
        self.root_a, self.root_b = _symmetric_root(covariances)
        self.U, self.s, self.Vh = torch.linalg.svd(self.root_a @ self.root_b)

    def discriminant(self, epsilon: float) -> Tensor:
        """δ = √(4s² + ε²), without underflow of the squares."""
        return torch.hypot(2 * self.s, torch.full_like(self.s, epsilon))

    def distance_squared(self) -> Tensor:
        """In float64, whose range holds the squares of float32."""
        apart = (self.a - self.b).double().square().sum(-1)
        turned = self.root_b @ self.Vh.mT @ self.U.mT
        return torch.add(apart, (self.root_a - turned).double().square().sum((-2, -1)))


def _bridge_slope(pair: _Pair, epsilon: float, time: float) -> Tensor:
    if epsilon == 0:
        expected = "epsilon = 0 needs positive definite covariances; the singular values must be >"
        singular = pair.s**2 <= _floor(pair.s**2)
        refuse(singular, pair.s, f"{expected} 0", "There is no map: take epsilon > 0.")
    half: Tensor = pair.root_b @ pair.Vh.mT
    T = (half * (2 / (pair.discriminant(epsilon) + epsilon))[..., None, :]) @ half.mT
    stretch, Q = torch.linalg.eigh(T)
    if time == 1:
        expected = "time 1 needs a positive definite second covariance; the stretches must be > 0"
        refuse(stretch <= _floor(stretch), stretch, expected, "Ask for a time before 1.")
    stretch = stretch.clamp(min=0)
    rate = (stretch - 1) / ((1 - time) + time * stretch)
    return torch.matmul(Q * rate[..., None, :], Q.mT)


def _floor(values: Tensor) -> Tensor:
    """Rounding of the d singular values or eigenvalues of a matrix: d·eps times the largest."""
    return values.shape[-1] * torch.finfo(values.dtype).eps * values.amax(-1, keepdim=True)


def _symmetric_root(covariance: Tensor) -> Tensor:
    values, Q = torch.linalg.eigh(covariance)
    return torch.matmul(Q * values.clamp(min=0).sqrt()[..., None, :], Q.mT)


def _aligned(gaussians: Sequence[Gaussian]) -> tuple[Tensor, Tensor]:
    """Stack the moments on a new first axis, in one shape and the widest dtype."""
    sizes = [g.mean.shape[-1] for g in gaussians]
    if len(set(sizes)) > 1:
        raise InvalidInputError(f"Gaussians must have one dimension; found {sizes}. Embed them.")
    shapes = [tuple(s) for g in gaussians for s in (g.mean.shape[:-1], g.covariance.shape[:-2])]
    try:
        batch = np.broadcast_shapes(*shapes)
    except ValueError as error:
        message = f"leading shapes must broadcast; found {shapes}. Align the leading axes."
        raise InvalidInputError(message) from error
    dtype, d = max((g.mean.dtype for g in gaussians), key=lambda t: t.itemsize), sizes[0]
    means = torch.stack([g.mean.to(dtype).expand(*batch, d) for g in gaussians])
    return means, torch.stack([g.covariance.to(dtype).expand(*batch, d, d) for g in gaussians])


def _stacked(
    gaussians: Sequence[Gaussian], weights: Tensor | ArrayLike | None
) -> tuple[Tensor, Tensor, Tensor]:
    k = len(gaussians)
    if k < 2:
        raise InvalidInputError(f"gaussians must be two laws at least; found {k}. Pass a list.")
    means, covariances = _aligned(gaussians)
    lam = as_probabilities([1 / k] * k if weights is None else weights, "weights").to(means)
    if lam.shape != (k,):
        found = tuple(lam.shape)
        raise InvalidInputError(f"weights must have shape ({k},); found {found}. Pass one a law.")
    values = torch.linalg.eigvalsh(covariances[lam > 0])
    best = (values - _floor(values))[..., 0].amax(0)
    expected = "one covariance must be positive definite; the best smallest eigenvalue must be > 0"
    refuse(best <= 0, best, expected, "Add a multiple of the identity on purpose.")
    return means, _symmetric_root(covariances), lam


def _check_moments(mean: Tensor, covariance: Tensor) -> None:
    for x, name in ((mean, "mean"), (covariance, "covariance")):
        refuse(~x.isfinite(), x, f"{name} must be finite", "Look for the overflow upstream.")
    d = mean.shape[-1] if mean.ndim else 0
    if d == 0 or covariance.shape[-2:] != (d, d):
        raise InvalidInputError(
            "mean and covariance must have shapes (…, d) and (…, d, d), d >= 1; found "
            f"{tuple(mean.shape)} and {tuple(covariance.shape)}. A number is [m] and [[v]]."
        )
    fixed = covariance.detach()
    rounding = 8 * d * torch.finfo(fixed.dtype).eps * fixed.abs().amax((-2, -1), keepdim=True)
    skew, smallest = fixed - fixed.mT, torch.linalg.eigvalsh(fixed)[..., :1]
    expected = "covariance must be symmetric; S − Sᵀ must be 0"
    refuse(skew.abs() > rounding, skew, expected, "Symmetrise on purpose, (S + S.mT) / 2.")
    expected = "covariance must have no negative eigenvalue"
    refuse(smallest < -rounding[..., 0], smallest, expected, "Project it on purpose first.")
