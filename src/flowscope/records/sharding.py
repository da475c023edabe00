"""Shards of one piece of work: what is finished is read, what is missing or damaged is made."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from flowscope.errors import RecordError
from flowscope.records.run import Run
from flowscope.records.storage.shards import Shard, ShardKey, find_shard

__all__ = ["Crew", "Shards", "Task"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A piece of work that one process of several makes.

    Attributes
    ----------
    name
        Its name in the run folder.
    done
        Whether its shards are there, made by whomever.
    make
        Makes and writes them.
    """

    name: str
    done: Callable[[], bool]
    make: Callable[[], object]


class Crew(Protocol):
    """Several processes that make the shards of one run (`flowscope.lab.engines`).

    Attributes
    ----------
    last
        Whether the next tasks are the last ones of the run.
    """

    last: bool

    def spread(self, tasks: Sequence[Task]) -> None:
        """Return when every task is done, made here or by another process, or was refused."""

    def one(self, task: Task) -> None:
        """Make one task, or wait for the process that makes it; an error of its own is raised."""


@dataclass(frozen=True, kw_only=True)
class Shards:
    """Shards of one run folder that share a fingerprint.

    Attributes
    ----------
    run
        The run folder.
    fingerprint
        Hash of everything that decides the content of the shards.
    lenders
        Folders of shards of other runs: one of the same name and fingerprint is copied from there
        instead of being made.
    crew
        Other processes that make shards of this run at the same time; None where there are none.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from flowscope.records import Manifest
    >>> run = Run.create(tempfile.mkdtemp() + "/run", Manifest(seeds={"all": 0}))
    >>> shards = Shards(run=run, fingerprint="9f86d081")
    >>> shards.arrays("0003", lambda: {"value": np.ones(2)})
    {'value': array([1., 1.])}
    >>> shards.arrays("0003", lambda: {"value": np.zeros(2)})
    {'value': array([1., 1.])}
    """

    run: Run
    fingerprint: str
    lenders: tuple[Path, ...] = ()
    crew: Crew | None = None

    def arrays(
        self,
        name: str,
        make: Callable[[], Mapping[str, NDArray[Any]]],
        meta: Mapping[str, Any] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Arrays of a shard; made and written where the folder has no whole shard of that name.

        Parameters
        ----------
        name
            Name of the shard.
        make
            Returns the arrays.
        meta
            Notes that are written beside the arrays.
        """
        shard = self.find(name)
        if shard is None and self.crew is not None:
            self.crew.one(self._task(name, make, meta))
            shard = self.read(name)
        return dict((self.write(name, make(), meta) if shard is None else shard).arrays)

    def spread(
        self,
        makers: Mapping[str, Callable[[], Mapping[str, NDArray[Any]]]],
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Have several processes make shards that do not need each other; alone, do nothing.

        What asks for a shard afterwards finds it. One whose making flowscope refuses is left out:
        asking for it says why.

        Parameters
        ----------
        makers
            What returns the arrays, by name of the shard.
        meta
            Notes that are written beside the arrays.
        """
        if self.crew is not None:
            self.crew.spread([self._task(name, make, meta) for name, make in makers.items()])

    def family(
        self, makers: Mapping[str, Callable[[], Mapping[str, NDArray[Any]]]]
    ) -> list[dict[str, NDArray[Any]]]:
        """Arrays of shards that do not need each other, in the order of their names."""
        self.spread(makers)
        return [self.arrays(name, make) for name, make in makers.items()]

    def _task(
        self,
        name: str,
        make: Callable[[], Mapping[str, NDArray[Any]]],
        meta: Mapping[str, Any] | None,
    ) -> Task:
        return Task(
            name=self.task_name(name),
            done=partial(self.holds, name),
            make=lambda: self.write(name, make(), meta),
        )

    def task_name(self, name: str) -> str:
        """Name of the making of a shard, which no other shard of the run has."""
        return f"{name}--{self.fingerprint[:16]}"

    def holds(self, name: str) -> bool:
        """Whether there is a whole shard of that name."""
        return self.find(name) is not None

    def find(self, name: str) -> Shard | None:
        """Shard of that name, or None where it is absent or damaged."""
        shard = self.run.find_shard(self._key(name))
        if shard is None and (shard := self._lent(name)) is not None:
            self.run.write_shard(shard.key, shard.arrays, shard.meta)
        return shard

    def _lent(self, name: str) -> Shard | None:
        for folder in self.lenders:
            with suppress(RecordError):
                shard = find_shard(folder, self._key(name))
                if shard is not None:
                    return shard
        return None

    def read(self, name: str) -> Shard:
        """Shard of that name; an absent or damaged one is an error that says which."""
        return self.run.read_shard(self._key(name))

    def write(
        self,
        name: str,
        arrays: Mapping[str, NDArray[Any]],
        meta: Mapping[str, Any] | None = None,
    ) -> Shard:
        """Write a shard, over a damaged one where there is one, and return it."""
        shard = Shard(key=self._key(name), arrays=arrays, meta=meta or {})
        self.run.write_shard(shard.key, shard.arrays, shard.meta)
        return shard

    def _key(self, name: str) -> ShardKey:
        return ShardKey(name=name, fingerprint=self.fingerprint)
