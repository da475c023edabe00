"""Runs of a panel of verdicts: what is kept of each, and the file that keeps them.

A run is stored as soon as it ends, beside the others, also by several processes at a time. A panel
asks for `document` before it runs a subject, so that a stored run is not made again.
"""

import fcntl
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.machine import described
from flowscope.evidence.verdicts import ends
from flowscope.records import Unavailable, Verdict

__all__ = ["Job", "PanelRuns", "Row", "row_of"]

Row = dict[str, Any]


class Job(NamedTuple):
    """One subject at one seed."""

    part: str
    subject: str
    seed: str
    verdicts: Callable[[], list[Verdict]]


def row_of(verdict: Verdict) -> Row:
    """What is kept of a verdict."""
    interval, effect, p = verdict.interval, verdict.effect, verdict.p
    number = verdict.statistic.numbers() if verdict.statistic.status == "ok" else np.nan
    return {
        "statistic": _rounded(float(number)),
        "outcome": verdict.outcome,
        "strength": verdict.strength,
        "effect": None if isinstance(effect, Unavailable) else _rounded(float(effect)),
        "interval": None
        if isinstance(interval, Unavailable)
        else [_rounded(end) for end in ends(interval)],
        "p": None if isinstance(p, Unavailable) else _rounded(float(p)),
        "because": verdict.because,
    }


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 5)


@dataclass(frozen=True)
class PanelRuns:
    """The stored runs of one panel.

    Attributes
    ----------
    file
        Where they are.
    parts
        Parts of the panel; each holds runs by subject and seed.
    """

    file: Path
    parts: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Every run that is stored."""
        if self.file.is_file():
            stored: dict[str, Any] = json.loads(self.file.read_text(encoding="utf-8"))
            return stored
        return {"machine": described(), **{part: {} for part in self.parts}}

    def has(self, part: str, subject: str, seed: str) -> bool:
        """Whether a run is stored."""
        return seed in self.document().get(part, {}).get(subject, {})

    def store(
        self, part: str, subject: str, seed: str, verdicts: list[Verdict], seconds: float
    ) -> dict[str, Row]:
        """Write one run beside the others and return what is kept of its verdicts."""
        rows = {verdict.name: row_of(verdict) for verdict in verdicts}
        entry = {"verdicts": rows, "processor_seconds": round(seconds, 1)}

        def added(runs: dict[str, Any]) -> None:
            runs.setdefault(part, {}).setdefault(subject, {})[seed] = entry

        self._change(added)
        return rows

    def put(self, **values: Any) -> None:
        """Write whole entries of the document, such as measured levels."""
        self._change(lambda runs: runs.update(values))

    def _change(self, change: Callable[[dict[str, Any]], None]) -> None:
        with Path(tempfile.gettempdir(), f"{self.file.stem}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            runs = self.document()
            change(runs)
            self._write(runs)

    def _write(self, runs: Mapping[str, Any]) -> None:
        text = json.dumps(runs, indent=1, ensure_ascii=False)
        temporary = self.file.with_suffix(".partial")
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(self.file)
