"""One writer per run folder. Readers need no lock: every file of a run is whole at every moment.

The lock is the file ``writer.lock`` in the run folder, which names its owner; the owner touches it
every 15 seconds. It appears with its content in one step (a link to a finished file), which is
atomic on network file systems too; where there are no links, it is created exclusively.

The lock of a dead owner is not removed but *claimed*: a file ``.writer.lock.TOKEN``, named after
the token of the dead lock, appears in the same way, so that one process alone gets it. A claim can
be claimed in turn. The owner is the end of this chain, and a process that is killed at any step
leaves a chain that the next one can follow. The owner removes the chain from its head.

An owner on this computer is dead when no process has its number and start. An owner on another
computer counts as dead after ten minutes without a touch, measured by the clock of the file system.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import warnings
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from flowscope.errors import RecordError, RecordWarning
from flowscope.lab.running.owner import Owner, owner_of_document, this_process
from flowscope.records.files import LOCK, make_folder, new_file, write_error

__all__ = ["PULSE", "SILENCE", "FolderLock", "HeldError", "writer_of"]

PULSE = 15.0
"""Seconds between two touches of a lock."""

SILENCE = 600.0
"""Seconds without a touch after which an owner that cannot be looked up counts as dead."""

_ATTEMPTS = 100
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV)


class HeldError(RecordError):
    """Another process holds the lock; the message says who."""


@dataclass(frozen=True, kw_only=True)
class _Claim:
    """One file of the chain: its owner if it can be read, its token, its last touch."""

    path: Path
    owner: Owner | None
    token: str
    touched: float

    def dead(self, now: float) -> bool:
        """Whether the owner is dead, or has been silent for so long that it counts as dead."""
        lives = self.owner.lives() if self.owner else None
        return now - self.touched > SILENCE if lives is None else not lives

    @property
    def name(self) -> str:
        """The owner in words."""
        return self.owner.name if self.owner else "a process that its lock does not name"


class FolderLock:
    """The right to write a run folder, from `take` to `release`.

    A lock that is forgotten is released when it is collected, and when Python ends.
    """

    def __init__(self, folder: Path, owner: Owner, place: Path, made: list[Path]) -> None:
        self.folder, self.owner = folder, owner
        stop = threading.Event()
        self._release = weakref.finalize(self, _release, folder, owner, stop, made)
        threading.Thread(target=_pulse, args=(place, stop), daemon=True).start()

    @classmethod
    def take(cls, folder: Path) -> Self:
        """Take the lock of a folder, which is made if it is not there.

        Raises
        ------
        RecordError
            Another writer holds it: the message says who, since when, and what to do. Or the
            folder cannot be written.
        """
        folder = folder.absolute()
        try:
            made = [part for part in (folder, *folder.parents) if not part.exists()]
        except OSError as error:
            raise RecordError(
                f"{str(folder)[:80]}… cannot be a run folder: {error.strerror}. Choose another "
                "folder."
            ) from error
        owner = this_process()
        try:
            make_folder(folder)
            place = _claimed(folder, owner)
        except BaseException:
            _remove_empty(made)
            raise
        lock = cls(folder, owner, place, made)
        _remove_orphans(folder)
        return lock

    def check(self) -> None:
        """Refuse to go on where another process has taken the lock over.

        Raises
        ------
        RecordError
            The lock is no longer this one's.
        """
        chain = _chain(self.folder)
        if not chain or chain[-1].token != self.owner.token:
            by = f"taken over by {chain[-1].name}" if chain else "removed"
            raise RecordError(
                f"The lock of {self.folder} was {by} while this process wrote the folder: it stops "
                "here, and what it has finished stays. Run the same command again once no other "
                "process writes there."
            )

    def release(self) -> None:
        """Let others write; remove the folder if nothing was written into a new one."""
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def writer_of(folder: Path) -> str:
    """The process that writes a folder now, in words; empty if there is none."""
    try:
        chain = _chain(folder)
        lives = chain[-1].owner.lives() if chain and chain[-1].owner else None
    except RecordError:
        return ""
    return f"{chain[-1].name} since {_since(chain[-1])}" if lives else ""


def _claimed(folder: Path, owner: Owner) -> Path:
    """Path of the lock or of the claim that makes this process the owner of a folder."""
    for _ in range(_ATTEMPTS):
        candidate = folder / f".{LOCK}.{owner.token}.partial"
        try:
            make_folder(folder)  # a writer that failed may just have removed it
            new_file(candidate, owner.to_json().encode())
            now = os.stat(candidate).st_mtime
            chain = _chain(folder)
            if chain and not chain[-1].dead(now):
                raise _held(folder, chain[-1], now)
            place = folder / (f".{LOCK}.{chain[-1].token}" if chain else LOCK)
            if _placed(candidate, place, owner):
                if [claim.token for claim in _chain(folder)][-1:] == [owner.token]:
                    _say_taken_over(folder, chain, now)
                    return place
                os.unlink(place)  # the chain it belonged to is gone
        except FileNotFoundError:
            continue  # the folder or the candidate was removed meanwhile
        except OSError as error:
            raise write_error(folder / LOCK, len(owner.to_json()), error) from error
        finally:
            with suppress(OSError):
                os.unlink(candidate)
    raise RecordError(
        f"{folder} could not be locked in {_ATTEMPTS} attempts, because other processes keep "
        "taking and releasing its lock: wait, or choose another folder."
    )


def _placed(candidate: Path, place: Path, owner: Owner) -> bool:
    """Whether the lock came to its place, in one step; False if one is there already."""
    try:
        os.link(candidate, place)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return _created(place, owner)
        # A network file system may do it and lose the answer.
        with suppress(OSError):
            if os.path.samefile(candidate, place):
                return True
        if isinstance(error, FileExistsError):
            return False
        raise
    return True


def _created(place: Path, owner: Owner) -> bool:
    try:
        new_file(place, owner.to_json().encode())
    except FileExistsError:
        return False
    return True


def _chain(folder: Path) -> list[_Claim]:
    """The lock and the claims that follow it; the last one is the owner's."""
    chain: list[_Claim] = []
    path = folder / LOCK
    while (claim := _read(path)) is not None and claim.token not in {c.token for c in chain}:
        chain.append(claim)
        path = folder / f".{LOCK}.{claim.token}"
    return chain


