"""Writes one forward pass down as a `Trace`, by a torch function mode and watchers of modules."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from flowscope.tap.dispatch import ATTENTION, MULTI_HEAD, Watcher, thread_watchers
from flowscope.tap.kernels import REQUESTS, Request, multi_head
from flowscope.tap.state import version
from flowscope.tap.trace import (
    Attention,
    ModuleCall,
    Op,
    Port,
    Ref,
    Trace,
    arguments_of,
    mapped,
    outputs_in,
    tensors_in,
)

__all__ = ["Recorder", "traced"]

_RESHAPES = {"view", "reshape"}
_MUTATORS = {"__setitem__", "__iadd__", "__imul__", "__isub__", "__itruediv__"}


class Recorder(TorchFunctionMode):
    """Writes torch functions and module calls into a `Trace`."""

    def __init__(self, root: nn.Module) -> None:
        super().__init__()
        self.trace = Trace(root=ModuleCall(root, "", None))
        self.stack = [self.trace.root]
        self._values = WeakTensorKeyDictionary()
        named = [*root.named_parameters(), *root.named_buffers()]
        self._named = {id(tensor): tensor for _, tensor in named}

    def value(self, tensor: Tensor) -> int:
        """The number of a tensor's present value; a new leaf when it was never seen."""
        known = tensor in self._values
        number = int(self._values[tensor]) if known else self._new(tensor, -1)
        if id(tensor) in self._named:
            if not known:
                self.trace.parameters[number] = tensor
        elif isinstance(tensor, nn.Parameter):  # an off-loaded one is another in each pass
            module = self.stack[-1].module
            for name, parameter in module.named_parameters(recurse=False):
                if parameter is tensor:
                    self.trace.loans[number] = (module, name)
        return number

    def _new(self, tensor: Tensor, producer: int) -> int:
        number = len(self.trace.producer)
        self.trace.producer.append(producer)
        self._values[tensor] = number
        return number

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run the function, then write down what it read and made."""
        kwargs = kwargs or {}
        before = {id(t): self.value(t) for _, t in tensors_in((args, kwargs))}
        recorded = mapped((args, kwargs), Tensor, lambda t: Ref(before[id(t)]))
        if func in REQUESTS:
            self._attention(REQUESTS[func](*args, **kwargs), before)
        if func is MULTI_HEAD:
            result = self._multi_head(args, kwargs, before)
        else:
            result = func(*args, **kwargs)
        self._write(func, recorded, result, args, before)
        return result

    def _multi_head(self, args: Any, kwargs: Any, before: dict[int, int]) -> Any:
        query, key = (
            args[i] if len(args) > i else kwargs[n] for i, n in ((0, "query"), (1, "key"))
        )

        def attend(*inner: Any, **options: Any) -> Tensor:
            request = REQUESTS[ATTENTION](*inner, **options)
            place = {id(request.q): before[id(query)], id(request.k): before[id(key)]}
            self._attention(request, place)
            return request.kernel()

        return multi_head(attend, args, kwargs)

    def _attention(self, request: Request, values: dict[int, int]) -> None:
        call = self.stack[-1]
        self.trace.attentions.append(
            Attention(
                op=len(self.trace.ops),
                query=values[id(request.q)],
                key=values[id(request.k)],
                groups=_head_groups(request.q, request.k, request.v),
                lengths=(request.q.shape[-2], request.k.shape[-2]),
                kind=request.kind,
                call=call,
            )
        )
        for ancestor in self.stack:
            ancestor.attentions += 1

    def _write(
        self, func: Any, recorded: Any, result: Any, args: Any, before: dict[int, int]
    ) -> None:
        name = getattr(func, "__name__", "")
        in_place = name in _MUTATORS or (name.endswith("_") and not name.endswith("__"))
        made = [args[0]] if name == "__setitem__" else [t for _, t in tensors_in(result)]
        # A function that hands an argument back (dropout in eval, a cast to its dtype) is no op.
        made = [t for t in made if in_place or id(t) not in before]
        if not made:
            return
        number = len(self.trace.ops)
        outputs = tuple(self._new(t, number) for t in made)
        inputs = tuple(dict.fromkeys(before.values()))
        idle = name in _RESHAPES and len(inputs) == 1 and made[0].shape == args[0].shape
        self.trace.ops.append(Op(func, recorded[0], recorded[1], inputs, outputs, idle))
        self.trace.makers.append(self.stack[-1])

    def port(self, tensor: Tensor) -> Port:
        """A tensor at the boundary of a module call."""
        return Port(self.value(tensor), tensor.shape, tensor.is_floating_point())

    def enter(self, module: nn.Module, path: str, args: Any, kwargs: Any) -> dict[str, Any]:
        """A module call begins; returns its tensors by name, with the state each is in."""
        call = ModuleCall(module, path, self.stack[-1])
        tensors = dict(tensors_in(arguments_of(module, args, kwargs)))
        call.inputs = {slot: self.port(tensor) for slot, tensor in tensors.items()}
        call.ops = range(len(self.trace.ops), len(self.trace.ops))
        self.stack[-1].children.append(call)
        self.stack.append(call)
        return {slot: (t, version(t), self.value(t)) for slot, t in tensors.items()}

    def leave(self, output: Any, given: dict[str, Any]) -> None:
        """The innermost module call ends; the newest outputs that attention fed are kept."""
        call = self.stack.pop()
        call.overwritten = frozenset(
            slot
            for slot, (tensor, *before) in given.items()
            if [version(tensor), self.value(tensor)] != before
        )
        call.ops = range(call.ops.start, len(self.trace.ops))
        tensors = outputs_in(output)
        call.outputs = {i: self.port(t) for i, t in tensors.items()}
        if call.attentions:
            for sibling in self.stack[-1].children[:-1]:
                sibling.release()
            call.kept = tensors


def _head_groups(q: Tensor, k: Tensor, v: Tensor) -> int:
    """Query heads per key head, also where the model repeated its key heads before the call."""
    if q.ndim < 4:
        return 1
    heads = q.shape[-3]
    if k.shape[-3] != heads:
        return int(heads // k.shape[-3])
    if heads == 1 or not torch.equal(k[:, 0], k[:, 1]) or not k.any():
        return 1
    for groups in (g for g in range(heads, 1, -1) if heads % g == 0):
        folded = (x.reshape(len(x), -1, groups, *x.shape[2:]) for x in (k, v))
        if all(torch.equal(x, x[:, :, :1].expand_as(x)) for x in folded):
            return groups
    return 1


@contextmanager
def traced(root: nn.Module) -> Iterator[Recorder]:
    """Record this thread's torch functions and module calls while the context lasts."""
    recorder = Recorder(root)
    watchers = thread_watchers()
    with ExitStack() as undo:
        for path, module in root.named_modules():
            if module is not root:
                undo.callback(watchers.add(module, _watcher(recorder, module, path)))
        with recorder:
            yield recorder
        recorder.trace.root.ops = range(len(recorder.trace.ops))


def _watcher(recorder: Recorder, module: nn.Module, path: str) -> Watcher:
    def record(proceed: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with torch._C.DisableTorchFunction():
            given = recorder.enter(module, path, args, kwargs)
        output = proceed(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            recorder.leave(output, given)
        return output

    return record
