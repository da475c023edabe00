"""The probing pass: one extra forward pass that leaves no mark, and the backend it needs."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from flowscope.errors import UnsupportedModelError
from flowscope.tap.anatomy import Anatomy
from flowscope.tap.discovery import anatomy_of
from flowscope.tap.kernels import INTERFACE, register_interface
from flowscope.tap.recorder import traced
from flowscope.tap.trace import Trace, mapped, tensors_in

__all__ = ["backends_of", "probe", "switched_backend"]


def probe(
    root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], blocks: Sequence[str] = ()
) -> Anatomy:
    """The anatomy of a model on one batch: seam 1, else seam 2, else refusal.

    Raises
    ------
    UnsupportedModelError
        When neither seam sees an attention call in every block.
    """
    with torch.no_grad():
        try:
            return _judged(_recorded(root, args, kwargs), blocks, "sdpa")
        except UnsupportedModelError as refusal:
            if not _configs(root):
                raise
            with switched_backend(root):
                trace = _recorded(root, args, kwargs)
                try:
                    return _judged(trace, blocks, "interface")
                except UnsupportedModelError:
                    raise refusal from None


def _judged(trace: Trace, blocks: Sequence[str], seam: str) -> Anatomy:
    """The anatomy, with tails replayed under other random numbers than the pass itself had."""
    with torch.random.fork_rng(devices=_cuda_devices(trace.root.module)):
        torch.manual_seed(torch.initial_seed() + 1)
        return anatomy_of(trace, blocks=blocks, seam=seam)


def _cuda_devices(root: nn.Module) -> list[int]:
    return sorted({p.device.index or 0 for p in root.parameters() if p.is_cuda})


def _recorded(root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
    args, kwargs = _own(args, kwargs)
    with (
        torch.random.fork_rng(devices=_cuda_devices(root)),
        _running_statistics_kept(root),
        traced(root) as recorder,
    ):
        output = root.forward(*args, **kwargs)
        trace = recorder.trace
        trace.output = output
        with torch._C.DisableTorchFunction():
            trace.output_values = {
                place: recorder.value(tensor)
                for place, tensor in tensors_in(output)
                if tensor.is_floating_point() and tensor.ndim >= 2
            }
    return trace


def _own(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The arguments with tensors and key-value caches copied: a model may write into either."""
    copies: dict[int, Tensor] = {}

    def own(value: Any) -> Any:
        is_cache = hasattr(value, "update") and hasattr(value, "get_seq_length")
        if is_cache:
            return copy.deepcopy(value)
        return mapped(value, Tensor, lambda t: copies.setdefault(id(t), t.clone()))

    return tuple(own(a) for a in args), {name: own(a) for name, a in kwargs.items()}


@contextmanager
def _running_statistics_kept(root: nn.Module) -> Iterator[None]:
    """Restore what a pass in training mode changes: the running averages of normalisations."""
    norms = [m for m in root.modules() if m.training and hasattr(m, "running_mean")]
    saved: list[tuple[Tensor, Tensor]] = [(b, b.clone()) for m in norms for b in m.buffers(False)]
    try:
        yield
    finally:
        for buffer, value in saved:
            buffer.copy_(value)


def _configs(root: nn.Module) -> list[Any]:
    """Configurations that choose an attention backend, outermost first."""
    found = {id(c): c for m in root.modules() if (c := getattr(m, "config", None)) is not None}
    return [c for c in found.values() if hasattr(c, "_attn_implementation")]


def backends_of(root: nn.Module) -> tuple[str, ...]:
    """The attention backends that the transformers models inside ``root`` are set to."""
    return tuple(str(config._attn_implementation) for config in _configs(root))


@contextmanager
def switched_backend(root: nn.Module) -> Iterator[None]:
    """Run the transformers models inside ``root`` on flowscope's interface for a while."""
    register_interface()
    saved = [(config, config._attn_implementation) for config in _configs(root)]
    try:
        for config, _ in saved:
            config._attn_implementation = INTERFACE
        yield
    finally:
        for config, implementation in saved:
            config._attn_implementation = implementation
