"""Judge whether certainty saves passes, and whether the calibrated policy keeps its promise.

D1: share of the reference's passes that the calibrated policy saves less the share that a fixed
number of positions a pass saves, both calibrated alike, on the same fresh prompts. D2: alpha less
the share of fresh prompts whose answer the policy changes, with the exact binomial interval. Where
filling everything in one pass changes no answer, neither could have failed; nor could D2 where the
policy leaves out less than one pass in a hundred.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from flowscope.evidence import (
    judged_effect,
    mean_over_prompts,
    not_measured,
    resampled_counts,
    share_interval,
)
from flowscope.evidence.intervals import single
from flowscope.evidence.verdicts import pure_number
from flowscope.instruments.decode.trial import ADAPTIVE, PROMISE
from flowscope.lab.view import Records
from flowscope.records import Interval, Unavailable, Verdict

__all__ = ["KEPT", "LEAST", "THRESHOLDS", "trial"]

THRESHOLDS = (0.02, 0.1, 0.3)
"""Differences of shares of passes from which D1 is weak, clear and strong."""

LEAST = 0.01
"""Share of the passes that a policy must leave out for D2 to mean something."""

KEPT = (0.0, 0.3, 0.7)
"""Parts of alpha that are left from which D2 is weak, clear and strong."""


def trial(records: Records) -> list[Verdict]:
    """Judge D1 and D2 from the table ``trial_prompts``."""
    if "trial_prompts" not in records.run.tables():
        reasons = _reasons(records)
        return [not_measured(claim, reasons) for claim in (ADAPTIVE, PROMISE)]
    names = ("policy", "reference", "passes", "same", "plain", "at_once")
    frame = records.table("trial_prompts", *names)
    changes = int((frame["at_once"] == 0).sum())
    guard = "" if changes else "filling everything in one pass changes no answer here"
    return [_adaptive(frame, records, guard), _promise(frame, records, guard)]


def _reasons(records: Records) -> str:
    """Why no policy has a calibrated threshold."""
    frame = records.table("thresholds", "policy", "threshold", "because")
    lost = frame[frame["threshold"].isna() & (frame["policy"] != "plain")]
    if not len(lost):
        return "no policy with a threshold was asked for"
    row = lost.iloc[0]
    return f"no threshold of {row['policy']} keeps the promise: {row['because']}"


def _adaptive(frame: pd.DataFrame, records: Records, guard: str) -> Verdict:
    if frame["plain"].isna().any():
        return not_measured(ADAPTIVE, "the peer was not calibrated (controls: false)")
    seed, n = int(records.settings["seed"]), len(frame)
    reference = frame["reference"].to_numpy(float)
    saved, plain = (1 - frame[name].to_numpy(float) / reference for name in ("passes", "plain"))
    column = (saved - plain)[:, None]
    counts = resampled_counts(n, resamples=999, seed=seed)
    point, interval = mean_over_prompts(column, np.ones_like(column), counts)
    facts: dict[str, Any] = {"n": n, "estimator": "mean over prompts", "seed": seed}
    policy = frame["policy"].iloc[0]
    return judged_effect(
        claim=ADAPTIVE,
        statistic=pure_number("passes saved", saved.mean(), **facts),
        null=pure_number("saved by a fixed number a pass", plain.mean(), **facts),
        effect=float(point[0]),
        interval=single(interval),
        thresholds=THRESHOLDS,
        because=f"{policy} saves {saved.mean():.1%} of the passes, a fixed number of positions a "
        f"pass {plain.mean():.1%}",
        units=n,
        guard=guard,
    )


def _promise(frame: pd.DataFrame, records: Records, guard: str) -> Verdict:
    alpha, n = float(records.settings["alpha"]), len(frame)
    changed = int((frame["same"] == 0).sum())
    share = share_interval(changed, n)
    assert isinstance(share, Interval)
    interval = Interval(
        low=alpha - float(share.high), high=alpha - float(share.low), level=share.level,
        method=share.method,
    )  # fmt: skip
    effect = alpha - changed / n
    saved = float((1 - frame["passes"] / frame["reference"]).mean())
    if not guard and saved < LEAST:
        guard = f"the policy leaves out {saved:.1%} of the passes, so that little could change"
    return judged_effect(
        claim=PROMISE,
        statistic=pure_number(
            "changed answers", changed / n, n=n, estimator="share", seed=0, interval=share
        ),
        null=Unavailable("alpha"),
        effect=effect,
        interval=interval,
        thresholds=KEPT,
        size=effect / alpha,
        because=f"{frame['policy'].iloc[0]} changes {changed} of {n} fresh answers "
        f"({changed / n:.1%}; alpha is {alpha:.1%})",
        units=n,
        guard=guard,
    )
