"""Which engine makes the shards of a run, and with how many processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from flowscope.errors import InvalidInputError
from flowscope.lab.registry import nearest

__all__ = ["ENGINES", "LOCAL", "EngineChoice", "Share"]

N = TypeVar("N", int, float)
ENGINES = ("local", "processes", "ray")
_MOST_WORKERS = 4096


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """An engine and what it may use.

    Attributes
    ----------
    name
        ``local``: this process alone. ``processes``: others of this machine beside it. ``ray``:
        actors of a Ray cluster beside it.
    workers
        Processes that measure, this one among them; None for as many as the machine has GPUs, or
        two where it has none.
    gpus_per_worker
        GPUs, or the part of one, that each worker takes; None for one where there are any.
    address, working_dir
        Passed on to Ray as they are; empty for a Ray on this machine, and for no working directory.
    """

    name: str = "local"
    workers: int | None = None
    gpus_per_worker: float | None = None
    address: str = ""
    working_dir: str = ""

    @classmethod
    def of(
        cls, name: str | None, workers: str | int | None, gpus_per_worker: str | float | None
    ) -> EngineChoice:
        """Choice as it is typed; more than one worker means ``processes`` where nothing is named.

        Raises
        ------
        InvalidInputError
            No engine has that name, or a number is none.
        """
        count = None if workers is None else _number("workers", workers, int)
        part = (
            None if gpus_per_worker is None else _number("gpus-per-worker", gpus_per_worker, float)
        )
        chosen = name or ("processes" if (count or 1) > 1 else "local")
        if chosen not in ENGINES:
            raise InvalidInputError(nearest("engine", chosen, ENGINES))
        if count is not None and not 1 <= count <= _MOST_WORKERS:
            raise InvalidInputError(
                f"--workers takes 1 to {_MOST_WORKERS} processes, this one among them; got {count}."
            )
        if chosen == "local" and (count or 1) > 1:
            raise InvalidInputError(
                f"The engine local is one process; got --workers {count}. Take --engine processes."
            )
        if part is not None and not 0 < part <= 64:
            raise InvalidInputError(
                f"--gpus-per-worker takes a number above 0, e.g. 0.5 or 1; got {part:g}."
            )
        return cls(
            name=chosen,
            workers=count,
            gpus_per_worker=part,
            address=os.environ.get("RAY_ADDRESS", ""),
            working_dir=os.environ.get("FLOWSCOPE_RAY_WORKING_DIR", ""),
        )


LOCAL = EngineChoice()


@dataclass(frozen=True)
class Share:
    """Where a worker begins among the shards of a stage: at part ``part`` of ``parts``.

    It goes on to what is left when its own part is done, so that shares may overlap, and a share
    that nobody takes is made by the others.

    Examples
    --------
    >>> Share(2, 3).order(6)
    [2, 3, 4, 5, 0, 1]
    """

    part: int = 1
    parts: int = 1

    @classmethod
    def of(cls, text: str) -> Share:
        """Share that is written ``3/16``.

        Raises
        ------
        InvalidInputError
            The text is no share.
        """
        part, slash, parts = text.partition("/")
        try:
            share = cls(int(part), int(parts) if slash else 0)
        except ValueError:
            share = cls(0, 0)
        if not 1 <= share.part <= share.parts:
            raise InvalidInputError(
                f"--share takes a part and the number of parts, e.g. 3/16; got {text!r}."
            )
        return share

    def order(self, count: int) -> list[int]:
        """Numbers below ``count``, from the beginning of this share on."""
        first = count * (self.part - 1) // self.parts
        return [*range(first, count), *range(first)]


def _number(name: str, value: str | float, kind: Callable[[str | float], N]) -> N:
    try:
        return kind(value)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise InvalidInputError(f"--{name} takes {wanted}; got {value!r}.") from None
