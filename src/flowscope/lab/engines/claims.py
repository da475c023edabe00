"""A claim on a task: the right to make it, held by one process at a time.

A claim is the lock of a folder of its own below ``workers/claims``, with everything that the lock
of a run has: it appears in one step, it is taken over from a dead process at once on one computer
and after ten minutes without a sign of life elsewhere.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowscope.errors import RecordWarning
from flowscope.lab.engines.plan import WORKERS
from flowscope.lab.running.lock import FolderLock, HeldError

__all__ = ["claimed", "forget_claims"]


@contextmanager
def claimed(run: Path, task: str) -> Iterator[bool]:
    """Hold a task while the block runs, or find that another process holds it (False)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecordWarning)  # a dead worker is no news of the run
            lock = FolderLock.take(_claims(run) / task)
    except HeldError:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def forget_claims(run: Path) -> None:
    """Remove what dead processes left; nothing is to be made any more."""
    shutil.rmtree(_claims(run), ignore_errors=True)


def _claims(run: Path) -> Path:
    return run / WORKERS / "claims"
