"""Judge how the sampling error falls with the number of steps.

The sampling error falls at first order: the interval of the log–log slope of step-doubling
differences lies within a quarter of −1. The claim fails where an interval lies outside, and
abstains otherwise. The slope need not be −1 exactly, because a scheme of first order has it only in
the limit: −1.09 over K = 25 to 200 in the Gaussian case of the theory page. A slope of differences
that are not significantly different from zero is no evidence.
"""

from __future__ import annotations

import pandas as pd

from flowscope.evidence.verdicts import Claimed, no_verdict, not_measured, pure_number
from flowscope.instruments.image.step_sizes import DECIDING, ORDER
from flowscope.lab.view import Records
from flowscope.records import Decision, Interval, Unavailable, Verdict

__all__ = ["judge_order", "order"]


_NEAR = 0.25


def order(records: Records) -> list[Verdict]:
    """Whether the error of sampling falls at first order."""
    slopes = records.table("weak_error_slope")
    return [judge_order(slopes, claim=ORDER, observable=DECIDING, seed=records.settings["seed"])]


def judge_order(slopes: pd.DataFrame, *, claim: Claimed, observable: str, seed: int) -> Verdict:
    """Judge by the slopes of one observable whether the error falls at first order.

    Parameters
    ----------
    slopes
        Rows with ``sampler``, ``observable``, ``slope``, ``low``, ``high``, ``status`` and
        ``because``.
    claim
        What is judged.
    observable
        The one that decides.
    seed
        Of the resamples.
    """
    rows = slopes[slopes["observable"] == observable]
    read = rows[rows["status"] == "ok"]
    if read.empty:
        why = "; ".join(f"{r['sampler']}: {r['because']}" for _, r in rows.iterrows())
        return not_measured(claim, f"the {observable} is too noisy to give a slope: {why}")
    intervals = "; ".join(
        f"{r['sampler']} {r['slope']:.2f} [{r['low']:.2f}, {r['high']:.2f}]"
        for _, r in read.iterrows()
    )
    off = read[(read["low"] > -1 + _NEAR) | (read["high"] < -1 - _NEAR)]
    near = read[(read["low"] >= -1 - _NEAR) & (read["high"] <= -1 + _NEAR)]
    decision: Decision = "holds"
    why = f"all intervals lie within {_NEAR} of −1"
    if len(off):
        decision, why = "fails", f"not within {_NEAR} of −1: {' and '.join(off['sampler'])}"
    elif len(near) < len(read):
        decision = "abstains"
        why = no_verdict(f"an interval reaches further than {_NEAR} from −1")
    lost = rows[rows["status"] != "ok"]
    if len(lost):
        intervals += f"; {' and '.join(lost['sampler'])} too noisy to give a slope"
    shown = (off if len(off) else read).iloc[0]
    low, high = float(shown["low"]), float(shown["high"])
    interval = Interval(low=low, high=high, level=0.95, method=str(shown["method"]))
    between = f"K = {int(shown['first'])} to {int(shown['last'])}"
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=pure_number(
            f"log–log slope, {shown['sampler']}, {observable}",
            float(shown["slope"]),
            n=int(shown["images"]),
            estimator=f"step doubling, {between}",
            seed=seed,
            interval=interval,
        ),
        null=Unavailable("a scheme of first order has the slope −1"),
        effect=float(shown["slope"]),
        interval=interval,
        decision=decision,
        because=f"slopes of the {observable} over {between}: {intervals}; {why}",
    )
