"""A run: a folder of files that prove themselves.

::

    RUN/
      manifest.json             where the run comes from; its presence makes the folder a run
      measurements.json         measurements, bit for bit (large arrays: arrays/_measurements-…)
      verdicts.json             verdicts, likewise
      tables/NAME.csv           tables (NAME.json describes them; large ones also NAME.parquet)
      arrays/NAME.safetensors   arrays
      shards/NAME--FINGERPRINT.safetensors   finished pieces, for resuming
      report.html, figures/     written by others
      workers/                  where several processes made the shards: plan, counts, reports
      writer.lock               while a process writes the run: which one

Every file is written atomically, carries the schema version, and is verified against its
sha256 when it is read (JSON and safetensors hold theirs, a CSV has it in its description). One
process at a time writes a run, which ``flowscope.lab.running.lock`` sees to; any number may read
it meanwhile. The manifest of a finished run names the sha256 of its files.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError, RecordError
from flowscope.records import tables
from flowscope.records.absence import Unavailable
from flowscope.records.files import (
    checked_name,
    file_hash,
    files_below,
    is_file,
    is_folder,
    is_leftover,
    is_lock,
    make_folder,
    read_file,
    remove_file,
    write_file,
)
from flowscope.records.frozen import Record
from flowscope.records.manifest import Manifest
from flowscope.records.measurement import Measurement
from flowscope.records.storage import ledger, shards
from flowscope.records.storage.arrays import arrays_to_bytes, bytes_to_arrays
from flowscope.records.storage.shards import Shard, ShardKey
from flowscope.records.verdict import Verdict

__all__ = ["Run", "has_remains"]

_MANIFEST = "manifest.json"
_LEDGERS = ("measurements.json", "verdicts.json")
_LAYOUT = {*_LEDGERS, "tables", "arrays", "shards", "figures", "report.html", "workers"}


@dataclass(frozen=True, eq=False, kw_only=True)
class Run(Record):
    """A run folder, by its absolute path. Make one with :meth:`create` or :meth:`open`.

    Raises
    ------
    RecordError
        The folder is not there, is no run, or is of a newer schema.

    Examples
    --------
    >>> import tempfile
    >>> run = Run.create(Path(tempfile.mkdtemp()) / "audit", Manifest(seeds={"all": 7}))
    >>> _ = run.write_table("depth", pd.DataFrame({"layer": [0, 1], "drift": [0.5, 0.25]}))
    >>> Run.open(run.folder).read_table("depth")
       layer  drift
    0      0   0.50
    1      1   0.25
    """

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder).absolute())
        if is_file(self.folder):
            raise RecordError(
                f"{self.folder} should be a run folder, found a file: give the folder it is in."
            )
        if not is_folder(self.folder):
            raise RecordError(
                f"there is no folder {self.folder}: give a run folder, as “flowscope runs” lists."
            )
        if not is_file(self.folder / _MANIFEST):
            raise RecordError(
                f"{self.folder} is no run: expected a {_MANIFEST} in it, found "
                f"{_listing(self.folder)}. Give the folder that flowscope wrote."
            )
        self.read_manifest()

    @classmethod
    def create(cls, folder: str | os.PathLike[str], manifest: Manifest) -> "Run":
        """Make a new run in a folder that is not there yet, or empty.

        Raises
        ------
        RecordError
            Something is there already, or the folder cannot be written; a folder that was
            made on the way is removed.
        """
        path = Path(folder).absolute()
        if not isinstance(manifest, Manifest):
            raise InvalidInputError(f"expected a Manifest, found {type(manifest).__name__}.")
        _check_free(path)
        made: list[Path] = []
        try:
            for part in reversed([p for p in (path, *path.parents) if not is_folder(p)]):
                make_folder(part, new=part == path)
                made.append(part)
            write_file(path / _MANIFEST, manifest.to_json().encode())
        except BaseException:
            for part in reversed(made):
                with suppress(OSError):
                    part.rmdir()
            raise
        return cls(folder=path)

    @classmethod
    def recreate(cls, folder: str | os.PathLike[str], manifest: Manifest) -> "Run":
        """Make a run in the remains of one whose manifest was lost; shards stay for resuming.

        Tables, arrays, measurements and verdicts are removed, because nothing says any more under
        which settings they were made.

        Raises
        ------
        RecordError
            The folder holds anything that is not of a run.
        """
        path = Path(folder).absolute()
        if not has_remains(path):
            raise RecordError(
                f"{path} holds no remains of a run, but {_listing(path)}: choose another folder."
            )
        for name in tables.table_names(path / "tables"):
            tables.remove_table(path / "tables", name)
        for file in (path / "arrays").glob("*.safetensors"):
            remove_file(file)
        for name in _LEDGERS:
            remove_file(path / name)
        write_file(path / _MANIFEST, manifest.to_json().encode())
        return cls(folder=path)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "Run":
        """Open the run in a folder; nothing in it is changed."""
        return cls(folder=Path(folder))

    def read_manifest(self) -> Manifest:
        """Return the manifest as it is on disk now, verified."""
        path = self.folder / _MANIFEST
        return Manifest.from_json(read_file(path), path)

    def update_manifest(self, **parts: Any) -> Manifest:
        """Replace parts of the manifest and return the new one; for one process only.

        Raises
        ------
        InvalidInputError
            The manifest has no such part.
        """
        try:
            manifest = replace(self.read_manifest(), **parts)
        except TypeError as error:
            raise InvalidInputError(f"the manifest has no such part: {error}.") from error
        write_file(self.folder / _MANIFEST, manifest.to_json().encode())
        return manifest

    def write_table(self, name: str, frame: pd.DataFrame) -> Path:
        """Write ``tables/name.csv`` (:mod:`flowscope.records.tables`); return its path."""
        return tables.write_table(self.folder / "tables", _table(name), frame)

    def read_table(self, name: str) -> pd.DataFrame:
        """Return the table of that name, verified."""
        return tables.read_table(self.folder / "tables", _table(name))

    def tables(self) -> tuple[str, ...]:
        """Return the names of the tables, sorted."""
        return tables.table_names(self.folder / "tables")

    def write_arrays(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> Path:
        """Write ``arrays/name.safetensors``; return its path."""
        path = self._arrays(name)
        write_file(path, arrays_to_bytes("arrays", arrays))
        return path

    def read_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays written under that name, verified, by sorted name."""
        path = self._arrays(name)
        if not is_file(path):
            known = ", ".join(self.arrays()) or "none"
            raise RecordError(f"there is no {path}: the arrays of this run are {known}.")
        return bytes_to_arrays(read_file(path), "arrays", path)[0]

    def arrays(self) -> tuple[str, ...]:
        """Return the names under which arrays were written, sorted."""
        found = (self.folder / "arrays").glob("[!._]*.safetensors")
        return tuple(sorted(path.stem for path in found))

    def _arrays(self, name: str) -> Path:
        return self.folder / "arrays" / f"{checked_name(name, 'the name of arrays')}.safetensors"

    def write_measurements(self, measurements: Iterable[Measurement]) -> Path:
        """Replace the measurements of the run."""
        return ledger.write_ledger(self.folder, "measurements", measurements)

    def read_measurements(self) -> tuple[Measurement, ...]:
        """Return the measurements, bit for bit, in the order they were written."""
        return ledger.read_ledger(self.folder, "measurements")

    def write_verdicts(self, verdicts: Iterable[Verdict]) -> Path:
        """Replace the verdicts of the run."""
        return ledger.write_ledger(self.folder, "verdicts", verdicts)

    def read_verdicts(self) -> tuple[Verdict, ...]:
        """Return the verdicts, bit for bit, in the order they were written."""
        return ledger.read_ledger(self.folder, "verdicts")

    def shard_done(self, key: ShardKey) -> bool:
        """Whether there is a file of that shard; its content is verified when it is read."""
        return is_file(self.folder / "shards" / key.file)

    def find_shard(self, key: ShardKey) -> Shard | None:
        """Return the shard of that key, verified, or None: absent, damaged or renamed.

        For resuming: the shard that is None is made again, and writing it replaces the file.
        """
        return shards.find_shard(self.folder / "shards", key)

    def write_shard(
        self, key: ShardKey, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]
    ) -> Path:
        """Write a shard atomically; safe from several processes at once."""
        shard = Shard(key=key, arrays=arrays, meta=meta)
        return shards.write_shard(self.folder / "shards", shard)

    def read_shard(self, key: ShardKey) -> Shard:
        """Return the shard of that key, verified; a damaged one is an error."""
        return shards.read_shard(self.folder / "shards", key)

    def shards(self) -> tuple[ShardKey, ...]:
        """Return the keys of all shards, of every fingerprint, sorted by name."""
        return shards.shard_keys(self.folder / "shards")

    def verify(self) -> None:
        """Compare measurements, verdicts and tables of a finished run with their sha256.

        Raises
        ------
        RecordError
            One of them is missing or was changed; the message names the file.
        """
        self.read_measurements()
        self.read_verdicts()
        for name in self.tables():
            tables.verified_table(self.folder / "tables", name)
        strange = self.strange_files()
        if strange:
            raise RecordError(
                f"{self.folder} is mixed: {', '.join(strange)} is not as the run left it that the "
                "manifest describes. Measure again into another folder."
            )

    def file_hashes(self) -> dict[str, str]:
        """Return the sha256 of tables, arrays, measurements and verdicts, by path in the folder."""
        paths = [self.folder / name for name in _LEDGERS]
        paths += [self.folder / "tables" / f"{name}.csv" for name in self.tables()]
        paths += sorted((self.folder / "arrays").glob("[!.]*.safetensors"))
        present = [path for path in paths if is_file(path)]
        return {path.relative_to(self.folder).as_posix(): file_hash(path) for path in present}

    def strange_files(self) -> tuple[str, ...]:
        """Return the paths of files that the finished run of the manifest did not leave so.

        A file may be missing, replaced or added. A run that has not finished, or that an earlier
        version made, names no files: nothing is strange in it.
        """
        files = self.read_manifest().files
        if isinstance(files, Unavailable):
            return ()
        found = self.file_hashes()
        names = files.keys() | found.keys()
        return tuple(sorted(name for name in names if files.get(name) != found.get(name)))

    def remove_leftovers(self) -> int:
        """Remove the temporary files of killed writers and return their number.

        Call it when nobody writes to the run: the file of a write still going on looks the same.
        """
        found = [path for path in files_below(self.folder) if is_leftover(path)]
        for path in found:
            remove_file(path)
        return len(found)


