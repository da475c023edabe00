"""Rows of the forecast from costs by candidate and prompt, with intervals and trust."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import percentile_interval, resampled_counts
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.field.forecast import RANK_ONLY, SIZE_AND_RANK
from flowscope.instruments.field.forecast.judge import rank_correlation

__all__ = ["Costs", "cost_rows", "kind_rows"]

Array = NDArray[np.float64]
_FACTOR = 2.0
_PEERS = ("relative_error", "turn", "weight_error")


@dataclass(frozen=True, kw_only=True, eq=False)
class Costs:
    """What was forecast of some candidates on some prompts, and measured on others.

    Attributes
    ----------
    kinds, layers, bits
        Of each candidate: what is done to which block, from 1, with how many bits or NaN.
    predicted
        Forecast of each candidate, prompt and draw.
    measured
        Of each candidate and other prompt; NaN for a candidate that was not measured.
    relative_error, turn
        Of each candidate and prompt.
    weight_error
        Of each candidate, or NaN.
    """

    kinds: Sequence[str]
    layers: Sequence[int]
    bits: Sequence[float]
    predicted: Array
    measured: Array
    relative_error: Array
    turn: Array
    weight_error: Sequence[float]


def cost_rows(costs: Costs, *, resamples: int, seed: int) -> pd.DataFrame:
    """One row per candidate: forecast and measured cost with intervals, peers, and trust."""
    drawn = _resampled(costs.predicted, resamples, seed)
    prompts = resampled_counts(costs.measured.shape[1], resamples=resamples, seed=seed)
    again = prompts @ costs.measured.T / costs.measured.shape[1]
    table: dict[str, object] = {
        "kind": list(costs.kinds),
        "layer": list(costs.layers),
        "bits": list(costs.bits),
    }
    for name, point, draws, units in (
        ("predicted", costs.predicted.mean((1, 2)), drawn, _units(costs.predicted)),
        ("measured", costs.measured.mean(1), again, prompts),
    ):
        low, high = bounds_of(percentile_interval(point, draws, units), len(point))
        ends = ("low", "high") if name == "predicted" else (f"{name}_low", f"{name}_high")
        table |= {name: point, ends[0]: low, ends[1]: high}
    table["relative_error"] = costs.relative_error.mean(1)
    table["turn"] = costs.turn.mean(1)
    table["weight_error"] = list(costs.weight_error)
    frame = pd.DataFrame(table)
    frame["trust"] = frame["kind"].map({kind: _trust(rows) for kind, rows in _by_kind(frame)})
    return frame


def _resampled(predicted: Array, resamples: int, seed: int) -> Array:
    """Means of forecasts with prompts and draws resampled, ``[resamples, candidates]``."""
    rows, draws = predicted.shape[1:]
    over_prompts = resampled_counts(rows, resamples=resamples, seed=seed) / rows
    over_draws = resampled_counts(draws, resamples=resamples, seed=seed + 1) / draws
    means = [np.einsum("cpd,p,d->c", predicted, p, d) for p, d in
             zip(over_prompts, over_draws, strict=True)]  # fmt: skip
    return np.stack(means)


def _units(predicted: Array) -> NDArray[np.int64]:
    """Prompts, or draws where there is only one prompt: the units that an interval is over."""
    rows, draws = predicted.shape[1:]
    return np.ones((1, rows if rows > 1 else draws), np.int64)


def _by_kind(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [(str(kind), frame[frame["kind"] == kind]) for kind in dict.fromkeys(frame["kind"])]


def _trust(rows: pd.DataFrame) -> str:
    """Whether the forecast has the size right: of half of the candidates, and of all together.

    The ratio of the totals sees the few dear blocks that a median does not.
    """
    ratios = np.array(_ratios(rows))
    if np.isnan(ratios).any():
        return ""
    right = (ratios >= 1 / _FACTOR) & (ratios <= _FACTOR)
    return SIZE_AND_RANK if bool(right.all()) else RANK_ONLY


def _ratios(rows: pd.DataFrame) -> tuple[float, float]:
    """Measured cost over forecast: median over candidates, and total over total."""
    there = rows[(rows["predicted"] > 0) & np.isfinite(rows["measured"])]
    if not len(there):
        return float("nan"), float("nan")
    total = float(there["measured"].sum() / there["predicted"].sum())
    return float(np.median(there["measured"] / there["predicted"])), total


def kind_rows(
    frame: pd.DataFrame, costs: Costs, sigma_max: Array, *, resamples: int, seed: int
) -> pd.DataFrame:
    """One row per kind: ratio, ranks of the forecast and of its peers, and trust.

    Parameters
    ----------
    frame
        Of `cost_rows`.
    costs
        What it was made from.
    sigma_max
        Of each block, or NaN.
    resamples, seed
        Of prompts and draws.
    """
    drawn = _resampled(costs.predicted, resamples, seed)
    prompts = resampled_counts(costs.measured.shape[1], resamples=resamples, seed=seed)
    again = prompts @ costs.measured.T / costs.measured.shape[1]
    rows = []
    for kind, part in _by_kind(frame):
        places, measured = part.index.to_numpy(), part["measured"].to_numpy(float)
        ranks = np.array(
            [[rank_correlation(a[places], b[places])] for a, b in zip(drawn, again, strict=True)]
        )
        point = np.array([rank_correlation(part["predicted"].to_numpy(float), measured)])
        fewer = prompts if prompts.shape[1] <= costs.predicted.shape[1] else _units(costs.predicted)
        low, high = bounds_of(percentile_interval(point, ranks, fewer), 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.abs(np.log(measured / part["predicted"].to_numpy(float)))
        gains = sigma_max[part["layer"].to_numpy(int) - 1]
        rows.append(
            {"kind": kind, "blocks": int(np.isfinite(measured).sum()), "ratio": _ratios(part)[0]}
            | {"ratio_total": _ratios(part)[1]}
            | {"rank": point[0], "rank_low": low[0], "rank_high": high[0]}
            | {f"rank_{name}": rank_correlation(part[name].to_numpy(float), measured)
               for name in _PEERS}
            | {"rank_sigma_max": rank_correlation(gains, off), "trust": part["trust"].iloc[0]}
        )  # fmt: skip
    return pd.DataFrame(rows)
