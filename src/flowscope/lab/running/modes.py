"""Evaluation mode while something is measured; afterwards every module is as it was.

A model in training mode drops activations at random, so that each pass gives other numbers. A run
puts every module among the objects that the caller gave into evaluation mode, and compiled modules
run their original code, because hooks inside compiled code are not called. Mode and compiled code
of each module are put back when the last run that holds the module ends, also after an error.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowscope.errors import ModelWarning

if TYPE_CHECKING:
    from torch import nn

__all__ = ["evaluation", "modules_of"]

_COMPILED = "_compiled_call_impl"
_ORIGINAL = "_orig_mod"
_FORWARD = "forward"


@dataclass(kw_only=True, eq=False)
class _Hold:
    """One module under measurement: what it was before, and how many runs hold it."""

    module: nn.Module
    training: bool
    compiled: Any
    forward: Any
    runs: int = 0


_HOLDS: dict[int, _Hold] = {}
_LOCK = threading.RLock()


@contextmanager
def evaluation(objects: Iterable[Any]) -> Iterator[str]:
    """Put the modules among some objects into evaluation mode for a ``with`` block.

    Yields a sentence for the manifest that names what was in training mode; empty where nothing
    was. The same sentence is given as a `ModelWarning`. Runs may be nested, and several threads
    may hold one module: the last to leave puts the modes back.

    Parameters
    ----------
    objects
        Modules, and things that hold modules: what `load` returned, pipelines, bound methods.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Dropout(0.5).eval()
    >>> with evaluation([layer]) as sentence:
    ...     sentence
    ''
    """
    roots = [root for thing in objects for root in modules_of(thing)]
    modules = list({id(module): module for root in roots for module in root.modules()}.values())
    sentence = _sentence(roots)
    if sentence:
        warnings.warn(sentence, ModelWarning, stacklevel=4)
    _hold(modules)
    try:
        _evaluate(roots)
        yield sentence
    finally:
        _release(modules)


def modules_of(thing: Any) -> list[nn.Module]:
    """Modules that an object is or holds directly: a model, a loaded one, parts of a pipeline."""
    torch = sys.modules.get("torch")
    if torch is None:  # then there is no module
        return []
    kind = torch.nn.Module
    if isinstance(thing, kind):
        return [thing]
    owner = getattr(thing, "__self__", None)
    if isinstance(owner, kind):
        return [owner]
    return [part for part in getattr(thing, "__dict__", {}).values() if isinstance(part, kind)]


def _sentence(roots: Iterable[nn.Module]) -> str:
    """What was in training mode; a module that a run holds already was reported by that run."""
    parts = []
    for root in map(_inner, roots):
        modules = list(root.modules())
        number = sum(module.training for module in modules)
        if number:
            parts.append(f"{type(root).__name__} ({number} of {len(modules)} modules)")
    if not parts:
        return ""
    return (
        f"In training mode: {', '.join(parts)}. Measured in evaluation mode, without dropout; "
        "the mode of every module is put back afterwards."
    )


def _inner(root: nn.Module) -> nn.Module:
    """The module in a wrapper, whose own mode says nothing: one part and no weights."""
    while len(root._modules) == 1 and not root._parameters:
        (part,) = root._modules.values()
        if part is None or type(part).__name__ in ("ModuleList", "ModuleDict"):  # not called
            break
        root = part
    return root


def _hold(modules: Iterable[nn.Module]) -> None:
    with _LOCK:
        for module in modules:
            hold = _HOLDS.get(id(module))
            if hold is None:
                own = vars(module)
                hold = _HOLDS[id(module)] = _Hold(
                    module=module,
                    training=module.training,
                    compiled=own.get(_COMPILED),
                    forward=own.get(_FORWARD),
                )
                _run_original_code(module)
            hold.runs += 1


def _run_original_code(module: nn.Module) -> None:
    """Let a compiled module, or a wrapper around a part of a model, call the code it was made of.

    Attributes are written past ``__setattr__``, which a wrapper hands on to what it wraps.
    """
    own = vars(module)
    if own.get(_COMPILED) is not None:
        own[_COMPILED] = None
    original = module._modules.get(_ORIGINAL)
    if original is not None and _FORWARD in own:
        own[_FORWARD] = original.__call__


def _evaluate(roots: Iterable[nn.Module]) -> None:
    with _LOCK:
        for root in roots:
            if any(module.training for module in root.modules()):
                root.eval()


def _release(modules: Iterable[nn.Module]) -> None:
    with _LOCK:
        free = []
        for module in modules:
            hold = _HOLDS[id(module)]
            hold.runs -= 1
            if not hold.runs:
                free.append(_HOLDS.pop(id(module)))
        for hold in free:
            _restore(hold)
        # A module with a `train` of its own may have set the modes of those below it.
        for hold in free:
            hold.module.training = hold.training
        for hold in _HOLDS.values():
            hold.module.training = False


def _restore(hold: _Hold) -> None:
    own = vars(hold.module)
    for name, value in ((_COMPILED, hold.compiled), (_FORWARD, hold.forward)):
        if value is not None:
            own[name] = value
    if hold.module.training != hold.training:
        hold.module.train(hold.training)
