"""The probing passes: extra forward passes that leave no mark.

The first one is written down by a torch function mode, which hears every call. A second one listens
to attention by its name alone: where it hears the same calls in the same order, later passes do
without a mode.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from flowscope.errors import UnsupportedModelError
from flowscope.tap.anatomy import Anatomy
from flowscope.tap.discovery import anatomy_of
from flowscope.tap.dispatch import ATTENTION, routed_calls
from flowscope.tap.kernels import REQUESTS, attention_configs, switched_backend
from flowscope.tap.recorder import traced
from flowscope.tap.state import state_kept
from flowscope.tap.trace import Trace, mapped, tensors_in

__all__ = ["probe", "refuse_meta"]


def probe(
    root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], blocks: Sequence[str] = ()
) -> Anatomy:
    """The anatomy of a model on one batch: seam 1, else seam 2, else refusal.

    Raises
    ------
    UnsupportedModelError
        When neither seam sees an attention call in every block, or tensors have no values.
    """
    refuse_meta(root, args, kwargs)
    with torch.no_grad():
        try:
            trace, calls = _recorded(root, args, kwargs)
            anatomy = _judged(trace, blocks, "sdpa")
            del trace  # it holds the last hidden state
            by_name = calls == _heard_by_name(root, args, kwargs)
            return replace(anatomy, listening="name") if by_name else anatomy
        except UnsupportedModelError as refusal:
            configs = attention_configs(root)
            if not configs:
                raise
            with switched_backend(configs):
                trace, _ = _recorded(root, args, kwargs)
                try:
                    return _judged(trace, blocks, "interface")
                except UnsupportedModelError:
                    raise refusal from None


def refuse_meta(root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise where there is nothing to measure: tensors on the meta device have shapes only."""
    advice = "Load the weights and move the inputs to their device, then tap the model."
    inputs = [place for place, tensor in tensors_in((args, kwargs)) if tensor.is_meta]
    if inputs:
        raise UnsupportedModelError(
            f"{type(root).__name__} was given {len(inputs)} tensors on the meta device, which have "
            f"shapes and no values, so that nothing can be measured. {advice}"
        )
    if any(hasattr(module, "_hf_hook") for module in root.modules()):
        return  # off-loaded by accelerate: weights come when their module runs
    weights = [*root.named_parameters(), *root.named_buffers()]
    empty = [name for name, tensor in weights if tensor.is_meta]
    if empty:
        raise UnsupportedModelError(
            f"{len(empty)} of {len(weights)} weights of {type(root).__name__} are on the meta "
            f"device ({empty[0]} first): they have shapes and no values. {advice}"
        )


def _judged(trace: Trace, blocks: Sequence[str], seam: str) -> Anatomy:
    """The anatomy, with tails replayed under other random numbers than the pass itself had."""
    with torch.random.fork_rng(devices=_cuda_devices(trace.root.module)):
        torch.manual_seed(torch.initial_seed() + 1)
        return anatomy_of(trace, blocks=blocks, seam=seam)


def _cuda_devices(root: nn.Module) -> list[int]:
    return sorted({p.device.index or 0 for p in root.parameters() if p.is_cuda})


@contextmanager
def _traceless(root: nn.Module) -> Iterator[None]:
    """Put random numbers and the state of the model back after a pass."""
    with torch.random.fork_rng(devices=_cuda_devices(root)), state_kept(root):
        yield


def _recorded(
    root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Trace, list[Any]]:
    """A pass written down, and what its attention calls were, in order."""
    args, kwargs = _own(args, kwargs)
    with _traceless(root), traced(root) as recorder:
        output = root.forward(*args, **kwargs)
        trace = recorder.trace
        trace.output = output
        with torch._C.DisableTorchFunction():
            trace.output_values = {
                place: recorder.value(tensor)
                for place, tensor in tensors_in(output)
                if tensor.is_floating_point() and tensor.ndim >= 2
            }
    return trace, [attention.kind for attention in trace.attentions]


def _heard_by_name(root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """What the attention calls of a pass are that are heard by their name alone, in order."""
    args, kwargs = _own(args, kwargs)
    heard: list[Any] = []

    def listen(*given: Any, **options: Any) -> Tensor:
        request = REQUESTS[ATTENTION](*given, **options)
        heard.append(request.kind)
        return request.kernel()

    with _traceless(root), routed_calls(listen):
        root.forward(*args, **kwargs)
    return heard


def _own(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The arguments with tensors and key-value caches copied: a model may write into either."""
    copies: dict[int, Tensor] = {}

    def own(value: Any) -> Any:
        is_cache = hasattr(value, "update") and hasattr(value, "get_seq_length")
        if is_cache:
            return copy.deepcopy(value)
        return mapped(value, Tensor, lambda t: copies.setdefault(id(t), t.clone()))

    return tuple(own(a) for a in args), {name: own(a) for name, a in kwargs.items()}
