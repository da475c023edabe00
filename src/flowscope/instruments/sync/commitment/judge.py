r"""Judge which scale of an image is decided first.

Coarse structure commits before fine detail: $\Delta\tau = \tau_{\rm fine} - \tau_{\rm coarse}$,
the least over the couplings and classes that have both transitions. Its null is 0: both scales at
once.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from flowscope.evidence.verdicts import Claimed, no_verdict, not_measured
from flowscope.instruments.sync.commitment import ORDER
from flowscope.lab.view import Records
from flowscope.records import Interval, Measurement, Unavailable, Verdict

__all__ = ["commitment_order", "judge_commitment_order"]


_NOTHING = "nothing was measured"


def commitment_order(records: Records) -> list[Verdict]:
    """Whether coarse structure commits before fine detail."""
    gaps = records.table("commitment_gap")
    return [judge_commitment_order(gaps, claim=ORDER, seed=records.settings["seed"])]


def judge_commitment_order(gaps: pd.DataFrame, *, claim: Claimed, seed: int) -> Verdict:
    """Judge by the table of gaps whether coarse structure is decided first; the least decides.

    Parameters
    ----------
    gaps
        Rows with ``gap``, ``low``, ``high``, ``status``, ``g``, ``control`` and ``n``.
    claim
        What is judged.
    seed
        Of the resamples.
    """
    placed = gaps[(gaps["status"] == "ok") & ~gaps["control"].astype(bool)]
    if placed.empty:
        reasons = "; ".join(sorted({str(r) for r in gaps["because"] if r})) or _NOTHING
        return not_measured(claim, f"at no coupling are both transitions seen: {reasons}")
    against = placed[placed["high"] < 0]
    shown = placed if against.empty else against
    least = shown.iloc[int(np.argmin(shown["low"]))]
    value, low, high = (float(least[name]) for name in ("gap", "low", "high"))
    held, couplings = int((placed["low"] > 0).sum()), len(placed)
    statistic = Measurement(
        name="least commitment gap",
        values=np.asarray(value),
        unit="step",
        n=int(least["n"]),
        estimator="midpoints of sigmoids through medians over pairs",
        dtype="float64",
        seed=seed,
    )
    if low > 0:
        decision = "holds"
        because = f"the interval lies above 0 at all {couplings} couplings with both transitions"
    elif len(against):
        decision = "fails"
        because = f"fine detail is decided first at {len(against)} of {couplings} couplings"
    else:
        decision = "abstains"
        why = f"the interval lies above 0 at only {held} of {couplings} couplings"
        because = no_verdict(why)
    worst = f"the smallest gap is {value:.3g} steps [{low:.3g}, {high:.3g}] at g = {least['g']:g}"
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=statistic,
        null=Unavailable("both scales at once would be 0 steps"),
        effect=value,
        interval=Interval(low=low, high=high, level=0.95, method="bootstrap over pairs"),
        decision=decision,  # type: ignore[arg-type]
        because=f"{because}; {worst}",
    )
