"""What the processes of a run have made and where they failed: files that only grow.

Each process appends to a file of its own, so that none waits for another: a line for every task
that it has finished, with its seconds, and a file for every failure.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flowscope.lab.engines.plan import WORKERS
from flowscope.records.files import make_folder, write_error, write_file

__all__ = ["Journal", "Made"]


@dataclass(frozen=True)
class Made:
    """One making of a task: by whom, when it ended, how many seconds it took."""

    task: str
    by: str
    at: float
    seconds: float


@dataclass
class Journal:
    """What happened in a run folder, and the file in which this process notes its own part."""

    run: Path
    name: str = field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}")

    def __post_init__(self) -> None:
        self._file = self._made / f"{self.name}-{secrets.token_hex(4)}.jsonl"

    @property
    def _made(self) -> Path:
        return self.run / WORKERS / "made"

    @property
    def _failures(self) -> Path:
        return self.run / WORKERS / "failures"

    def open(self) -> None:
        """Make the folders of this process, so that one that cannot write stops before it works.

        Raises
        ------
        RecordError
            Nothing can be written there.
        """
        make_folder(self._failures)
        make_folder(self._made)
        try:
            self._file.touch()
        except OSError as error:
            raise write_error(self._file, 0, error) from error

    def made(self, task: str, seconds: float) -> None:
        """Note a task that is finished."""
        line = {"task": task, "by": self.name, "at": time.time(), "seconds": seconds}
        try:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise write_error(self._file, 1, error) from error

    def failed(self, task: str, reason: str) -> None:
        """Note that a task failed."""
        content = json.dumps({"task": task, "by": self.name, "reason": reason})
        write_file(self._failures / f"{secrets.token_hex(8)}.json", content.encode())

    def failures(self, task: str) -> list[str]:
        """Reasons for which a task has failed since the run was taken up."""
        return [entry["reason"] for entry in self._failed() if entry["task"] == task]

    def failed_tasks(self) -> Counter[str]:
        """How often each task has failed since the run was taken up."""
        return Counter(entry["task"] for entry in self._failed())

    def _failed(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self._failures.glob("[!.]*.json")):
            try:
                entry = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):  # forgotten meanwhile
                continue
            if {"task", "reason"} <= entry.keys():
                yield entry

    def forget_failures(self) -> None:
        """Let every task be tried again."""
        shutil.rmtree(self._failures, ignore_errors=True)

    def makings(self) -> list[Made]:
        """Every making that any process noted, those of earlier attempts at the run included."""
        return [made for path in sorted(self._made.glob("*.jsonl")) for made in _lines(path)]


def _lines(path: Path) -> Iterator[Made]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            yield Made(**json.loads(line))
        except (ValueError, TypeError):  # the last line of a process that was killed
            continue
