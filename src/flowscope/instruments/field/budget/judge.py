"""Judge whether attention draws tokens together more than with its keys permuted.

The effect is the change of the spread with permuted keys less the change with the model's keys, as
a share of the spread, mean over blocks and over prompts.
"""

from __future__ import annotations

import numpy as np

from flowscope.evidence import judged_effect, mean_over_prompts, not_measured, resampled_counts
from flowscope.evidence.intervals import single
from flowscope.evidence.verdicts import pure_number
from flowscope.instruments.field.budget import MIXING
from flowscope.lab.view import Records
from flowscope.records import Verdict

__all__ = ["THRESHOLDS", "mixing"]

THRESHOLDS = (0.005, 0.02, 0.05)
"""Shares of the spread per block from which F1 is weak, clear and strong."""

_RESAMPLES = 999


def mixing(records: Records) -> list[Verdict]:
    """Judge F1 from the table ``mixing``."""
    frame = records.table("mixing", "spread_alone", "spread_permuted").dropna()
    if not len(frame):
        return [not_measured(MIXING, _why_not(records))]
    seed, n = int(records.settings["seed"]), len(frame)
    alone, permuted = (frame[name].to_numpy() for name in ("spread_alone", "spread_permuted"))
    column = (permuted - alone)[:, None]
    counts = resampled_counts(n, resamples=_RESAMPLES, seed=seed)
    point, interval = mean_over_prompts(column, np.ones_like(column), counts)
    estimator = "mean over prompts and blocks"
    return [
        judged_effect(
            claim=MIXING,
            statistic=pure_number(
                "change of the spread", alone.mean(), n=n, estimator=estimator, seed=seed
            ),
            null=pure_number(
                "change with permuted keys", permuted.mean(), n=n, estimator=estimator, seed=seed
            ),
            effect=float(point[0]),
            interval=single(interval),
            thresholds=THRESHOLDS,
            because=f"attention changes the spread of the tokens by {alone.mean():+.4f} of itself "
            f"per block, and by {permuted.mean():+.4f} with its keys permuted",
            units=n,
        )
    ]


def _why_not(records: Records) -> str:
    """Why no prompt has a number, from what the blocks have."""
    names = ("mean_cosine", "energy_attention", "part_others")
    there = records.table("blocks", *names)[list(names)].notna().any()
    if not there["mean_cosine"]:
        return (
            "no prompt has 4 tokens whose directions can be compared: the first token and "
            "massive ones are left out. Give longer prompts"
        )
    if not there["energy_attention"]:
        return (
            "attention could not be followed to its write in any block: the blocks are post-norm, "
            "or add attention and feed-forward in one write"
        )
    if not there["part_others"]:
        return (
            "attention could not be followed to its write in any block: another map than a linear "
            "one stands between, or queries and keys are not the same tokens"
        )
    return "the tokens of every prompt are equal but for rounding, so that they have no spread"
