"""Shards of one piece of work: what is finished is read, what is missing or damaged is made."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from flowscope.errors import RecordError
from flowscope.records.run import Run
from flowscope.records.storage.shards import Shard, ShardKey, find_shard

__all__ = ["Shards"]


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
        return dict((self.write(name, make(), meta) if shard is None else shard).arrays)

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
