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

_BLIND = 0.5
"""Violation, in spreads, that must be detectable: s = 0 is off by 1."""

_FEWEST = 8
"""Points or groups below which nothing is decided."""

_RESAMPLES, _BLOCKS = 999, 256
_POWERED = 0.84  # standard errors above the critical value at which 80 % are found


@dataclass(frozen=True, kw_only=True, eq=False)
class SteinCheck:
    """The two identities as measured, with standard errors, and the verdict.

    ``mean`` is E[s] and ``cross`` is E[s(x − x̄)ᵀ], a row for each s. ``largest_z`` is the largest
    deviation in standard errors, ``critical`` what chance reaches with probability ``level`` over
    all d + d² of them. ``largest_deviation`` is in units of each coordinate's spread: s = 0 has 1.
    ``detectable`` is the violation, in the same units, that these points show in 80 % of cases.

    ``outcome`` is *wrong* if a deviation exceeds ``tolerance`` plus what chance explains; *too few
    points* if none does, but a violation of half a spread could not have been seen either; else
    *ok*, which means no violation above ``detectable``. ``status`` is ``ok`` for the last alone.
    """

    mean: Float[Tensor, " d"]
    mean_error: Float[Tensor, " d"]
    cross: Float[Tensor, "d d"]
    cross_error: Float[Tensor, "d d"]
    largest_z: float
    largest_deviation: float
    critical: float
    tolerance: float
    detectable: float
    outcome: Literal["ok", "wrong", "too few points"]
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
    level: float = 0.05,
) -> SteinCheck:
    r"""Check that some vectors are the score, at some points, of the law these come from.

    .. math:: \Bigl|\tfrac1n \sum_i s_i\Bigr| \approx 0, \qquad
              \tfrac1n \sum_i s_i (x_i - \bar x)^\top \approx -I

    Parameters
    ----------
    score_values : s at each point.
    points : x, samples of the law whose score s claims to be.
    groups : prompt or image of each point; points of one group depend on one another, so groups
        are the units of standard errors and resamples.
    tolerance : systematic deviation that is forgiven, in units of each coordinate's spread. 0 for a
        plain test; a learned score is never exact, and enough points find that out.
    level : probability of calling the true score wrong, over all d + d² numbers together; at least
        0.01.

    Returns
    -------
    SteinCheck : *ok*, *wrong* with the number that failed, or *too few points*.

    Raises
    ------
    InvalidInputError
        If the shapes differ, there are fewer than 8 points or 4 groups, an entry is not finite, or
        a coordinate of the points never varies.

    Notes
    -----
    O(n d²), in float64. Standard errors of means over points, or of sums over groups
    (G/(G−1) Σ_g (Σ_{i∈g} v_i − n_g v̄)²/n²); the critical value is the quantile of the largest
    Student statistic over 999 resamples of the units (in at most 256 blocks), which a Student
    quantile with Bonferroni's division undercuts: products are skewed, and 8 or 16 groups then
    reject the true score in 10 % of cases at 5 % (``benchmarks/stein_null.py``). Deviations are
    compared after x_j/sd_j and s_j·sd_j, which leave the identities as they are. x is centred,
    which E[s] = 0 permits.

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
    if not (0.01 <= level < 1 and tolerance >= 0):
        raise InvalidInputError(
            f"level must lie in [0.01, 1) and tolerance be ≥ 0; found {level} and {tolerance}."
        )
    numbers = as_groups(groups, len(x), x.device, at_least=4)
    independent = len(x) if numbers is None else int(numbers.max()) + 1
    x = x - x.mean(0)
    # One table: its first column is E[s], the rest E[s xᵀ].
    factors = torch.cat([torch.ones_like(x[:, :1]), x], 1)
    moments, errors, sums, sizes = _moments(s, factors, numbers)
    critical = max(
        _largest_by_chance(sums, sizes, level), float(-stdtrit(independent - 1, level / 2))
    )
    spread = x.square().mean(0).sqrt()
    return _judged(moments, errors, spread, critical, tolerance, independent, numbers is not None)


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
) -> tuple[Tensor, Tensor, Float[Tensor, "blocks dk"], Float[Tensor, " blocks"]]:
    """Mean of s xᵀ, its standard error, and sums and sizes of blocks of units about the mean."""
    n, mean = len(s), s.mT @ x / len(s)
    units = torch.arange(n, device=s.device) % _BLOCKS if groups is None else groups
    count = int(units.max()) + 1
    sums, sizes = s.new_zeros(count, mean.numel()), torch.bincount(units, minlength=count).to(s)
    for unit in range(count):
        rows = units == unit
        sums[unit] = (s[rows].mT @ x[rows] - sizes[unit] * mean).flatten()
    if groups is None:
        square = s.square().mT @ x.square() / n - mean.square()
        errors = (square.clamp_min(0) / (n - 1)).sqrt()
    else:
        squares = sums.square().sum(0).reshape(mean.shape)
        errors = (squares * count / (count - 1)).sqrt() / n
    block = torch.arange(count, device=s.device) % _BLOCKS
    blocks = min(count, _BLOCKS)
    merged = s.new_zeros(blocks, mean.numel()).index_add_(0, block, sums)
    return mean, errors, merged, s.new_zeros(blocks).index_add_(0, block, sizes)


def _largest_by_chance(
    sums: Float[Tensor, "blocks k"], sizes: Float[Tensor, " blocks"], level: float
) -> float:
    """Quantile of the largest absolute Student statistic over resampled blocks."""
    blocks = len(sums)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(blocks, (_RESAMPLES, blocks), generator=generator).to(sums.device)
    once = torch.ones_like(drawn).to(sums)
    weights = sums.new_zeros(_RESAMPLES, blocks).scatter_add_(1, drawn, once)
    total = weights @ sums
    shift = total / (weights @ sizes)[:, None]
    squares = (
        weights @ sums.square()
        - 2 * shift * (weights @ (sums * sizes[:, None]))
        + shift.square() * (weights @ sizes.square())[:, None]
    )
    scale = weights @ sums.square()
    t = total.abs() / (squares * blocks / (blocks - 1)).sqrt()
    t = torch.where(squares > 1e-12 * scale, t, 0.0)
    return float(torch.quantile(t.amax(1), 1 - level, interpolation="higher"))


def _judged(
    moments: Float[Tensor, "d k"],
    errors: Float[Tensor, "d k"],
    spread: Float[Tensor, " d"],
    critical: float,
    tolerance: float,
    independent: int,
    grouped: bool,
) -> SteinCheck:
    """Compare the moments with 0 and −I, in units of the spread of each coordinate."""
    target = torch.cat([torch.zeros_like(spread)[:, None], -torch.eye(len(spread)).to(spread)], 1)
    units = spread[:, None] / torch.cat([torch.ones_like(spread[:1]), spread])
    deviation, error = (moments - target).abs() * units, errors * units
    detectable = tolerance + (critical + _POWERED) * float(error.max())
    outcome: Literal["ok", "wrong", "too few points"] = "ok"
    because = _failure(moments, target, errors, deviation - critical * error - tolerance)
    name = "groups" if grouped else "points"
    if independent < _FEWEST:
        outcome, because = "too few points", f"at least {_FEWEST} {name} are needed to decide"
    elif because:
        outcome = "wrong"
    elif detectable >= _BLIND:
        outcome, because = "too few points", "it is not refuted, but could hardly have been"
    if outcome == "too few points":
        because = (
            f"too few points: {because}. These {independent} {name} show violations above "
            f"{detectable:.2g} of a spread, and a score of zero is off by 1. Use more {name}."
        )
    return SteinCheck(
        mean=moments[:, 0],
        mean_error=errors[:, 0],
        cross=moments[:, 1:],
        cross_error=errors[:, 1:],
        largest_z=float((deviation / error).nan_to_num(0.0, torch.inf).max()),
        largest_deviation=float(deviation.max()),
        critical=critical,
        tolerance=tolerance,
        detectable=detectable,
        outcome=outcome,
        status="ok" if outcome == "ok" else "abstained",
        because=because,
    )


def _failure(moments: Tensor, target: Tensor, errors: Tensor, excess: Tensor) -> str:
    """Name the identity that fails by most, if one does."""
    if not float(excess.max()) > 0:
        return ""
    i, j = divmod(int(excess.argmax()), excess.shape[1])
    name = f"E[s_{i}]" if j == 0 else f"E[s_{i} x_{j - 1}]"
    return (
        f"wrong: {name} is {moments[i, j]:.4g} ± {errors[i, j]:.2g} and should be "
        f"{target[i, j]:.0f}: "
        "these are not the scores of the law these points come from."
    )
