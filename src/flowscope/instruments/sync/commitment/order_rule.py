r"""The order in which scales are decided, against that of a Gaussian with the same covariance.

Replicas are let go at steps $x_0 < x_1 < \dots$; $D(x)$ is the mean over pairs of the squared
distance of what they end as. The *decision step* of a scale is the mean step at which that
distance is lost,

$$
\tau = \frac{\sum_j \tfrac{x_j + x_{j+1}}2\,(D(x_j) - D(x_{j+1}))}{D(x_0) - D(x_{\rm last})} .
$$

It needs no fitted curve and lies in the run whenever $D$ falls. A sigmoid has no midpoint in the
run where the distance is lost at the very end, as that of fine detail is for Gaussians with the
spectrum of images. The gap is $\Delta\tau = \tau_{\rm fine} - \tau_{\rm coarse}$.

All gaps are taken in the same resamples of pairs, the control's too: its pairs meet the noise of
the model's. The error of the control's covariance, from groups of images left out in turn, is
added to each resample. The control is also made with the next lower and the next higher rank of the
covariance, and the interval is the union of theirs, so that a verdict does not hang on that choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import Counts, mean_over_prompts, percentile_interval, resampled_counts
from flowscope.evidence.bootstrap import expanded_level
from flowscope.records import Interval, Unavailable

__all__ = ["Order", "decision_steps", "order_table"]

Array = NDArray[np.float64]

_RESAMPLES = 2000
_POWER = 2.8  # deviations that a two-sided test at 5 % sees in 80 % of all cases


def decision_steps(steps: Array, distances: Array) -> Array:
    """Mean step at which distance is lost, from mean distances by the step of letting go.

    Parameters
    ----------
    steps
        Steps at which replicas were let go, rising.
    distances
        Mean distances there, along the last axis.

    Examples
    --------
    >>> decision_steps(np.array([0.0, 2.0, 4.0]), np.array([[3.0, 3.0, 0.0], [4.0, 2.0, 0.0]]))
    array([3., 2.])
    """
    amount, moment = _moments(steps, distances)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(moment / amount)


def _moments(steps: Array, distances: Array) -> tuple[Array, Array]:
    """Distance lost, and the same weighted by the step."""
    lost = distances[..., :-1] - distances[..., 1:]
    middle = (steps[1:] + steps[:-1]) / 2
    return lost.sum(-1), (lost * middle).sum(-1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Order:
    """Gaps of the model and of its control, with everything that is resampled together.

    Attributes
    ----------
    arrays
        As ``control.curve_arrays`` and ``control.control_arrays`` leave them; those of the control
        are missing where it could not be made.
    seed
        Of the resamples.
    """

    arrays: Mapping[str, NDArray[Any]]
    seed: int

    @property
    def controlled(self) -> bool:
        """Whether there is a control."""
        return "gaussian_coarse" in self.arrays

    @property
    def pairs(self) -> int:
        """Pairs of each curve."""
        return int(self.arrays["coarse"].shape[1])

    @cached_property
    def counts(self) -> Counts:
        """Resamples of pairs that all gaps share."""
        return resampled_counts(self.pairs, resamples=_RESAMPLES, seed=self.seed)

    @property
    def coupled(self) -> NDArray[np.bool_]:
        """Which curves are of coupled replicas."""
        return ~np.asarray(self.arrays["control"], bool)

    @cached_property
    def reasons(self) -> list[str]:
        """Why a curve has no gap, in the model or in the control; empty where it has one."""
        reasons = [""] * len(self.coupled)
        sides = [("", self._model)]
        if self.controlled:
            sides.append((" of the control", self._gaussian(0)))
        for whose, scales in sides:
            for scale, distances in zip(("coarse", "fine"), scales, strict=True):
                for curve, reason in enumerate(self._lacks(distances)):
                    reasons[curve] = reasons[curve] or reason.format(f"{scale} distance{whose}")
        return reasons

    def _lacks(self, distances: Array) -> list[str]:
        """Why each curve has no decision step."""
        steps = self.arrays["steps"]
        lost = _moments(steps, distances)[0].T
        _, interval = mean_over_prompts(lost, np.ones_like(lost), self.counts)
        low = np.full(len(distances), math.nan)
        if isinstance(interval, Interval):
            low = np.asarray(interval.low)
        times = decision_steps(steps, distances.mean(1))
        reasons = []
        for least, time in zip(low, times, strict=True):
            reason = ""
            if not least > 0:
                reason = "no transition: the {} does not fall beyond noise"
            elif not steps[0] <= time <= steps[-1]:
                reason = f"outside the run: the {{}} is lost at step {time:.3g}"
            reasons.append(reason)
        return reasons

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Which curves have a gap, in the model and in the control."""
        return np.asarray([not reason for reason in self.reasons])

    @property
    def _model(self) -> tuple[Array, Array]:
        return self.arrays["coarse"].astype(np.float64), self.arrays["fine"].astype(np.float64)

    def _gaussian(self, rank: int) -> tuple[Array, Array]:
        names = ("gaussian_coarse", "gaussian_fine")
        coarse, fine = (self.arrays[name][rank].astype(np.float64) for name in names)
        return coarse, fine

    def _points(self, scales: tuple[Array, Array]) -> Array:
        """Gap of every curve, over all pairs."""
        coarse, fine = (decision_steps(self.arrays["steps"], d.mean(1)) for d in scales)
        return fine - coarse

    def _draws(self, scales: tuple[Array, Array]) -> Array:
        """Gap of every curve in every resample of pairs."""
        times = []
        for distances in scales:
            amount, moment = _moments(self.arrays["steps"], distances)
            weights = self.counts.astype(np.float64)
            with np.errstate(invalid="ignore", divide="ignore"):
                times.append((weights @ moment.T) / (weights @ amount.T))
        return times[1] - times[0]

    @cached_property
    def gaps(self) -> tuple[Array, Array]:
        """Gap of every curve of the model, and in every resample."""
        return self._points(self._model), self._draws(self._model)

    @cached_property
    def controls(self) -> list[tuple[Array, Array]]:
        """The same of the control, for each rank of the covariance, with the error of that."""
        error = self._covariance_error()
        ranks = range(len(self.arrays["gaussian_coarse"]))
        scales = [self._gaussian(rank) for rank in ranks]
        return [(self._points(each), self._draws(each) + error) for each in scales]

    def _covariance_error(self) -> Array:
        """What another set of images would have changed in the control, a draw per resample."""
        coarse, fine = (
            decision_steps(self.arrays["steps"], self.arrays[f"without_{scale}"])
            for scale in ("coarse", "fine")
        )
        left_out = fine - coarse
        groups = len(left_out)
        away = np.nan_to_num(left_out - left_out.mean(0))
        generator = np.random.default_rng([self.seed, 2])
        normal = generator.standard_normal((_RESAMPLES, groups))
        student = np.sqrt((groups - 1) / generator.chisquare(groups - 1, size=_RESAMPLES))
        return np.asarray(math.sqrt((groups - 1) / groups) * student[:, None] * (normal @ away))

    def excesses(self, curves: NDArray[np.bool_]) -> list[tuple[float, Interval | Unavailable]]:
        """Mean gap of some curves less that of the control, for each rank."""
        point, draws = self.gaps
        found = []
        for null, null_draws in self.controls:
            value = float((point - null)[curves].mean())
            each = (draws - null_draws)[:, curves].mean(1, keepdims=True)
            interval = percentile_interval(np.array([value]), each, self.counts)
            found.append((value, interval))
        return found

    def excess(self, curves: NDArray[np.bool_]) -> tuple[float, Interval | Unavailable]:
        """Mean gap beyond the control; the interval is the union over the ranks."""
        each = self.excesses(curves)
        intervals = [interval for _, interval in each if isinstance(interval, Interval)]
        if len(intervals) < len(each):
            return each[0][0], Unavailable("one pair has no interval")
        low = min(float(np.asarray(interval.low)[0]) for interval in intervals)
        high = max(float(np.asarray(interval.high)[0]) for interval in intervals)
        if math.isnan(low) or math.isnan(high):
            return each[0][0], Unavailable("no resample gave a number")
        first = intervals[0]
        method = f"{first.method}, union over {len(each)} ranks of the covariance"
        return each[0][0], Interval(low=low, high=high, level=first.level, method=method)

    def mean_gap(self, curves: NDArray[np.bool_]) -> float:
        """Mean gap of some curves of the model."""
        return float(self.gaps[0][curves].mean())

    def control_gap(self, curves: NDArray[np.bool_]) -> float:
        """Mean gap of the same curves of the control."""
        return float(self.controls[0][0][curves].mean())

    def detectable(self, curves: NDArray[np.bool_]) -> float:
        """Steps beyond the control that would have been seen in four of five runs like this."""
        draws = (self.gaps[1] - self.controls[0][1])[:, curves].mean(1)
        values = [value for value, _ in self.excesses(curves)]
        return float(_POWER * np.nanstd(draws) + max(values) - min(values))


