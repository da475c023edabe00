"""From scalars per prompt and head to the tables of the heads."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from flowscope.evidence import Counts, mean_over_prompts, resampled_counts, simultaneous
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.heads.geometry import TABLES
from flowscope.instruments.heads.geometry.ratios import (
    Reference,
    distinct_prompts,
    log_ratios,
    twin_effects,
)
from flowscope.instruments.heads.geometry.reading import HeadReading
from flowscope.markov import QUANTITIES, judged, steps_to_tell
from flowscope.markov.regimes import UNDECIDED
from flowscope.records import Interval, Unavailable

__all__ = [
    "geometry_table",
    "label_table",
    "production_arrays",
    "reference_table",
    "with_ratios",
    "with_weight_ratios",
]


_NO_CURRENT = "a causal chain conditioned on survival moves one way only, so that it has no label"
_NO_INTERVAL = (
    "a label needs an interval, and one prompt has none. Give at least 2 prompts; 8 or more make "
    "the interval short enough to decide most heads"
)
_LEVEL = 0.95  # of the intervals that labels are read from
_NULLS = {"permuted": "keys_permuted", "as_sharp": "as_sharp"}  # column and array


def geometry_table(
    reading: HeadReading,
    fresh: HeadReading | Unavailable,
    counts: Counts,
    *,
    chain: str,
    level: float,
    seed: int = 0,
) -> pd.DataFrame:
    """One row per head: every quantity with its interval, beside random weights, and its label.

    Parameters
    ----------
    reading, fresh
        The model, and the same network with random weights.
    counts
        How often each prompt is drawn in each resample.
    chain
        Which kernel walked.
    level
        Of the label: chance with which a reversed walk may be taken for a forward one.
    seed
        Of the joint intervals.
    """
    arrays = reading.arrays
    prompts, layers, heads = arrays["geometry_gap"].shape
    distinct = distinct_prompts(_production(reading), _by_head(arrays["geometry_effective_keys"]))
    if len(distinct) < prompts:  # copies of a prompt have no spread, and are one unit
        counts = resampled_counts(len(distinct), resamples=len(counts), seed=seed)
    table = pd.DataFrame(
        {
            "layer": np.repeat(np.arange(1, layers + 1), heads),
            "head": np.tile(np.arange(heads), layers),
            "chain": chain,
        }
    )
    for name in QUANTITIES:
        values = _by_head(arrays[f"geometry_{name}"])
        points, interval = _means(values[distinct], counts)
        table[name] = points
        table[f"{name}_low"], table[f"{name}_high"] = bounds_of(interval, len(points))
        table[f"{name}_random"] = _beside(fresh, name, (layers, heads))
    together = simultaneous(_production(reading)[distinct], seed=seed).joint
    ends = bounds_of(together, len(table))
    table["entropy_production_joint_low"], table["entropy_production_joint_high"] = ends
    table["steps"] = float(arrays["geometry_tokens"].mean())
    return _labelled(table, reading.because, chain, level)


def _labelled(
    table: pd.DataFrame, because: dict[int, str], chain: str, level: float
) -> pd.DataFrame:
    """The table with the labels of each head, and why it has none.

    A label is a statement about the interval of the entropy production, so a head without an
    interval (one prompt) is undecided, whatever its number is. Two prompts have an interval, and a
    wide one: the interval itself says how little they tell, so that no minimum of prompts is asked
    for here, as it is for verdicts. ``label`` is read from the interval of the head by itself,
    ``label_joint`` from the intervals that cover all heads together.
    """
    measured = table["entropy_production"].notna()
    table["label"] = _labels(table, "entropy_production", level)
    table["label_joint"] = _labels(table, "entropy_production_joint", level)
    table["steps_to_tell"] = np.nan
    if measured.any():
        production = table.loc[measured, "entropy_production"].to_numpy()
        table.loc[measured, "steps_to_tell"] = steps_to_tell(production, level).numpy()
    silent = ~np.isfinite(table["displacement"].to_numpy())
    reasons = [because.get(int(layer) - 1, "") for layer in table["layer"]]
    refused = _NO_CURRENT if chain == "quasi-stationary" else ""
    unbounded = (measured & table["entropy_production_low"].isna()).to_numpy()
    table["because"] = [
        (reason or "no number was measured") if mute else (_NO_INTERVAL if open_ended else refused)
        for reason, mute, open_ended in zip(reasons, silent, unbounded, strict=True)
    ]
    table["status"] = np.where(silent, "abstained", "ok")
    return table


def _labels(table: pd.DataFrame, interval: str, level: float) -> "pd.Series[str]":
    """Labels by the ends of an interval; refused where a head has no entropy production."""
    measured = table["entropy_production"].notna()
    labels = pd.Series(["refused"] * len(table), index=table.index)
    labels[measured] = UNDECIDED
    bounds = table[[f"{interval}_low", f"{interval}_high"]]
    bounded = measured & bounds.notna().all(axis=1)
    if bounded.any():
        low, high = bounds[bounded].to_numpy().T
        labels[bounded] = judged(low, high, steps=float(table["steps"].iloc[0]), level=level)
    return labels


def label_table(table: pd.DataFrame) -> pd.DataFrame:
    """How many heads bear each label, and how many of these labels may be wrong.

    A head whose entropy production lies on one side of the threshold has the interval wholly on the
    other side in at most half of the error of the interval. So the expected number of wrong labels
    is at most that times the heads that have an interval. Labels from joint intervals are all
    right together with the level of these.
    """
    bounded = int(table["entropy_production_low"].notna().sum())
    rows = []
    for label in dict.fromkeys([*table["label"], *table["label_joint"]]):
        number, together = (int((table[name] == label).sum()) for name in ("label", "label_joint"))
        decided = label not in (UNDECIDED, "refused")
        wrong = min(number, (1 - _LEVEL) / 2 * bounded) if decided else 0.0
        rows.append(
            {
                "label": label,
                "heads": number,
                "expected_wrong": wrong,
                "heads_joint": together,
                "any_wrong_joint": 1 - _LEVEL if decided else 0.0,
            }
        )
    return pd.DataFrame(rows)


def with_ratios(
    table: pd.DataFrame, arrays: Mapping[str, NDArray[np.float64]], *, seed: int = 0
) -> pd.DataFrame:
    """The table with the entropy production of both nulls and the log ratios to them.

    Parameters
    ----------
    table
        One row per head.
    arrays
        As `production_arrays` gives them.
    seed
        Of the resampled prompts.
    """
    columns: dict[str, NDArray[np.float64]] = {}
    blank = np.full(len(table), np.nan)
    distinct = distinct_prompts(arrays["model"], arrays["effective_keys"])
    for name, array in _NULLS.items():
        ratio = f"log_ratio_{name}"
        ends = [f"{ratio}_low", f"{ratio}_high", f"{ratio}_joint_low", f"{ratio}_joint_high"]
        columns |= dict.fromkeys([f"entropy_production_{name}", ratio, *ends, f"{ratio}_p"], blank)
        if array not in arrays:
            continue
        values = arrays[array]
        columns[f"entropy_production_{name}"] = _known_mean(values.reshape(-1, len(table)))
        by_prompt = _known_mean(log_ratios(arrays["model"], values))[distinct]
        if name == "permuted" and "as_sharp_permuted" in arrays:
            by_prompt = by_prompt - _known_mean(twin_effects(arrays))[distinct, None]
        result = simultaneous(by_prompt, seed=seed)
        bounds = (*bounds_of(result.pointwise, len(table)), *bounds_of(result.joint, len(table)))
        columns |= {ratio: result.points, f"{ratio}_p": result.p}
        columns |= dict(zip(ends, bounds, strict=True))
    whole = table.assign(**columns)
    order = [name for name in TABLES["geometry"].schema if name in whole]
    return whole[[*order, *(name for name in whole if name not in order)]]


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
    """Mean over the first axis of the numbers that are there."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(0) / known.sum(0), np.float64)


