"""``flowscope.INSTRUMENT(...)``: the function of an instrument, made from its declaration.

Its signature and its docstring hold every setting, so that a notebook completes and explains them.
"""

from __future__ import annotations

import inspect
import os
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from flowscope.errors import InvalidInputError
from flowscope.lab.config import default_words, description_of

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from flowscope.lab.instrument import Argument, Instrument

__all__ = ["annotation_text", "function_of", "keyword_settings", "result_name"]

_OUT = (
    "Run folder (default: a temporary one). An unfinished run in it is resumed; a run of other "
    "settings is refused."
)
_PROGRESS = (
    "Whether bars are shown on standard error (default: in a terminal or a notebook), or a "
    "function that is called with (stage, done, total)."
)
_ONLY = (
    "Names of claims or stages: only their stages, and those that they build on, are run "
    "(default: all). Tables of other stages are removed from the run folder."
)
_SHARED: Mapping[str, tuple[str, Any, str]] = {
    "out": ("str | Path | None", None, _OUT),
    "progress": ("Progress | bool | None", None, _PROGRESS),
    "only": ("str | Sequence[str]", (), _ONLY),
}
_FUNCTIONS: dict[str, tuple[Instrument, Callable[..., Any]]] = {}
_WIDTH = 96
_ENDING = """
Returns
-------
{result}
    Verdicts and tables, read from the run folder.

Raises
------
InvalidInputError
    For a setting that does not exist, the nearest is suggested, or a value that does not fit.
UnsupportedModelError
    For a model on which nothing can be measured."""


def result_name(instrument: Instrument) -> str:
    """Name of the class of an instrument's results."""
    return instrument.result.rpartition(".")[2]


def keyword_settings(instrument: Instrument) -> dict[str, FieldInfo]:
    """Settings that the function takes as keywords.

    The others are given in another way: a setting that an argument records by this argument, and
    the folder of runs by the run folder ``out``.
    """
    recorded = {argument.setting for argument in instrument.arguments}
    taken = recorded | {argument.name for argument in instrument.arguments} | set(_SHARED)
    fields = instrument.config.model_fields
    return {name: field for name, field in fields.items() if name not in taken}


def function_of(instrument: Instrument) -> Callable[..., Any]:
    """The function of an instrument; the same object at each call, so that it can be pickled."""
    known, function = _FUNCTIONS.get(instrument.name, (None, None))
    if function is None or known is not instrument:
        function = _made(instrument)
        _FUNCTIONS[instrument.name] = (instrument, function)
    return function


def _made(instrument: Instrument) -> Callable[..., Any]:
    positional = tuple(argument.name for argument in instrument.arguments if argument.positional)

    def function(*objects: Any, **given: Any) -> Any:
        if len(objects) > len(positional):
            raise TypeError(
                f"{instrument.name}() takes {len(positional)} positional arguments "
                f"({', '.join(positional)}); got {len(objects)}."
            )
        by_position = dict(zip(positional, objects, strict=False))
        _refuse_nothing(instrument.name, positional, {**given, **by_position})
        twice = sorted(by_position.keys() & given.keys())
        if twice:
            raise TypeError(f"{instrument.name}() got {twice[0]!r} by position and by name.")
        return _called(instrument, {**by_position, **given})

    function.__name__ = function.__qualname__ = instrument.name
    function.__module__ = "flowscope"
    function.__doc__ = _docstring(instrument)
    function.__signature__ = _signature(instrument)  # type: ignore[attr-defined]
    return function


def _refuse_nothing(name: str, positional: tuple[str, ...], given: Mapping[str, Any]) -> None:
    """Refuse a model that is None: a loader that failed would be measured as the bundled model."""
    first = positional[0] if positional else ""
    if first in given and given[first] is None:
        raise InvalidInputError(
            f"{name}() got None as {first}. Give a model, a folder or a name; to measure the "
            f"bundled model, leave {first} out."
        )


