"""Progress of a run: a callback of the caller, and a counter for pieces of unequal size."""

from collections.abc import Callable

__all__ = ["Counter", "Progress", "silent"]

Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, how much of it is done, and its total."""


def silent(stage: str, done: int, total: int) -> None:
    """Report no progress."""


class Counter:
    """Adds up the finished pieces of a stage and reports them."""

    def __init__(self, progress: Progress, stage: str, total: int = 1) -> None:
        self._progress, self._stage, self._done, self.total = progress, stage, 0, max(1, total)

    def advance(self, more: int = 1) -> None:
        """Report that so many more pieces are finished."""
        self._done += more
        self._progress(self._stage, min(self._done, self.total), self.total)

    def finish(self) -> None:
        """Report the stage as finished; shards of an earlier run need no work."""
        self._progress(self._stage, self.total, self.total)