def order_table(order: Order, because: str = "") -> pd.DataFrame:
    """Gap of every curve beside that of the control; intervals hold for all couplings at once.

    Parameters
    ----------
    order
        Gaps and their resamples.
    because
        Why there is no control; empty where there is one.
    """
    size = len(order.coupled)
    absent = np.full(size, math.nan)
    columns: dict[str, Any] = {name: order.arrays[name] for name in ("label", "g", "control")}
    numbers = {"gap": order.gaps}
    if order.controlled:
        numbers["gaussian"] = order.controls[0]
        pair = zip(order.gaps, order.controls[0], strict=True)
        point, draws = (own - other for own, other in pair)
        numbers["excess"] = (point, draws)
    for name in ("gap", "gaussian", "excess"):
        low, high, p = absent.copy(), absent.copy(), absent.copy()
        value = absent
        if name in numbers:
            value, draws = numbers[name]
            value = np.where(order.measured, value, math.nan)
            for family in (order.coupled, ~order.coupled):
                chosen = family & order.measured
                if chosen.any():
                    low[chosen], high[chosen], p[chosen] = _joint(
                        value[chosen], draws[:, chosen], order.pairs
                    )
        columns |= {name: value, f"{name}_low": low, f"{name}_high": high}
        if name == "excess":
            columns["p"] = p
    table = pd.DataFrame(columns)
    table["n"] = order.pairs
    reasons = [because or reason for reason in order.reasons]
    absence = "no control" if because else "no transition"
    table["status"] = [absence if reason else "ok" for reason in reasons]
    table["because"] = reasons
    return table


def _joint(point: Array, draws: Array, pairs: int) -> tuple[Array, Array, Array]:
    """Ends of intervals that hold for all columns at once, and p values corrected for all."""
    spread = np.nanstd(draws, axis=0)
    spread = np.where(spread > 0, spread, math.inf)
    largest = np.nanmax(np.abs(draws - point) / spread, axis=1)
    critical = np.quantile(largest, expanded_level(pairs), method="higher")
    finite = np.where(np.isfinite(spread), spread, 0.0)
    # The widening of the level for few pairs, as a factor of deviations.
    widening = critical / max(float(np.quantile(largest, 0.95)), 1e-12)
    distance = np.abs(point) / (spread * widening)
    p = np.mean(np.r_[np.inf, largest] >= distance[:, None], axis=1)
    return point - critical * finite, point + critical * finite, p
