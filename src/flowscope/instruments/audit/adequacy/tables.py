"""From forecasts to the tables of adequacy: errors by layer, budgets, and the judged number."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError
from flowscope.evidence import Counts, mean_over_prompts, median_over_prompts
from flowscope.evidence.intervals import bounds_of, single
from flowscope.flows.drift import (
    discrepancy,
    fit_budget,
    gaussian_kernel,
    ks_distance,
    ks_draws,
    median_distance,
    rank_correlation,
)
from flowscope.instruments.audit.adequacy.forecasts import KINDS, Adequacy
from flowscope.instruments.audit.units import prompt_sums
from flowscope.records import Interval, Measurement, Unavailable

__all__ = [
    "BudgetReading",
    "adequacy_table",
    "budget_reading",
    "cloud_table",
    "fit_table",
    "overlay_table",
    "skill_of",
]

_SHOWN = ("flow", *KINDS, "mean", "scaled", "lookup", "persistence", "floor", "line")
_INFORMATIVE = 0.99
_DRAWS = 100
_BAND = (0.025, 0.975)
_CLOUD = 192  # tokens of a cloud: resampling it costs as much as all the fits otherwise


def adequacy_table(found: Sequence[Adequacy], counts: Counts) -> pd.DataFrame:
    """One row per layer, horizon and forecast: total variation with its interval over prompts.

    ``skill`` is one minus the ratio of mean total variations to persistence.
    """
    rows: list[dict[str, object]] = []
    for part in found:
        for horizon in ("one", "onward"):
            still = part.errors[f"{horizon}_persistence"]
            for name in _SHOWN:
                values = part.errors.get(f"{horizon}_{name}")
                if values is not None:
                    rows += _rows(part, horizon, name, values, still, counts)
    return pd.DataFrame(rows)


def _rows(
    part: Adequacy,
    horizon: str,
    name: str,
    values: NDArray[np.float64],
    still: NDArray[np.float64],
    counts: Counts,
) -> list[dict[str, object]]:
    points, interval = median_over_prompts(values, part.prompt, counts)
    low, high = bounds_of(interval, len(points))
    skills, span = _skill(values, still, part.prompt, counts)
    worse, better = bounds_of(span, len(points))
    return [
        {
            "first_layer": part.segment.first,
            "last_layer": part.segment.last,
            "layer": part.segment.first + k,
            "horizon": "one layer" if horizon == "one" else "onward",
            "forecast": name,
            "tv": points[k],
            "low": low[k],
            "high": high[k],
            "skill": skills[k],
            "skill_low": worse[k],
            "skill_high": better[k],
            "tokens": int(np.isfinite(values[:, k]).sum()),
        }
        for k in range(len(points))
    ]


def _skill(
    values: NDArray[np.float64],
    still: NDArray[np.float64],
    prompt: NDArray[np.int64],
    counts: Counts,
) -> tuple[NDArray[np.float64], Interval | Unavailable]:
    """1 − Σ values / Σ still, per column, with its interval over prompts."""
    known = np.isfinite(values) & np.isfinite(still)
    sums, sizes = (
        prompt_sums(np.where(known, each, 0.0), prompt, counts.shape[1]) for each in (values, still)
    )
    points, interval = mean_over_prompts(sums, sizes, counts)
    if isinstance(interval, Interval):
        low, high = 1 - np.asarray(interval.high), 1 - np.asarray(interval.low)
        interval = Interval(low=low, high=high, level=interval.level, method=interval.method)
    return 1 - points, interval


def cloud_table(found: Sequence[Adequacy], seed: int) -> pd.DataFrame:
    """Clouds of true and forecast coordinates, onward: one row per layer and forecast.

    ``ks`` is the largest Kolmogorov–Smirnov distance of a coordinate, ``mmd`` the squared mean
    discrepancy under a Gaussian kernel of the median distance, without bias; the bands are the 2.5
    and 97.5 % quantiles of 100 resamples of prompts. At most 192 tokens, evenly spread.
    """
    rows = []
    for part in found:
        still = part.y[:, :1].expand(-1, part.y.shape[1] - 1, -1)
        for name, cloud in (("flow", part.predicted), ("persistence", still)):
            if bool(cloud.isfinite().all()):
                rows += [
                    {"layer": part.segment.first + k, "forecast": name, **told}
                    for k, told in enumerate(_clouds(part, cloud, seed))
                ]
    return pd.DataFrame(rows)


def _clouds(part: Adequacy, cloud: torch.Tensor, seed: int) -> Iterator[dict[str, float]]:
    every = -(-len(part.prompt) // _CLOUD)
    groups = torch.from_numpy(part.prompt[::every]).to(part.y.device)
    said, true = cloud[::every], part.y[::every, 1:]
    # Every layer draws the same prompts, so the coordinates of several can stand side by side: on
    # an accelerator it is the number of calls that takes time, on a CPU what leaves its caches.
    together = 1 if part.y.device.type == "cpu" else said.shape[1]
    pieces = (torch.split(states, together, 1) for states in (said, true))
    for x, y in zip(*pieces, strict=True):
        yield from _layer_clouds(x, y, groups, torch.Generator().manual_seed(seed))


def _layer_clouds(
    said: torch.Tensor, true: torch.Tensor, groups: torch.Tensor, generator: torch.Generator
) -> Iterator[dict[str, float]]:
    """Distances of the clouds of some layers, ``[tokens, layers, r]``, each with the same draws."""
    shape, flat = said.shape[1:], (said.flatten(1), true.flatten(1))
    drawn = ks_draws(*flat, groups, draws=_DRAWS, generator=generator)
    bands = np.quantile(drawn.view(-1, *shape).amax(2).cpu().numpy(), _BAND, axis=0)
    ks = ks_distance(*flat).view(shape).amax(1).cpu().numpy()
    onward = generator.get_state()
    for k in range(len(ks)):
        x, y = said[:, k], true[:, k]
        kernel = gaussian_kernel(median_distance(x, y))
        generator.set_state(onward)
        told = discrepancy(x, y, groups, kernel=kernel, draws=_DRAWS, generator=generator)
        low, high = np.quantile(told.draws.cpu().numpy(), _BAND)
        yield {
            "ks": float(ks[k]),
            "ks_low": bands[0, k],
            "ks_high": bands[1, k],
            "mmd": told.value,
            "mmd_low": low,
            "mmd_high": high,
        }


def fit_table(found: Sequence[Adequacy]) -> pd.DataFrame:
    """One row per segment, half and kind of drift: its held-out error where it was fitted."""
    rows = [
        {
            "first_layer": part.segment.first,
            "last_layer": part.segment.last,
            **row,
            "chosen": row["drift"] == part.chosen[int(str(row["half"]))],
            "coordinates": len(part.coordinates.shares),
            "variance_held": float(part.coordinates.shares.sum()),
            "route": part.coordinates.route,
        }
        for part in found
        for row in part.fits
    ]
    return pd.DataFrame(rows)


def overlay_table(found: Sequence[Adequacy], counts: Counts) -> pd.DataFrame:
    """One row per layer: how far it moves, and what bounds and first order say about it.

    ``budget`` is tanh(Σ osc / 4) over the writes of the block (NaN where they cannot be told
    apart); ``budget_informative`` and ``restricted_informative`` are the shares of tokens for which
    a bound is below .99, so that it says anything at all.
    """
    rows = []
    for part in found:
        moved = part.errors["one_persistence"]
        budget = np.tanh(part.errors["writes"] / 4)
        restricted = part.errors["restricted"]
        columns = {
            "tv": moved,
            "first_order": part.errors["first_order"],
            "restricted": restricted,
            "budget": budget,
        }
        points = {n: median_over_prompts(v, part.prompt, counts)[0] for n, v in columns.items()}
        for k in range(moved.shape[1]):
            known = np.isfinite(budget[:, k])
            rows.append(
                {
                    "layer": part.segment.first + k,
                    **{name: values[k] for name, values in points.items()},
                    "budget_informative": float((budget[known, k] < _INFORMATIVE).mean())
                    if known.any()
                    else np.nan,
                    "restricted_informative": float((restricted[:, k] < _INFORMATIVE).mean()),
                    "exceeded": int((moved[known, k] > budget[known, k] + 1e-5).sum())
                    + int((moved[:, k] > restricted[:, k] + 1e-5).sum()),
                    "tokens": len(moved),
                }
            )
    return pd.DataFrame(rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class BudgetReading:
    """The finite-depth budget: its table, and its rank correlation with the error."""

    table: pd.DataFrame
    correlation: Measurement


def budget_reading(found: Sequence[Adequacy], seed: int) -> BudgetReading | Unavailable:
    """Ξ of every token against the worst error of its forecast (000 eq 1, prediction i).

    One row per token and segment. The constants are fitted on half of the prompts; the rank
    correlation is that of segments times prompts.
    """
    error = np.concatenate([part.errors["onward_flow"].max(1) for part in found])
    half = [part.errors["osc"] / 2 for part in found]
    largest = np.concatenate([x.max(1) for x in half])
    squares = np.concatenate([(x**2).sum(1) for x in half])
    prompt = np.concatenate([part.prompt for part in found])
    segment = np.repeat(np.arange(len(found)), [len(part.prompt) for part in found])
    generator = torch.Generator().manual_seed(seed)
    e, m, s = (torch.from_numpy(x) for x in (error, largest, squares))
    try:
        xi = fit_budget(e, m, s, torch.from_numpy(prompt), generator=generator).values
        table = pd.DataFrame(
            {
                "segment": segment,
                "prompt": prompt,
                "error": error,
                "largest": largest,
                "squares": squares,
                "budget": xi.numpy(),
            }
        )
        means = table.groupby(["segment", "prompt"], as_index=False)[["error", "budget"]].mean()
        worst, allowed, owner = (
            torch.from_numpy(means[name].to_numpy().copy())
            for name in ("error", "budget", "prompt")
        )
        told = rank_correlation(worst, allowed, owner, generator=generator)
    except InvalidInputError as problem:
        return Unavailable(str(problem))
    low, high = told.interval()
    correlation = Measurement(
        name="rank correlation of forecast error and budget",
        values=np.asarray(told.value),
        unit="1",
        n=int(means["prompt"].nunique()),
        estimator="Spearman over segments times prompts",
        dtype="float64",
        seed=seed,
        interval=Interval(
            low=low, high=high, level=0.95, method="percentile bootstrap over prompts"
        ),
    )
    return BudgetReading(table=table, correlation=correlation)


def skill_of(
    found: Sequence[Adequacy], horizon: str, counts: Counts, seed: int, forecast: str = "flow"
) -> Measurement:
    """Skill over persistence on all segments and layers, with its interval over prompts."""
    name = f"skill of the {forecast}, {horizon}"
    whole = [_sums(part, horizon, forecast, counts) for part in found]
    sums, sizes = (np.sum([pair[k] for pair in whole], axis=0)[:, None] for k in (0, 1))
    points, interval = mean_over_prompts(sums, sizes, counts)
    if not np.isfinite(points[0]):
        return Measurement.abstained(name, "the output does not change on these segments")
    told = single(interval)
    if isinstance(told, Interval):
        low, high = 1 - float(told.high), 1 - float(told.low)
        told = Interval(low=low, high=high, level=told.level, method=told.method)
    return Measurement(
        name=name,
        values=np.asarray(1 - points[0]),
        unit="1",
        n=counts.shape[1],
        estimator="1 − ΣTV(forecast)/ΣTV(persistence), drifts fitted on the other half of prompts",
        dtype="float64",
        seed=seed,
        interval=told,
    )


def _sums(
    part: Adequacy, horizon: str, forecast: str, counts: Counts
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    key = "one" if horizon == "one layer" else "onward"
    each = [part.errors[f"{key}_{name}"].sum(1) for name in (forecast, "persistence")]
    first, second = (
        np.bincount(part.prompt, x, minlength=counts.shape[1]).astype(np.float64) for x in each
    )
    return first, second
