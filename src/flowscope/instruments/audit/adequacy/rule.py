r"""What a flow forecasts beyond references that need no flow.

The *skill* of a forecast is
$1 - \sum \mathrm{TV}(\text{forecast}) / \sum \mathrm{TV}(\text{still})$ over held-out tokens and
layers, *still* being the forecast that nothing changes. A constant vector per layer has skill as
well, and so has one rate per layer at which states return to their mean: random networks do that,
since every layer adds something unrelated and a norm shrinks what was there. A lookup of the mean
path of the same token and the same position has skill too, since a network may move a token by its
name and its place alone. None of these is a flow. So

$$ \mathrm{effect} = \mathrm{skill}(\text{flow})
   - \max\{0, \mathrm{skill}(\text{mean step}), \mathrm{skill}(\text{mean step and scale}),
   \mathrm{skill}(\text{lookup})\}
   = \min_{\text{reference}} \frac{\sum_i (E_i^{\text{reference}} - E_i^{\text{flow}})}
     {\sum_i E_i^{\text{still}}}, $$

$i$ a prompt. The *room* is the effect of the true coordinates: what a perfect flow in these axes
would gain. Where it is small the claim could not have held.

What each reference takes away (`benchmarks/forecast_panel.py`): an untrained Llama of 24 layers
beats the mean step and not the scale; an untrained GPT-2 network beats both and not the lookup.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.evidence.intervals import single
from flowscope.evidence.means import RESAMPLES
from flowscope.records import Interval, Unavailable

__all__ = ["FORECASTS", "REFERENCES", "ForecastEffect", "copies", "forecast_effect", "integrated"]

REFERENCES = {
    "still": "“nothing changes”",
    "mean_drift": "the mean step of each layer",
    "scaled_drift": "a shift and a scale per layer",
    "lookup": "a lookup by token and position",
}
"""Columns of ``adequacy_skill`` that a flow has to beat, in words."""

FORECASTS = (*REFERENCES, "flow", "floor", "flow_half", "flow_shuffled")
"""Columns of ``adequacy_skill`` that hold errors of a forecast."""

_LEVEL = 0.95
_DIGITS = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class ForecastEffect:
    """The gain of the flow over the best of its references, with its interval over prompts.

    Attributes
    ----------
    effect, interval
        The gain and its 95 % interval.
    skills
        Skill of every forecast, by column of the table; one that stopped somewhere is left out.
    spans
        Interval of each skill.
    reference
        Column of the best reference.
    room
        The effect of the true coordinates in place of the flow.
    prompts
        How many prompts moved.
    """

    effect: float
    interval: Interval | Unavailable
    skills: Mapping[str, float]
    spans: Mapping[str, Interval | Unavailable]
    reference: str
    room: float
    prompts: int

    @property
    def share(self) -> float:
        """The effect as a share of the room; NaN where there is none."""
        return self.effect / self.room if self.room > 0 else math.nan

    def beyond(self, forecast: str) -> float | Unavailable:
        """Skill of another forecast beyond that of the best reference."""
        if forecast not in self.skills:
            return Unavailable(f"the forecast {forecast} stopped")
        return self.skills[forecast] - self.skills[self.reference]


def integrated(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of segments on which the flow could be integrated for every prompt."""
    ends = ["first_layer", "last_layer"]
    whole = table["flow"].notna().groupby([table[end] for end in ends]).transform("all")
    return table[whole]


def copies(table: pd.DataFrame) -> int:
    """How many prompts move exactly like another one: a copy has been seen in the fit."""
    still = table.groupby("prompt")["still"].sum()
    return len(still) - len({f"{value:.{_DIGITS}e}" for value in still})


def forecast_effect(table: pd.DataFrame, *, seed: int = 0) -> ForecastEffect | Unavailable:
    r"""The effect from a table of total variation per prompt, or why there is none.

    Parameters
    ----------
    table
        ``adequacy_skill``: one row per prompt and segment, columns of `FORECASTS` (sums over
        tokens and layers). Segments of one prompt are added up.
    seed
        Of the resamples of prompts.

    Notes
    -----
    The effect is the least of K gains. Its lower end is the least lower end. Its upper end is the
    least upper end, each at the level of one of K comparisons: the least gain then lies above it in
    at most 2.5 % of all samples.
    """
    names = [name for name in FORECASTS if name in table]
    sums = table.groupby("prompt")[names].sum()
    stopped = table[names].isna().groupby(table["prompt"]).any()
    sums = sums.mask(stopped)[sums["still"] > 0]
    if sums.empty:
        return Unavailable("the output does not change on these layers")
    errors = {name: sums[name].to_numpy(np.float64) for name in names}
    errors = {name: values for name, values in errors.items() if np.isfinite(values).all()}
    still = errors["still"]
    skills = {name: 1 - float(values.sum() / still.sum()) for name, values in errors.items()}
    references = [name for name in REFERENCES if name in skills]
    best = max(references, key=skills.__getitem__)
    gains = np.stack([errors[name] - errors["flow"] for name in references], 1)
    return ForecastEffect(
        effect=skills["flow"] - skills[best],
        interval=_least(gains, still, seed),
        skills=skills,
        spans={name: single(_mean(still - e, still, seed)) for name, e in errors.items()},
        reference=best,
        room=skills["floor"] - skills[best],
        prompts=len(still),
    )


def _least(
    gains: NDArray[np.float64], still: NDArray[np.float64], seed: int
) -> Interval | Unavailable:
    """Interval of the least of several ratios of sums."""
    sizes = np.repeat(still[:, None], gains.shape[1], 1)
    strict = 1 - (1 - _LEVEL) / gains.shape[1]
    wide, wider = (_mean(gains, sizes, seed, level) for level in (_LEVEL, strict))
    if isinstance(wide, Unavailable) or isinstance(wider, Unavailable):
        return Unavailable("one prompt has no interval")
    return Interval(
        low=float(np.min(wide.low)),
        high=float(np.min(wider.high)),
        level=_LEVEL,
        method=f"{wide.method}, least of {gains.shape[1]} gains",
    )


def _mean(
    sums: NDArray[np.float64], sizes: NDArray[np.float64], seed: int, level: float = _LEVEL
) -> Interval | Unavailable:
    s, n = (x.reshape(len(x), -1) for x in (sums, sizes))
    counts = resampled_counts(len(s), resamples=RESAMPLES, seed=seed)
    return mean_over_prompts(s, n, counts, level=level)[1]
