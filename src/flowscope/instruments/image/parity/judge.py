"""Judge whether the two samplers of a model give the same distribution.

The probability flow and the SDE share their marginals: the total variation of their histograms
against that of the SDE with itself under other noise. One p value covers all times. Where the
difference is not significant, the claim holds if the intervals exclude a distance of .1, and
abstains if they do not. With guidance parity is not claimed: a guided field is not the score of any
distribution.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from flowscope.evidence.verdicts import Claimed, no_verdict, pure_number
from flowscope.instruments.image.config import GUIDED
from flowscope.instruments.image.parity import PARITY
from flowscope.lab.claim import Abstention
from flowscope.lab.view import Records
from flowscope.records import Decision, Interval, Unavailable, Verdict

__all__ = ["judge_parity", "parity"]


_LEVEL = 0.05


_FAR = 0.1


_WITH_VERDICT = Unavailable("the interval is reported with the verdict")


def parity(records: Records) -> list[Verdict]:
    """Whether flow and SDE share their marginals."""
    if records.settings["guidance"] != 1:
        raise Abstention(GUIDED)
    table = records.table("parity", "tv_p_overall")
    p = float(table["tv_p_overall"].iloc[0])
    return [judge_parity(table, p, claim=PARITY, seed=records.settings["seed"])]


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
