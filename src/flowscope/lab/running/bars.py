"""Progress bars of a run on standard error, the same for commands and for functions."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec

from flowscope.lab.running.progress import Progress, silent

__all__ = ["displayed_progress"]

_WIDTH = 48
_DISPLAY = threading.Lock()
"""Held while bars are drawn: two displays in one terminal would overwrite each other."""


@contextmanager
def displayed_progress(progress: Progress | bool | None = None) -> Iterator[Progress]:
    """Show the progress of a run; the value is the function to call with (stage, done, total).

    A second run at the same time, in another thread, shows nothing.

    Parameters
    ----------
    progress
        None shows bars if standard error is a terminal or the caller is a notebook; True shows
        them in any case, False never. A function is used as it is.
    """
    if callable(progress):
        yield progress
        return
    wanted = _attached() if progress is None else progress
    if not wanted or not _DISPLAY.acquire(blocking=False):
        yield silent
        return
    try:
        with _display() as advance:
            yield advance
    finally:
        _DISPLAY.release()


def _attached() -> bool:
    return _in_terminal() or _in_notebook()


def _in_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _in_notebook() -> bool:
    if "IPython" not in sys.modules:
        return False
    from rich.console import Console

    return Console().is_jupyter


def _display() -> AbstractContextManager[Progress]:
    """Bars where they can be drawn, else a line of text for each part of the run."""
    if _in_terminal() or (_in_notebook() and find_spec("ipywidgets") is not None):
        return _bars()
    return _lines()


@contextmanager
def _bars() -> Iterator[Progress]:
    """A bar per part of the run with the time left."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description:<14}"), BarColumn(), MofNCompleteColumn())
    # Standard output is left alone where it is a file: what the caller prints belongs there.
    shared = sys.stdout is not None and sys.stdout.isatty()
    with Bars(
        *columns,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=shared,
    ) as bars:
        tasks: dict[str, TaskID] = {}

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done)

        yield advance


@contextmanager
def _lines() -> Iterator[Progress]:
    """A line per part of the run, written again at each per cent."""
    stream, shares = sys.stderr, dict[str, int]()

    def advance(stage: str, done: int, total: int) -> None:
        share = 100 * done // max(1, total)
        if stream is not None and shares.get(stage) != share:
            shares[stage] = share
            ending = "\n" if share >= 100 else ""
            stream.write("\r" + f"{stage:<14} {done}/{total}".ljust(_WIDTH) + ending)
            stream.flush()

    yield advance
