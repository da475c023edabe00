"""From the agreement of images to the tables of the commitment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.instruments.sync.commitment.outcomes import Curve
from flowscope.instruments.sync.config import SyncConfig
from flowscope.replica import CommitmentTime, commitment_gap, commitment_time

__all__ = [
    "MEASURES",
    "Times",
    "agreement_table",
    "commitment_table",
    "commitment_times",
    "effect_table",
    "gap_table",
    "named_order",
]


MEASURES = ("feature", "coarse", "fine")


Times = dict[tuple[int, float, bool, str], CommitmentTime]


def commitment_times(curves: Sequence[Curve], config: SyncConfig) -> Times:
    """Midpoints of every curve; curves of one class are resampled jointly."""
    found: Times = {}
    for curve in curves:
        for measure, values in curve.measures.items():
            time = commitment_time(
                curve.steps.astype(float), values, resamples=config.resamples, seed=config.seed
            )
            found[curve.label, curve.g, curve.control, measure] = _rising(time)
    return found


def _rising(time: CommitmentTime) -> CommitmentTime:
    """Agreement that falls the longer replicas are together is no commitment."""
    if time.status != "ok" or time.amplitude > 0:
        return time
    nan = math.nan
    return replace(
        time,
        status="no transition",
        because=f"the agreement falls by {-time.amplitude:.3g} the longer a pair is coupled",
        midpoint=nan,
        interval=(nan, nan),
    )


def agreement_table(
    curves: Sequence[Curve], times: Times, classes: Sequence[str], config: SyncConfig
) -> pd.DataFrame:
    """Agreement over the intervention step, with its interval over pairs and the fitted sigmoid."""
    rows = []
    for curve in curves:
        for measure, values in curve.measures.items():
            time = times[curve.label, curve.g, curve.control, measure]
            low, high = _median_interval(values, config)
            fitted = time.fit(curve.steps) if time.status == "ok" else np.full(len(low), np.nan)
            for k, step in enumerate(curve.steps):
                rows.append(
                    _where(curve, classes)
                    | {
                        "measure": measure,
                        "step": int(step),
                        "value": float(np.median(values[:, k])),
                        "low": low[k],
                        "high": high[k],
                        "n": len(values),
                        "fit": float(fitted[k]),
                    }
                )
    return pd.DataFrame(rows)


def _median_interval(
    values: NDArray[np.float64], config: SyncConfig
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    drawn = np.random.default_rng(config.seed).integers(
        0, len(values), size=(config.resamples, len(values))
    )
    medians = np.median(values[drawn], axis=1)
    low, high = np.quantile(medians, [0.025, 0.975], axis=0)
    return low, high


def commitment_table(
    times: Times, curves: Sequence[Curve], classes: Sequence[str], without: Mapping[str, str]
) -> pd.DataFrame:
    """One row per class, coupling and measure: the midpoint and its interval, or why none.

    ``without`` gives the reason for each measure that was not taken.
    """
    rows = []
    for curve in curves:
        for measure in MEASURES:
            row = _where(curve, classes) | {"measure": measure}
            time = times.get((curve.label, curve.g, curve.control, measure))
            if time is None:
                reason = without.get(measure, "it was not measured")
                rows.append(row | _empty() | {"n": 0, "status": "abstained", "because": reason})
                continue
            rows.append(
                row
                | {
                    "midpoint": time.midpoint,
                    "low": time.interval[0],
                    "high": time.interval[1],
                    "amplitude": time.amplitude,
                    "amplitude_low": time.amplitude_interval[0],
                    "amplitude_high": time.amplitude_interval[1],
                    "width": time.width,
                    "n": time.n,
                    "status": time.status,
                    "because": time.because,
                }
            )
    return pd.DataFrame(rows)


def _empty() -> dict[str, float]:
    names = ("midpoint", "low", "high", "amplitude", "amplitude_low", "amplitude_high", "width")
    return dict.fromkeys(names, math.nan)


def gap_table(times: Times, curves: Sequence[Curve], classes: Sequence[str]) -> pd.DataFrame:
    """How many steps fine detail commits after coarse structure (eq 73)."""
    rows = []
    for curve in curves:
        key = curve.label, curve.g, curve.control
        found = commitment_gap(times[*key, "fine"], times[*key, "coarse"])
        rows.append(
            _where(curve, classes)
            | {
                "gap": found.value,
                "low": found.interval[0],
                "high": found.interval[1],
                "n": found.n,
                "status": found.status,
                "because": found.because,
            }
        )
    return pd.DataFrame(rows)


def named_order(table: pd.DataFrame, classes: Sequence[str]) -> pd.DataFrame:
    """The table of the order, with the names of the classes."""
    names = [classes[label] if classes else "all" for label in table["label"]]
    table.insert(1, "class", names)
    return table


def effect_table(times: Times, config: SyncConfig, classes: Sequence[str]) -> pd.DataFrame:
    """How much later features commit under the least coupling, pairs resampled jointly."""
    tied = [g for g in config.couplings if g] or [0.0]
    least, largest = min(tied), max(tied)
    rows = []
    for label in config.labels:
        first = times.get((label, least, False, "feature"))
        others = {
            "least − largest coupling": times.get((label, largest, False, "feature")),
            "least coupling − control": times.get((label, 0.0, True, "feature")),
        }
        for kind, other in others.items():
            if first is None or other is None or other is first:
                continue
            found = commitment_gap(first, other)
            second = "control" if "control" in kind else f"g = {largest:g}"
            told = found.because.replace("fine: ", f"g = {least:g}: ")
            told = told.replace("coarse: ", f"{second}: ")
            rows.append(
                {
                    "label": label,
                    "class": classes[label] if classes else "all",
                    "kind": kind,
                    "difference": found.value,
                    "low": found.interval[0],
                    "high": found.interval[1],
                    "n": found.n,
                    "status": found.status,
                    "because": told,
                }
            )
    names = ["label", "class", "kind", "difference", "low", "high", "n", "status", "because"]
    return pd.DataFrame(rows, columns=names)


def _where(curve: Curve, classes: Sequence[str]) -> dict[str, Any]:
    name = classes[curve.label] if classes else "all"
    return {"label": curve.label, "class": name, "g": curve.g, "control": curve.control}