def _read(path: Path) -> _Claim | None:
    try:
        content, touched = path.read_bytes(), os.stat(path).st_mtime
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError(
            f"{path} should be a readable file, found: {error.strerror}. Check its permissions."
        ) from error
    owner = owner_of_document(content)
    # What cannot be read is named by what it is, so that it can be claimed once.
    token = owner.token if owner else hashlib.sha256(content + str(touched).encode()).hexdigest()
    return _Claim(path=path, owner=owner, token=token[:16], touched=touched)


def _since(claim: _Claim) -> str:
    return claim.owner.since.replace("T", " ") if claim.owner else "an unknown time"


def _held(folder: Path, claim: _Claim, now: float) -> HeldError:
    silent = max(now - claim.touched, 0)
    wait = (
        "Wait until it has ended"
        if claim.owner is not None and claim.owner.lives()
        else f"Wait until it has ended (if it is dead, its lock is taken over "
        f"{SILENCE / 60:g} minutes after its last sign of life)"
    )
    return HeldError(
        f"{folder} is being written by {claim.name} since {_since(claim)}; its last sign of life "
        f"was {silent:.0f} seconds ago. {wait}, or choose another folder. If you are sure that it "
        f"has ended, delete {folder / LOCK}."
    )


def _say_taken_over(folder: Path, chain: list[_Claim], now: float) -> None:
    if not chain:
        return
    last = chain[-1]
    looked_up = last.owner is not None and last.owner.lives() is False
    why = "has ended" if looked_up else f"gave no sign of life for {now - last.touched:.0f} seconds"
    warnings.warn(
        f"The lock of {folder} was taken over from {last.name}, which {why} and left the run "
        "unfinished; what it finished is used.",
        RecordWarning,
        stacklevel=5,
    )


def _pulse(place: Path, stop: threading.Event) -> None:
    """Touch a lock until it is released or gone."""
    while not stop.wait(PULSE):
        try:
            os.utime(place)
        except FileNotFoundError:
            return
        except OSError:  # a network that is away for a moment
            continue


def _release(folder: Path, owner: Owner, stop: threading.Event, made: list[Path]) -> None:
    stop.set()
    if os.getpid() != owner.pid:  # a forked child must not release the lock of its parent
        return
    with suppress(RecordError):
        chain = _chain(folder)
        if chain and chain[-1].token == owner.token:
            for claim in chain:
                with suppress(OSError):
                    os.unlink(claim.path)
    _remove_empty(made)


def _remove_empty(made: list[Path]) -> None:
    for part in made:
        with suppress(OSError):
            part.rmdir()


def _remove_orphans(folder: Path) -> None:
    """Remove claims on locks that are gone."""
    chain = {claim.path for claim in _chain(folder)}
    for path in folder.glob(f".{LOCK}.*"):
        if path not in chain and not path.name.endswith(".partial"):
            with suppress(OSError):
                os.unlink(path)
