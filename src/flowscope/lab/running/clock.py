"""Time of the parts of a run: each stage, and each part of a stage that is timed apart."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["StageClock"]


class StageClock:
    """Seconds and device of each part of a run; a part inside another stops the outer one.

    The seconds of all parts therefore add up to the time that was timed, and no second counts
    twice. A part that is entered again goes on. Work that a GPU still has to do when a part ends
    belongs to that part: the clock waits for it.

    Parameters
    ----------
    now
        Clock in seconds.

    Examples
    --------
    >>> ticks = iter([0.0, 1.0, 4.0, 5.0])
    >>> clock = StageClock(lambda: next(ticks))
    >>> with clock.part("variation", "cpu"), clock.part("measuring", "cuda"):
    ...     pass
    >>> clock.parts()["measuring"]
    {'seconds': 3.0, 'device': 'cuda', 'share': 0.6}
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seconds: dict[str, float] = {}
        self._devices: dict[str, str] = {}
        self._running: list[str] = []
        self._since = 0.0

    @contextmanager
    def part(self, name: str, device: str) -> Iterator[None]:
        """Time a part of the run until the block ends, also by an exception."""
        self._turn()
        self._seconds.setdefault(name, 0.0)
        self._devices[name] = device
        self._running.append(name)
        try:
            yield
        finally:
            try:
                self._turn()
            finally:
                self._running.pop()

    def _turn(self) -> None:
        """Book the time since the last turn to the part that is running."""
        _wait_for_devices()
        now = self._now()
        if self._running:
            self._seconds[self._running[-1]] += now - self._since
        self._since = now

    def parts(self) -> dict[str, dict[str, Any]]:
        """Seconds, device and share of each part by name, in the order in which they began."""
        total = sum(self._seconds.values())
        return {
            name: {
                "seconds": seconds,
                "device": self._devices[name],
                "share": seconds / total if total else 0.0,
            }
            for name, seconds in self._seconds.items()
        }


def _wait_for_devices() -> None:
    """Wait until the GPUs that this process uses are idle; load no torch and start no GPU."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_available() or not cuda.is_initialized():
        return
    for index in range(cuda.device_count()):
        if cuda.memory_reserved(index):
            cuda.synchronize(index)
