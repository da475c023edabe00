"""What source 001 says of residual connections and norms, between arms that differ in one thing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from flowscope.instruments.field.pde_view.cells import (
    EVERY,
    LAST,
    Cell,
    Numbers,
    Row,
    in_words,
    judged,
    pairs_in_words,
    unmeasured,
)
from flowscope.instruments.field.pde_view.names import ARMS, PAIRS, SIMULATOR, TRANSFORMER, Pair
from flowscope.lab.statements import Agreement, Statement
from flowscope.report.numerals import numeral

__all__ = ["ROWS"]

_MATTERS = 0.05
"""Difference of accuracies from which a part of the architecture is called necessary."""
_LARGER = 5
"""Ratio of gradients that counts as nearly an order of magnitude."""

Found = Sequence[tuple[Pair, list[Cell]]]


def fidelity(numbers: Numbers) -> Statement:
    """Whether the transformer's states stay at the input."""
    cells = numbers.last("fidelity", TRANSFORMER)
    blind = numbers.last("fidelity", TRANSFORMER, weights="random")
    return judged(
        [cell.above(0.98) for cell in cells],
        item="fidelity of the transformer", where="4.3.1, Fig 4",
        says="its states keep a correlation of .98 or more with the input at every layer",
        measured=f"cosine {LAST} {in_words(cells)}; random weights {in_words(blind)}",
        rule=f"no where the cosine {LAST} is below .98, yes where it is above{EVERY}",
    )  # fmt: skip


def drift(numbers: Numbers) -> Statement:
    """Whether the simulator's states leave the input as far as the source says."""
    cells = numbers.last("fidelity", SIMULATOR)
    return judged(
        [cell.holds(0.85) for cell in cells],
        item="drift of the simulator", where="4.3.1, Fig 4",
        says="the correlation of the simulator's states with the input falls to .85",
        measured=f"cosine {LAST} {in_words(cells)}",
        rule=f"yes where the interval {LAST} holds .85, no where it does not{EVERY}; γ and D are "
        "free in the source, and the scale of the embedding decides this number too",
    )  # fmt: skip


def kept(numbers: Numbers) -> Statement:
    """Whether fidelity is higher with residual connections."""
    found = _found(numbers, "residual", "fidelity")
    return judged(
        [cell.above(0) for cell in _cells(found)],
        item="fidelity and residual", where="4.3.1, Thm 3.4 (E69)",
        says="residual connections keep fidelity, without them it is lost",
        measured=f"cosine {LAST}, with less without: {pairs_in_words(found)}",
        rule="yes where the cosine with the input is higher with them, no where it is lower, by "
        f"the interval over seeds between arms that differ in nothing else{EVERY} and pair",
    )  # fmt: skip


def leak(numbers: Numbers) -> Statement:
    """Whether fidelity is lower with a leak."""
    found = _found(numbers, "leak", "fidelity")
    return judged(
        [cell.below(0) for cell in _cells(found)],
        item="fidelity and leak", where="4.1, 4.3.1 (E59)",
        says="a step with the leak of the simulator, which 001 calls its lack of residual "
        "connections, loses fidelity",
        measured=f"cosine {LAST}, with less without: {pairs_in_words(found)}",
        rule="yes where the cosine with the input is lower with the leak, no where it is higher, "
        f"by the interval over seeds between arms that differ in nothing else{EVERY}",
    )  # fmt: skip


def necessary(numbers: Numbers, what: str, where: str) -> Statement:
    """Whether the transformer needs a part."""
    found = [pair for pair in _found(numbers, what, "accuracy") if pair[0].having == TRANSFORMER]
    return judged(
        [cell.above(_MATTERS) for cell in _cells(found)],
        item=f"necessity of {what}", where=where,
        says=f"{what} is indispensable",
        measured=f"accuracy lost without it: {pairs_in_words(found)}",
        rule=f"no where the transformer without it loses less than {_MATTERS} of accuracy, yes "
        f"where it loses more, by the interval over seeds{EVERY}",
    )  # fmt: skip


def gradients(numbers: Numbers) -> Statement:
    """Whether gradients are larger without norm."""
    found = _turned(numbers, "gradient")
    return judged(
        [cell.above(math.log(_LARGER)) for cell in _cells(found)],
        item="gradients without norm", where="4.3.2, Fig 5",
        says="without normalisation gradients are nearly an order of magnitude larger",
        measured=f"ratio without / with: {pairs_in_words(found, math.exp)}",
        rule=f"yes where the ratio of norms is above {_LARGER}, no where it is below, by the "
        f"interval over seeds between arms that differ in nothing else{EVERY} and pair; arms "
        "without residual, most of which do not train, are left out",
    )  # fmt: skip


