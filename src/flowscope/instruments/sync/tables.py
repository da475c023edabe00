"""Tables of a reading of replicas: agreement, commitment, the internal gap, energies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError
from flowscope.instruments.sync.config import SyncConfig
from flowscope.instruments.sync.outcomes import Curve
from flowscope.probes import Arrays
from flowscope.replica import (
    CommitmentTime,
    ExchangeNull,
    commitment_gap,
    commitment_time,
    exchange_null,
    mode_energies,
    naive_gap,
    smallest_detectable_gap,
    split_half_gap,
)

__all__ = [
    "MEASURES",
    "Times",
    "agreement_table",
    "commitment_table",
    "commitment_times",
    "effect_table",
    "energy_table",
    "familywise",
    "gap_table",
    "internal_gap_table",
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


def internal_gap_table(
    readings: Mapping[float, Arrays], read_at: Mapping[float, int], config: SyncConfig
) -> pd.DataFrame:
    """The gap between leading and trailing modes by coupling and layer, beside its null.

    ``log_gap`` and its null compare the differences at a step with those of the first latents *at
    the same diffusion time* (erratum E99). ``naive`` and ``mixed_log_gap`` are as published: they
    compare two times.

    Layer 0 is the latents themselves, before any block. What they show already, the blocks have
    been given; it does not belong to the depth.
    """
    rows = []
    for g, arrays in readings.items():
        published = arrays["gram"][:, arrays["kept"].tolist().index(read_at[g])]
        same_clock = arrays["clock_gram"][:, arrays["clock"].tolist().index(read_at[g])]
        found = [_gap(gram, config) for gram in same_clock]
        joint = familywise([null for _, null in found])
        given = arrays["latent_gram"][arrays["clock"].tolist().index(read_at[g])]
        told, null = _gap(given, config)
        alone = math.nan if null is None else null.p_value
        none = {"naive": math.nan, "mixed_log_gap": math.nan}
        rows.append({"g": g, "layer": 0, "step": read_at[g]} | none | told | {"p_all": alone})
        for layer, (told, _) in enumerate(found):
            row = {"g": g, "layer": layer + 1, "step": read_at[g]}
            row |= _published(published[layer], config)
            rows.append(row | told | {"p_all": joint[layer]})
    return pd.DataFrame(rows)


def familywise(nulls: Sequence[ExchangeNull | None]) -> list[float]:
    """P values over all layers at once, from the largest studentised value of every draw.

    All layers were exchanged by the same patterns, so that what they have in common is in the
    null too. A layer without a null has NaN.
    """
    read = [null for null in nulls if null is not None]
    if not read:
        return [math.nan] * len(nulls)
    draws = np.stack([null.draws for null in read])
    middle, spread = np.median(draws, 1, keepdims=True), draws.std(1, keepdims=True)
    spread[spread == 0] = math.inf
    largest = (np.abs(draws - middle) / spread).max(0)
    told = iter(
        float((1 + (largest >= abs(null.observed - m) / s - 1e-9).sum()) / (1 + len(largest)))
        for null, m, s in zip(read, middle[:, 0], spread[:, 0], strict=True)
    )
    return [math.nan if null is None else next(told) for null in nulls]


def _published(gram: NDArray[np.float64], config: SyncConfig) -> dict[str, Any]:
    """G_int of eq 80, and the split-half log ratio between the same two diffusion times."""
    band = config.band
    try:
        half = split_half_gap(gram, band, band, seed=config.seed)
        return {"naive": naive_gap(gram, band, band), "mixed_log_gap": half.value}
    except InvalidInputError:
        return {"naive": math.nan, "mixed_log_gap": math.nan}


def _gap(
    gram: NDArray[np.float64], config: SyncConfig
) -> tuple[dict[str, Any], ExchangeNull | None]:
    band, pairs = config.band, len(gram) // 2
    try:
        null = exchange_null(gram, band, band, draws=config.draws, seed=config.seed)
        half = split_half_gap(gram, band, band, seed=config.seed)
    except InvalidInputError as error:
        names = ("log_gap", "low", "high", "null_low", "null_high", "p", "detectable")
        row: dict[str, Any] = dict.fromkeys(names, math.nan)
        why = {"band": band, "n": pairs, "status": "abstained", "because": str(error)}
        return row | why, None
    row = {
        "log_gap": half.value,
        "low": half.interval[0],
        "high": half.interval[1],
        "null_low": null.band[0],
        "null_high": null.band[1],
        "p": null.p_value,
        "detectable": smallest_detectable_gap(null.draws),
        "band": band,
        "n": pairs,
        "status": "ok",
        "because": "",
    }
    return row, null


def energy_table(readings: Mapping[float, Arrays], config: SyncConfig) -> pd.DataFrame:
    """Energies of the leading and trailing bands over time, and how far the replicas differ."""
    rows = []
    for g, arrays in readings.items():
        for layer, grams in enumerate(arrays["gram"]):
            for place, step in enumerate(arrays["kept"]):
                difference = arrays["difference"][layer, step] / arrays["hidden"][layer, step]
                lead, trail = _bands(grams[place], config.band)
                rows.append(
                    {
                        "g": g,
                        "layer": layer + 1,
                        "step": int(step),
                        "lead": lead,
                        "trail": trail,
                        "difference": float(difference),
                    }
                )
    return pd.DataFrame(rows)


def _bands(gram: NDArray[np.float64], band: int) -> tuple[float, float]:
    try:
        found = mode_energies(gram)
    except InvalidInputError:
        return math.nan, math.nan
    energies = found.energies[found.present]
    if len(energies) < 2 * band:
        return math.nan, math.nan
    return float(energies[:band].mean()), float(energies[-band:].mean())


def _where(curve: Curve, classes: Sequence[str]) -> dict[str, Any]:
    name = classes[curve.label] if classes else "all"
    return {"label": curve.label, "class": name, "g": curve.g, "control": curve.control}
