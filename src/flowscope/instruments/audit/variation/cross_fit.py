"""Segments of depth that are cut on one half of the prompts and read on the other, both ways."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import MINIMUM_UNITS, resampled_counts
from flowscope.flows import Segment, segments_of
from flowscope.instruments.audit.variation.judge import Stretch, interval_decision
from flowscope.instruments.audit.variation.tables import relative_steps, segment_statistics
from flowscope.probes import Arrays
from flowscope.records import Decision, Interval, Unavailable

__all__ = ["gate_table", "joined_segments"]

_READ = ("step_sq", "state_sq")


def gate_table(
    depth: Arrays,
    twin: Arrays | Unavailable,
    distinct: NDArray[np.int64],
    *,
    threshold: float,
    resamples: int,
    seed: int,
) -> pd.DataFrame:
    """Return, for each half of the prompts, its segments and their variation on the other half.

    Fewer than eight different prompts are not split: the cuts and the numbers are those of all
    prompts, and the number itself decides instead of its interval.

    Parameters
    ----------
    depth, twin
        Arrays per token of the model, and of the model with random weights or why there are none.
    distinct
        Prompts that differ from each other; they are split by turns.
    threshold
        Largest relative variation that passes.
    resamples, seed
        Of the intervals.
    """
    sides = {"even": (distinct[::2], distinct[1::2]), "odd": (distinct[1::2], distinct[::2])}
    if len(distinct) < MINIMUM_UNITS:
        everything = np.unique(depth["prompt"])
        sides = {"all": (everything, everything)}
    rows = []
    for name, (cutting, reading) in sides.items():
        cut, read = (_of_prompts(depth, chosen) for chosen in (cutting, reading))
        counts = resampled_counts(len(reading), resamples=resamples, seed=seed)
        for segment in segments_of(np.median(relative_steps(cut), axis=0)):
            value, interval, _ = segment_statistics(read, segment, counts, threshold)
            rows.append(
                {
                    "cuts_from": name,
                    "prompts": len(reading),
                    "first_layer": segment.first,
                    "last_layer": segment.last,
                    "kind": segment.kind,
                    "relative_variation": value,
                    "low": interval.low if isinstance(interval, Interval) else np.nan,
                    "high": interval.high if isinstance(interval, Interval) else np.nan,
                    "threshold": threshold,
                    "random_weights": _of_twin(twin, segment, threshold),
                    "decision": _decision(segment, value, interval, threshold, name),
                }
            )
    return pd.DataFrame(rows)


def joined_segments(
    stretches: Sequence[Stretch],
) -> tuple[tuple[Segment, ...], tuple[Decision, ...]]:
    """Return segments that cover the depth, and what both halves decide of each together."""
    segments = tuple(
        Segment(first=s.first, last=s.last, kind="jump" if s.state == "jump" else "segment")
        for s in stretches
    )
    return segments, tuple("abstains" if s.state == "jump" else s.state for s in stretches)


def _decision(
    segment: Segment, value: float, interval: Interval | Unavailable, limit: float, side: str
) -> Decision:
    if segment.kind == "jump":
        return "abstains"
    if side == "all" or isinstance(interval, Unavailable):
        return "holds" if value <= limit else "fails"
    return interval_decision(float(interval.low), float(interval.high), limit)


def _of_prompts(depth: Arrays, prompts: NDArray[np.integer]) -> Arrays:
    """Tokens of some prompts, which are numbered anew from 0."""
    chosen = np.isin(depth["prompt"], prompts)
    numbers = np.unique(depth["prompt"][chosen], return_inverse=True)[1]
    return {"prompt": numbers, **{name: depth[name][chosen] for name in _READ}}


def _of_twin(twin: Arrays | Unavailable, segment: Segment, threshold: float) -> float:
    if isinstance(twin, Unavailable):
        return float("nan")
    counts = resampled_counts(int(twin["prompt"].max()) + 1, resamples=2, seed=0)
    return segment_statistics(twin, segment, counts, threshold)[0]