def spikes(numbers: Numbers) -> Statement:
    """Whether gradients spike without norm."""
    found = _turned(numbers, "gradient_peak")
    return judged(
        [cell.above(0) for cell in _cells(found)],
        item="gradient spikes", where="4.3.2, Fig 5",
        says="without normalisation gradients spike",
        measured=f"ratio without / with: {pairs_in_words(found, math.exp)}",
        rule="yes where the 99 % quantile in units of the median is higher without norm, no where "
        f"it is lower, by the interval over seeds{EVERY} and pair; arms without residual, most of "
        "which do not train, are left out",
    )  # fmt: skip


def divergence(numbers: Numbers) -> Statement:
    """Whether training without norm diverges."""
    words: dict[str, Any] = {
        "item": "divergence without norm",
        "where": "4.3.2, Thm 3.3",
        "says": "without normalisation training diverges",
        "rule": "no when the loss of every network without norm stayed finite, yes when none did",
    }
    frame = numbers.table("networks")
    if not len(frame):
        return unmeasured(**words)
    bare = [name for name, arm in ARMS.items() if arm.settings.get("norm") == "none"]
    rows = frame[frame["arm"].isin(bare)]
    lost = int(rows["diverged"].sum())
    agrees: Agreement = "no" if lost == 0 else "yes" if lost == len(rows) else "cannot be told"
    measured = f"{lost} of {len(rows)} networks without norm diverged"
    return Statement(agrees=agrees, measured=measured, **words)


def rates(numbers: Numbers) -> Statement:
    """Whether norms allow larger learning rates."""
    words: dict[str, Any] = {
        "item": "largest learning rate",
        "where": "4.3.2",
        "says": "without normalisation only small learning rates train",
        "rule": "yes when each arm with a norm trains at a larger rate of the grid than the arm "
        "that differs in nothing else, no when one does not; arms that train at no rate are left "
        "out; one seed, so that no interval decides",
    }
    frame = numbers.table("rates")
    if not len(frame):
        return unmeasured(**words)
    largest = dict(zip(frame["arm"], frame["largest"].fillna(0.0), strict=True))
    pairs = [pair for pair in PAIRS if pair.what == "norm" and _both(pair, largest)]
    told = ", ".join(
        f"{ARMS[arm].label} {numeral(rate) if rate else 'none'}" for arm, rate in largest.items()
    )
    larger = all(largest[pair.having] > largest[pair.lacking] for pair in pairs)
    agrees: Agreement = "not measured" if not pairs else "yes" if larger else "no"
    return Statement(agrees=agrees, measured=told, **words)


def _both(pair: Pair, largest: dict[str, float]) -> bool:
    return bool(largest.get(pair.having) and largest.get(pair.lacking))


def collapse(numbers: Numbers) -> Statement:
    """Whether tokens become one without residual connections."""
    arms = {arm: numbers.last("mean_cosine", arm) for arm in ("no_residual", "neither")}
    with_them = numbers.last("mean_cosine", TRANSFORMER)
    told = "; ".join(f"{ARMS[arm].label} {in_words(cells)}" for arm, cells in arms.items() if cells)
    return judged(
        [cell.above(0.95) for cells in arms.values() for cell in cells],
        item="added: collapse", where="not in the source",
        says="without residual connections all tokens become one",
        measured=f"mean cosine {LAST}: {told}; transformer {in_words(with_them)}",
        rule=f"yes where the mean cosine of tokens {LAST} is above .95, no where it is "
        f"below{EVERY} and arm",
    )  # fmt: skip


def _found(numbers: Numbers, what: str, column: str) -> Found:
    """Differences of each pair of arms that differ in a thing, with it less without it."""
    pairs = [pair for pair in PAIRS if pair.what == what]
    return [(pair, numbers.differences(pair, column)) for pair in pairs]


def _turned(numbers: Numbers, column: str) -> Found:
    """Logarithms of ratios without norm over with norm, of arms with a residual."""
    return [
        (pair, [cell.negative() for cell in numbers.differences(pair, column, np.log)])
        for pair in PAIRS
        if pair.what == "norm" and pair.having != "no_residual"
    ]


def _cells(found: Found) -> list[Cell]:
    return [cell for _, cells in found for cell in cells]


ROWS: tuple[Row, ...] = (
    fidelity,
    drift,
    kept,
    leak,
    partial(necessary, what="residual", where="4.3.1, Thm 3.4"),
    partial(necessary, what="norm", where="4.3.2, Thm 3.3"),
    gradients,
    spikes,
    divergence,
    rates,
    collapse,
)
"""Rows in their order, as functions of the numbers of a run."""
