"""What source 001 says of spectra and information along depth."""

from __future__ import annotations

from flowscope.instruments.field.pde_view.cells import EVERY, LAST, Numbers, Row, in_words, judged
from flowscope.instruments.field.pde_view.names import SIMULATOR, TRANSFORMER
from flowscope.lab.statements import Statement

__all__ = ["ROWS"]

_LOSS = 0.01
"""Nats that count as a loss of information; a probe that reads everything moves by less."""
_SMOOTHER = 0.02
"""Share of the energy that counts as smoothing; a trained network moves a little anyway."""
_HIGH = "high_frequency, 0 to last"


def low_pass(numbers: Numbers) -> Statement:
    """Whether both networks smooth the tokens along depth."""
    cells, other = (
        numbers.cells("changes", "change", arm=arm, quantity=_HIGH)
        for arm in (TRANSFORMER, SIMULATOR)
    )
    blind = numbers.last("high_frequency", SIMULATOR, weights="random")
    start = numbers.cells("depth", "high_frequency", arm=SIMULATOR, weights="random", layer=0)
    return judged(
        [cell.below(-_SMOOTHER) for cell in (*cells, *other)],
        item="low-pass", where="A.1, Fig 8",
        says="transformer and simulator smooth along depth, as diffusion does",
        measured=f"change: transformer {in_words(cells)}; simulator {in_words(other)}; share "
        f"{LAST} of the simulator with random weights {in_words(blind)}, before the first "
        f"{in_words(start)}",
        rule="yes where the share of energy above half of the highest frequency falls by "
        f"{_SMOOTHER} or more from the first to the last state of both, no where one falls by "
        f"less{EVERY}",
    )  # fmt: skip


def smooth(numbers: Numbers) -> Statement:
    """Whether most of the energy is at low frequencies."""
    cells = numbers.last("high_frequency", TRANSFORMER)
    start = numbers.cells("depth", "high_frequency", arm=TRANSFORMER, weights="trained", layer=0)
    return judged(
        [cell.below(0.5) for cell in cells],
        item="energy at low frequencies", where="A.1, Fig 8",
        says="most of the energy is at low frequencies",
        measured=f"share above half of the highest frequency {LAST} {in_words(cells)}; before the "
        f"first {in_words(start)}",
        rule=f"yes where that share is below one half, no where it is above{EVERY}",
    )  # fmt: skip


def delayed(numbers: Numbers) -> Statement:
    """Whether the transformer compresses at its end."""
    return _compression(
        numbers, TRANSFORMER, "token, last block less all before",
        item="delayed compression", where="4.4, A.2, Fig 9",
        says="the transformer keeps what it knows of the input and compresses at the end only",
        rule=f"yes where the last block loses {_LOSS} nats more of what a probe reads of the input "
        "token than all blocks before it, no where it does not",
    )  # fmt: skip


def early(numbers: Numbers) -> Statement:
    """Whether the simulator compresses at its start."""
    return _compression(
        numbers, SIMULATOR, "token, 0 to half",
        item="early compression", where="4.4, Fig 6",
        says="the simulator loses information about the input in early layers",
        rule=f"yes where the first half of the steps loses {_LOSS} nats or more of what a probe "
        "reads of the input token, no where it loses less",
    )  # fmt: skip


def _compression(
    numbers: Numbers, arm: str, quantity: str, *, rule: str, **words: str
) -> Statement:
    cells = numbers.cells("changes", "change", arm=arm, quantity=quantity)
    start = numbers.cells("information", "token", arm=arm, weights="trained", layer=0)
    last = numbers.last("token", arm, table="information")
    return judged(
        [cell.below(-_LOSS) for cell in cells],
        measured=f"change {in_words(cells)} nats; read at the start {in_words(start)}, {LAST} "
        f"{in_words(last)}",
        rule=f"{rule}{EVERY}; the source's estimator is not stated (E67)",
        **words,
    )


def extraction(numbers: Numbers) -> Statement:
    """Whether more can be read of the class along depth."""
    cells = numbers.cells("changes", "change", arm=TRANSFORMER, quantity="label, 0 to last but one")
    reads = numbers.table("information")
    if len(reads):
        reads = reads[(reads["arm"] == TRANSFORMER) & (reads["weights"] == "trained")]
    read = set(reads.loc[reads["label_low"] > 0, "task"]) if len(reads) else set()
    last = numbers.last("label", TRANSFORMER, table="information")
    return judged(
        [cell.above(0) if cell.task in read else "cannot be told" for cell in cells],
        item="extraction", where="Thm 3.5",
        says="information about the target rises along depth",
        measured=f"change to the last block but one {in_words(cells)} nats; read {LAST} "
        f"{in_words(last)}",
        rule="yes where a probe reads more of the class from the mean state before the last block "
        "than from the embedding, no where it reads less; a task on which it reads nothing at any "
        f"depth decides nothing{EVERY}",
    )  # fmt: skip


ROWS: tuple[Row, ...] = (low_pass, smooth, delayed, early, extraction)
"""Rows in their order, as functions of the numbers of a run."""
