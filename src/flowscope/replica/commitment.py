r"""When two replicas commit to one outcome: midpoints of sigmoids, or none (004 §3.1, Protocol I).

Replicas are coupled up to step $x$ and then let go; $y_i(x)$ is how far the outcomes of pair $i$
agree (it rises) or differ (it falls). The curve over pairs, their median or mean, is fitted by the
sigmoid of `sigmoid_fit`; its midpoint $\tau$ is the commitment time.

**Interval.** Pairs are resampled with replacement. The percentile interval of $n$ pairs is too
short by what separates normal from Student quantiles and $n$ from $n-1$; its tails are therefore
taken at $\Phi(-\sqrt{n/(n-1)}\,t_{n-1,\,1-\alpha/2})$ in place of $\alpha/2$.

**No transition.** A sigmoid can be laid through any noise, so the fit does not judge itself. The
amplitude is the mean of the curve over the last quarter of the steps less that over the first
quarter, a contrast fixed before looking, with the interval

$$
A \pm \sqrt{\frac n{n-1}}\;t_{n-1,\,1-\alpha/2}\;\operatorname{sd}(A^{\rm resampled}) .
$$

If it holds 0, or if the midpoint falls outside the scanned range in more than a fifth of the
resamples, there is no transition and the result says so; the midpoint is then NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.stats import norm, t

from flowscope.errors import InvalidInputError
from flowscope.replica.sigmoids import SigmoidFit, checked_curves, fitted_parameters

__all__ = [
    "CommitmentGap",
    "CommitmentTime",
    "commitment_gap",
    "commitment_time",
]

Array = NDArray[np.float64]
Status = Literal["ok", "no transition"]

_OUTSIDE = 0.2  # share of resamples whose midpoint may lie outside the scanned range
_FEWEST_PAIRS = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class CommitmentTime:
    """Midpoint of the transition over pairs, or that there is none.

    Attributes
    ----------
    status, because
        "ok", or "no transition" and why.
    midpoint, interval
        τ and its ends; NaN without a transition.
    amplitude, amplitude_interval
        Last quarter of the curve less the first; negative where the curve falls.
    fit
        Sigmoid of the curve over pairs.
    draws
        Midpoints of the resamples. Both are NaN where the amplitude is within noise: a sigmoid
        through noise says nothing.
    n, seed, level
        Pairs, seed of the resamples, coverage.
    """

    status: Status
    because: str
    midpoint: float
    interval: tuple[float, float]
    amplitude: float
    amplitude_interval: tuple[float, float]
    fit: SigmoidFit
    draws: Float[NDArray[np.float64], "resamples"]
    n: int
    seed: int
    level: float

    @property
    def width(self) -> float:
        """Width w of the transition; NaN where there is none."""
        return self.fit.width if self.status == "ok" else float("nan")


@dataclass(frozen=True, kw_only=True, eq=False)
class CommitmentGap:
    """Difference of two commitment times over the same pairs.

    Attributes
    ----------
    status, because
        "ok", or "no transition" and in which curve.
    value, interval
        Δτ and its ends; NaN where a transition is missing.
    n, level
        Pairs, coverage.
    """

    status: Status
    because: str
    value: float
    interval: tuple[float, float]
    n: int
    level: float


def commitment_time(
    steps: Float[NDArray[np.floating], "steps"],
    values: Float[NDArray[np.floating], "pairs steps"],
    *,
    resamples: int = 1000,
    seed: int = 0,
    statistic: Literal["median", "mean"] = "median",
    level: float = 0.95,
) -> CommitmentTime:
    r"""Commitment time of the curve over pairs, with its interval, or "no transition".

    Parameters
    ----------
    steps
        Intervention steps $x$, increasing, six at least.
    values
        $y_i(x)$, a row per pair: agreement or discrepancy.
    resamples
        Bootstrap resamples of pairs.
    seed
        Of the resamples; two curves of the same pairs with the same seed are resampled jointly.
    statistic
        How pairs make a curve: "median" as in 004, or "mean".
    level
        Coverage of both intervals.

    Raises
    ------
    InvalidInputError
        If shapes disagree, there are fewer than three pairs or six steps, or a value is not finite.

    Notes
    -----
    All resamples are fitted at once: below a second for 1000 of 20 steps.

    Examples
    --------
    >>> x = np.linspace(0, 100, 21)
    >>> noise = 0.1 * np.random.default_rng(0).standard_normal((32, 21))
    >>> found = commitment_time(x, 1 / (1 + np.exp(-(x - 60) / 8)) + noise, resamples=200)
    >>> found.status, found.interval[0] < 60 < found.interval[1]
    ('ok', True)
    >>> commitment_time(x, noise, resamples=200).status
    'no transition'
    """
    scanned, rows = checked_curves(steps, np.asarray(values, dtype=np.float64))
    n = len(rows)
    if n < _FEWEST_PAIRS or resamples < 20 or not 0 < level < 1:
        raise InvalidInputError(
            f"a commitment time needs {_FEWEST_PAIRS} pairs, 20 resamples and a level in (0, 1); "
            f"got {n}, {resamples} and {level}."
        )
    if statistic not in ("median", "mean"):
        raise InvalidInputError(f'statistic must be "median" or "mean"; got {statistic!r}.')
    curve = np.median(rows, 0) if statistic == "median" else rows.mean(0)
    curves = _resampled_curves(rows, resamples, seed, statistic)
    amplitude = float(_amplitude(curve[None])[0])
    reach = _reach(n, level) * float(_amplitude(curves).std())
    spread = (amplitude - reach, amplitude + reach)
    because, draws = _within_noise(amplitude, spread), np.full(resamples, np.nan)
    fit = SigmoidFit(*[float("nan")] * 5)
    if not because:
        fit = SigmoidFit(*fitted_parameters(scanned, curve[None])[0].tolist())
        draws = fitted_parameters(scanned, curves)[:, 2]
        because = _not_placed(scanned, fit.midpoint, draws)
    nan = float("nan")
    return CommitmentTime(
        status="no transition" if because else "ok",
        because=because,
        midpoint=nan if because else fit.midpoint,
        interval=(nan, nan) if because else _interval(draws, n, level),
        amplitude=amplitude,
        amplitude_interval=spread,
        fit=fit,
        draws=draws,
        n=n,
        seed=seed,
        level=level,
    )


def commitment_gap(fine: CommitmentTime, coarse: CommitmentTime) -> CommitmentGap:
    r"""Gap of the outcomes, $\Delta\tau = \tau_{\rm fine} - \tau_{\rm coarse}$ (eq 73).

    Parameters
    ----------
    fine, coarse
        Of the same pairs, with the same seed and number of resamples: what the pairs have in common
        stays in common.

    Raises
    ------
    InvalidInputError
        If they were resampled differently.

    Examples
    --------
    >>> x = np.linspace(0, 100, 21)
    >>> noise = 0.1 * np.random.default_rng(0).standard_normal((32, 21))
    >>> late, early = (
    ...     commitment_time(x, 1 / (1 + np.exp(-(x - at) / 8)) + noise, resamples=200)
    ...     for at in (70, 40)
    ... )
    >>> abs(commitment_gap(late, early).value - 30) < 3
    True
    """
    same = (fine.n, fine.seed, len(fine.draws), fine.level)
    if same != (coarse.n, coarse.seed, len(coarse.draws), coarse.level):
        raise InvalidInputError(
            "both times must rest on the same pairs, seed, number of resamples and level; found "
            f"{same} and {(coarse.n, coarse.seed, len(coarse.draws), coarse.level)}."
        )
    missing = [
        f"{name}: {found.because}"
        for name, found in (("fine", fine), ("coarse", coarse))
        if found.status != "ok"
    ]
    nan = float("nan")
    return CommitmentGap(
        status="no transition" if missing else "ok",
        because="; ".join(missing),
        value=nan if missing else fine.midpoint - coarse.midpoint,
        interval=(nan, nan)
        if missing
        else _interval(fine.draws - coarse.draws, fine.n, fine.level),
        n=fine.n,
        level=fine.level,
    )


def _within_noise(amplitude: float, spread: tuple[float, float]) -> str:
    """Why there is no transition to place; empty if there is one."""
    if not spread[0] <= 0 <= spread[1]:
        return ""
    return (
        f"the amplitude {amplitude:.3g} is within noise: its interval "
        f"[{spread[0]:.3g}, {spread[1]:.3g}] holds 0"
    )


def _not_placed(x: Array, midpoint: float, draws: Array) -> str:
    """Why the transition has no place among the steps; empty if it has."""
    outside = float(np.mean((draws < x[0]) | (draws > x[-1])))
    if outside <= _OUTSIDE and x[0] <= midpoint <= x[-1]:
        return ""
    return (
        f"the midpoint {midpoint:.3g} is not placed by steps {x[0]:g} to {x[-1]:g}: it falls "
        f"outside in {outside:.0%} of the resamples"
    )


def _resampled_curves(rows: Array, resamples: int, seed: int, statistic: str) -> Array:
    """Curve over pairs of every resample; the drawn pairs depend on seed and their number only."""
    generator = np.random.default_rng(seed)
    drawn = generator.integers(0, len(rows), size=(resamples, len(rows)))
    if statistic == "mean":
        counts = np.zeros((resamples, len(rows)))
        np.add.at(counts, (np.arange(resamples)[:, None], drawn), 1.0)
        return np.asarray(counts @ rows / len(rows))
    panel = max(1, 2**22 // rows.size)
    parts = [
        np.median(rows[drawn[start : start + panel]], 1) for start in range(0, resamples, panel)
    ]
    return np.concatenate(parts)


def _amplitude(curves: Float[NDArray[np.float64], "curves steps"]) -> Array:
    quarter = max(1, curves.shape[1] // 4)
    return np.asarray(curves[:, -quarter:].mean(1) - curves[:, :quarter].mean(1))


def _reach(n: int, level: float) -> float:
    """Student quantile of n pairs, in units of the spread of resamples."""
    return float(np.sqrt(n / (n - 1)) * t.ppf((1 + level) / 2, n - 1))


def _interval(draws: Array, n: int, level: float) -> tuple[float, float]:
    """Percentile interval, widened for the number of pairs."""
    tail = float(norm.cdf(-_reach(n, level)))
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)