def _called(instrument: Instrument, given: dict[str, Any]) -> Any:
    """Run an instrument on what the caller gave: objects, a run folder, a callback, settings."""
    from flowscope.lab.engine import run
    from flowscope.lab.running.bars import displayed_progress

    out, progress, only = (given.pop(name, default) for name, (_, default, _) in _SHARED.items())
    objects, recorded = _split(instrument, given)
    config = instrument.config.resolved({**given, **recorded})
    if out is not None and not isinstance(out, (str, os.PathLike)):
        raise InvalidInputError(f"out must be the path of a folder; got {type(out).__name__}.")
    folder = (
        Path(tempfile.mkdtemp(prefix="flowscope-")) / instrument.name if out is None else Path(out)
    )
    with displayed_progress(progress) as advance:
        return run(instrument, config, given=objects, folder=folder, progress=advance, only=only)


def _split(instrument: Instrument, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Take the arguments out of what was given: objects, and names that a setting records.

    Raises
    ------
    InvalidInputError
        An argument and the setting that records it are both given.
    """
    objects: dict[str, Any] = {}
    recorded: dict[str, str] = {}
    for argument in instrument.arguments:
        value = given.pop(argument.name, None)
        if value is None:
            continue
        if argument.setting and given.get(argument.setting) is not None:
            raise InvalidInputError(
                f"{argument.name} and {argument.setting} mean the same; give one of them."
            )
        if argument.setting and isinstance(value, (str, Path)):
            recorded[argument.setting] = str(value)
        else:
            objects[argument.name] = value
    return objects, recorded


def _signature(instrument: Instrument) -> inspect.Signature:
    keyword, either = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(
            argument.name,
            either if argument.positional else keyword,
            default=argument.default,
            annotation=argument.annotation,
        )
        for argument in _ordered(instrument)
    ]
    parameters += [
        inspect.Parameter(name, keyword, default=default, annotation=annotation)
        for name, (annotation, default, _) in _SHARED.items()
    ]
    parameters += [
        inspect.Parameter(
            name, keyword, default=field.default, annotation=annotation_text(field.annotation)
        )
        for name, field in keyword_settings(instrument).items()
    ]
    return inspect.Signature(parameters, return_annotation=result_name(instrument))


def annotation_text(annotation: Any) -> str:
    """Type of a setting as a reader writes it: without bounds, and any sequence for a tuple.

    >>> annotation_text(tuple[float, ...] | None)
    'Sequence[float] | None'
    """
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return annotation_text(parts[0])
    if origin is Literal:
        choices = ", ".join(f'"{choice}"' for choice in parts)
        return f"Literal[{choices}]"
    if origin is tuple:
        return f"Sequence[{annotation_text(parts[0])}]"
    if origin in (Union, UnionType):
        return " | ".join(annotation_text(part) for part in parts)
    return "None" if annotation is type(None) else str(annotation.__name__)


def _ordered(instrument: Instrument) -> list[Argument]:
    """The arguments, positional ones first."""
    return sorted(instrument.arguments, key=lambda argument: not argument.positional)


def _docstring(instrument: Instrument) -> str:
    entries: Mapping[str, str] = {
        **{argument.name: argument.help for argument in _ordered(instrument)},
        **{name: help for name, (_, _, help) in _SHARED.items()},
        **{name: _entry(field) for name, field in keyword_settings(instrument).items()},
    }
    head = inspect.cleandoc(instrument.config.__doc__ or "")
    lines = [line for name, help in entries.items() for line in (name, _indented(help))]
    ending = _ENDING.format(result=result_name(instrument))
    return "\n".join([head, "", "Parameters", "----------", *lines, ending, ""])


def _entry(field: FieldInfo) -> str:
    return f"{description_of(field)} (default: {default_words(field)})."


def _indented(text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent="    ", subsequent_indent="    ")
