r"""Judge whether the two samplers of a model differ by more than their step errors.

Flow and SDE of one score share their marginals in the limit of small steps. At finitely many steps
each is off by its step error, so an exact score fails a comparison that ignores the steps. The
effect is the largest *excess* over all times: total variation of the two with 2K steps, less what
either moves between K and 2K steps (:mod:`flowscope.flows.sampling.budgets`). The interval covers
all times together. The claim holds if its high end lies below .02 and fails if its low end lies
above.

The claim could not have failed, or would fail for the noise or the steps alone, where the step
errors or the noise exceed .1, or where many values lie beyond the bins. Times with a log snr below
−5 do not count. With guidance parity is not claimed: a guided field is not the score of any
distribution.
"""

from __future__ import annotations

import math

import pandas as pd

from flowscope.evidence.decisions import MINIMUM_UNITS, strength_of
from flowscope.evidence.verdicts import Claimed, no_verdict, not_measured, pure_number
from flowscope.instruments.image.config import GUIDED
from flowscope.instruments.image.parity import LEAST_LOG_SNR, LIMIT, PARITY
from flowscope.lab.claim import Abstention
from flowscope.lab.view import Records
from flowscope.records import Decision, Interval, Outcome, Verdict
from flowscope.records.verdict_text import UNINFORMATIVE

__all__ = ["THRESHOLDS", "judge_parity", "parity"]


THRESHOLDS = (LIMIT, 0.05, 0.1)
"""Excess from which a difference is weak, clear and strong."""

_MOST = 0.1  # step errors or noise beyond which nothing can be said
_MOST_OUTSIDE = 0.05
_COLUMNS = ("step", "log_snr", "counted", "distance", "noise", "budget", "excess", "excess_low",
            "excess_high", "detectable", "outside", "images")  # fmt: skip


def parity(records: Records) -> list[Verdict]:
    """Whether flow and SDE share their marginals."""
    settings = records.settings
    if settings["guidance"] != 1:
        raise Abstention(GUIDED)
    table = records.table("step_budget", *_COLUMNS)
    if table["distance"].isna().all():
        steps = int(settings["steps"])
        reason = (
            f"there is no run with {2 * steps} steps to tell the error of {steps} steps: the "
            "schedule has too few times for it. Take fewer steps"
        )
        return [not_measured(PARITY, reason)]
    return [judge_parity(table, claim=PARITY, steps=settings["steps"], seed=settings["seed"])]


def judge_parity(table: pd.DataFrame, *, claim: Claimed, steps: int, seed: int) -> Verdict:
    """Judge by the table of step errors whether ODE and SDE have the same marginals.

    Parameters
    ----------
    table
        The table ``step_budget``.
    claim
        What is judged.
    steps
        K; the distances are those of 2K steps.
    seed
        Of the draws.
    """
    rows = table[table["counted"].astype(bool)]
    if rows.empty:
        return not_measured(
            claim,
            f"no step of this schedule ends at a log snr of {LEAST_LOG_SNR:g} or more "
            f"(the most is {table['log_snr'].max():.2g}): everything is noise there",
        )
    images = int(rows["images"].iloc[0])
    if rows[["excess_low", "excess_high"]].isna().any(axis=None) or images < MINIMUM_UNITS:
        return not_measured(claim, f"{images} images are too few for an interval")
    low, high = float(rows["excess_low"].max()), float(rows["excess_high"].max())
    failing = low > LIMIT
    worst = rows.iloc[int(rows["excess_low" if failing else "excess"].to_numpy().argmax())]
    outcome: Outcome = "fails" if failing else "holds" if high < LIMIT else "abstains"
    because = _numbers(worst, low, high, steps, len(rows))
    guard = _guard(rows)
    if guard:
        outcome, because = "uninformative", f"{UNINFORMATIVE}{guard}; {because}"
    elif outcome == "abstains":
        seen = float(rows["detectable"].max())
        because = f"{because}; {no_verdict(_unseen(worst, seen, low, high, images))}"
    decision: Decision = "abstains" if outcome == "uninformative" else outcome
    how = "histograms of all values, mean over channels"
    method = f"maximal t over {images} images and {len(rows)} times, widened by the noise"
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=pure_number(
            "TV of flow and SDE, less noise",
            max(float(worst["distance"] - worst["noise"]), 0.0),
            n=images,
            estimator=f"{how}, {2 * steps} steps",
            seed=seed,
        ),
        null=pure_number(
            "step errors of both",
            float(worst["budget"]),
            n=images,
            estimator=f"{how}, {steps} against {2 * steps} steps",
            seed=seed,
        ),
        effect=float(worst["excess"]),
        interval=Interval(low=low, high=high, level=0.95, method=method),
        decision=decision,
        because=because,
        outcome=outcome,
        strength=strength_of(float(worst["excess"]), THRESHOLDS) if outcome == "fails" else "",
    )


def _guard(rows: pd.DataFrame) -> str:
    """Why nothing can be said of the samplers on these data; empty if something can."""
    noise, budget, outside = (float(rows[name].max()) for name in ("noise", "budget", "outside"))
    if outside > _MOST_OUTSIDE:
        return (
            f"{outside:.0%} of the values lie beyond the bins, where histograms do not tell them "
            "apart: look at the samples, the sampler may have diverged"
        )
    if noise > _MOST:
        return (
            f"noise alone gives a distance of {noise:.2g}, more than {_MOST:g}: there are too few "
            "images"
        )
    if budget > _MOST:
        return (
            f"the steps alone move the samplers by {budget:.2g}, more than {_MOST:g}: take more "
            "steps"
        )
    return ""


def _numbers(row: pd.Series, low: float, high: float, steps: int, times: int) -> str:
    return (
        f"beyond their step errors ODE and SDE differ by {row['excess']:.3g} [{low:.3g}, "
        f"{high:.3g}] where they differ most, after step {int(row['step'])} of {steps} (log snr "
        f"{row['log_snr']:.2g}): total variation {max(row['distance'] - row['noise'], 0):.3g} "
        f"with twice the steps, step errors {row['budget']:.3g}, noise {row['noise']:.2g}; "
        f"{times} times are judged"
    )


def _unseen(row: pd.Series, seen: float, low: float, high: float, images: int) -> str:
    """Why the interval decides nothing, what would have been seen, and how many images would do."""
    reason = (
        f"an excess of {LIMIT:g} lies between {low:.3g} and {high:.3g}. This run could have seen "
        f"an excess of {seen:.2g}"
    )
    excess = max(float(row["excess"]), 0.0)
    if excess < 0.75 * LIMIT:
        needed = images * ((high - excess) / (LIMIT - excess)) ** 2
        size = 10 ** (math.floor(math.log10(needed)) - 1)
        reason += f"; to exclude {LIMIT:g}, take about {math.ceil(needed / size) * size:,} images"
    return reason
