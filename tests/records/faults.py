"""Faults on demand: the n-th step of a write fails, or kills the process.

A step is one call of the operating system by which a write becomes visible or durable. Walking
the fault over every step (until the write gets through) tries every crash there is.
"""

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

STEPS = ("open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir")


@contextmanager
def fault_at(
    step: int, act: Callable[[], Any], only: tuple[str, ...] = STEPS, forever: bool = False
) -> Iterator[list[str]]:
    """Call ``act`` before the ``step``-th call (after half of a write); ``forever``: ever after."""
    calls: list[str] = []

    def trapped(name: str, true: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            if len(calls) == step or (forever and len(calls) > step):
                if name == "write":
                    true(args[0], args[1][: len(args[1]) // 2])
                act()
            return true(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in only:
            patch.setattr(os, name, trapped(name, getattr(os, name)))
        yield calls


def failure(number: int = errno.ENOSPC) -> Callable[[], Any]:
    def act() -> Any:
        raise OSError(number, os.strerror(number))

    return act


class Death(BaseException):
    """The process is gone: nobody catches it, and no later step of the write happens."""


def dead_at(step: int, write: Callable[[], Any]) -> bool:
    """Whether a writer dies at that step; False: it got through.

    As a kill, in this process: from that step on every step fails, cleaning up included. It
    takes milliseconds where a fork takes tens of them; :func:`killed_at` is the real thing.
    """
    with fault_at(step, _death, forever=True) as calls:
        try:
            write()
        except Death:
            return True
    assert len(calls) < step
    return False


def _death() -> Any:
    raise Death


def killed_at(step: int, write: Callable[[], Any]) -> bool:
    """Whether a process that writes is killed (SIGKILL) at that step; False: it got through."""
    child = os.fork()
    if child == 0:
        try:
            with fault_at(step, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                write()
            os._exit(0)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)
