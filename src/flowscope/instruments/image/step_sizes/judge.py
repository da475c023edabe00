"""Say how large the sampling error is, and whether its numbers of steps are in first-order range.

That twice the steps halve the error is a theorem for any smooth field in the limit of many steps:
it tells of the steps, not of the model. So this is a gate. It is open where both samplers have a
slope of log |change| in log K, and both jackknife intervals lie within a quarter of −1; closed
where an interval lies outside. It is uninformative where the change of a sampler cannot be told
from noise. The slope need not be −1 exactly, because a scheme of first order has it only in the
limit: −1.09 over K = 25 to 200 in the Gaussian case of the theory page.
"""

from __future__ import annotations

import math

import pandas as pd

from flowscope.evidence.verdicts import Claimed, no_verdict, not_measured, pure_number
from flowscope.instruments.image.step_sizes import DECIDING, ORDER
from flowscope.lab.view import Records
from flowscope.records import Decision, Interval, Measurement, Outcome, Unavailable, Verdict
from flowscope.records.verdict_text import UNINFORMATIVE

__all__ = ["judge_order", "order"]


_NEAR = 0.25


def order(records: Records) -> list[Verdict]:
    """Whether the numbers of steps are in the first-order range of the sampling error."""
    slopes, changes = records.table("weak_error_slope"), records.table("weak_error")
    seed = records.settings["seed"]
    return [judge_order(slopes, changes, claim=ORDER, observable=DECIDING, seed=seed)]


def judge_order(
    slopes: pd.DataFrame, changes: pd.DataFrame, *, claim: Claimed, observable: str, seed: int
) -> Verdict:
    """Judge by the slopes of one observable whether its error is in the first-order range.

    Parameters
    ----------
    slopes
        The table ``weak_error_slope``.
    changes
        The table ``weak_error``.
    claim
        What is judged.
    observable
        The one that decides.
    seed
        Of the run.
    """
    rows = slopes[slopes["observable"] == observable]
    if rows.empty:
        return not_measured(claim, f"no slope of the {observable} was measured")
    read = rows[rows["status"] == "ok"]
    off = read[(read["low"] > -1 + _NEAR) | (read["high"] < -1 - _NEAR)]
    near = read[(read["low"] >= -1 - _NEAR) & (read["high"] <= -1 + _NEAR)]
    said = f"{_error(changes, observable)}; {_slopes(read, observable)}".removesuffix("; ")
    outcome: Outcome
    if len(read) < len(rows):
        outcome = "uninformative"
        lost = "; ".join(f"{r['sampler']}: {r['because']}" for _, r in _unread(rows).iterrows())
        said = f"{UNINFORMATIVE}the {observable} is too noisy to give a slope ({lost}); {said}"
    elif len(off):
        outcome = "fails"
        said += f"; not within {_NEAR} of −1: {' and '.join(off['sampler'])}. Take more steps"
    elif len(near) < len(read):
        outcome = "abstains"
        said += f"; {no_verdict(f'an interval reaches further than {_NEAR} from −1')}"
    else:
        outcome = "holds"
    decision: Decision = "abstains" if outcome == "uninformative" else outcome
    shown = (off if len(off) else read if len(read) else rows).iloc[0]
    statistic, effect, interval = _numbers(shown, observable, seed)
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=statistic,
        null=Unavailable("a scheme of first order has the slope −1"),
        effect=effect,
        interval=interval,
        decision=decision,
        because=said,
        outcome=outcome,
    )


def _unread(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["status"] != "ok"]


def _numbers(
    row: pd.Series, observable: str, seed: int
) -> tuple[Measurement, float | Unavailable, Interval | Unavailable]:
    """Slope of one sampler as a measurement, and its distance from −1 with the interval of that."""
    name = f"log–log slope, {row['sampler']}, {observable}"
    if row["status"] != "ok" or math.isnan(float(row["low"])):
        nothing = Unavailable(str(row["because"]) or "the slope has no interval")
        return Measurement.abstained(name, nothing.reason), nothing, nothing
    low, high, slope = (float(row[end]) for end in ("low", "high", "slope"))
    method = str(row["method"])
    return (
        pure_number(
            name,
            slope,
            n=int(row["images"]),
            estimator=f"step doubling, K = {int(row['first'])} to {int(row['last'])}",
            seed=seed,
            interval=Interval(low=low, high=high, level=0.95, method=method),
        ),
        slope + 1,
        Interval(low=low + 1, high=high + 1, level=0.95, method=method),
    )


def _error(changes: pd.DataFrame, observable: str) -> str:
    """Size of the sampling error at the most steps: what the last doubling still changed."""
    own = changes[changes["observable"] == observable]
    last = own[own["steps"] == own["steps"].max()]
    if last.empty:
        return ""
    steps = int(last["steps"].iloc[0])
    sizes = ", ".join(
        f"{abs(r['difference']):.2g} ± {(r['high'] - r['low']) / 2:.1g} ({r['sampler']})"
        for _, r in last.iterrows()
    )
    return (
        f"sampling error of the {observable} at {2 * steps} steps, by its change from {steps} "
        f"steps: {sizes}"
    )


def _slopes(read: pd.DataFrame, observable: str) -> str:
    if read.empty:
        return ""
    intervals = ", ".join(
        f"{r['sampler']} {r['slope']:.2f} [{r['low']:.2f}, {r['high']:.2f}]"
        for _, r in read.iterrows()
    )
    first, last = int(read["first"].iloc[0]), int(read["last"].iloc[0])
    return f"slopes of the {observable} over K = {first} to {last}: {intervals}"
