r"""Is this the score of these points? Stein's identities answer without a density.

.. math:: \mathbb E[s] = 0, \qquad \mathbb E[s\,x^\top] = -I

hold for s = ∇log p and x from p. Source 000 M.2 asks for |∇·(ps)| < 10⁻³ instead, which the true
score of N(0, 1) fails and s = 0 passes (errata E43). The points must be those of the law whose
score it is: for a score learned at noise σ, *noised* points.

The identities are necessary, not sufficient. They read s against 1 and x only, and the score of the
Gaussian with the law's own mean and covariance obeys them for *every* law, however far it is from
the true one: they find a wrong scale, sign, shift or axis, not a missing non-linear part.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int64
from scipy.special import stdtrit
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.score.samples import as_groups, as_points, check_moving, check_shape, drawn
from flowscope.simplex.probability import ArrayLike

__all__ = [
    "AnisotropySpectrum",
    "SteinCheck",
    "anisotropy_spectrum",
    "noised_stein_identities",
    "stein_identities",
]

# Deviations that could not be told from this size leave s = 0 and the true score undecided.
_BLIND = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class SteinCheck:
    """The two identities as measured, with standard errors, and the verdict.

    ``mean`` is E[s] and ``cross`` is E[s(x − x̄)ᵀ], a row for each s. ``largest_z`` is the largest
    deviation in standard errors, ``critical`` what chance reaches with probability ``level`` over
    all d + d² of them. ``largest_deviation`` is in units of each coordinate's spread: s = 0 has 1.
    The check is passed if every deviation is below ``tolerance`` plus what chance explains; it
    abstains otherwise, or if there are too few points to tell s = 0 from a score.
    """

    mean: Float[Tensor, " d"]
    mean_error: Float[Tensor, " d"]
    cross: Float[Tensor, "d d"]
    cross_error: Float[Tensor, "d d"]
    largest_z: float
    largest_deviation: float
    critical: float
    tolerance: float
    status: Literal["ok", "abstained"]
    because: str


@dataclass(frozen=True, kw_only=True, eq=False)
class AnisotropySpectrum:
    """Eigenvalues of E[s sᵀ], the largest first, and how many directions they span.

    ``effective_rank`` is the exponential of the entropy of the normalised eigenvalues, between 1
    and d; ``condition`` the ratio of the largest to the smallest. ``abstained`` if a direction has
    no score at all.
    """

    eigenvalues: Float[Tensor, " d"]
    effective_rank: float
    condition: float
    rank: int
    status: Literal["ok", "abstained"]
    because: str


def stein_identities(
    score_values: Float[Tensor, "n d"] | ArrayLike,
    points: Float[Tensor, "n d"] | ArrayLike,
    *,
    groups: Int64[Tensor, " n"] | ArrayLike | None = None,
    tolerance: float = 0.05,
    level: float = 1e-3,
) -> SteinCheck:
    r"""Check that some vectors are the score, at some points, of the law these come from.

    .. math:: \Bigl|\tfrac1n \sum_i s_i\Bigr| \approx 0, \qquad
              \tfrac1n \sum_i s_i (x_i - \bar x)^\top \approx -I

    Parameters
    ----------
    score_values : s at each point.
    points : x, samples of the law whose score s claims to be.
    groups : prompt or image of each point; standard errors are then those of groups.
    tolerance : systematic deviation that is forgiven, in units of each coordinate's spread. 0 for a
        plain test; a learned score is never exact, and enough points find that out.
    level : probability of failing the true score, over all d + d² numbers together.

    Returns
    -------
    SteinCheck : ``ok`` or ``abstained``, with the number that failed.

    Raises
    ------
    InvalidInputError
        If the shapes differ, there are fewer than 8 points or 4 groups, an entry is not finite, or
        a coordinate of the points never varies.

    Notes
    -----
    O(n d²), in float64. Standard errors of means over points, or of sums over groups
    (G/(G−1) Σ_g (Σ_{i∈g} v_i − n_g v̄)²/n²); the critical value is Student's with as many degrees of
    freedom and Bonferroni's division. Deviations are compared after x_j/sd_j and s_j·sd_j, which
    leave the identities as they are. x is centred, which E[s] = 0 permits.

    Examples
    --------
    >>> x = torch.randn(2000, 2, generator=torch.Generator().manual_seed(0))
    >>> stein_identities(-x, x).status, stein_identities(0 * x, x).status
    ('ok', 'abstained')
    """
    x = as_points(points, "points", at_least=8).detach().double()
    s = as_points(score_values, "score_values").detach().double()
    check_shape(s, tuple(x.shape), "score_values", "points")
    check_moving(x, "points")
    if not (0 < level < 1 and tolerance >= 0):
        raise InvalidInputError(
            f"level must lie in (0, 1) and tolerance be ≥ 0; found {level} and {tolerance}."
        )
    numbers = as_groups(groups, len(x), x.device, at_least=4)
    independent = len(x) if numbers is None else int(numbers.max()) + 1
    x = x - x.mean(0)
    # One table: its first column is E[s], the rest E[s xᵀ].
    moments, errors = _moments(s, torch.cat([torch.ones_like(x[:, :1]), x], 1), numbers)
    critical = float(-stdtrit(independent - 1, level / (2 * moments.numel())))
    return _judged(moments, errors, x.square().mean(0).sqrt(), critical, tolerance)


def noised_stein_identities(
    score: Callable[[Tensor], Tensor],
    points: Float[Tensor, "n d"] | ArrayLike,
    sigma: float,
    *,
    groups: Int64[Tensor, " n"] | ArrayLike | None = None,
    tolerance: float = 0.05,
    generator: torch.Generator,
) -> SteinCheck:
    r"""Check a score learned at noise σ: at noised points, whose law it belongs to.

    .. math:: \mathbb E[s(x + \sigma\varepsilon)] = 0, \qquad
              \mathbb E[s(x + \sigma\varepsilon)(x + \sigma\varepsilon)^\top] = -I

    Parameters
    ----------
    score : s(x), a function of points alone: fix σ and t, ``lambda x: found(x, sigma, t)``.
    points : x before noise, best such as the score was not fitted to.
    sigma : σ > 0, absolute.
    groups, tolerance : as in :func:`stein_identities`.
    generator : draws ε.

    Returns
    -------
    SteinCheck : see there.

    Raises
    ------
    InvalidInputError
        If σ ≤ 0, or as :func:`stein_identities`.

    Notes
    -----
    O(n d²) and one evaluation of the score. At clean points the same score fails.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(4000, 1, generator=generator)
    >>> noised_stein_identities(lambda x: -x / 2, x, 1.0, generator=generator).status
    'ok'
    """
    if not sigma > 0:
        raise InvalidInputError(f"sigma must be > 0; found {sigma:.6g}.")
    clean = as_points(points, "points", at_least=8).detach()
    noised = clean + sigma * drawn(clean, generator)
    return stein_identities(score(noised), noised, groups=groups, tolerance=tolerance)


def anisotropy_spectrum(score_values: Float[Tensor, "n d"] | ArrayLike) -> AnisotropySpectrum:
    r"""Spectrum of the second moment of a score: which directions it covers, and how evenly.

    .. math:: \mathbb E[s s^\top] = \sum_k \lambda_k v_k v_k^\top, \qquad
              r = \exp\Bigl(-\sum_k \hat\lambda_k \log \hat\lambda_k\Bigr), \quad
              \hat\lambda = \lambda / \textstyle\sum \lambda

    Parameters
    ----------
    score_values : s, one row a point.

    Raises
    ------
    InvalidInputError
        If the values are not finite, all zero, or fewer than d.

    Notes
    -----
    O(n d² + d³), in float64. Source 000 M.2: anisotropy and coverage; for a Gaussian law E[ssᵀ] is
    the inverse covariance. A direction counts if its eigenvalue is above d·eps of the largest,
    eps that of the dtype that came in.

    Examples
    --------
    >>> anisotropy_spectrum([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]]).condition
    4.0
    """
    s = as_points(score_values, "score_values").detach()
    n, d = s.shape
    if n < d:
        raise InvalidInputError(
            f"score_values must hold at least as many points as coordinates; found {n} points in "
            f"{d} dimensions, which span a subspace whatever the score is."
        )
    eigenvalues = torch.linalg.eigvalsh(s.double().mT @ s.double() / n).flip(0).clamp_min(0)
    if not float(eigenvalues[0]) > 0:
        raise InvalidInputError("score_values must not all be zero; found a score that is.")
    rank = int((eigenvalues > d * torch.finfo(s.dtype).eps * eigenvalues[0]).sum())
    shares = eigenvalues / eigenvalues.sum()
    because = f"the score spans {rank} of {d} directions." if rank < d else ""
    return AnisotropySpectrum(
        eigenvalues=eigenvalues,
        effective_rank=float(torch.special.entr(shares).sum().exp()),
        condition=float(eigenvalues[0] / eigenvalues[-1]),
        rank=rank,
        status="abstained" if because else "ok",
        because=because,
    )


def _moments(
    s: Float[Tensor, "n d"], x: Float[Tensor, "n k"], groups: Int64[Tensor, " n"] | None
) -> tuple[Float[Tensor, "d k"], Float[Tensor, "d k"]]:
    """Mean of s xᵀ and its standard error, over points or over groups."""
    n = len(s)
    mean = s.mT @ x / n
    if groups is None:
        square = s.square().mT @ x.square() / n - mean.square()
        return mean, (square.clamp_min(0) / (n - 1)).sqrt()
    total, count = torch.zeros_like(mean), int(groups.max()) + 1
    for group in range(count):
        rows = groups == group
        total += (s[rows].mT @ x[rows] - int(rows.sum()) * mean).square()
    return mean, (total * count / (count - 1)).sqrt() / n


def _judged(
    moments: Float[Tensor, "d k"],
    errors: Float[Tensor, "d k"],
    spread: Float[Tensor, " d"],
    critical: float,
    tolerance: float,
) -> SteinCheck:
    """Compare the moments with 0 and −I, in units of the spread of each coordinate."""
    target = torch.cat([torch.zeros_like(spread)[:, None], -torch.eye(len(spread)).to(spread)], 1)
    units = spread[:, None] / torch.cat([torch.ones_like(spread[:1]), spread])
    deviation, noise = (moments - target).abs() * units, critical * errors * units
    because = _failure(moments, target, errors, deviation - noise - tolerance)
    if not because and float(noise.max()) >= _BLIND:
        because = (
            f"too few points: chance alone may move the identities by {noise.max():.2g} of a "
            "spread, and a score of zero is off by 1. Use more points, or more groups."
        )
    return SteinCheck(
        mean=moments[:, 0],
        mean_error=errors[:, 0],
        cross=moments[:, 1:],
        cross_error=errors[:, 1:],
        largest_z=float((critical * deviation / noise).nan_to_num(0.0, torch.inf).max()),
        largest_deviation=float(deviation.max()),
        critical=critical,
        tolerance=tolerance,
        status="abstained" if because else "ok",
        because=because,
    )


def _failure(moments: Tensor, target: Tensor, errors: Tensor, excess: Tensor) -> str:
    """Name the identity that fails by most, if one does."""
    if not float(excess.max()) > 0:
        return ""
    i, j = divmod(int(excess.argmax()), excess.shape[1])
    name = f"E[s_{i}]" if j == 0 else f"E[s_{i} x_{j - 1}]"
    return (
        f"{name} is {moments[i, j]:.4g} ± {errors[i, j]:.2g} and should be {target[i, j]:.0f}: "
        "these are not the scores of the law these points come from."
    )
