"""Tables of the image track: parity, error of sampling, smoothness, classes, the family."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

from flowscope.flows.sampling import MarginalParity, doubling_slope, marginal_parity
from flowscope.flows.sampling.variance_preserving import log_snr, unit_clock
from flowscope.instruments.image.classes import Information, Turns
from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.family import OBSERVABLES, FamilyRuns
from flowscope.instruments.image.models import ImageModel, MixtureModel
from flowscope.instruments.image.paths import PathRuns
from flowscope.replica import class_information, mixture_entropy, mixture_u_turn

__all__ = [
    "family_table",
    "information_table",
    "parity_of",
    "parity_table",
    "path_tables",
    "uturn_table",
    "weak_error_tables",
]

_LEVEL = 0.95
_OVERLAP = 1e-3
_NAMES = {0.0: "ode", 1.0: "sde"}

Rows = list[dict[str, Any]]


def _seeded(config: ImageConfig) -> torch.Generator:
    return torch.Generator().manual_seed(config.seed)


def _where(model: ImageModel, step: int, time: int) -> dict[str, Any]:
    return {"step": step, "time": time, "log_snr": log_snr(model.levels[time])}


def _mean(values: NDArray[np.float64], axis: int = 0) -> tuple[Any, Any, Any]:
    """Mean over images with Student's interval."""
    n, mean = values.shape[axis], values.mean(axis)
    half = student.ppf(0.5 + _LEVEL / 2, n - 1) * values.std(axis, ddof=1) / math.sqrt(n)
    return mean, mean - half, mean + half


def _share(hits: NDArray[np.bool_]) -> tuple[float, float, float]:
    """Share of images with Wilson's interval."""
    n, share, z = len(hits), float(hits.mean()), float(norm.ppf(0.5 + _LEVEL / 2))
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return share, middle - half, middle + half


def parity_of(paths: PathRuns, config: ImageConfig) -> MarginalParity:
    """The flow against the SDE, and the SDE against itself."""
    ode, sde, other = (torch.from_numpy(np.array(counts)) for counts in paths.counts)
    return marginal_parity(ode, sde, other, draws=config.draws, generator=_seeded(config))


def parity_table(
    found: MarginalParity, paths: PathRuns, model: ImageModel, config: ImageConfig
) -> pd.DataFrame:
    """Distances by step and channel; ``all`` is the mean over channels."""
    columns = [f"{d}{part}" for d in ("tv", "ks")
               for part in ("", "_low", "_high", "_null", "_null_high", "_p")]  # fmt: skip
    rows: Rows = []
    channels = paths.counts.shape[3]
    shown = [channels, *range(channels)] if channels > 1 else [channels]
    for k, time in enumerate(paths.times):
        for c in shown:
            numbers = {name: float(getattr(found, name)[k, c]) for name in columns}
            rows.append(
                {
                    **_where(model, k + 1, int(time)),
                    "channel": "all" if c == channels else str(c),
                    **numbers,
                    "tv_p_overall": float(found.tv_p_overall),
                    "outside": float(paths.outside[:, k].mean()),
                    "images": config.images,
                    "bins": config.bins,
                }
            )
    return pd.DataFrame(rows)


def weak_error_tables(runs: FamilyRuns, config: ImageConfig) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Differences between K and 2K steps, and their slopes."""
    steps = sorted(set(config.doubling))
    points: Rows = []
    slopes: Rows = []
    for lam, sampler in _NAMES.items():
        for place, observable in enumerate(OBSERVABLES):
            ends = {
                k: runs.observables[runs.place(lam, k), :, place] for k in [*steps, 2 * steps[-1]]
            }
            apart = np.stack([ends[k] - ends[2 * k] for k in steps], 1)
            named = {"sampler": sampler, "observable": observable}
            found = doubling_slope(
                torch.from_numpy(apart), steps, draws=config.resamples, generator=_seeded(config)
            )
            told = zip(steps, found.differences, found.standard_errors, found.lows, found.highs,
                       strict=True)  # fmt: skip
            for k, difference, error, low, high in told:
                points.append(
                    {
                        **named,
                        "steps": k,
                        "difference": difference,
                        "standard_error": error,
                        "low": low,
                        "high": high,
                        "resolved": abs(difference) > 2 * error,
                        "images": found.samples,
                    }
                )
            slopes.append(_slope_row(named, found, steps))
    return pd.DataFrame(points), pd.DataFrame(slopes)


def _slope_row(named: Mapping[str, str], found: Any, steps: Sequence[int]) -> dict[str, Any]:
    """One slope with its interval and range."""
    return {
        **named,
        "slope": found.slope,
        "low": found.low,
        "high": found.high,
        "method": found.method,
        "first": steps[0],
        "last": steps[-1],
        "images": found.samples,
        "status": found.status,
        "because": found.because,
    }


def path_tables(
    paths: PathRuns, model: ImageModel, config: ImageConfig
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Sizes of steps over time, and sums along whole paths."""
    rows: Rows = []
    whole: Rows = []
    start = unit_clock(model.levels[-1])
    for place, sampler in enumerate(("ode", "sde")):
        squares = paths.sizes[place]
        sizes, low, high = _mean(np.sqrt(squares))
        for k, time in enumerate(paths.times):
            size = {"size": sizes[k], "low": low[k], "high": high[k]}
            rows.append({"sampler": sampler, **_where(model, k + 1, int(time)), **size})
        elapsed = start - unit_clock(model.levels[int(paths.times[-1])])
        length = np.sqrt(squares).sum(1)
        told = {
            "variation": length,
            "tortuosity": length / paths.displacement[place],
            "quadratic": squares.sum(1),
        }
        line: dict[str, Any] = {"sampler": sampler}
        for name, values in told.items():
            line[name], line[f"{name}_low"], line[f"{name}_high"] = _mean(values)
        line["expected_quadratic"] = 2 * elapsed if sampler == "sde" else 0.0
        whole.append(line | {"images": config.images})
    return pd.DataFrame(rows), pd.DataFrame(whole)


