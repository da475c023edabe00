"""A claim on a task: the right to make it, held by one process at a time.

A claim is the lock of a folder of its own below ``workers/claims``, with everything that the lock
of a run has: it appears in one step, it is taken over from a dead process at once on one computer
and after ten minutes without a sign of life elsewhere.
"""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowscope.errors import RecordError, RecordWarning
from flowscope.lab.engines.plan import WORKERS
from flowscope.lab.running.lock import FolderLock, HeldError
from flowscope.records.files import make_folder

__all__ = ["claimed", "forget_claims"]

_ATTEMPTS, _PAUSE = 5, 0.05


@contextmanager
def claimed(run: Path, task: str) -> Iterator[bool]:
    """Hold a task while the block runs, or find that another process holds it (False)."""
    lock = _taken(run, task)
    if lock is None:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _taken(run: Path, task: str) -> FolderLock | None:
    for attempt in range(_ATTEMPTS):
        try:
            # Made apart, so that no process takes it for a folder of its own and removes it.
            make_folder(_claims(run))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RecordWarning)  # a dead worker is no news of it
                return FolderLock.take(_claims(run) / task)
        except HeldError:
            return None
        except RecordError:
            # The driver may just have finished and forgotten all claims.
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_PAUSE)
    return None


def forget_claims(run: Path) -> None:
    """Remove what dead processes left; nothing is to be made any more."""
    shutil.rmtree(_claims(run), ignore_errors=True)


def _claims(run: Path) -> Path:
    return run / WORKERS / "claims"
