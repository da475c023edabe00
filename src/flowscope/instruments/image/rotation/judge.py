"""Judge whether the learned score is a gradient.

The share of its energy that rotates, mean over times, lies below the share that was planted in a
control, and the planted share is detected. With guidance this is not claimed: a guided field is not
the score of any distribution.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from flowscope.evidence.verdicts import Claimed, ends, no_verdict, not_measured, pure_number
from flowscope.instruments.image.config import GUIDED
from flowscope.instruments.image.rotation import GRADIENT
from flowscope.lab.claim import Abstention
from flowscope.lab.view import Records
from flowscope.records import Decision, Interval, Unavailable, Verdict

__all__ = ["gradient", "judge_gradient"]


_WITH_VERDICT = Unavailable("the interval is reported with the verdict")


def gradient(records: Records) -> list[Verdict]:
    """Whether the learned score is a gradient."""
    settings = records.settings
    if settings["guidance"] != 1:
        raise Abstention(GUIDED)
    table = records.table("rotation", "mean_low", "mean_high", "mean_level", "mean_method")
    degree, seed = settings["rotation_degree"], settings["seed"]
    interval = _interval_of_the_mean(table)
    return [judge_gradient(table, interval, claim=GRADIENT, degree=degree, seed=seed)]


def _interval_of_the_mean(table: pd.DataFrame) -> Interval | Unavailable:
    """Interval of the mean share over times; every row repeats it."""
    row = table.iloc[0]
    if pd.isna(row["mean_low"]):
        return Unavailable(str(row["mean_method"]))
    low, high, level = (float(row[name]) for name in ("mean_low", "mean_high", "mean_level"))
    return Interval(low=low, high=high, level=level, method=str(row["mean_method"]))


def judge_gradient(
    table: pd.DataFrame,
    interval: Interval | Unavailable,
    *,
    claim: Claimed,
    degree: int,
    seed: int,
) -> Verdict:
    """Judge by the table of rotation at each time whether the learned score is a gradient.

    Parameters
    ----------
    table
        Rows with ``normalised``, ``p_value``, ``gradient_control``, ``planted_control``,
        ``planted_share``, ``images``, ``status`` and ``because``.
    interval
        Of the mean share over the times that were measured.
    claim
        What is judged.
    degree
        Degree of the requested fields. Where there are images for lower degrees only, the claim
        abstains instead of holding.
    seed
        Of the resamples.
    """
    read = table[table["status"] == "ok"] if len(table) else table
    if read.empty:
        reasons = sorted({str(r) for r in table.get("because", []) if r})
        return not_measured(claim, (reasons or ["the measurement is switched off"])[0])
    if isinstance(interval, Unavailable):
        return not_measured(claim, interval.reason)
    names = ("normalised", "gradient_control", "planted_control", "planted_share")
    means = {name: float(read[name].mean()) for name in names}
    value, planted, seen = means["normalised"], means["planted_share"], means["planted_control"]
    low, high = ends(interval)
    most = read.iloc[int(np.argmax(read["normalised"]))]
    lowest = int(read["degree"].min())
    control = round(means["gradient_control"], 3) + 0.0  # no minus before a zero
    decision: Decision = "abstains"
    if not seen > planted / 2:
        why = no_verdict(
            f"a planted share of {planted:.2f} is measured as {seen:.3f}: there are too few images"
        )
    elif high < planted and lowest < degree:
        why = no_verdict(
            f"there are too few images for degree {degree}: rotation in finer patterns is not seen"
        )
    elif high < planted:
        decision, why = "holds", f"less than {planted:.2f} of its energy rotates"
    elif low > planted:
        decision, why = "fails", f"more than {planted:.2f} of its energy rotates"
    else:
        why = no_verdict(f"the interval contains {planted:.2f}")
    reason = (
        f"R_norm, the share of rotation, is {value:.3f} [{low:.3f}, {high:.3f}] over {len(read)} "
        f"times, in {int(read['rank'].iloc[0])} coordinates with fields of degree {lowest} "
        f"(control without rotation: {control:.3f}; with {planted:.2f} planted: {seen:.3f}); the "
        f"largest is {most['normalised']:.3f} after step {int(most['step'])}; {why}"
    )
    n = int(read["images"].iloc[0])
    how = f"mean over {len(read)} times, cross-fitted between halves of the images"
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=pure_number(
            "R_norm of the learned score", value, n=n, estimator=how, seed=seed, interval=interval
        ),
        null=pure_number(
            "R_norm of a gradient field",
            means["gradient_control"],
            n=n,
            estimator=how,
            seed=seed,
            interval=_WITH_VERDICT,
        ),
        effect=value,
        interval=interval,
        decision=decision,
        because=reason,
    )
