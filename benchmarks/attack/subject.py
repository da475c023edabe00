"""One entry of the table of functions that are tried on hostile numbers."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.attack.numbers import Draw

__all__ = ["Arguments", "Seeded", "Subject"]

Arguments = dict[str, Any]
_FACTOR = 256.0


class Seeded:
    """Stands for a fresh generator in a call."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One public function and what it is given.

    Attributes
    ----------
    function
        What is called, with keyword arguments, or with ``*positional`` first.
    arguments
        Draws the arguments; float arrays among them become tensors of both precisions.
    numpy
        Arrays stay numpy arrays.
    share
        Part of the examples that a slow function is given.
    factor
        C of the bound.
    unit
        u of the bound, or a function of the arguments that returns it.
    absent
        Parts of the answer that may be NaN, by the start of their names, with the reason.
    passes_nan
        Why NaN in the input may come out as NaN; empty where it must not.
    unequal
        Why the two precisions need not give one number, e.g. other random draws; empty otherwise.
    """

    function: Callable[..., Any]
    arguments: Callable[[Draw], Arguments]
    numpy: bool = False
    share: float = 1.0
    factor: float = _FACTOR
    unit: float | Callable[[Arguments], float] = 0.0
    absent: Mapping[str, str] = dataclasses.field(default_factory=dict)
    passes_nan: str = ""
    unequal: str = ""
