"""What a driver knows of the workers that it started."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from flowscope.errors import RecordWarning

__all__ = ["Helpers", "no_look", "say", "threads_each"]


def no_look() -> None:
    """Look at no worker."""


@dataclass(frozen=True)
class Helpers:
    """Workers beside the driver: how many, and what looks after them while the driver waits."""

    count: int
    look: Callable[[], None] = no_look


def say(sentence: str) -> None:
    """Tell the user something about the workers that changes no number."""
    warnings.warn(sentence, RecordWarning, stacklevel=3)


def threads_each(workers: int) -> int:
    """Threads of one of several workers: an equal part of the cores that this process may use.

    ``OMP_NUM_THREADS`` decides where it is set, because sums of floating-point numbers may depend
    on the number of threads.
    """
    asked = os.environ.get("OMP_NUM_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return int(asked) if asked.isdigit() and int(asked) else max((cores or 1) // workers, 1)
