"""Tables and arrays of the cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from flowscope.evidence import half_ends, mean_over_prompts, resampled_counts
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.latent.clouds import Clouds, Sample
from flowscope.instruments.latent.config import LatentConfig
from flowscope.instruments.latent.entropy.reading import ENTROPIES, SHAPES

__all__ = ["controls_table", "ends_of", "halves_of", "layers_table", "samples_table"]

Arrays = Mapping[str, NDArray[np.float64]]
Readings = Sequence[Mapping[str, Arrays]]
_JUDGED = ("entropy_knn", "entropy_gaussian")


def layers_table(config: LatentConfig, clouds: Clouds, readings: Readings) -> pd.DataFrame:
    """One row for each layer, sample and rank."""
    rows = []
    for depth, reading in enumerate(readings):
        for name, sample in clouds.samples.items():
            arrays = reading.get(name, {})
            common = _shape(arrays, sample, config)
            for place, rank in enumerate(config.ranks):
                keys = {"layer": depth, "sample": name, "rank": rank}
                rows.append(keys | _entropies(arrays, place, sample, config.surrogates) | common)
    return pd.DataFrame(rows)


def samples_table(clouds: Clouds) -> pd.DataFrame:
    """One row for each sample: how large it is, and what was left out."""
    rows = [
        {
            "sample": name, "prompts": sample.groups, "tokens": len(sample.places),
            "massive": clouds.massive, "repeated": clouds.repeated, "copies": clouds.copies,
        }
        for name, sample in clouds.samples.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)


def controls_table(
    config: LatentConfig, beside: Mapping[str, tuple[Clouds, Readings]]
) -> pd.DataFrame:
    """Entropies of what stands beside the model, in the first number of coordinates."""
    rows = []
    for subject, (clouds, readings) in beside.items():
        for depth, reading in enumerate(readings):
            for name, sample in clouds.samples.items():
                found = _entropies(reading[name], 0, sample, 0)
                kept = {key: v for key, v in found.items() if key.startswith(_JUDGED)}
                keys = {"subject": subject, "layer": depth, "sample": name}
                rows.append({**keys, "rank": config.ranks[0], **kept})
    return pd.DataFrame(rows)


def halves_of(
    everything: Mapping[str, tuple[Clouds, Readings]],
) -> dict[str, NDArray[np.float64]]:
    """Entropies of all subjects in the first number of coordinates, whole and on halves.

    One array ``SUBJECT/SAMPLE/COLUMN`` ``[1 + draws, layers]`` each, and ``SUBJECT/SAMPLE/prompts``
    with the number of prompts.
    """
    found: dict[str, NDArray[np.float64]] = {}
    for subject, (clouds, readings) in everything.items():
        for name, sample in clouds.samples.items():
            layers = [reading.get(name, {}).get("entropies") for reading in readings]
            if any(layer is None for layer in layers):
                continue
            values = np.stack([layer[0] for layer in layers if layer is not None], 1)
            for column in _JUDGED:
                key = f"{subject}/{name}/{column}"
                found[key] = values[:, :, ENTROPIES.index(column)]
            found[f"{subject}/{name}/prompts"] = np.array([float(sample.groups)])
    return found


def _entropies(arrays: Arrays, place: int, sample: Sample, surrogates: int) -> dict[str, float]:
    values = arrays.get("entropies")
    rows = {
        name: np.full(1, np.nan) if values is None else values[place, :, column]
        for column, name in enumerate(ENTROPIES)
    }
    found: dict[str, float] = {}
    for name in ENTROPIES[:3]:
        found |= ends_of(name, rows[name], sample.groups)
    return found | _bias(float(rows["bias"][0]), float(rows["bias_error"][0]), surrogates)


def _bias(bias: float, error: float, surrogates: int) -> dict[str, float]:
    """The bias, with an interval over its surrogates where there are two or more."""
    reach = error * float(stdtrit(surrogates - 1, 0.975)) if surrogates > 1 else np.nan
    return {"bias": bias, "bias_low": bias - reach, "bias_high": bias + reach}


def _shape(arrays: Arrays, sample: Sample, config: LatentConfig) -> dict[str, float]:
    values = arrays.get("shape")
    found: dict[str, float] = {}
    for column, name in enumerate(SHAPES):
        rows = np.full(1, np.nan) if values is None else values[:, column]
        found |= ends_of(name, rows, sample.groups)
        if name == "dimension_mle":
            found |= _same_type(arrays.get("same_type"), sample, config)
    return found


def _same_type(
    same: NDArray[np.float64] | None, sample: Sample, config: LatentConfig
) -> dict[str, float]:
    """Share of neighbours of the same type, with its interval over prompts."""
    name = "same_type_neighbours"
    if same is None or not len(same) or np.isnan(same).any():
        return ends_of(name, np.full(1, np.nan), sample.groups)
    _, place = np.unique(sample.prompt.numpy(), return_inverse=True)
    sums, sizes = (np.bincount(place, x)[:, None].astype(float) for x in (same, None))
    counts = resampled_counts(len(sums), resamples=config.resamples, seed=config.seed)
    point, interval = mean_over_prompts(sums, sizes, counts, within=(0.0, 1.0))
    low, high = bounds_of(interval, 1)
    return {name: point[0], f"{name}_low": low[0], f"{name}_high": high[0]}


def ends_of(name: str, rows: NDArray[np.float64], prompts: int) -> dict[str, float]:
    """A number and the ends of its interval, from the whole sample and its halves."""
    value, halves = rows[:1], rows[1:, None]
    low = high = np.array([np.nan])
    if len(halves) and bool(np.isfinite(halves).all()):
        low, high = half_ends(value, halves, prompts)
    return {name: value[0], f"{name}_low": low[0], f"{name}_high": high[0]}
