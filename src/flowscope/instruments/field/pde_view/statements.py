"""What source 001 says, beside what the networks of a study show; each with the rule that decides.

A row says yes where it holds on every task and no where it fails on one. Numbers of single
networks have intervals over prompts where there is one seed, and over seeds otherwise; a comparison
of two arms needs several seeds, because two trainings differ by their seeds too.
"""

from __future__ import annotations

import math
from functools import partial

import pandas as pd

from flowscope.instruments.field.pde_view import depth_statements as depth
from flowscope.instruments.field.pde_view import part_statements as parts
from flowscope.instruments.field.pde_view.cells import EVERY, Cell, Numbers, Row, in_words, judged
from flowscope.instruments.field.pde_view.names import SIMULATOR, TASKS, TRANSFORMER
from flowscope.lab.statements import Agreement, Statement, statement_rows
from flowscope.records import Run
from flowscope.report.numerals import numeral

__all__ = ["pde_statement_table"]

_METRICS = {
    "mse": ("mean squared error", 0.031),
    "cosine": ("cosine", 0.970),
    "spectral": ("spectral similarity", 0.967),
}
"""Metrics of the source's alignment in words, and its number of each."""

_KL = 0.018
_NEAR = 0.1
_CONVERGES = -0.5
_GUIDED = f"distilled {SIMULATOR}"
_BESIDE = {
    "standing still": "persistence",
    "simulator of another seed": f"{SIMULATOR}, another seed",
    "distilled simulator": _GUIDED,
    "simulator with random weights": "random",
}


def pde_statement_table(run: Run) -> pd.DataFrame:
    """Every statement of source 001 against the tables of a run."""
    rows: tuple[Row, ...] = (
        *(partial(aligned, metric=metric) for metric in _METRICS),
        continuous,
        guided,
        attention,
        *parts.ROWS,
        *depth.ROWS,
        order,
        near,
    )
    numbers = Numbers(run)
    return statement_rows([partial(row, numbers) for row in rows])


def aligned(numbers: Numbers, metric: str) -> Statement:
    """Whether the simulator that was trained on the task is as alike as the source says."""
    words, value = _METRICS[metric]
    cells = numbers.cells("alignment", metric, path=SIMULATOR)
    beside = {
        label: numbers.cells("alignment", metric, path=path) for label, path in _BESIDE.items()
    }
    told = [f"{label} {in_words(found)}" for label, found in beside.items() if found]
    unit = " (in units of the transformer's mean square)" if metric == "mse" else ""
    return judged(
        [_reached(cell, value, error=metric == "mse") for cell in cells],
        item=f"alignment, {metric}", where="4.2, Fig 3",
        says=f"{words} of the simulator's states with the transformer's is {value:.3f}",
        measured="; ".join([f"simulator{unit} {in_words(cells)}", *told]),
        rule=f"no where the whole interval is worse than {value:.3f}, yes where its better end "
        f"reaches that{EVERY}; the source gives no unit and no baseline (E68)",
    )  # fmt: skip


def _reached(cell: Cell, value: float, *, error: bool) -> Agreement:
    """Whether the better end of an interval reaches a number of the source."""
    if not cell.known:
        return "cannot be told"
    return "no" if (cell.above(value) if error else cell.below(value)) == "yes" else "yes"


def continuous(numbers: Numbers) -> Statement:
    """Whether the simulator's alignment is more than that of standing still."""
    cells = numbers.cells("alignment", "skill", path=SIMULATOR)
    return judged(
        [cell.above(0) for cell in cells],
        item="depth as time", where="4.2",
        says="the simulator's alignment is compelling evidence that depth is continuous time",
        measured=f"skill {in_words(cells)}",
        rule="yes where its squared error is below that of standing still (skill above 0), no "
        f"where it is above{EVERY}",
    )  # fmt: skip


def guided(numbers: Numbers) -> Statement:
    """Whether a simulator that is trained to follow the transformer can."""
    cells = numbers.cells("alignment", "skill", path=_GUIDED)
    line = numbers.cells("alignment", "skill", path="straight line")
    blind = numbers.cells("alignment", "skill", path="random")
    return judged(
        [cell.above(0) for cell in cells],
        item="added: distilled simulator", where="not in the source",
        says="a simulator that is trained to follow the transformer beats standing still",
        measured=f"skill {in_words(cells)}; straight line between the ends {in_words(line)}; "
        f"random weights {in_words(blind)}",
        rule=f"by the interval of its skill{EVERY}",
    )  # fmt: skip


def attention(numbers: Numbers) -> Statement:
    """Whether the distilled simulator attends as the transformer does."""
    cells = numbers.cells("attention", "kl", path=_GUIDED)
    heads = numbers.cells("attention", "kl_matched", path=_GUIDED)
    own = numbers.cells("attention", "kl", path=SIMULATOR)
    even = numbers.cells("attention", "kl", path="uniform")
    answers: list[Agreement] = [
        cell.below(_KL) if level.low > _KL else "cannot be told"
        for cell, level in zip(cells, even, strict=True)
    ] if cells else []  # fmt: skip
    return judged(
        answers,
        item="attention, KL", where="A.1, Fig 7",
        says="KL of the two attention distributions stays below .018 (cosine above .982)",
        measured=f"distilled {in_words(cells)}; head by head {in_words(heads)}; trained on the "
        f"task {in_words(own)}; uniform attention {in_words(even)}",
        rule="of the distilled simulator, means over heads, the kindest reading: yes where the "
        "interval is below .018, no where it is above; a task on which uniform attention is not "
        f"above .018 decides nothing{EVERY}",
    )  # fmt: skip


def order(numbers: Numbers) -> Statement:
    """Whether shorter steps converge."""
    cells = numbers.cells("orders", "slope", arm=TRANSFORMER)
    coarse, fine = (numbers.cells("refinement", "change", arm=TRANSFORMER, n=n) for n in (4, 8))
    finest = [
        f"{TASKS[one.task]} {numeral(math.log2(one.value / other.value))}"
        for one, other in zip(fine, coarse, strict=True)
    ]
    return judged(
        [cell.below(_CONVERGES) for cell in cells],
        item="convergence in L", where="Thm 3.2, eq 12",
        says="with more and shorter layers the states converge to a continuous system",
        measured=f"slope {in_words(cells)}; at the finest steps {', '.join(finest)}; −1 is first "
        "order",
        rule="blocks made in n steps of 1/n, n to 16: yes where log change against log n has a "
        f"slope below {_CONVERGES}, no where it is above{EVERY}",
    )  # fmt: skip


def near(numbers: Numbers) -> Statement:
    """Whether the network itself is close to the limit of shorter steps."""
    cells = numbers.cells("refinement", "distance", arm=TRANSFORMER, n=1)
    first, last = (numbers.cells("refinement", "accuracy", arm=TRANSFORMER, n=n) for n in (1, 16))
    return judged(
        [cell.below(_NEAR) for cell in cells],
        item="near the continuum", where="Thm 3.2",
        says="a transformer can be modelled by its continuous limit",
        measured=f"distance {in_words(cells)}; accuracy on the read examples {in_words(first)}, "
        f"and with 16 steps a block {in_words(last)}",
        rule="yes where the last states are within .1 of the way that they go of those with 16 "
        f"steps a block, no where they are farther{EVERY}",
    )  # fmt: skip