def information_table(
    read: Information, model: ImageModel, config: ImageConfig
) -> tuple[pd.DataFrame, dict[str, float]]:
    """What states know of their class; and how far the whole exceeds what there is to know."""
    snr = [log_snr(model.levels[int(time)]) for time in read.times]
    by = {
        name: class_information(
            torch.tensor(snr, dtype=torch.float64),
            torch.from_numpy(values),
            len(model.classes),
            draws=config.resamples,
            generator=_seeded(config),
        )
        for name, values in (("errors", read.errors), ("distances", read.gaps))
    }
    found, apart = by["errors"], by["distances"]
    rows: Rows = []
    for k, time in enumerate(read.times):
        rows.append(
            {
                **_where(model, k, int(time)),
                "rate": float(found.rate[k]),
                "rate_low": float(found.rate_low[k]),
                "rate_high": float(found.rate_high[k]),
                "entropy": float(found.entropy[k]),
                "low": float(found.low[k]),
                "high": float(found.high[k]),
                "rate_by_distance": float(apart.rate[k]),
                "entropy_by_distance": float(apart.entropy[k]),
                "exact": _exact(model, int(time), mixture_entropy),
                "images": len(read.gaps),
            }
        )
    return pd.DataFrame(rows), {name: float(one.excess) for name, one in by.items()}


def _exact(model: ImageModel, time: int, closed_form: Any) -> float:
    """A closed form of the mixture; NaN for a learned model, and where its arms overlap.

    The closed forms are of the arm that a point belongs to; classes are read by the side it is on.
    """
    if not isinstance(model, MixtureModel) or norm.sf(model.mu / math.sqrt(model.s2)) > _OVERLAP:
        return math.nan
    return float(closed_form(unit_clock(model.levels[time]), model.mu, model.s2))


def uturn_table(turns: Turns, model: ImageModel) -> pd.DataFrame:
    """Share of images that come back as what they were, by the time they were noised to."""
    rows: Rows = []
    known = bool((turns.before >= 0).all())
    n = len(turns.before)
    counts = np.unique(turns.before, return_counts=True)[1]
    chance = float((counts * (counts - 1)).sum() / (n * (n - 1))) if n > 1 else math.nan
    for k, (time, steps) in enumerate(zip(turns.times, turns.steps, strict=True)):
        same = _share(turns.after[k] == turns.before) if known else (math.nan,) * 3
        alike = turns.correlation[k][np.isfinite(turns.correlation[k])]
        correlation = _mean(alike) if len(alike) > 1 else (math.nan,) * 3
        rows.append(
            {
                "time": time,
                "log_snr": log_snr(model.levels[time]),
                "steps": steps,
                **dict(zip(("same_class", "low", "high"), same, strict=True)),
                "exact": _exact(model, time, mixture_u_turn),
                "chance": chance if known else math.nan,
                "correlation_chance": turns.unrelated,
                "entropy_at_least": -math.log(max(same[0], 1e-12)) if known else math.nan,
                **dict(
                    zip(
                        ("correlation", "correlation_low", "correlation_high"),
                        correlation,
                        strict=True,
                    )
                ),
                "images": len(turns.before),
            }
        )
    return pd.DataFrame(rows)


def family_table(runs: FamilyRuns, config: ImageConfig) -> pd.DataFrame:
    """What every member makes at every number of steps, against the finest SDE."""
    finest = runs.place(1.0, runs.tracks[-1].steps)
    counts = torch.from_numpy(np.array(runs.counts))[:, :, None]
    asked = bool((runs.labels >= 0).all() and (runs.read >= 0).all())
    rows: Rows = []
    for place, track in enumerate(runs.tracks[:-1]):
        if track.lam not in (0.0, 1.0, *config.lams):
            continue
        told = _share(runs.read[place] == runs.labels) if asked else (math.nan,) * 3
        # Against other noise than its own, so that no member shares more than the start.
        found = marginal_parity(
            counts[place],
            counts[-1],
            counts[finest],
            draws=config.draws,
            generator=_seeded(config),
        )
        distances = ("tv", "tv_low", "tv_high", "tv_null", "tv_null_high")
        rows.append(
            {
                "lam": track.lam,
                "steps": track.steps,
                **dict(zip(("accuracy", "accuracy_low", "accuracy_high"), told, strict=True)),
                **{name: float(getattr(found, name)[0, -1]) for name in distances},
                "images": runs.read.shape[1],
            }
        )
    return pd.DataFrame(rows).sort_values(["steps", "lam"], ignore_index=True)