def production_arrays(
    reading: HeadReading,
    fresh: HeadReading | Unavailable,
    permuted: HeadReading | Unavailable,
    twins: list[HeadReading] | Unavailable,
) -> dict[str, NDArray[np.float64]]:
    """Entropy production of the model and of each reference: rows are prompts, columns heads.

    Permutations and twins come first: ``keys_permuted`` and ``as_sharp`` are
    ``[references, prompts, heads]``. Effective keys and tokens of each prompt are there too.
    """
    keys = reading.arrays["geometry_effective_keys"]
    arrays = {
        "model": _production(reading),
        "effective_keys": _by_head(keys),
        "tokens": reading.arrays["geometry_tokens"],
    }
    if not isinstance(fresh, Unavailable):
        arrays["random_weights"] = _production(fresh)
    if not isinstance(permuted, Unavailable):
        names = [name for name in permuted.arrays if name.removeprefix("permuted_").isdigit()]
        arrays["keys_permuted"] = _stacked([permuted.arrays[name] for name in names])
    if not isinstance(twins, Unavailable):
        arrays["as_sharp"] = _stacked([twin.arrays["matched_production"] for twin in twins])
        arrays["scale"] = _stacked([twin.arrays["matched_scale"] for twin in twins])
        moved = _stacked([twin.arrays["matched_permuted"] for twin in twins])
        if np.isfinite(moved).any():
            arrays["as_sharp_permuted"] = moved
    return {name: np.ascontiguousarray(values) for name, values in arrays.items()}


def _stacked(parts: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.stack([_by_head(part) for part in parts])


def reference_table(
    arrays: Mapping[str, NDArray[np.float64]],
    readings: Mapping[Reference, list[HeadReading] | Unavailable],
) -> pd.DataFrame:
    """What the heads are compared with: on how many prompts, how often, or why not.

    Parameters
    ----------
    arrays
        As `production_arrays` gives them.
    readings
        The readings of each reference, or why there is none.
    """
    stored: dict[Reference, str] = {
        "random weights": "random_weights",
        "random weights, as sharp": "as_sharp",
        "keys permuted": "keys_permuted",
    }
    rows = []
    for name, array in stored.items():
        found, prompts, repeats, because = readings[name], 0, 0, ""
        if isinstance(found, Unavailable):
            because = found.reason
        else:
            values = arrays[array]
            prompts, repeats = values.shape[-2], 1 if values.ndim == 2 else len(values)
            if not np.isfinite(values).any():
                reasons = [reason for one in found for reason in one.because.values()]
                because = next(iter(reasons), "no head could be measured")
        rows.append({"reference": name, "prompts": prompts, "repeats": repeats, "because": because})
    return pd.DataFrame(rows)


def _production(reading: HeadReading) -> NDArray[np.float64]:
    return _by_head(reading.arrays["geometry_entropy_production"])


def _by_head(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of prompts, columns of heads."""
    return values.reshape(len(values), -1)
