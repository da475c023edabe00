"""The runs below a folder: which instrument, which model, when, whether finished, what verdicts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from flowscope.errors import FlowscopeError, InvalidInputError, RecordError
from flowscope.lab.registry import instrument_of
from flowscope.lab.running.lock import writer_of
from flowscope.records import Manifest, Run, Unavailable

__all__ = ["RunSummary", "run_folders", "runs_below"]

_MANIFEST = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One line about a run folder.

    Attributes
    ----------
    folder
        The run folder.
    state, because
        Whether the run is finished, unfinished or damaged; what is damaged, or who measures it.
    instrument, model, created_at
        What measured what, and the ISO time of its start; empty where the folder does not say.
    verdicts
        Outcomes by the names of the claims.
    """

    folder: Path
    state: Literal["finished", "unfinished", "damaged"]
    because: str = ""
    instrument: str = ""
    model: str = ""
    created_at: str = ""
    verdicts: Mapping[str, str] = field(default_factory=dict)

    @property
    def brief(self) -> str:
        """Verdicts in one line, e.g. ``"P0 holds, P1 abstains"``."""
        return ", ".join(f"{name} {decision}" for name, decision in self.verdicts.items())

    def to_json(self) -> dict[str, Any]:
        """Document of plain values."""
        return {**asdict(self), "folder": str(self.folder)}


def run_folders(folder: Path) -> Iterator[Path]:
    """Run folders below a folder, itself included; nothing inside a run folder is one."""
    for place, inner, files in os.walk(folder):
        inner.sort()
        if _MANIFEST in files:
            inner.clear()
            yield Path(place)


def runs_below(folder: str | Path) -> list[RunSummary]:
    """Summaries of the runs below a folder, newest first; none where there is no folder.

    Raises
    ------
    InvalidInputError
        A file is at the place of the folder.
    """
    if Path(folder).is_file():
        raise InvalidInputError(f"{folder} should be a folder of run folders, found a file.")
    summaries = [_summary(place) for place in run_folders(Path(folder))]
    return sorted(summaries, key=lambda summary: summary.created_at, reverse=True)


def _summary(folder: Path) -> RunSummary:
    try:
        run = Run.open(folder)
    except RecordError as error:
        return RunSummary(folder=folder, state="damaged", because=str(error))
    manifest = run.read_manifest()
    summary = _described(folder, run, manifest)
    if isinstance(manifest.wall_time, Unavailable):
        writer = writer_of(folder)
        return replace(summary, because=f"being written by {writer}" if writer else "")
    try:
        run.verify()
        verdicts = {verdict.name: str(verdict.outcome) for verdict in run.read_verdicts()}
    except RecordError as error:
        return replace(summary, state="damaged", because=str(error))
    return replace(summary, state="finished", verdicts=verdicts)


def _described(folder: Path, run: Run, manifest: Manifest) -> RunSummary:
    """What the manifest says of a run that may not have finished."""
    settings, created = manifest.config_resolved, manifest.created_at
    if isinstance(settings, Unavailable):
        settings = {}
    try:
        name = instrument_of(run).name
    except FlowscopeError:  # an instrument that this version does not have
        name = str(settings.get("command", ""))
    return RunSummary(
        folder=folder,
        state="unfinished",
        instrument=name,
        model=str(settings.get("model") or ""),
        created_at="" if isinstance(created, Unavailable) else created,
    )
