r"""Decide whether a flow forecasts more than the mean step of each layer does.

The *skill* of a forecast is
$1 - \sum \mathrm{TV}(\text{forecast}) / \sum \mathrm{TV}(\text{still})$ over held-out tokens and
layers, *still* being the forecast that nothing changes. A constant vector per layer has skill as
well, and it is no flow. So the effect is

$$ \mathrm{effect} = \mathrm{skill}(\text{flow}) - \max\{0, \mathrm{skill}(\text{mean drift})\}
   = \min_{\text{reference}} \frac{\sum_i (E_i^{\text{reference}} - E_i^{\text{flow}})}
     {\sum_i E_i^{\text{still}}}, $$

$i$ a prompt, the references being still and the mean drift. Either ratio $\rho$ is the mean of the
per-prompt effects $u_i = \rho + (g_i - \rho s_i) / \bar s$ (its linearisation), which an interval
of a mean can take. The *room* is the effect of the true coordinates: what a perfect flow in these
axes would gain. Where it is small the claim could not have held.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student

__all__ = [
    "LEAST_PROMPTS",
    "LEAST_ROOM",
    "STRENGTHS",
    "ForecastEffect",
    "decision_of",
    "forecast_effect",
    "linearised",
]

LEAST_ROOM = 0.02
LEAST_PROMPTS = 8
STRENGTHS = (0.05, 0.2, 0.5)

Array = NDArray[np.float64]
Outcome = Literal["holds", "fails", "uninformative", "abstains"]
Strength = Literal["negligible", "weak", "clear", "strong"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ForecastEffect:
    """The gain of the flow over the better of two references, with its interval over prompts.

    Attributes
    ----------
    effect, low, high
        The gain and its 95 % interval; NaN ends where fewer than two prompts moved.
    skills
        Skill of every forecast, by column of the table.
    reference
        max(0, skill of the mean drift).
    room
        The effect of the true coordinates in place of the flow.
    over_still, over_mean
        Per-prompt effects against either reference.
    """

    effect: float
    low: float
    high: float
    skills: Mapping[str, float]
    reference: float
    room: float
    over_still: Array
    over_mean: Array

    @property
    def share(self) -> float:
        """The effect as a share of the room."""
        return self.effect / self.room if self.room > 0 else float("nan")

    @property
    def strength(self) -> Strength:
        """How large a share of the room it is."""
        size = abs(self.share)
        names: tuple[Strength, ...] = ("negligible", "weak", "clear", "strong")
        return names[sum(size >= bound for bound in STRENGTHS)]


def linearised(gain: Array, scale: Array) -> Array:
    """Per-prompt values whose mean is Σ gain / Σ scale and whose spread is that of the ratio.

    >>> linearised(np.array([1.0, 2.0]), np.array([2.0, 2.0]))
    array([0.5, 1. ])
    """
    ratio = gain.sum() / scale.sum()
    values: Array = ratio + (gain - ratio * scale) / scale.mean()
    return values


def forecast_effect(table: pd.DataFrame) -> ForecastEffect:
    """The effect from a table of per-prompt total variation.

    Parameters
    ----------
    table
        ``adequacy_skill``: one row per prompt and segment, columns ``still``, ``mean_drift``,
        ``flow`` and ``floor`` (sums over tokens and layers), any further forecasts beside them.
        Segments of one prompt are added up.
    """
    names = [name for name in table.columns if name in _FORECASTS]
    sums = table.groupby("prompt")[names].sum(min_count=1)
    sums = sums[sums["still"] > 0]
    errors = {name: sums[name].to_numpy(np.float64) for name in names}
    still = errors["still"]
    references = [name for name in _REFERENCES if name in errors]
    skills = {name: 1 - float(e.sum() / still.sum()) for name, e in errors.items()}
    over = [linearised(errors[name] - errors["flow"], still) for name in references]
    spans = [_interval(values) for values in over]
    reference = max(skills[name] for name in references)
    return ForecastEffect(
        effect=min(float(values.mean()) for values in over),
        low=min(span[0] for span in spans),
        high=min(span[1] for span in spans),
        skills=skills,
        reference=reference,
        room=skills["floor"] - reference,
        over_still=over[0],
        over_mean=over[1],
    )


def decision_of(effect: ForecastEffect) -> Outcome:
    """What the effect says of the claim."""
    if len(effect.over_still) < LEAST_PROMPTS:
        return "abstains"
    if effect.room < LEAST_ROOM:
        return "uninformative"
    if effect.strength == "negligible":
        return "abstains"
    if effect.low > 0:
        return "holds"
    return "fails" if effect.high < 0 else "abstains"


_REFERENCES = ("still", "mean_drift", "scaled_drift")
_FORECASTS = (*_REFERENCES, "flow", "floor", "flow_half", "flow_shuffled")


def _interval(values: Array, level: float = 0.95) -> tuple[float, float]:
    """The interval of a mean over prompts: the one place to put another in."""
    if len(values) < 2:
        return float("nan"), float("nan")
    wide = student.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean() - wide), float(values.mean() + wide)