def _table(name: str) -> str:
    return checked_name(name, "the name of a table")


def has_remains(folder: Path) -> bool:
    """Whether a folder holds what a run without its manifest holds, and nothing else."""
    if is_file(folder / _MANIFEST) or not is_folder(folder):
        return False
    names, inside = set(_visible(folder)), folder / "tables"
    described = all(is_file(inside / f"{name}.json") for name in tables.table_names(inside))
    written = [*shards.shard_keys(folder / "shards"), *tables.table_names(inside)]
    empty = all(path.name.startswith(".") or is_lock(path) for path in files_below(folder))
    ours = bool(written or names & set(_LEDGERS) or empty)
    return bool(names) and names <= _LAYOUT and described and ours


def _check_free(path: Path) -> None:
    if is_file(path):
        raise RecordError(
            f"{path} should be a folder, found a file: move it away or choose another name."
        )
    if is_file(path / _MANIFEST):
        raise RecordError(
            f"{path} is a run already: open it with Run.open, or choose another folder."
        )
    if is_folder(path) and _visible(path):
        raise RecordError(
            f"{path} is not empty and no run, it holds {_listing(path)}: choose another folder."
        )


def _visible(folder: Path) -> list[str]:
    try:
        return sorted(
            path.name for path in folder.iterdir() if not is_leftover(path) and not is_lock(path)
        )
    except OSError as error:
        raise RecordError(f"{folder} cannot be listed: {error.strerror}.") from error


def _listing(folder: Path) -> str:
    names = _visible(folder)
    return (
        ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        or "nothing"
    )
