r"""Intervals from resamples: bias-corrected and accelerated, or plain percentiles and said so.

.. math:: \alpha_\pm = \Phi\Big(z_0 + \frac{z_0 \pm z}{1 - \hat a\,(z_0 \pm z)}\Big), \qquad
          z_0 = \Phi^{-1}\big(\#\{T^\star < T\}/B\big), \qquad
          \hat a = \frac{\sum_g (\bar T - T_{-g})^3}{6\,(\sum_g (\bar T - T_{-g})^2)^{3/2}} .

The ends are the α-quantiles of the draws. Where every draw lies on one side of the point, or the
leave-one-out values do not vary, z₀ or â does not exist and the interval says that it is a
percentile interval.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = ["Bounds", "bca_interval", "no_interval"]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """An interval, the level it was made for, and how it was made.

    Attributes
    ----------
    low, high
        Ends; NaN where there is no interval.
    level
        Coverage aimed at.
    method
        ``"bca"``, ``"percentile: …"`` with the reason for the fallback, or ``"none: …"``.
    """

    low: float
    high: float
    level: float
    method: str

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def no_interval(because: str, level: float) -> Bounds:
    """Absent interval that says why.

    Parameters
    ----------
    because : the reason, as the end of a sentence.
    level : the level it would have had.

    Examples
    --------
    >>> no_interval("a gridded field has no sampling error", 0.95).method
    'none: a gridded field has no sampling error'
    """
    return Bounds(low=math.nan, high=math.nan, level=level, method=f"none: {because}")


def bca_interval(
    point: float,
    draws: Float64[Tensor, "B"],
    jackknife: Float64[Tensor, "G"],
    level: float = 0.95,
) -> Bounds:
    r"""BCa interval of a statistic, from its resamples and its leave-one-out values.

    .. math:: \big[T^\star_{(\alpha_-)},\, T^\star_{(\alpha_+)}\big]

    Parameters
    ----------
    point : T, the statistic of the whole sample.
    draws : T*, one per resample of the units.
    jackknife : T_{−g}, the statistic without unit g.
    level : coverage aimed at; z = Φ⁻¹((1 + level)/2).

    Raises
    ------
    InvalidInputError
        If the level is not between 0 and 1, there are fewer than 20 draws, or a value is not
        finite.

    Notes
    -----
    O(B log B). Efron (1987), JASA 82:171, eqs 2.3 and 6.6; ties of a draw with the point count
    half. Quantiles interpolate linearly between order statistics.

    Examples
    --------
    >>> draws = torch.linspace(-1, 1, 1000, dtype=torch.float64)
    >>> flat = bca_interval(0.0, draws, torch.tensor([-1.0, 0.0, 1.0]).double(), 0.9)
    >>> round(flat.low, 6), round(flat.high, 6), flat.method
    (-0.9, 0.9, 'bca')
    """
    _check(point, draws, jackknife, level)
    tail = (1 - level) / 2
    below = (draws < point).double().mean() + 0.5 * (draws == point).double().mean()
    influence = (jackknife.double().mean() - jackknife.double()).cpu()
    spread = influence.square().sum()
    if not 0 < float(below) < 1:
        return _ends(draws, tail, 1 - tail, level, "percentile: all draws on one side of the point")
    if float(spread) <= 1e-24 * max(1.0, point**2):
        return _ends(draws, tail, 1 - tail, level, "percentile: leave-one-out values do not vary")
    influence = influence / influence.abs().max()  # the ratio has no unit, its powers do
    acceleration = float(influence.pow(3).sum() / (6 * influence.square().sum() ** 1.5))
    shift, z = _quantile(float(below)), _quantile(1 - tail)
    alpha = []
    for end in (shift - z, shift + z):
        if 1 - acceleration * end <= 0:
            return _ends(draws, tail, 1 - tail, level, "percentile: acceleration too large for BCa")
        alpha.append(_normal(shift + end / (1 - acceleration * end)))
    return _ends(draws, alpha[0], alpha[1], level, "bca")


def _check(point: float, draws: Tensor, jackknife: Tensor, level: float) -> None:
    if not 0 < level < 1:
        raise InvalidInputError(
            f"level must lie between 0 and 1; found {level}. Pass 0.95 for a 95 % interval."
        )
    if draws.ndim != 1 or len(draws) < 20:
        raise InvalidInputError(
            f"draws must be a vector of at least 20 resamples; found shape {tuple(draws.shape)}. "
            "Draw more; 1,000 are usual."
        )
    for values, name in ((draws, "draws"), (jackknife, "jackknife")):
        if not bool(values.isfinite().all()):
            raise InvalidInputError(
                f"{name} must be finite; found {int((~values.isfinite()).sum())} values that are "
                "not. Abstain, or leave out a statistic that is undefined on resamples."
            )
    if not math.isfinite(point):
        raise InvalidInputError(f"point must be finite; found {point}. Abstain instead.")


def _ends(draws: Tensor, low: float, high: float, level: float, method: str) -> Bounds:
    at = torch.tensor([low, high], dtype=draws.dtype, device=draws.device)
    ends = torch.quantile(draws, at).tolist()
    return Bounds(low=ends[0], high=ends[1], level=level, method=method)


def _normal(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def _quantile(p: float) -> float:
    return float(torch.special.ndtri(torch.tensor(p, dtype=torch.float64)))
