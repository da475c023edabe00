"""From scalars per prompt and head to the table of heads, its labels and its verdict."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from flowscope.evidence import Counts, mean_over_prompts, percentile_interval
from flowscope.evidence.intervals import bounds_of, single
from flowscope.instruments.heads.irreversibility_rule import Reference
from flowscope.instruments.heads.reading import HeadReading
from flowscope.markov import QUANTITIES, judged, steps_to_tell
from flowscope.records import Interval, Measurement, Unavailable

__all__ = ["Irreversibility", "geometry_table", "irreversibility", "with_weight_ratios"]

_NO_CURRENT = (
    "a causal chain conditioned on survival goes one way only: no current closes, no label"
)


def geometry_table(
    reading: HeadReading,
    references: Mapping[Reference, HeadReading | Unavailable],
    counts: Counts,
    *,
    chain: str,
    level: float,
) -> pd.DataFrame:
    """One row per head: every quantity with its interval, beside random weights, and its label.

    Parameters
    ----------
    reading, references
        The model, and what it is compared with: random weights (every quantity) and permuted keys
        (entropy production alone).
    counts
        How often each prompt is drawn in each resample.
    chain
        Which kernel walked.
    level
        Of the label: chance with which a reversed walk may be taken for a forward one.
    """
    arrays = reading.arrays
    prompts, layers, heads = arrays["geometry_gap"].shape
    table = pd.DataFrame(
        {
            "layer": np.repeat(np.arange(1, layers + 1), heads),
            "head": np.tile(np.arange(heads), layers),
            "chain": chain,
        }
    )
    for name in QUANTITIES:
        values = arrays[f"geometry_{name}"].reshape(prompts, -1)
        points, interval = _means(values, counts)
        table[name] = points
        table[f"{name}_low"], table[f"{name}_high"] = bounds_of(interval, len(points))
        table[f"{name}_random"] = _beside(references["random weights"], name, (layers, heads))
    permuted = references["keys permuted"]
    table["entropy_production_permuted"] = _beside(permuted, "entropy_production", (layers, heads))
    table["steps"] = float(arrays["geometry_tokens"].mean())
    return _labelled(table, reading.because, chain, level)


def _labelled(
    table: pd.DataFrame, because: dict[int, str], chain: str, level: float
) -> pd.DataFrame:
    table["label"], table["steps_to_tell"] = "refused", np.nan
    known = table["entropy_production"].notna()
    if known.any():
        own = table[known]
        ends = [
            own[f"entropy_production_{end}"].fillna(own["entropy_production"]).to_numpy()
            for end in ("low", "high")
        ]
        steps = float(table["steps"].iloc[0])
        table.loc[known, "label"] = judged(*ends, steps=steps, level=level)
        production = own["entropy_production"].to_numpy()
        table.loc[known, "steps_to_tell"] = steps_to_tell(production, level).numpy()
    silent = ~np.isfinite(table["displacement"].to_numpy())
    reasons = [because.get(int(layer) - 1, "") for layer in table["layer"]]
    refused = _NO_CURRENT if chain == "quasi-stationary" else ""
    table["because"] = [
        (reason or "no number was read") if mute else refused
        for reason, mute in zip(reasons, silent, strict=True)
    ]
    table["status"] = np.where(silent, "abstained", "ok")
    return table


def with_weight_ratios(
    table: pd.DataFrame, ratios: dict[int, Tensor | Unavailable]
) -> pd.DataFrame:
    """The table with $R_{qk}$ of each head's weights, or why it has none."""
    values, reasons = [], []
    for layer, head in zip(table["layer"], table["head"], strict=True):
        found = ratios.get(int(layer) - 1, Unavailable("no self-attention call was seen"))
        known = not isinstance(found, Unavailable) and int(head) < len(found)
        values.append(float(found[int(head)]) if known else np.nan)  # type: ignore[index]
        reasons.append(found.reason if isinstance(found, Unavailable) else "")
    return table.assign(weight_ratio=values, weight_because=reasons)


def _means(
    values: NDArray[np.float64], counts: Counts
) -> tuple[NDArray[np.float64], Interval | Unavailable]:
    known = np.isfinite(values)
    sums = np.where(known, values, 0.0)
    return mean_over_prompts(sums, known.astype(np.float64), counts)


def _beside(
    reading: HeadReading | Unavailable, name: str, shape: tuple[int, int]
) -> NDArray[np.float64]:
    """The same quantity of a reference, head by head; NaN where it has none."""
    if isinstance(reading, Unavailable):
        return np.full(shape[0] * shape[1], np.nan)
    values = reading.arrays[f"geometry_{name}"]
    if values.shape[1:] != shape:
        return np.full(shape[0] * shape[1], np.nan)
    return _known_mean(values.reshape(len(values), -1))


def _known_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(0) / known.sum(0), np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Irreversibility:
    """The numbers the verdict on the heads is judged by."""

    production: Measurement
    null: Measurement | Unavailable
    effect: float | Unavailable
    interval: Interval | Unavailable
    labels: dict[str, int]


def irreversibility(
    reading: HeadReading,
    reference: Reference,
    other: HeadReading | Unavailable,
    table: pd.DataFrame,
    counts: Counts,
    few_counts: Counts,
    *,
    seed: int,
) -> Irreversibility:
    """Median over heads of their mean entropy production, and its distance to a reference.

    The distance is taken on the prompts that both have read, resample by resample.
    """
    labels = {str(name): int(n) for name, n in table["label"].value_counts().items()}
    name, values = "median entropy production", _production(reading)
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
    if isinstance(other, Unavailable):
        return Irreversibility(
            production=production, null=other, effect=other, interval=other, labels=labels
        )
    twin = _production(other)
    under, under_draws = _medians(twin, few_counts)
    if not np.isfinite(under):
        why = Unavailable(next(iter(other.because.values()), absent.reason))
        return Irreversibility(
            production=production, null=why, effect=why, interval=why, labels=labels
        )
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


def _production(reading: HeadReading) -> NDArray[np.float64]:
    values = reading.arrays["geometry_entropy_production"]
    return values.reshape(len(values), -1)


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
