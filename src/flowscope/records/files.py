"""Files that are whole or not there: atomic writes, verified names, hashes.

A write goes to a temporary file beside the target, is flushed to the disk, and takes the
target's name in one step; then the folder is flushed. Whoever is killed in between leaves the
old file whole, and at most a leftover (``.NAME.….partial``) that nobody reads.
"""

import errno
import hashlib
import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from flowscope.errors import InvalidInputError, RecordError

__all__ = [
    "LOCK",
    "checked_name",
    "file_hash",
    "files_below",
    "is_file",
    "is_folder",
    "is_leftover",
    "is_lock",
    "make_folder",
    "new_file",
    "read_file",
    "remove_file",
    "write_error",
    "write_file",
]

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9_-])?")
LOCK = "writer.lock"
"""Name of the file in a run folder that says which process writes it."""

_LEFTOVER = ".partial"
_ATTEMPTS = 3
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
# Some network and FUSE file systems cannot flush a folder; the file itself is flushed.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP)


def checked_name(name: Any, what: str) -> str:
    """Name that is a plain file name on every system, so never a path out of the run.

    Raises
    ------
    InvalidInputError
        Other characters than ASCII letters, digits, ``.``, ``_``, ``-``; a first character
        that is not a letter or digit; a trailing dot; more than 100 characters.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{what} must be 1 to 100 of the characters A-Z a-z 0-9 . _ -, begin with a letter or "
            f"digit and not end with a dot, found {name!r}: rename it."
        )
    return name


def file_hash(path: str | os.PathLike[str]) -> str:
    """Sha256 of a file's bytes, as ``sha256sum`` prints it; read in pieces.

    Raises
    ------
    RecordError
        The file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _read_error(Path(path), error) from error


def read_file(path: Path) -> bytes:
    """All bytes of a file.

    Raises
    ------
    RecordError
        It cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise _read_error(path, error) from error


def write_file(path: Path, content: bytes) -> None:
    """Replace a file by ``content``, atomically and durably; its folder is made if need be.

    Raises
    ------
    RecordError
        It cannot be written (disk full, folder not writable, …). The old file, if any, is
        untouched and no temporary file stays.
    """
    for attempt in range(_ATTEMPTS):
        make_folder(path.parent)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_LEFTOVER}")
        try:
            new_file(temporary, content)
            os.replace(temporary, path)
            break
        except FileNotFoundError as error:  # another process took it for that of a killed writer
            if attempt == _ATTEMPTS - 1:
                raise write_error(path, len(content), error) from error
        except OSError as error:
            raise write_error(path, len(content), error) from error
        finally:
            with suppress(OSError):  # it is gone already when the write succeeded
                os.unlink(temporary)
    _flush_folder(path.parent)


def new_file(path: Path, content: bytes) -> None:
    """Make a file that must not be there yet, and flush it.

    Raises
    ------
    OSError
        It is there, or cannot be written.
    """
    # Not tempfile: that makes files only their owner can read, and a run folder is shared.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags, 0o666)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path, *, new: bool = False) -> None:
    """Make a folder and its parents, durably; fine if it is there, unless it has to be new.

    Raises
    ------
    RecordError
        A file is in the way, the folder cannot be made, or another process was faster.
    """
    if not new and is_folder(folder):
        return
    make_folder(folder.parent)
    try:
        folder.mkdir(exist_ok=not new)
    except FileExistsError as error:
        if is_folder(folder):
            raise RecordError(
                f"{folder} should be a new folder, another process has just made it: "
                "choose another name."
            ) from error
        raise RecordError(
            f"{folder} should be a folder, found a file: move it away or choose another name."
        ) from error
    except OSError as error:
        raise write_error(folder, 0, error) from error
    try:
        _flush_folder(folder.parent)
    except RecordError:
        with suppress(OSError):  # another process may use it already
            folder.rmdir()
        raise


def remove_file(path: Path) -> None:
    """Remove a file; fine if it is not there."""
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)
    except OSError as error:
        raise write_error(path, 0, error) from error


def files_below(folder: Path) -> list[Path]:
    """Files of a folder and of those in it, also while others make and remove some of them."""
    return [Path(place) / name for place, _, names in os.walk(folder) for name in names]


def is_folder(path: Path) -> bool:
    """Whether there is a folder; :class:`RecordError` if that cannot be known."""
    try:
        return path.is_dir()
    except OSError as error:
        raise _read_error(path, error) from error


def is_file(path: Path) -> bool:
    """Whether there is anything but a folder; :class:`RecordError` if that cannot be known."""
    try:
        return path.exists() and not path.is_dir()
    except OSError as error:
        raise _read_error(path, error) from error


def is_leftover(path: Path) -> bool:
    """Whether a file is the temporary file of a write that was killed (or is still going on)."""
    return path.name.startswith(".") and path.name.endswith(_LEFTOVER)


def is_lock(path: Path) -> bool:
    """Whether a file belongs to the lock of a run folder."""
    return path.name == LOCK or path.name.startswith(f".{LOCK}.")


def _flush_folder(folder: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder to flush it
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise RecordError(
                f"{folder} could not be flushed to the disk ({error.strerror}): what was just "
                "written in it may be lost if the machine stops. Check the disk and run again."
            ) from error


def _read_error(path: Path, error: OSError) -> RecordError:
    if isinstance(error, FileNotFoundError):
        return RecordError(f"{path} is not there: restore it from a copy, or run again.")
    return RecordError(
        f"{path} should be a readable file, found: {error.strerror}. "
        "Check the path and its permissions."
    )


def write_error(path: Path, size: int, error: OSError) -> RecordError:
    """Error of a file of that size that could not be written, in words."""
    what = f"{path} could not be written"
    if error.errno in _FULL:
        return RecordError(
            f"{what}: it needs {size} bytes and the disk is full ({_free_space(path)} bytes "
            "free). Free some space and run again; what was there before is untouched."
        )
    if error.errno in _FORBIDDEN:
        return RecordError(
            f"{what}: expected a folder this user may write to, found: {error.strerror}. "
            "Change its permissions or choose another folder; nothing was changed."
        )
    return RecordError(
        f"{what}: {error.strerror or error}. Check the disk and the path, then run again; "
        "what was there before is untouched."
    )


def _free_space(path: Path) -> int | str:
    try:
        return shutil.disk_usage(path.parent).free
    except OSError:
        return "unknown"
