"""Judge whether weak modes of a difference keep more energy inside the network than strong ones.

The effect is the mean over layers of the log ratio beyond its exchange null, less the same of the
latents before any block (what they show comes from the input of the network), and less the same of
networks with the weights of the model in random order. Random layers with large weights keep weak
modes better too, so that an effect against the exchange alone is found without any training.

Layers that are beyond their null on both sides, tested together, give no single answer. A run that
saw nothing, and could have seen large effects only, is uninformative; an effect that was seen is
judged however wide its null, because a real change widens it: exchanged pairs then differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import MINIMUM_UNITS, judged_effect, not_measured
from flowscope.evidence.verdicts import Claimed
from flowscope.instruments.sync.internal_gap import GAP
from flowscope.lab.view import Records
from flowscope.records import Interval, Measurement, Unavailable, Verdict

if TYPE_CHECKING:
    from flowscope.replica import MeanGap

__all__ = ["DETECTABLE", "THRESHOLDS", "internal_gap", "judge_internal_gap"]

THRESHOLDS = (0.1, 0.3, 0.7)
"""Log ratios from which the effect is weak, clear and strong."""

DETECTABLE = 0.5
"""Log ratio that a run must be able to see for its silence to mean something."""

_LEVEL = 0.05


def internal_gap(records: Records) -> list[Verdict]:
    """Whether trailing modes keep more energy than leading ones without coupling."""
    table = records.table("internal_gap", "log_gap", "p_all", "status")
    arrays = records.arrays("internal_gap")
    twins = records.table("internal_gap_twins", "value", "because")
    seed = int(records.settings["seed"])
    reason = "; ".join(sorted({str(reason) for reason in twins["because"].dropna() if reason}))
    rows = table[table["g"] == 0]
    return [judge_internal_gap(arrays, rows, claim=GAP, seed=seed, without_twins=reason)]


def judge_internal_gap(
    arrays: Mapping[str, NDArray[Any]],
    table: pd.DataFrame,
    *,
    claim: Claimed,
    seed: int,
    without_twins: str = "",
) -> Verdict:
    """Judge by the mean over layers whether modes retain unequal shares of their energy.

    Parameters
    ----------
    arrays
        ``internal_gap``: log ratios, null draws and changes by pair of the latents and the layers,
        of the model and (``twin_…``) of networks with its weights in random order.
    table
        Rows of the table ``internal_gap`` at g = 0, for the single layers.
    claim
        What is judged.
    seed
        Of the draws.
    without_twins
        Why there are no such networks; empty if there are.
    """
    from flowscope.instruments.sync.internal_gap.twins import layer_gaps, twin_gaps
    from flowscope.replica.layer_mean import gap_beyond_twins, mean_gap

    layers = np.asarray(arrays["layer"])
    if len(layers) < 2 or layers[0] != 0:
        reasons = sorted({str(reason) for reason in table["because"] if reason})
        what = "; ".join(reasons) or "nothing was measured"
        return not_measured(claim, what)
    model, twins = layer_gaps(arrays), twin_gaps(arrays)
    if len(twins) < 2:
        reason = without_twins or "they have other layers than the model"
        return not_measured(claim, f"there are no networks with shuffled weights: {reason}")
    plain = mean_gap(model.observed, model.draws, model.left_out)
    mean = gap_beyond_twins(model, twins)
    pairs = int(arrays["left_out"].shape[1])
    read = table[(table["layer"] > 0) & (table["status"] == "ok")]
    middle = (read["null_low"] + read["null_high"]) / 2
    seen = (read["log_gap"] - middle)[read["p_all"] <= _LEVEL]
    above, below = int((seen > 0).sum()), int((seen < 0).sum())
    interval: Interval | Unavailable = Interval(
        low=mean.interval[0],
        high=mean.interval[1],
        level=0.95,
        method=f"union of jackknife and exchange over {pairs} pairs, and {len(twins)} shuffled "
        "networks (Student t of one more), distances added in squares",
    )
    guard = _guard(mean) if pairs >= MINIMUM_UNITS else ""
    if above and below:
        guard = ""
        interval = Unavailable(f"{above} layers lie above their null and {below} below")
    kept = {"n": pairs, "seed": seed}
    observed = np.asarray(arrays["observed"], np.float64)
    return judged_effect(
        claim=claim,
        statistic=_number("mean log ratio over layers", float(observed[1:].mean()), **kept),
        null=_number(
            "the same under exchange and in shuffled networks, plus that of the latents",
            float(observed[1:].mean()) - mean.value,
            **kept,
        ),
        effect=mean.value,
        interval=interval,
        thresholds=THRESHOLDS,
        because=_because(mean, plain, (above, below), observed, len(twins)),
        units=pairs,
        unit="pairs",
        guard=guard,
    )


def _guard(mean: MeanGap) -> str:
    low, high = mean.interval
    if low > 0 or high < 0 or mean.detectable <= DETECTABLE:
        return ""
    return (
        f"only a mean log ratio of {mean.detectable:.2g} would have been detected, more than "
        f"{DETECTABLE:g}: take more pairs (32 with a band of 8 are usually enough) or more twins"
    )


def _number(name: str, value: float, *, n: int, seed: int) -> Measurement:
    return Measurement(
        name=name,
        values=np.asarray(value),
        unit="log energy",
        n=n,
        estimator="trailing over leading band, basis and energies from different pairs",
        dtype="float64",
        seed=seed,
    )


def _because(
    mean: MeanGap,
    plain: MeanGap,
    sides: tuple[int, int],
    observed: NDArray[np.float64],
    twins: int,
) -> str:
    """The numbers as a sentence."""
    low, high = mean.interval
    first, last = plain.interval
    share = f"{abs(np.expm1(mean.value)):.0%} {'more' if mean.value > 0 else 'less'}"
    return (
        f"over {len(observed) - 1} layers weak modes keep {share} of their energy than strong "
        f"ones, beyond exchange, beyond the latents and beyond {twins} networks with the same "
        f"weights in random order (mean log ratio {mean.value:+.3f} [{low:+.3f}, {high:+.3f}]; the "
        f"model alone {plain.value:+.3f} [{first:+.3f}, {last:+.3f}], p = {plain.p_value:.3g} by "
        f"exchange; the networks {plain.value - mean.value:+.3f}; the latents alone: "
        f"{observed[0]:+.3f}); tested together, {sides[0]} layers lie above their exchange null "
        f"and {sides[1]} below; this run could have seen a mean log ratio of {mean.detectable:.2g}"
    )
