"""Which stages a run walks: all of them, or those that some claims need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from flowscope.errors import InvalidInputError
from flowscope.lab.registry import nearest

if TYPE_CHECKING:
    from flowscope.lab.instrument import Stage

__all__ = ["only_names", "selectable", "selected"]


def only_names(only: str | Iterable[str] | None) -> tuple[str, ...]:
    """Names that ``only`` holds: a sequence, or one string with commas as ``--only`` takes it.

    >>> only_names("P0, step sizes")
    ('P0', 'step sizes')

    Raises
    ------
    InvalidInputError
        A string without a name: it would mean that nothing is to be measured.
    """
    if not isinstance(only, (str, Iterable)) and only is not None:
        raise InvalidInputError(
            f"only takes names of claims or stages, e.g. P0,P2; got {type(only).__name__}."
        )
    if not isinstance(only, str):
        return tuple(str(name) for name in only or ())
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    if not names:
        raise InvalidInputError(f"only takes names of claims or stages, e.g. P0,P2; got {only!r}.")
    return names


def selectable(stages: Iterable[Stage]) -> dict[str, Stage]:
    """Stages by the names that select them: those of their claims, sorted, then their names."""
    stages = tuple(stages)
    by_claim = {claim.name: stage for stage in stages for claim in stage.claims}
    return {**dict(sorted(by_claim.items())), **{stage.name: stage for stage in stages}}


def selected(stages: Sequence[Stage], only: Iterable[str]) -> tuple[Stage, ...]:
    """Stages that the names select, and those that they build on, in their order.

    Parameters
    ----------
    stages
        All stages of the run, in the order in which they run.
    only
        Names of claims or of stages; all stages are returned when there is none.

    Raises
    ------
    InvalidInputError
        No claim and no stage has one of the names; the message suggests the nearest.
    """
    by_name, pending = selectable(stages), list(only)
    if not pending:
        return tuple(stages)
    chosen: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in by_name:
            raise InvalidInputError(nearest("claim or stage", name, tuple(by_name)))
        stage = by_name[name]
        if stage.name not in chosen:
            chosen.add(stage.name)
            pending += [*stage.uses, *(claim.name for claim in stage.needs)]
    return tuple(stage for stage in stages if stage.name in chosen)
