"""One process among those that make the shards of a run.

Tasks are taken in order from the beginning of the process's share. A task that another process
holds is left to it and looked at again; one whose holder has died is taken over. So every task is
made once, whatever the number of processes, their order and their ends.

What flowscope refuses on purpose (`FlowscopeError`) would be refused anywhere and is not tried
again; any other error is a failure. A worker ends with its failure, so that another process takes
the task; the third failure of a task ends the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flowscope.errors import FlowscopeError, RecordError, WorkerError
from flowscope.lab.claim import Abstention
from flowscope.lab.engines.choice import Share
from flowscope.lab.engines.claims import claimed
from flowscope.lab.engines.journal import Journal
from flowscope.records import Task

__all__ = ["MOST_FAILURES", "NothingLeft", "WorkCrew"]

MOST_FAILURES = 3
_SHORTEST, _LONGEST = 0.02, 1.0


class NothingLeft(Exception):  # noqa: N818 - the work is done, nothing has gone wrong
    """No later stage gives shards: a worker leaves here."""


class WorkCrew:
    """See `flowscope.records.Crew`.

    Parameters
    ----------
    run
        The run folder.
    share
        Where this process begins.
    helps
        Whether it is a worker beside the driver, which leaves when there are no more shards.
    ended
        Asked while it waits: raises where waiting has no end.
    over
        Called when the last shards of the run are made.
    """

    def __init__(
        self,
        run: Path,
        share: Share,
        *,
        helps: bool,
        ended: Callable[[], None] = lambda: None,
        over: Callable[[], None] = lambda: None,
    ) -> None:
        self.run, self.share, self.helps = run, share, helps
        self.journal = Journal(run)
        self.journal.open()
        self.seconds = 0.0
        """Time that this process spent on tasks, and on waiting for others."""
        self.made = 0
        """Tasks that this process made."""
        self.last = False
        """Whether the next tasks are the last ones of the run."""
        self._ended, self.over = ended, over
        self._depth = 0

    def spread(self, tasks: Sequence[Task]) -> None:
        """Return when every task is done, made here or by another process, or was refused."""
        self._timed(lambda: self._all([tasks[k] for k in self.share.order(len(tasks))], True))
        if self.last and self.helps:
            raise NothingLeft
        if self.last:
            self.over()

    def one(self, task: Task) -> None:
        """Make one task, or wait for the process that makes it; an error of its own is raised."""
        self._timed(lambda: self._all([task], False))

    def _timed(self, work: Callable[[], None]) -> None:
        """Add the time of some work; a task inside another counts once."""
        started, self._depth = time.monotonic(), self._depth + 1
        try:
            work()
        finally:
            self._depth -= 1
            if not self._depth:
                self.seconds += time.monotonic() - started

    def _all(self, tasks: list[Task], lenient: bool) -> None:
        wait = _SHORTEST
        while True:
            left = [task for task in tasks if not self._settled(task, lenient)]
            if not left:
                return
            self._ended()
            wait = _SHORTEST if len(left) < len(tasks) else min(2 * wait, _LONGEST)
            tasks = left
            time.sleep(wait)

    def _settled(self, task: Task, lenient: bool) -> bool:
        """Whether a task is done or refused, after this process has tried to make it."""
        if task.done():
            return True
        with claimed(self.run, task.name) as mine:
            if not mine:
                return False
            if task.done():  # its maker has just let it go
                return True
            try:
                started = time.monotonic()
                task.make()
            except (RecordError, WorkerError) as error:
                self._failed(task, error)
                return False
            except (FlowscopeError, Abstention):
                if lenient:
                    return True
                raise
            except Exception as error:
                self._failed(task, error)
                return False
            self.made += 1
            self.journal.made(task.name, time.monotonic() - started)
            return True

    def _failed(self, task: Task, error: Exception) -> None:
        """Note a failure; end where it is the third one, and a worker in any case."""
        if isinstance(error, WorkerError):  # of a task inside this one
            raise error
        self.journal.failed(task.name, f"{type(error).__name__}: {error}")
        reasons = self.journal.failures(task.name)
        if len(reasons) >= MOST_FAILURES:
            raise WorkerError(
                f"The shard {task.name} failed {len(reasons)} times, at last with {reasons[-1]} "
                "Finished shards are kept; the same command tries the others again."
            ) from error
        if self.helps:
            raise error
