r"""Judge the samplers of a diffusion model.

* **Parity.** The probability flow and the SDE share their marginals: the total variation of their
  histograms against that of the SDE with itself under other noise. One p value covers all times.
  Where the difference is not significant, the claim holds if the intervals exclude a distance of
  .1, and abstains if they do not.
* **Order.** The sampling error falls at first order: the interval of the log–log slope of
  step-doubling differences lies within a quarter of −1. The claim fails where an interval lies
  outside, and abstains otherwise. The slope need not be −1 exactly, because a scheme of first order
  has it only in the limit: −1.09 over K = 25 to 200 in the Gaussian case of the theory page. A
  slope of differences that are not significantly different from zero is no evidence.
* **Gradient.** The learned score is a gradient: the share of its energy that rotates, mean over
  times, lies below the share that was planted in a control, and the planted share is detected.
  With guidance neither this nor parity is claimed: a guided field is not the score of any
  distribution.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from flowscope.evidence.verdicts import Claimed, ends, no_verdict, not_measured, pure_number
from flowscope.records import Decision, Interval, Unavailable, Verdict

__all__ = ["judge_gradient", "judge_order", "judge_parity"]


_LEVEL = 0.05
_FAR = 0.1
_NEAR = 0.25
_WITH_VERDICT = Unavailable("the interval is reported with the verdict")


def judge_parity(table: pd.DataFrame, p: float, *, claim: Claimed, seed: int) -> Verdict:
    """Judge by the table of distances whether ODE and SDE have the same marginals.

    Parameters
    ----------
    table
        Rows with ``channel``, ``tv``, ``tv_low``, ``tv_high``, ``tv_null``, ``tv_null_high``,
        ``step`` and ``images``; those of the channel "all" decide.
    p
        Over all times.
    claim
        What is judged.
    seed
        Of the draws.
    """
    rows = table[table["channel"] == "all"]
    ratio = (rows["tv"] / rows["tv_null"].clip(lower=1e-12)).to_numpy()
    worst = rows.iloc[int(np.argmax(ratio))]
    tv, low, high, null = (float(worst[c]) for c in ("tv", "tv_low", "tv_high", "tv_null"))
    most, n = float(rows["tv_high"].max()), int(worst["images"])
    reason = (
        f"the difference is largest after step {int(worst['step'])}: total variation {tv:.3g} "
        f"[{low:.3g}, {high:.3g}] between ODE and SDE, {null:.3g} (at most "
        f"{worst['tv_null_high']:.3g}) between two runs of the SDE; p = {p:.3g} over all "
        f"{len(rows)} times"
    )
    decision: Decision
    if p <= _LEVEL:
        decision = "fails"
    elif most < _FAR:
        decision = "holds"
    else:
        decision = "abstains"
        reason += f"; {no_verdict(f'a total variation up to {most:.2g} cannot be excluded')}"
    how = "histograms of all values, mean over channels"
    method = "reflected bootstrap over groups of images"
    interval = Interval(low=low, high=high, level=0.95, method=method)
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=pure_number(
            "TV of flow and SDE", tv, n=n, estimator=how, seed=seed, interval=interval
        ),
        null=pure_number(
            "TV of the SDE with itself",
            null,
            n=n,
            estimator=f"{how}, swapped within images",
            seed=seed,
            interval=_WITH_VERDICT,
        ),
        effect=tv,
        interval=interval,
        decision=decision,
        because=reason,
    )


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
