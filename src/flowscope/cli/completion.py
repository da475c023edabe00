"""What a shell completes beside commands and options: studies, run folders, names of ``--only``.

A shell waits for each of these, so nothing here loads records or torch.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flowscope.lab.registry import instruments
from flowscope.lab.running.selection import selectable

if TYPE_CHECKING:
    from flowscope.lab.instrument import Instrument

__all__ = ["complete_run", "complete_study", "only_completer", "study_names"]


def study_names() -> list[str]:
    """Names of the studies; each is that of the package in which its instrument declares it."""
    references = (reference for one in instruments() for reference in one.studies)
    return sorted(reference.split(".")[0] for reference in references)


def complete_study(incomplete: str) -> list[str]:
    """Studies whose names start so."""
    return [name for name in study_names() if name.startswith(incomplete)]


def only_completer(instrument: "Instrument") -> Callable[[str], list[str]]:
    """Function that completes the last name of a list of claims and stages."""

    def complete(incomplete: str) -> list[str]:
        before, comma, start = incomplete.rpartition(",")
        names = [name for name in selectable(instrument.stages) if name.startswith(start)]
        return [f"{before}{comma}{name}" for name in names]

    return complete


def complete_run(incomplete: str) -> list[str]:
    """Run folders whose paths start so, in the folder that is typed and in the folders below it."""
    place, slash, _ = incomplete.rpartition("/")
    paths = (f"{place}{slash}{path}" for path in _runs_in(Path(f"{place}{slash}" or "."), levels=2))
    return sorted(path for path in paths if path.startswith(incomplete))


def _runs_in(folder: Path, levels: int) -> Iterator[str]:
    """Relative paths of run folders, so many levels down."""
    for path in _folders(folder):
        if (path / "manifest.json").is_file():
            yield path.name
        elif levels > 1:
            yield from (f"{path.name}/{inner}" for inner in _runs_in(path, levels - 1))


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(e.path) for e in entries if e.is_dir() and not e.name.startswith(".")]
    except OSError:  # no such folder, or one that may not be read: nothing to complete
        return []
