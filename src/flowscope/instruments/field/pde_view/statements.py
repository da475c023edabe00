"""What source 001 says, beside what the networks of a study show; each with the rule that decides.

A row says yes where it holds on every task and no where it fails on one. Numbers of single
networks have intervals over prompts where there is one seed, and over seeds otherwise; a comparison
of two arms needs several seeds, because two trainings differ by their seeds too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from flowscope.instruments.field.pde_view.evidence import Cell, Evidence, agreed, in_words
from flowscope.instruments.field.pde_view.names import ARMS, PAIRS, SIMULATOR, TRANSFORMER, Pair
from flowscope.lab.statements import (
    Agreement,
    Statement,
    chance_of,
    not_compared,
    statement_rows,
)
from flowscope.records import Run
from flowscope.report.numerals import numeral

__all__ = ["pde_statement_table"]

_ADDED = "not in the source"
_MATTERS = 0.05
"""Difference of accuracies from which a part of the architecture is called necessary."""
_LOSS = 0.01
"""Nats that count as a loss of information; a probe that reads everything moves by less."""
_LAST = "after the last block"
_EVERY = "; yes where that holds on every task, no where it fails on one"


def pde_statement_table(run: Run) -> pd.DataFrame:
    """Every statement of source 001 against the tables of a run."""
    reading = _Reading(Evidence(run))
    makers = [
        lambda: reading.aligned("mse", ".031", 0.031, above=False),
        lambda: reading.aligned("cosine", ".970", 0.970, above=True),
        lambda: reading.aligned("spectral", ".967", 0.967, above=True),
        reading.skill,
        reading.distilled,
        reading.fidelity,
        reading.drift,
        lambda: reading.kept("residual"),
        lambda: reading.kept("leak"),
        lambda: reading.necessary("residual", "4.3.1, Thm 3.4"),
        lambda: reading.necessary("norm", "4.3.2, Thm 3.3"),
        reading.gradients,
        reading.spikes,
        reading.explosion,
        reading.rates,
        reading.attention,
        reading.low_pass,
        reading.smooth,
        reading.delayed,
        reading.early,
        reading.extraction,
        reading.order,
        reading.near,
        reading.collapse,
    ]
    return statement_rows(makers)


class _Reading:
    """Words and answers from the tables of a run."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def _judged(
        self,
        item: str,
        where: str,
        says: str,
        rule: str,
        measured: str,
        answers: Sequence[Agreement],
    ) -> Statement:
        if not answers:
            return not_compared(item, where, says, rule, "not measured in this run")
        return Statement(
            item=item, where=where, says=says, rule=rule, measured=measured,
            agrees=agreed(answers), by_chance=chance_of(len(answers)),
        )  # fmt: skip

    def aligned(self, metric: str, said: str, value: float, *, above: bool) -> Statement:
        """Whether the simulator that was trained on the task is as alike as the source says."""
        words = {"mse": "mean squared error", "cosine": "cosine", "spectral": "spectral similarity"}
        cells = self._evidence.cells("alignment", metric, path=SIMULATOR)
        beside = [
            f"{label} {in_words(self._evidence.cells('alignment', metric, path=path))}"
            for label, path in (
                ("standing still", "persistence"),
                ("simulator of another seed", "simulator, another seed"),
                ("distilled", f"distilled {SIMULATOR}"),
                ("random weights", "random"),
            )
            if self._evidence.cells("alignment", metric, path=path)
        ]
        answers = [_reaches(cell, value, above=above) for cell in cells]
        unit = " (in units of the transformer's mean square)" if metric == "mse" else ""
        return self._judged(
            f"alignment, {metric}", "4.2, Fig 3",
            f"{words[metric]} of the simulator's states with the transformer's is {said}",
            f"no where the whole interval is worse than {said}, yes where its better end reaches "
            f"{said}{_EVERY}; the source gives no unit and no baseline (E68)",
            "; ".join([f"simulator{unit} {in_words(cells)}", *beside]), answers,
        )  # fmt: skip

    def skill(self) -> Statement:
        cells = self._evidence.cells("alignment", "skill", path=SIMULATOR)
        return self._judged(
            "depth as time", "4.2",
            "the simulator's alignment is compelling evidence that depth is continuous time",
            "yes where its squared error is below that of standing still (skill above 0), no where "
            f"it is above{_EVERY}",
            f"skill {in_words(cells)}", [cell.side(0) for cell in cells],
        )  # fmt: skip

    def distilled(self) -> Statement:
        cells = self._evidence.cells("alignment", "skill", path=f"distilled {SIMULATOR}")
        line = self._evidence.cells("alignment", "skill", path="straight line")
        return self._judged(
            "added: distilled simulator", _ADDED,
            "a simulator that is trained to follow the transformer beats standing still",
            f"by the interval of its skill{_EVERY}",
            f"skill {in_words(cells)}; straight line between the ends {in_words(line)}",
            [cell.side(0) for cell in cells],
        )  # fmt: skip

    def fidelity(self) -> Statement:
        cells = self._last("fidelity", TRANSFORMER)
        blind = self._last("fidelity", TRANSFORMER, "random")
        return self._judged(
            "fidelity of the transformer", "4.3.1, Fig 4",
            "its states keep a correlation of .98 or more with the input at every layer",
            f"no where the cosine {_LAST} is below .98, yes where it is above{_EVERY}",
            f"{_LAST} {in_words(cells)}; random weights {in_words(blind)}",
            [cell.side(0.98) for cell in cells],
        )  # fmt: skip

    def drift(self) -> Statement:
        cells = self._last("fidelity", SIMULATOR)
        answers = [_at(cell, 0.85) for cell in cells]
        return self._judged(
            "drift of the simulator", "4.3.1, Fig 4",
            "the correlation of the simulator's states with the input falls to .85",
            f"yes where the interval {_LAST} holds .85, no where it does not{_EVERY}; γ and D are "
            "free in the source, and the start decides this number",
            f"{_LAST} {in_words(cells)}", answers,
        )  # fmt: skip

    def kept(self, what: str) -> Statement:
        """Whether fidelity is higher with residual connections, or without a leak."""
        pairs = [pair for pair in PAIRS if pair.what == what]
        sign = -1 if what == "leak" else 1
        found = [(pair, self._evidence.differences(pair, "fidelity")) for pair in pairs]
        cells = [_times(cell, sign) for _, part in found for cell in part]
        said = {
            "residual": "residual connections keep fidelity, without them it is lost",
            "leak": "… and so does leaving out the leak, which 001 takes for their absence (E59)",
        }
        return self._judged(
            f"fidelity and {what}", "4.3.1, Thm 3.4 (E69)" if what == "residual" else _ADDED,
            said[what],
            "yes where the cosine with the input is higher, no where it is lower, by the interval "
            f"over seeds between arms that differ in nothing else{_EVERY} and pair",
            self._pairs(found, sign), [cell.side(0) for cell in cells],
        )  # fmt: skip

    def necessary(self, what: str, where: str) -> Statement:
        pairs = [pair for pair in PAIRS if pair.what == what and pair.having == TRANSFORMER]
        found = [(pair, self._evidence.differences(pair, "accuracy")) for pair in pairs]
        cells = [cell for _, part in found for cell in part]
        return self._judged(
            f"necessity of {what}", where,
            f"{what} is indispensable",
            f"no where the transformer without it loses less than {_MATTERS} of accuracy, yes where "
            f"it loses more, by the interval over seeds{_EVERY}",
            f"accuracy lost: {self._pairs(found)}", [cell.side(_MATTERS) for cell in cells],
        )  # fmt: skip

    def gradients(self) -> Statement:
        pairs = [pair for pair in PAIRS if pair.what == "norm"]
        found = [
            (pair, self._evidence.differences(_turned(pair), "gradient", np.log)) for pair in pairs
        ]
        cells = [cell for _, part in found for cell in part]
        return self._judged(
            "gradients without norm", "4.3.2, Fig 5",
            "without normalisation gradients are nearly an order of magnitude larger",
            "yes where the ratio of norms is above 5, no where it is below 5, by the interval over "
            f"seeds between arms that differ in nothing else{_EVERY} and pair",
            f"ratio without / with: {self._pairs(found, power=True)}",
            [cell.side(math.log(5)) for cell in cells],
        )  # fmt: skip

    def spikes(self) -> Statement:
        pairs = [pair for pair in PAIRS if pair.what == "norm"]
        found = [
            (pair, self._evidence.differences(_turned(pair), "gradient_peak", np.log))
            for pair in pairs
        ]
        cells = [cell for _, part in found for cell in part]
        return self._judged(
            "gradient spikes", "4.3.2, Fig 5",
            "without normalisation gradients spike",
            "yes where the 99 % quantile in units of the median is higher without norm, no where "
            f"it is lower, by the interval over seeds{_EVERY} and pair",
            f"ratio without / with: {self._pairs(found, power=True)}",
            [cell.side(0) for cell in cells],
        )  # fmt: skip

    def explosion(self) -> Statement:
        item, where = "divergence without norm", "4.3.2, Thm 3.3"
        says = "without normalisation training diverges"
        rule = "no when the loss of every network without norm stayed finite, yes when none did"
        frame = self._evidence.table("networks")
        if not len(frame):
            return not_compared(item, where, says, rule, "not measured in this run")
        bare = [name for name, arm in ARMS.items() if arm.settings.get("norm") == "none"]
        rows = frame[frame["arm"].isin(bare)]
        lost = int(rows["diverged"].sum())
        agrees: Agreement = "no" if lost == 0 else "yes" if lost == len(rows) else "cannot be told"
        return Statement(
            item=item, where=where, says=says, rule=rule, agrees=agrees,
            measured=f"{lost} of {len(rows)} networks without norm diverged",
        )  # fmt: skip

    def rates(self) -> Statement:
        item, where = "largest learning rate", "4.3.2"
        says = "without normalisation only small learning rates train"
        rule = (
            "yes when each arm with a norm trains at a larger rate of the grid than the arm that "
            "differs in nothing else, no when one does not; one seed, so that no interval decides"
        )
        frame = self._evidence.table("rates")
        if not len(frame):
            return not_compared(item, where, says, rule, "not measured in this run")
        largest = dict(zip(frame["arm"], frame["largest"].fillna(0.0), strict=True))
        pairs = [p for p in PAIRS if p.what == "norm" and {p.having, p.lacking} <= set(largest)]
        pairs = [p for p in pairs if largest[p.having] or largest[p.lacking]]
        larger = [largest[p.having] > largest[p.lacking] for p in pairs]
        told = ", ".join(
            f"{ARMS[arm].label} {numeral(rate) if rate else 'none'}"
            for arm, rate in largest.items()
        )
        agrees: Agreement = "yes" if all(larger) else "no"
        return Statement(item=item, where=where, says=says, rule=rule, measured=told,
                         agrees=agrees if pairs else "not measured")  # fmt: skip

    def attention(self) -> Statement:
        path = f"distilled {SIMULATOR}"
        cells = self._evidence.cells("attention", "kl", path=path)
        heads = self._evidence.cells("attention", "kl_matched", path=path)
        even = self._evidence.cells("attention", "kl", path="uniform")
        own = self._evidence.cells("attention", "kl", path=SIMULATOR)
        return self._judged(
            "attention, KL", "A.1, Fig 7",
            "KL of the two attention distributions stays below .018 (cosine above .982)",
            "of the distilled simulator, means over heads, the kindest reading: yes where the "
            "interval is below .018, no where it is above; a task on which uniform attention is "
            f"below .018 too decides nothing{_EVERY}",
            f"distilled {in_words(cells)}; head by head {in_words(heads)}; trained on the task "
            f"{in_words(own)}; uniform attention {in_words(even)}",
            [
                _times(cell, -1).side(-0.018) if level.low > 0.018 else "cannot be told"
                for cell, level in zip(cells, even, strict=True)
            ],
        )  # fmt: skip

    def low_pass(self) -> Statement:
        quantity = "high_frequency, 0 to last"
        cells = self._evidence.cells("changes", "change", arm=TRANSFORMER, quantity=quantity)
        other = self._evidence.cells("changes", "change", arm=SIMULATOR, quantity=quantity)
        return self._judged(
            "low-pass", "A.1, Fig 8",
            "transformer and simulator smooth along depth, as diffusion does",
            "yes where the share of energy above half of the highest frequency falls from the "
            f"first to the last state of both, no where one rises{_EVERY}",
            f"transformer {in_words(cells)}; simulator {in_words(other)}",
            [_times(cell, -1).side(0) for cell in (*cells, *other)],
        )  # fmt: skip

    def smooth(self) -> Statement:
        cells = self._last("high_frequency", TRANSFORMER)
        return self._judged(
            "energy at low frequencies", "A.1, Fig 8",
            "most of the energy is at low frequencies",
            "yes where the share above half of the highest frequency is below one half, no where "
            f"it is above{_EVERY}",
            f"{_LAST} {in_words(cells)}", [_times(cell, -1).side(-0.5) for cell in cells],
        )  # fmt: skip

    def delayed(self) -> Statement:
        return self._compression(
            "delayed compression", "4.4, A.2, Fig 9", TRANSFORMER,
            "the transformer keeps what it knows of the input and compresses at the end only",
            "token, last block less all before",
            f"yes where the last block loses {_LOSS} nats more of what a probe reads of the input "
            "token than all blocks before it, no where it does not",
        )  # fmt: skip

    def early(self) -> Statement:
        return self._compression(
            "early compression", "4.4, Fig 6", SIMULATOR,
            "the simulator loses information about the input in early layers",
            "token, 0 to 3",
            f"yes where the first half of the steps loses {_LOSS} nats or more of what a probe reads "
            "of the input token, no where it loses less",
        )  # fmt: skip

    def _compression(
        self, item: str, where: str, arm: str, says: str, quantity: str, rule: str
    ) -> Statement:
        if quantity.endswith("to 3"):
            quantity = self._first_half() or quantity
        cells = self._evidence.cells("changes", "change", arm=arm, quantity=quantity)
        first = self._evidence.cells("information", "token", arm=arm, weights="trained", layer=0)
        last = self._end("information", "token", arm)
        return self._judged(
            item, where, says, f"{rule}{_EVERY}; the source's estimator is not stated (E67)",
            f"change {in_words(cells)} nats; at the start {in_words(first)}, {_LAST} "
            f"{in_words(last)}",
            [_times(cell, -1).side(_LOSS) for cell in cells],
        )  # fmt: skip

    def _first_half(self) -> str:
        frame = self._evidence.table("changes")
        names = [str(q) for q in frame.get("quantity", ()) if str(q).startswith("token, 0 to ")]
        return next((name for name in names if name.rpartition(" ")[2].isdigit()), "")

    def extraction(self) -> Statement:
        cells = self._evidence.cells(
            "changes", "change", arm=TRANSFORMER, quantity="label, 0 to last but one"
        )
        return self._judged(
            "extraction", "Thm 3.5",
            "information about the target rises along depth",
            "yes where a probe reads more of the class from the mean state before the last block "
            f"than from the embedding, no where it reads less{_EVERY}",
            f"{in_words(cells)} nats", [cell.side(0) for cell in cells],
        )  # fmt: skip

    def order(self) -> Statement:
        cells = self._evidence.cells("orders", "slope", arm=TRANSFORMER)
        answers: list[Agreement] = [
            "yes" if c.low > -1.1 and c.high < -0.9
            else "no" if c.low > -0.9 or c.high < -1.1 else "cannot be told"
            for c in cells
        ]  # fmt: skip
        return self._judged(
            "convergence in L", "Thm 3.2, eq 12",
            "with more and shorter layers the states converge to a continuous system",
            "blocks made in n steps of 1/n, n to 16: yes where the slope of log change over log n "
            f"lies within .1 of −1, no where it lies outside{_EVERY}",
            f"slope {in_words(cells)}", answers,
        )  # fmt: skip

    def near(self) -> Statement:
        cells = self._evidence.cells("refinement", "distance", arm=TRANSFORMER, n=1)
        fine = self._evidence.table("refinement")
        fine = fine[(fine["arm"] == TRANSFORMER)] if len(fine) else fine
        ends = ""
        if len(fine):
            told = [
                f"{part['accuracy'].iloc[0]:.2f} → {part['accuracy'].iloc[-1]:.2f}"
                for _, part in fine.groupby("task", sort=False)
            ]
            ends = f"; accuracy with 1 → 16 steps a block: {', '.join(told)}"
        return self._judged(
            "near the continuum", "Thm 3.2",
            "a transformer can be modelled by its continuous limit",
            "yes where the last states are within .1 of the way that they go of those with 16 steps "
            f"a block, no where they are farther{_EVERY}",
            f"distance {in_words(cells)}{ends}", [_times(cell, -1).side(-0.1) for cell in cells],
        )  # fmt: skip

    def collapse(self) -> Statement:
        arms = [arm for arm in ("no_residual", "neither") if self._last("mean_cosine", arm)]
        found = [(arm, self._last("mean_cosine", arm)) for arm in arms]
        return self._judged(
            "added: collapse", _ADDED,
            "without residual connections all tokens become one",
            f"yes where the mean cosine of tokens {_LAST} is above .95, no where it is below{_EVERY} "
            "and arm",
            "; ".join(f"{ARMS[arm].label} {in_words(cells)}" for arm, cells in found),
            [cell.side(0.95) for _, cells in found for cell in cells],
        )  # fmt: skip

    def _last(self, column: str, arm: str, weights: str = "trained") -> list[Cell]:
        return self._end("depth", column, arm, weights)

    def _end(self, table: str, column: str, arm: str, weights: str = "trained") -> list[Cell]:
        frame = self._evidence.table(table)
        if not len(frame):
            return []
        last = int(frame["layer"].max())
        return self._evidence.cells(table, column, arm=arm, weights=weights, layer=last)

    @staticmethod
    def _pairs(
        found: Sequence[tuple[Pair, list[Cell]]], sign: int = 1, *, power: bool = False
    ) -> str:
        """Numbers of pairs of arms in words."""
        scale = math.exp if power else float
        return "; ".join(
            f"{ARMS[pair.having].label} and {ARMS[pair.lacking].label}: "
            f"{in_words([_times(cell, sign) for cell in cells], scale)}"
            for pair, cells in found
            if cells
        )


def _reaches(cell: Cell, value: float, *, above: bool) -> Agreement:
    """Whether the better end of an interval reaches a value that the source gives."""
    better, sign = (cell.high, 1) if above else (cell.low, -1)
    if not math.isfinite(better):
        return "cannot be told"
    return "yes" if sign * (better - value) >= 0 else "no"


def _at(cell: Cell, value: float) -> Agreement:
    if not (math.isfinite(cell.low) and math.isfinite(cell.high)):
        return "cannot be told"
    return "yes" if cell.low <= value <= cell.high else "no"


def _times(cell: Cell, sign: int) -> Cell:
    """The number with another sign."""
    if sign == 1:
        return cell
    return Cell(task=cell.task, value=-cell.value, low=-cell.high, high=-cell.low)


def _turned(pair: Pair) -> Pair:
    return Pair(what=pair.what, having=pair.lacking, lacking=pair.having)
