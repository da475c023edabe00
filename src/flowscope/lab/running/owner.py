"""Who writes a run folder: a process, told apart from every other one, and whether it still lives.

A process is named by its number *and* its start, because numbers are used again. Both mean
something on one machine alone: in one boot and, for containers, in one space of numbers.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

__all__ = ["Owner", "owner_of_document", "this_process"]

_ENDED = ("Z", "X", "x")
"""States of a process that is dead but still listed."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A process that holds a lock.

    Attributes
    ----------
    host
        Name of its computer.
    machine
        What tells its computer, boot and space of process numbers from others.
    pid, started
        Number of the process, and when it started, as the system gives it; empty if unknown.
    since
        When it took the lock, as an ISO time.
    token
        A name that no other lock has.
    """

    host: str
    machine: str
    pid: int
    started: str
    since: str
    token: str

    @property
    def name(self) -> str:
        """The process in words."""
        return f"process {self.pid} on {self.host}"

    @property
    def here(self) -> bool:
        """Whether it belongs to this computer, so that its life can be looked up."""
        return (self.host, self.machine) == (socket.gethostname(), _machine())

    def lives(self) -> bool | None:
        """Whether the process is there; None where this computer cannot know."""
        if not self.here or not self.started:
            return None
        return _start_of(self.pid) == self.started

    def to_json(self) -> str:
        """Content of a lock."""
        return json.dumps(asdict(self), indent=1) + "\n"


def this_process() -> Owner:
    """The running process as an owner, with a new token."""
    return Owner(
        host=socket.gethostname(),
        machine=_machine(),
        pid=os.getpid(),
        started=_start_of(os.getpid()) or "",
        since=datetime.now(UTC).isoformat(timespec="seconds"),
        token=secrets.token_hex(8),
    )


def owner_of_document(content: bytes) -> Owner | None:
    """Owner that a lock names; None where its content is not what `Owner.to_json` writes."""
    try:
        owner = Owner(**json.loads(content))
    except (ValueError, TypeError):
        return None
    whole = isinstance(owner.pid, int) and all(
        isinstance(part, str) for name, part in asdict(owner).items() if name != "pid"
    )
    return owner if whole and owner.token.isalnum() else None


@cache
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # no Linux
        return f"{uuid.getnode():x}"


def _start_of(pid: int) -> str | None:
    """When a process started, in the words of the system; None if it is gone or cannot be seen."""
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        state, *rest = stat.rpartition(")")[2].split()
        return None if state in _ENDED else rest[18]
    if os.name != "posix":
        return None
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
