"""The instruments that are installed, by name; nothing is imported before it is asked for."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flowscope.errors import InvalidInputError

if TYPE_CHECKING:
    from flowscope.lab.instrument import Instrument
    from flowscope.lab.study import Study
    from flowscope.records import Run

__all__ = [
    "instrument",
    "instrument_exports",
    "instrument_names",
    "instrument_of",
    "instrument_of_study",
    "instruments",
    "nearest",
    "studies",
    "study",
]

_HOME = "flowscope.instruments"


@cache
def instrument_names() -> tuple[str, ...]:
    """Names of the instruments.

    Raises
    ------
    InvalidInputError
        Two of them have one name.
    """
    names: tuple[str, ...] = import_module(_HOME).NAMES
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(f"Two instruments are named {twice[0]!r}; a name must be unique.")
    return names


def instrument_exports() -> Mapping[str, str]:
    """Public names of ``flowscope`` that belong to one instrument, and the modules they are in."""
    exports: Mapping[str, str] = import_module(_HOME).EXPORTS
    return exports


def instrument(name: str) -> Instrument:
    """The instrument of a name.

    Raises
    ------
    InvalidInputError
        There is none of that name; the message suggests the nearest.
    """
    if name not in instrument_names():
        raise InvalidInputError(nearest("instrument", name, instrument_names()))
    return _declared(name)


@cache
def _declared(name: str) -> Instrument:
    declared: Instrument = import_module(f"{_HOME}.{name}").INSTRUMENT
    if declared.name != name:
        raise InvalidInputError(
            f"{_HOME}.{name} declares an instrument named {declared.name!r}; expected {name!r}."
        )
    return declared


def instruments() -> Iterator[Instrument]:
    """All instruments, in the order of the registry."""
    return (instrument(name) for name in instrument_names())


def nearest(kind: str, name: str, names: tuple[str, ...]) -> str:
    """Sentence that says that a name is unknown and which one may be meant."""
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known names: {', '.join(names)}."
    return f"No {kind} is named {name!r}. {hint}"


def instrument_of(run: Run) -> Instrument:
    """The instrument that made a run.

    Its name is ``command`` in the resolved settings. Version 0.1 did not write it for every
    instrument; a run without it belongs to the instrument whose own tables it has.

    Raises
    ------
    InvalidInputError
        The run names an instrument that is not installed.
    """
    resolved = run.read_manifest().config_resolved
    command: Any = resolved.get("command") if isinstance(resolved, Mapping) else None
    if isinstance(command, str):
        if command not in instrument_names():
            raise InvalidInputError(
                f"{run.folder} was made by the instrument {command!r}, which this version of "
                f"flowscope does not have (it has {', '.join(instrument_names())}). Open it with "
                "the version that the manifest names."
            )
        return instrument(command)
    return _by_tables(run)


def _by_tables(run: Run) -> Instrument:
    """The instrument most of whose own tables a run has; the first one for a run without any."""
    present, every = set(run.tables()), list(instruments())
    scores = [len(present & _distinct(one, every)) for one in every]
    return every[scores.index(max(scores))]


def _distinct(one: Instrument, every: list[Instrument]) -> set[str]:
    others = {table for other in every if other is not one for table in other.tables}
    return set(one.tables) - others


def instrument_of_study(study: Study) -> Instrument:
    """The instrument that a study belongs to."""
    return next(one for one in instruments() for name in one.studies if one.study(name) is study)


@cache
def studies() -> Mapping[str, Study]:
    """Studies of all instruments by name."""
    every = [one.study(reference) for one in instruments() for reference in one.studies]
    return {study.name: study for study in sorted(every, key=lambda study: study.name)}


def study(name: str) -> Study:
    """The study of a name.

    Raises
    ------
    InvalidInputError
        There is none of that name; the message suggests the nearest.
    """
    if str(name) not in studies():
        raise InvalidInputError(nearest("study", name, tuple(studies())))
    return studies()[str(name)]
