"""One forward pass, written down: module calls, torch functions, which value fed which.

The trace holds numbers for values, never activations: a tensor is known by a weak reference while
it lives, and by its number afterwards. Parameters are held, because they outlive the pass anyway.
"""

import copy
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from types import MethodType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

__all__ = [
    "Attention",
    "ModuleCall",
    "Op",
    "Port",
    "Ref",
    "Trace",
    "argument",
    "arguments_of",
    "mapped",
    "outputs_in",
    "tensors_in",
]

_Leaf = TypeVar("_Leaf")


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor in a recorded argument list, by the number of its value."""

    value: int


@dataclass(frozen=True, slots=True)
class Port:
    """A tensor that enters or leaves a module call."""

    value: int
    shape: torch.Size
    floating: bool


@dataclass(slots=True, eq=False)
class Op:
    """One torch function call: what ran, on which values, giving which.

    `idle` marks a reshape to the shape it was given: it holds the batch's sizes and does nothing.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    idle: bool


@dataclass(slots=True, eq=False)
class Attention:
    """One attention call: the op it ran in, its query and key values, its head groups, its kind."""

    op: int
    query: int
    key: int
    groups: int
    lengths: tuple[int, int]
    kind: tuple[Any, ...]
    call: "ModuleCall"


@dataclass(slots=True, eq=False)
class ModuleCall:
    """One call of a module, with the calls it made and the range of torch functions it ran.

    `overwritten` names the inputs whose tensors were written into.
    """

    module: nn.Module
    path: str
    parent: "ModuleCall | None"
    children: list["ModuleCall"] = field(default_factory=list)
    inputs: dict[str, Port] = field(default_factory=dict)
    outputs: dict[int, Port] = field(default_factory=dict)
    ops: range = range(0)
    attentions: int = 0
    kept: dict[int, Tensor] = field(default_factory=dict)
    overwritten: frozenset[str] = frozenset()

    def release(self) -> None:
        """Let go of the output tensors kept here and below."""
        self.kept.clear()
        for child in self.children:
            child.release()


@dataclass(slots=True, eq=False)
class Trace:
    """What one forward pass did; ``makers[i]`` is the module call that ran ``ops[i]``.

    ``loans`` are weights that a module had during the pass alone: module and name.
    """

    root: ModuleCall
    ops: list[Op] = field(default_factory=list)
    makers: list[ModuleCall] = field(default_factory=list)
    attentions: list[Attention] = field(default_factory=list)
    producer: list[int] = field(default_factory=list)
    parameters: dict[int, Tensor] = field(default_factory=dict)
    loans: dict[int, tuple[nn.Module, str]] = field(default_factory=dict)
    output: Any = None
    output_values: dict[str, int] = field(default_factory=dict)


def tensors_in(structure: Any) -> Iterator[tuple[str, Tensor]]:
    """Tensors of a nested structure with their dotted places, None entries counted."""
    if isinstance(structure, Tensor):
        yield "", structure
        return
    items: Any = ()
    if isinstance(structure, dict):
        items = structure.items()
    elif isinstance(structure, (tuple, list)):
        items = enumerate(structure)
    for key, item in items:
        for place, tensor in tensors_in(item):
            yield f"{key}.{place}" if place else str(key), tensor


def mapped(structure: Any, kind: type[_Leaf], change: Callable[[_Leaf], Any]) -> Any:
    """The same structure with every leaf of one kind replaced."""
    if isinstance(structure, kind):
        return change(structure)
    if isinstance(structure, dict):
        copied = copy.copy(structure)  # keeps the type: model outputs are dictionaries too
        for key, item in structure.items():
            copied[key] = mapped(item, kind, change)
        return copied
    if type(structure) in (tuple, list, torch.Size):
        return type(structure)(mapped(item, kind, change) for item in structure)
    if isinstance(structure, slice):
        parts = (structure.start, structure.stop, structure.step)
        return slice(*(mapped(part, kind, change) for part in parts))
    return structure


def outputs_in(output: Any) -> dict[int, Tensor]:
    """The tensors a module returned, by their place in what it returned."""
    places = output if isinstance(output, (tuple, list)) else [output]
    if isinstance(output, dict):
        places = list(output.values())
    return {place: item for place, item in enumerate(places) if isinstance(item, Tensor)}


def arguments_of(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Arguments by parameter name, so that positional and keyword calls agree."""
    forward: Any = module.forward
    try:
        method = isinstance(forward, MethodType)
        names = _of_method(forward.__func__) if method else inspect.signature(forward)
        return dict(names.bind_partial(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {**{f"argument_{i}": a for i, a in enumerate(args)}, **kwargs}


def argument(
    module: nn.Module, place: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Tensor:
    """The tensor among the arguments of a call that `arguments_of` and `tensors_in` name so."""
    found: Any = kwargs.get(place)
    forward: Any = module.forward
    if found is None and isinstance(forward, MethodType):
        position = _positions(forward.__func__).get(place, len(args))
        found = args[position] if position < len(args) else None
    if isinstance(found, Tensor):
        return found
    return dict(tensors_in(arguments_of(module, args, kwargs)))[place]


@lru_cache(maxsize=256)
def _positions(function: Any) -> dict[str, int]:
    """Places of the arguments that a method takes by position, beside its object."""
    fixed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = enumerate(_of_method(function).parameters.values())
    return {parameter.name: k for k, parameter in named if parameter.kind in fixed}


@lru_cache(maxsize=256)
def _of_method(function: Any) -> inspect.Signature:
    """What a method takes beside its object; read once a class, because reading takes a while."""
    return inspect.signature(MethodType(function, function))
