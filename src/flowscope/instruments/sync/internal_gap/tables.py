"""From the differences inside the network to the tables of the internal gap."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError
from flowscope.instruments.sync.config import SyncConfig
from flowscope.probes import Arrays
from flowscope.replica import (
    ExchangeNull,
    SplitHalfGap,
    exchange_null,
    mode_energies,
    naive_gap,
    smallest_detectable_gap,
    split_half_gap,
)

__all__ = ["SPLITS", "energy_table", "familywise", "gap_arrays", "internal_gap_table"]

SPLITS = 8
"""Random halvings of the pairs: more of them let the run see smaller gaps."""


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


def gap_arrays(reading: Arrays, read_at: int, config: SyncConfig) -> Arrays:
    """What the mean over layers is judged by: log ratios, their draws, and changes by pair.

    The latents are layer 0. Layers without a number are left out; ``layer`` says which are there.
    """
    place = reading["clock"].tolist().index(read_at)
    grams = [reading["latent_gram"][place], *reading["clock_gram"][:, place]]
    layers, observed, draws, left_out = [], [], [], []
    for layer, gram in enumerate(grams):
        try:
            null, half = _read(gram, config)
        except InvalidInputError:
            continue
        layers.append(layer)
        observed.append(null.observed)
        draws.append(null.draws)
        left_out.append(half.left_out)
    if not layers:
        return {"layer": np.zeros(0)}
    return {
        "layer": np.asarray(layers),
        "observed": np.asarray(observed),
        "draws": np.stack(draws),
        "left_out": np.stack(left_out),
    }


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
        half = split_half_gap(gram, band, band, splits=SPLITS, seed=config.seed)
        return {"naive": naive_gap(gram, band, band), "mixed_log_gap": half.value}
    except InvalidInputError:
        return {"naive": math.nan, "mixed_log_gap": math.nan}


def _read(gram: NDArray[np.float64], config: SyncConfig) -> tuple[ExchangeNull, SplitHalfGap]:
    """The log ratio of one layer under its null and with its interval, by the same halvings."""
    band, shared = config.band, {"splits": SPLITS, "seed": config.seed}
    null = exchange_null(gram, band, band, draws=config.draws, **shared)
    return null, split_half_gap(gram, band, band, **shared)


def _gap(
    gram: NDArray[np.float64], config: SyncConfig
) -> tuple[dict[str, Any], ExchangeNull | None]:
    band, pairs = config.band, len(gram) // 2
    try:
        null, half = _read(gram, config)
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
