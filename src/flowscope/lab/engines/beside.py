"""What a driver knows of the workers that it started."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from flowscope.errors import RecordWarning

__all__ = ["Helpers", "fewer_threads", "no_look", "say", "threads_each"]


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


@contextmanager
def fewer_threads(workers: int) -> Iterator[Callable[[], None]]:
    """Give this process an equal part of the cores until the block ends, or until it asks for all.

    Where the workers have left, what remains is done with all threads, as by one process.
    """
    import torch

    before = torch.get_num_threads()

    def all_of_them() -> None:
        torch.set_num_threads(before)

    if workers > 1:
        torch.set_num_threads(min(before, threads_each(workers)))
    try:
        yield all_of_them
    finally:
        all_of_them()
