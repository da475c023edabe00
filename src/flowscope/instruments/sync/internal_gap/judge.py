"""Judge whether modes lose energy unequally.

Without coupling, trailing modes of the hidden difference keep another share of their energy than
leading ones, in some layer, beyond what an exchange of the first and the later differences within
pairs gives. Layers are many: the p value is that of the largest studentised value over all of them,
under exchanges by the same pattern in every layer. Layers on both sides of their null give no
single answer. The latents, layer 0, are reported too: what they show comes from the input of the
network, not from the network.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from flowscope.evidence.verdicts import Claimed, no_verdict, not_measured
from flowscope.instruments.sync.internal_gap import GAP
from flowscope.lab.view import Records
from flowscope.records import Decision, Interval, Measurement, Verdict

__all__ = ["internal_gap", "judge_internal_gap"]


_NOTHING = "nothing was measured"


def internal_gap(records: Records) -> list[Verdict]:
    """Whether trailing modes keep more energy than leading ones without coupling."""
    table = records.table("internal_gap")
    seed = records.settings["seed"]
    return [judge_internal_gap(table[table["g"] == 0], claim=GAP, seed=seed)]


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
