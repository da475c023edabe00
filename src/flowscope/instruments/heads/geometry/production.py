"""How far the heads are from equilibrium, and how far from a reference, from arrays alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import Counts, percentile_interval
from flowscope.evidence.intervals import single
from flowscope.records import Interval, Measurement, Unavailable

__all__ = ["Irreversibility", "Reference", "irreversibility"]


Reference = Literal["random weights", "keys permuted"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Irreversibility:
    """The numbers the verdict on the heads is judged by."""

    production: Measurement
    null: Measurement | Unavailable
    effect: float | Unavailable
    interval: Interval | Unavailable
    labels: dict[str, int]


def irreversibility(
    values: NDArray[np.float64],
    reference: Reference,
    twin: NDArray[np.float64] | Unavailable,
    table: pd.DataFrame,
    counts: Counts,
    few_counts: Counts,
    *,
    seed: int,
) -> Irreversibility:
    """Median over heads of their mean entropy production, and its distance to a reference.

    The distance is taken on the prompts that both have read, resample by resample.

    Parameters
    ----------
    values
        Entropy production of the model, a row per prompt and a column per head.
    reference, twin
        What the model is compared with, and its entropy production on the first prompts.
    table
        One row per head, with ``label`` and ``because``.
    counts, few_counts
        Resampled prompts: all of them, and those of the reference.
    seed
        Of the resamples.
    """
    labels = {str(name): int(n) for name, n in table["label"].value_counts().items()}
    name = "median entropy production"
    point, draws = _medians(values, counts)
    absent = Unavailable("no head could be measured")
    if not np.isfinite(point):
        reasons = [r for r in table["because"] if r]
        silent = Measurement.abstained(name, reasons[0] if reasons else absent.reason)
        return Irreversibility(
            production=silent, null=absent, effect=absent, interval=absent, labels=labels
        )
    shown = {"unit": "nat per step", "dtype": "float64", "seed": seed}
    estimator = "median over heads of the mean over prompts"
    interval = single(percentile_interval(np.asarray([point]), draws[:, None], counts))
    production = Measurement(
        name=name, values=np.asarray(point), n=len(values), estimator=estimator,
        interval=interval, **shown,  # type: ignore[arg-type]
    )  # fmt: skip
    if isinstance(twin, Unavailable):
        return Irreversibility(
            production=production, null=twin, effect=twin, interval=twin, labels=labels
        )
    under, under_draws = _medians(twin, few_counts)
    own, own_draws = _medians(values[: len(twin)], few_counts)
    gap = np.asarray([own - under])
    return Irreversibility(
        production=production,
        null=Measurement(
            name=f"{name}, {reference}", values=np.asarray(under), n=len(twin),
            estimator=estimator, interval=Unavailable("shown by the interval of the difference"),
            **shown,  # type: ignore[arg-type]
        ),
        effect=float(gap[0]),
        interval=single(percentile_interval(gap, (own_draws - under_draws)[:, None], few_counts)),
        labels=labels,
    )  # fmt: skip


def _medians(values: NDArray[np.float64], counts: Counts) -> tuple[float, NDArray[np.float64]]:
    """Median over columns of their means, for all rows and for every resample of them."""
    known = np.isfinite(values)
    filled = np.where(known, values, 0.0)
    told = known.any(0)
    if not told.any():
        return float("nan"), np.full(len(counts), np.nan)
    with np.errstate(invalid="ignore"):
        point = np.median((filled.sum(0) / known.sum(0))[told])
        draws = np.nanmedian(((counts @ filled) / (counts @ known))[:, told], 1)
    return float(point), draws
