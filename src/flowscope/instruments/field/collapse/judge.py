"""Judge whether tokens collapse along depth.

Two effects must both be above 0: the mean cosine of the last third of the blocks less that of the
network with random weights that has the most, and the logarithm of the effective rank in the first
third over that in the last. The verdict is that of the smaller one, with the smaller ends of both
intervals: an interval of the smaller of two numbers that errs on the wide side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowscope.evidence import judged_effect, mean_over_prompts, not_measured, resampled_counts
from flowscope.evidence.intervals import smallest_of
from flowscope.evidence.verdicts import pure_number
from flowscope.instruments.field.collapse import COLLAPSE
from flowscope.lab.view import Records
from flowscope.records import Verdict

__all__ = ["THRESHOLDS", "collapse"]

THRESHOLDS = (0.05, 0.15, 0.4)
"""Differences of cosines, and logarithms of ranks, from which F2 is weak, clear and strong."""

_RESAMPLES = 999
_NAMES = ("cosine", "cosine_twin", "rank_first", "rank_last")


def collapse(records: Records) -> list[Verdict]:
    """Judge F2 from the table ``collapse_prompts``."""
    frame = records.table("collapse_prompts", *_NAMES).dropna()
    if not len(frame):
        return [not_measured(COLLAPSE, "no prompt has enough tokens that are not massive")]
    seed, n = int(records.settings["seed"]), len(frame)
    cosine, twin, first, last = (frame[name].to_numpy(float) for name in _NAMES)
    columns = np.stack([cosine - twin, np.log(first / last)], 1)
    counts = resampled_counts(n, resamples=_RESAMPLES, seed=seed)
    points, interval = mean_over_prompts(columns, np.ones_like(columns), counts)
    facts: dict[str, Any] = {"n": n, "estimator": "mean over prompts", "seed": seed}
    return [
        judged_effect(
            claim=COLLAPSE,
            statistic=pure_number("mean cosine", cosine.mean(), **facts),
            null=pure_number("random weights", twin.mean(), **facts),
            effect=float(points.min()),
            interval=smallest_of(interval),
            thresholds=THRESHOLDS,
            because="in the last third of the blocks the mean cosine of tokens is "
            f"{cosine.mean():.3f}, and {twin.mean():.3f} with random weights; the effective rank "
            f"goes from {first.mean():.1f} in the first third to {last.mean():.1f}",
            units=n,
        )
    ]
