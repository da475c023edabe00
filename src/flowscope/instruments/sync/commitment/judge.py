r"""Judge whether coarse structure is decided earlier than the covariance of the images makes it.

The effect is the mean over couplings and classes of $\Delta\tau = \tau_{\rm fine} - \tau_{\rm
coarse}$ less that of a Gaussian with the covariance of the model's images, which goes through the
same protocol. Without that control the claim is one about images: any images whose large scales
vary more than their small ones give $\Delta\tau > 0$.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import MINIMUM_UNITS, judged_effect, not_measured
from flowscope.evidence.verdicts import Claimed, ends
from flowscope.instruments.sync.commitment import ORDER
from flowscope.instruments.sync.commitment.order_rule import Order
from flowscope.lab.view import Records
from flowscope.records import Interval, Measurement, Unavailable, Verdict

__all__ = ["THRESHOLDS", "commitment_order", "judge_commitment_order"]

THRESHOLDS = (0.02, 0.05, 0.15)
"""Shares of the run from which the effect is weak, clear and strong."""


def commitment_order(records: Records) -> list[Verdict]:
    """Whether coarse structure leads fine detail by more than in a Gaussian."""
    arrays = records.arrays("commitment_order")
    table = records.table("commitment_order", "excess", "status", "because")
    seed = int(records.settings["seed"])
    return [judge_commitment_order(arrays, table, claim=ORDER, seed=seed)]


def judge_commitment_order(
    arrays: Mapping[str, NDArray[Any]], table: pd.DataFrame, *, claim: Claimed, seed: int
) -> Verdict:
    """Judge by the distances of all pairs whether coarse structure is decided early.

    Parameters
    ----------
    arrays
        ``commitment_order``: distances of the model's pairs and of the control's.
    table
        ``commitment_order``: the gap of every curve and why some have none.
    claim
        What is judged.
    seed
        Of the resamples.
    """
    order = Order(arrays=arrays, seed=seed)
    if not order.coupled.any():
        return not_measured(claim, "no coupling was measured")
    if not order.controlled:
        reasons = sorted({str(reason) for reason in table["because"] if reason})
        return not_measured(claim, f"the control cannot be made: {'; '.join(reasons)}")
    chosen = order.coupled & order.measured
    couplings, seen = int(order.coupled.sum()), int(chosen.sum())
    guard = _guard(order, couplings - seen, couplings)
    length = float(arrays["steps"][-1])
    nothing = Unavailable("no coupling has a transition at both scales")
    effect: float | Unavailable = nothing
    interval: Interval | Unavailable = nothing
    because = ""
    statistic = Measurement.abstained("mean commitment gap", nothing.reason)
    null: Measurement | Unavailable = nothing
    if seen:
        effect, interval = order.excess(chosen)
        kept = {"n": order.pairs, "seed": seed}
        statistic = _number("mean commitment gap", order.mean_gap(chosen), **kept)
        null = _number("the same of the Gaussian", order.control_gap(chosen), **kept)
        because = _because(order, chosen, (effect, interval), length, table)
    return judged_effect(
        claim=claim,
        statistic=statistic,
        null=null,
        effect=effect,
        interval=interval,
        thresholds=THRESHOLDS,
        size=None if isinstance(effect, Unavailable) else effect / length,
        because=because,
        units=order.pairs,
        unit="pairs",
        guard=guard,
    )


def _guard(order: Order, lacking: int, couplings: int) -> str:
    """Why the claim could not have failed on these data; empty if it could."""
    if 2 * lacking < couplings or order.pairs < MINIMUM_UNITS:
        return ""
    reasons = [
        reason for reason, own in zip(order.reasons, order.coupled, strict=True) if own and reason
    ]
    most = max(set(reasons), key=reasons.count)
    return (
        f"{lacking} of {couplings} curves (coupling and class) have no step at which both scales "
        f"are decided ({most})"
    )


def _number(name: str, value: float, *, n: int, seed: int) -> Measurement:
    return Measurement(
        name=name,
        values=np.asarray(value),
        unit="step",
        n=n,
        estimator="mean step at which fine distance is lost less that of coarse distance, mean "
        "over couplings and classes",
        dtype="float64",
        seed=seed,
    )


def _because(
    order: Order,
    chosen: NDArray[np.bool_],
    excess: tuple[float, Interval | Unavailable],
    length: float,
    table: pd.DataFrame,
) -> str:
    """The numbers as a sentence."""
    value, interval = excess
    shown = ""
    if isinstance(interval, Interval):
        low, high = ends(interval)
        shown = f" [{low:+.2f}, {high:+.2f}]"
    rows = table[chosen & np.asarray(table["status"] == "ok")]
    more, less = int((rows["excess_low"] > 0).sum()), int((rows["excess_high"] < 0).sum())
    finals = int(np.min(order.arrays["finals"]))
    return (
        f"fine detail is decided {order.mean_gap(chosen):.2f} steps of {length:g} after coarse "
        f"structure, and {order.control_gap(chosen):.2f} steps in Gaussian images with the same "
        f"covariance (from {finals} images); the difference is {value:+.2f} steps{shown}, "
        f"{value / length:+.1%} of the run; tested together, {more} of {len(rows)} couplings lie "
        f"above the Gaussian and {less} below; this run could have seen a difference of "
        f"{order.detectable(chosen):.2f} steps"
    )
