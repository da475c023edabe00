r"""Judge coupled replicas: what is decided first, and whether modes lose energy unequally.

* **Order.** Coarse structure commits before fine detail: $\Delta\tau = \tau_{\rm fine} -
  \tau_{\rm coarse}$, the least over the couplings and classes that have both
  transitions. Its null is 0: both scales at once.
* **Internal gap.** Without coupling, trailing modes of the hidden difference keep another share of
  their energy than leading ones, in some layer, beyond what an exchange of the first and the later
  differences within pairs gives. Layers are many: the p value is that of the largest studentised
  value over all of them, under exchanges by the same pattern in every layer. Layers on both sides
  of their null give no single answer. The latents, layer 0, are reported too: what they show comes
  from the input of the network, not from the network.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from flowscope.evidence.verdicts import Claimed, no_verdict, not_measured
from flowscope.records import Decision, Interval, Measurement, Unavailable, Verdict

__all__ = ["judge_commitment_order", "judge_internal_gap"]

_NOTHING = "nothing was measured"


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


def judge_internal_gap(
    table: pd.DataFrame, *, claim: Claimed, seed: int, level: float = 0.05
) -> Verdict:
    """Judge by the internal gaps at g = 0 whether modes retain unequal shares of their energy.

    Parameters
    ----------
    table
        Rows with ``layer``, ``log_gap``, ``low``, ``high``, ``null_low``, ``null_high``, ``p_all``,
        ``detectable``, ``status``.
    claim
        What is judged.
    seed
        Of the draws.
    level
        Of the test over all layers.
    """
    blocks = table[table["layer"] > 0]
    read = blocks[blocks["status"] == "ok"]
    if read.empty:
        reasons = "; ".join(sorted({str(r) for r in blocks["because"] if r})) or _NOTHING
        return not_measured(claim, reasons)
    middle = (read["null_low"] + read["null_high"]) / 2
    distance = (read["log_gap"] - middle) / (read["null_high"] - read["null_low"])
    # Many layers can share the smallest p value that the draws allow: report the furthest.
    tied = np.asarray(read["p_all"] <= read["p_all"].min())
    place = int(np.argmax(np.where(tied, distance.abs(), -1.0)))
    best, side = read.iloc[place], float(distance.iloc[place])
    value, p = float(best["log_gap"]), float(best["p_all"])
    because = (
        f"p = {p:.3g} over {len(read)} layers; layer {int(best['layer'])} is furthest from its "
        f"null: log ratio {value:.3g}, null [{best['null_low']:.3g}, {best['null_high']:.3g}]"
    )
    decision, why = _sides(read, distance, side, level)
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=Measurement(
            name="split-half log ratio",
            values=np.asarray(value),
            unit="log energy",
            n=int(best["n"]),
            estimator="trailing over leading band, basis and energies from different pairs",
            dtype="float64",
            seed=seed,
        ),
        null=Measurement(
            name="middle of the exchange null",
            values=np.asarray((best["null_low"] + best["null_high"]) / 2),
            unit="log energy",
            n=int(best["n"]),
            estimator="first and later differences exchanged within pairs",
            dtype="float64",
            seed=seed,
        ),
        effect=value,
        interval=Interval(
            low=float(best["low"]), high=float(best["high"]), level=0.95, method="jackknife"
        ),
        decision=decision,
        because=f"{because}{_latents(table, level)}; {why}",
    )


def _sides(
    read: pd.DataFrame, distance: pd.Series[float], side: float, level: float
) -> tuple[Decision, str]:
    """Decide by the side of their null on which the layers lie, and say why."""
    seen = distance[read["p_all"] <= level]
    above, below = int((seen > 0).sum()), int((seen < 0).sum())
    if above and below:
        return "abstains", no_verdict(f"{above} layers lie above their null and {below} below")
    if len(seen):
        return "holds" if side > 0 else "fails", f"{len(seen)} layers lie beyond their null"
    detectable = float(np.median(read["detectable"]))
    return "abstains", no_verdict(
        f"no layer differs from its null; at a single layer a log ratio of {detectable:.2g} would "
        "have been detected"
    )


def _latents(table: pd.DataFrame, level: float) -> str:
    """Return in words what the latents show before any block."""
    rows = table[(table["layer"] == 0) & (table["status"] == "ok")]
    if rows.empty:
        return ""
    row = rows.iloc[0]
    side = "already beyond" if row["p_all"] <= level else "inside"
    return f"; the latents before any block: {row['log_gap']:.3g}, {side} their null"
