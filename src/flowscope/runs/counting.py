"""Progress of a stage, from pieces that are told as they are done."""

from flowscope.runs.auditor import Progress

__all__ = ["Counter"]


class Counter:
    """Tells the progress of a stage."""

    def __init__(self, progress: Progress, stage: str, total: int = 1) -> None:
        self._progress, self._stage, self._done, self.total = progress, stage, 0, total

    def advance(self, more: int) -> None:
        """So many more are done."""
        self._done += more
        self._progress(self._stage, min(self._done, self.total), self.total)

    def finish(self) -> None:
        """Shards that were there already are done too."""
        self._progress(self._stage, self.total, self.total)
