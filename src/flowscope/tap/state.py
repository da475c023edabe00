"""What a forward pass may change on a model besides its parameters, and how it is put back.

A pass in training mode moves running averages; a module may count its calls, stretch a table of
positions, or keep its last result. All of it lies in buffers and in the attributes of modules.
Both are put back together: a buffer restored without the number that says for which length it was
made would be worse than none restored.

Not put back are modules of TorchScript, the insides of objects that modules hold (lists,
dictionaries and sets are, one level deep), large buffers (`_LARGE`), and modules that built
themselves in the pass.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["State", "state_kept", "version"]

# A copy of every buffer would double the memory of models whose quantised weights are buffers.
_LARGE = 2**20
_INTERNAL = frozenset([*vars(nn.Module()), "_compiled_call_impl"])
_MISSING: Any = object()


class State:
    """Buffers and attributes of all modules of a model, as they are now.

    Examples
    --------
    >>> norm = nn.BatchNorm1d(3)
    >>> state = State(norm)
    >>> _ = norm(torch.randn(4, 3))
    >>> state.changes()
    ('running_mean', 'running_var', 'num_batches_tracked')
    >>> state.restore()
    >>> state.changes()
    ()
    """

    def __init__(self, root: nn.Module) -> None:
        named = root.named_modules()
        opaque = torch.jit.ScriptModule  # its state lies where Python does not reach it
        self._modules = [_ModuleState(p, m) for p, m in named if not isinstance(m, opaque)]

    def changes(self) -> tuple[str, ...]:
        """Names of the buffers and attributes that have changed since."""
        return tuple(name for module in self._modules for name in module.changes())

    def restore(self) -> None:
        """Put everything back that can be."""
        for module in self._modules:
            module.restore()


@contextmanager
def state_kept(root: nn.Module) -> Iterator[None]:
    """Put buffers and attributes back after a pass."""
    state = State(root)
    try:
        yield
    finally:
        state.restore()


class _ModuleState:
    def __init__(self, path: str, module: nn.Module) -> None:
        self._module, self._prefix = module, f"{path}." if path else ""
        self._build = _build(module)
        self._buffers = {n: _BufferState(b) for n, b in module._buffers.items() if b is not None}
        self._entries = dict(module._buffers)
        self._attributes = {n: v for n, v in vars(module).items() if n not in _INTERNAL}
        self._contents = {n: _contents(v) for n, v in self._attributes.items()}

    def changes(self) -> Iterator[str]:
        now = vars(self._module)
        for name in dict.fromkeys((*self._entries, *self._module._buffers)):
            same = self._module._buffers.get(name, _MISSING) is self._entries.get(name, _MISSING)
            if not same or (name in self._buffers and self._buffers[name].changed()):
                yield self._prefix + name
        for name in dict.fromkeys((*self._attributes, *(set(now) - _INTERNAL))):
            value = self._attributes.get(name, _MISSING)
            if now.get(name, _MISSING) is not value or not _alike(self._contents[name], value):
                yield self._prefix + name

    def restore(self) -> None:
        if _build(self._module) != self._build or not any(self.changes()):
            return
        for buffer in self._buffers.values():
            buffer.restore()
        now = vars(self._module)
        self._module._buffers.clear()
        self._module._buffers.update(self._entries)
        for name in set(now) - _INTERNAL - set(self._attributes):
            del now[name]
        for name, value in self._attributes.items():
            now[name] = value
            if not _alike(self._contents[name], value):
                value.clear()
                (value.extend if isinstance(value, list) else value.update)(self._contents[name])


class _BufferState:
    def __init__(self, buffer: Tensor) -> None:
        plain = type(buffer) in (Tensor, nn.Buffer) and not buffer.is_meta
        self._buffer = buffer
        self._value = buffer.clone() if plain and buffer.numel() <= _LARGE else None
        self._version = version(buffer)

    def changed(self) -> bool:
        if self._value is None:
            return version(self._buffer) != self._version
        return not torch.equal(self._buffer, self._value)

    def restore(self) -> None:
        if self._value is not None and self.changed():
            with torch.no_grad():
                self._buffer.copy_(self._value)


def version(tensor: Tensor) -> int:
    """How often a tensor was written into; 0 for one of inference mode, which does not count."""
    return 0 if tensor.is_inference() else tensor._version


def _build(module: nn.Module) -> tuple[Any, ...]:
    """What a module is made of; another one after a pass in which a lazy module built itself."""
    parts = (*module._parameters.values(), *module._modules.values())
    return type(module), tuple(map(id, parts))


def _contents(value: Any) -> Any:
    return value.copy() if type(value) in (list, dict, set) else None


def _alike(before: Any, value: Any) -> bool:
    """Whether a container holds the very objects that it held before."""
    if before is None:
        return True
    if len(before) != len(value):
        return False
    if isinstance(value, dict):
        return all(value.get(key, _MISSING) is item for key, item in before.items())
    if isinstance(value, set):
        return bool(before == value)
    return all(a is b for a, b in zip(before, value, strict=True))
