"""Every study of every source in one folder, with one index page.

The folder holds ``index.html``, ``index.json`` (what the page shows, and which run each study has),
``NAME.csv`` (the table of claims of each study) and ``NAME/``, in which its run folder is made. A
study that is there with the same settings, version and commit is not run again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flowscope.errors import FlowscopeError, InvalidInputError, RecordError
from flowscope.lab import registry
from flowscope.lab.engines.choice import LOCAL, EngineChoice
from flowscope.lab.result import plain_rows
from flowscope.lab.running.progress import Progress, silent
from flowscope.lab.running.writing import commit
from flowscope.lab.study import Reproduction, Study, reproduce
from flowscope.records import Run, library_versions
from flowscope.records.files import is_file, read_file, write_file
from flowscope.report.parts.chance import chance_of_claims
from flowscope.report.parts.claim_index import StudyEntry, claim_index

__all__ = ["Reproductions", "reproduce_all", "write_page"]

_COLUMNS = ("item", "where", "says", "measured", "agrees")
_SKIPPED = "its settings take hours without a GPU (--skip-gpu)"


@dataclass(frozen=True, kw_only=True)
class Reproductions:
    """The index page, and what each study left on it."""

    page: Path
    entries: tuple[StudyEntry, ...]

    @property
    def failed(self) -> tuple[StudyEntry, ...]:
        """Studies that ended with an error."""
        return tuple(entry for entry in self.entries if entry.missing not in ("", _SKIPPED))

    def to_json(self) -> dict[str, Any]:
        """Document of plain values."""
        return {"page": str(self.page), "studies": [asdict(entry) for entry in self.entries]}


def reproduce_all(
    out: Path,
    *,
    only: Sequence[str] = (),
    skip_gpu: bool = False,
    small: bool = False,
    choice: EngineChoice = LOCAL,
    device: str | None = None,
    progress: Progress = silent,
) -> Reproductions:
    """Run every study of the registry and write one page of all claims.

    Parameters
    ----------
    out
        Folder of the page and of the runs.
    only
        Names of studies; all where it is empty.
    skip_gpu
        Whether studies that need a GPU are left out.
    small
        Whether each study takes its small settings, which show that it runs and little else.
    choice, device
        Engine, and device of the models.
    progress
        Called with (stage, done, total).

    Raises
    ------
    InvalidInputError
        ``only`` names no study.
    """
    for name in only:
        registry.study(name)
    chosen = [study for study in registry.studies().values() if not only or study.name in only]
    if not chosen:
        raise InvalidInputError("There is no study to run.")
    records = _known(out)
    for place, study in enumerate(chosen):
        progress("studies", place, len(chosen))
        if skip_gpu and study.gpu:
            records[study.name] = {"entry": _entry(study, small, missing=_SKIPPED)}
        else:
            key = _key(study, small, device)
            if not _finished(out, records.get(study.name, {}), key):
                records[study.name] = _measured(out, study, small, choice, device, key, progress)
        _keep(out, records)
    progress("studies", len(chosen), len(chosen))
    page, entries = write_page(out)
    return Reproductions(page=page, entries=entries)


def write_page(out: Path) -> tuple[Path, tuple[StudyEntry, ...]]:
    """Write the page of a folder again, from its ``index.json``; links lead to what is there."""
    records = _known(out)
    names = [name for name in registry.studies() if name in records]
    entries = tuple(_linked(out, StudyEntry(**records[name]["entry"])) for name in names)
    small = any("--small" in entry.command for entry in entries)
    settings = (
        "Measured with small settings: intervals are wide, and many claims cannot be decided."
        if small
        else "Measured with the default settings of each study."
    )
    facts = f"{settings} flowscope {library_versions()['flowscope']}."
    page = out / "index.html"
    write_file(page, claim_index(entries, facts).encode())
    return page, entries


def _measured(
    out: Path,
    study: Study,
    small: bool,
    choice: EngineChoice,
    device: str | None,
    key: str,
    progress: Progress,
) -> dict[str, Any]:
    """Record of one study; an error is its reason, so that the other studies are run."""
    engine = LOCAL if study.instrument.alone else choice
    try:
        done = reproduce(
            study.name,
            progress=lambda part, k, total: progress(f"{study.name}: {part}", k, total),
            overrides=_assignments(study.small if small else {}),
            choice=engine,
            out=str(out / study.name),
            device=device,
        )
        done.report()
    except FlowscopeError as error:
        return {"entry": _entry(study, small, missing=str(error))}
    except (RuntimeError, OSError, ValueError, MemoryError) as error:
        return {"entry": _entry(study, small, missing=f"{type(error).__name__}: {error}")}
    write_file(out / f"{study.name}.csv", _table(done))
    rows = [{name: str(row.get(name, "")) for name in _COLUMNS} for row in plain_rows(done.claims)]
    return {
        "key": key,
        "run": os.path.relpath(done.run.folder, out),
        "entry": _entry(
            study, small, rows=rows, chance=chance_of_claims(done.claims).sentence,
            links=[("report", os.path.relpath(done.run.folder / "report.html", out)),
                   ("table of claims", f"{study.name}.csv")],
        ),
    }  # fmt: skip


def _table(done: Reproduction) -> bytes:
    return (done.run.folder / "tables" / f"{done.study}.csv").read_bytes()


def _entry(study: Study, small: bool, **found: Any) -> dict[str, Any]:
    command = f"flowscope reproduce all --only {study.name}" + (" --small" if small else "")
    title = study.resolved({}).model_dump().get("title", "")
    entry = StudyEntry(
        name=study.name, title=str(title), source=study.source, command=command, **found
    )
    return asdict(entry)


def _linked(out: Path, entry: StudyEntry) -> StudyEntry:
    links = [(words, address) for words, address in entry.links if is_file(out / address)]
    return replace(entry, links=links)


def _assignments(values: Mapping[str, Any], before: str = "") -> list[str]:
    """Settings as ``a.b=c``."""
    found: list[str] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += _assignments(value, f"{before}{name}.")
        else:
            found.append(f"{before}{name}={json.dumps(value)}")
    return found


def _key(study: Study, small: bool, device: str | None) -> str:
    """What decides the numbers of a study beside weights that ship with flowscope."""
    decides = {
        "settings": study.resolved(
            {"device": device}, _assignments(study.small if small else {})
        ).model_dump(mode="json"),
        "versions": {name: str(version) for name, version in library_versions().items()},
        "commit": str(commit()),
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def _finished(out: Path, record: Mapping[str, Any], key: str) -> bool:
    if record.get("key") != key or not record.get("run"):
        return False
    with suppress(RecordError):
        run = Run.open(out / record["run"])
        return not run.strange_files() and is_file(run.folder / "report.html")
    return False


def _known(out: Path) -> dict[str, Any]:
    path = out / "index.json"
    if not is_file(path):
        return {}
    try:
        return dict(json.loads(read_file(path)))
    except ValueError as error:
        raise RecordError(
            f"{path} should be what flowscope reproduce all writes, and cannot be read. Delete it; "
            "runs that are there are used."
        ) from error


def _keep(out: Path, records: Mapping[str, Any]) -> None:
    write_file(out / "index.json", (json.dumps(records, indent=1) + "\n").encode())
