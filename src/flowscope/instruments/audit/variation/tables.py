"""From scalars per token to the tables of layers and segments: medians over tokens."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import Counts, mean_over_prompts, median_over_prompts
from flowscope.evidence.intervals import single
from flowscope.flows import Jump, Segment, concentration, jump_report, relative_variation
from flowscope.instruments.audit.units import prompt_sums
from flowscope.instruments.audit.variation.judge import SegmentEvidence
from flowscope.probes import Arrays
from flowscope.records import Interval, Unavailable

__all__ = [
    "LOCKED",
    "jump_table",
    "layer_table",
    "placed_layers",
    "prompt_medians",
    "relative_steps",
    "segment_statistics",
    "segment_table",
]


_STATES = ("entropy", "p_max", "tail_mass", "margin", "mobility_frobenius", "mobility_trace")


_STEPS = ("oscillation", "total_variation", "kl_divergence", "first_order")


LOCKED = 1e-3


def relative_steps(depth: Arrays) -> NDArray[np.float64]:
    """‖Δz‖² / ‖z‖² after the step, per token and step; 0 where neither moves nor is."""
    step, state = depth["step_sq"].astype(np.float64), depth["state_sq"][:, 1:].astype(np.float64)
    return np.divide(step, state, out=np.zeros_like(step), where=state > 0)


def layer_table(depth: Arrays, counts: Counts) -> pd.DataFrame:
    """One row per layer, 0 (the embedding) to L: medians over tokens with intervals."""
    layers = depth["state_sq"].shape[1]
    table = pd.DataFrame({"layer": np.arange(layers)})
    columns = {"relative_step": relative_steps(depth)}
    columns |= {name: depth[name] for name in (*_STATES, *_STEPS) if name in depth}
    for name, values in columns.items():
        points, interval = median_over_prompts(values, depth["prompt"], counts)
        _put(table, name, points, interval)
    if "argmax" in depth:
        agrees = depth["argmax"] == depth["argmax"][:, -1:]
        _put_share(table, "agreement", agrees, depth, counts)
        _put_share(table, "locked_share", depth["mobility_trace"] < LOCKED, depth, counts)
    return table


def _put_share(
    table: pd.DataFrame, name: str, true: NDArray[Any], depth: Arrays, counts: Counts
) -> None:
    """Add the share of tokens for which something is true."""
    sums = prompt_sums(true.astype(np.float64), depth["prompt"], counts.shape[1])
    sizes = np.bincount(depth["prompt"].astype(np.int64), minlength=counts.shape[1])
    wide = np.repeat(sizes[:, None], sums.shape[1], 1).astype(np.float64)
    _put(table, name, *mean_over_prompts(sums, wide, counts, within=(0.0, 1.0)))


def _put(
    table: pd.DataFrame,
    name: str,
    points: NDArray[np.float64],
    interval: Interval | Unavailable,
) -> None:
    """Add a column with its bounds; a column of steps has no entry at layer 0."""
    blank = np.full(len(table) - len(points), np.nan)
    table[name] = np.concatenate([blank, points])
    if isinstance(interval, Interval):
        table[f"{name}_low"] = np.concatenate([blank, np.asarray(interval.low)])
        table[f"{name}_high"] = np.concatenate([blank, np.asarray(interval.high)])


def segment_statistics(
    depth: Arrays, segment: Segment, counts: Counts, threshold: float
) -> tuple[float, Interval | Unavailable, float]:
    """Median over tokens of S̄ on a segment, its interval, and the share of tokens above."""
    steps = slice(segment.first - 1, segment.last)
    states = slice(segment.first, segment.last + 1)
    each = relative_variation(depth["step_sq"][:, steps], depth["state_sq"][:, states])
    values = np.asarray(each, np.float64)[:, None]
    points, interval = median_over_prompts(values, depth["prompt"], counts)
    return float(points[0]), single(interval), float((values > threshold).mean())


def placed_layers(layers: pd.DataFrame, evidence: Sequence[SegmentEvidence]) -> pd.DataFrame:
    """The layer table with the segment each layer belongs to; layer 0 belongs to none."""
    table = layers.assign(segment=-1, segment_kind="start", status="ok")
    for number, segment in enumerate(evidence):
        inside = table["layer"].between(segment.first, segment.last)
        table.loc[inside, "segment"] = number
        table.loc[inside, "segment_kind"] = segment.kind
        table.loc[inside, "status"] = "ok" if segment.decision == "holds" else "abstained"
    return table


def segment_table(
    depth: Arrays, evidence: Sequence[SegmentEvidence], chord: NDArray[np.float64]
) -> pd.DataFrame:
    """One row per segment: the gate, its controls, and the shape of the path."""
    rows = []
    for number, segment in enumerate(evidence):
        squares = depth["step_sq"][:, segment.first - 1 : segment.last].astype(np.float64)
        known = segment.interval if isinstance(segment.interval, Interval) else None
        length = float(np.median(np.sqrt(squares).sum(1)))
        rows.append(
            {
                "segment": number,
                "kind": segment.kind,
                "first_layer": segment.first,
                "last_layer": segment.last,
                "relative_variation": segment.relative_variation,
                "low": known.low if known else np.nan,
                "high": known.high if known else np.nan,
                "share_above": segment.share_above,
                "threshold": segment.threshold,
                "random_weights": _or_nan(segment.random_weights),
                "linear_interpolation": _or_nan(segment.linear_interpolation),
                "total_variation": length,
                "path_length": length,
                "quadratic_variation": float(np.median(squares.sum(1))),
                "concentration": float(np.median(concentration(squares))),
                "tortuosity": length / chord[number] if chord[number] > 0 else np.nan,
                "mass_residual": segment.mass_residual,
                "mass_bound": segment.mass_bound,
                "decision": segment.decision,
                "because": segment.because,
            }
        )
    return pd.DataFrame(rows)


def _or_nan(value: float | Unavailable) -> float:
    return float("nan") if isinstance(value, Unavailable) else value


def jump_table(layers: pd.DataFrame) -> pd.DataFrame:
    """The jumps: how far each goes, and how much longer it is than its neighbours."""
    steps, moved = (layers[name].to_numpy()[1:] for name in ("relative_step", "total_variation"))
    names = [field.name for field in fields(Jump)]
    return pd.DataFrame([asdict(jump) for jump in jump_report(steps, moved)], columns=names)


def prompt_medians(depth: Arrays) -> dict[str, NDArray[np.generic]]:
    """Per prompt and layer, the median over its tokens: what two runs are compared by."""
    sizes = np.bincount(depth["prompt"])
    order, starts = np.argsort(depth["prompt"], kind="stable"), np.cumsum(sizes) - sizes
    columns = {"relative_step": relative_steps(depth)}
    columns |= {name: depth[name] for name in (*_STATES, *_STEPS) if name in depth}
    found: dict[str, NDArray[np.generic]] = {
        name: np.empty((len(sizes), values.shape[1])) for name, values in columns.items()
    }
    for size in np.unique(sizes):
        alike = np.flatnonzero(sizes == size)
        tokens = order[starts[alike, None] + np.arange(size)]
        for name, values in columns.items():
            found[name][alike] = _medians(np.ascontiguousarray(values[tokens].swapaxes(1, 2)))
    return found


def _medians(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Median along the last axis, to the last bit that of NumPy."""
    ordered, size = np.sort(values, axis=-1), values.shape[-1]
    medians = ordered[..., (size - 1) // 2 : size // 2 + 1].mean(-1)
    # NumPy decides the sign of a median of 0 and −0, and which NaN it returns.
    special = (medians == 0) | np.isnan(ordered[..., -1:]).any(-1)
    medians[special] = np.median(values[special], axis=-1)
    return np.asarray(medians)
