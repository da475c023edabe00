r"""Blocks of a loaded model as functions of their state, run alone with what the model gave them.

A block is seen once in a pass of its model; copies of its arguments (timestep, class, masks, text)
are kept, and the module is run again with another state. Its attention is written out as a softmax,
because torch's fused kernels have no forward derivative.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.probes.tap_loop import model_anatomy
from flowscope.records import Unavailable
from flowscope.replica import row_softmax
from flowscope.tap import Anatomy, Block, Chain
from flowscope.tap.dispatch import (
    ATTENTION,
    MULTI_HEAD,
    Watcher,
    eager_code,
    thread_watchers,
    unrouted_calls,
)
from flowscope.tap.kernels import REQUESTS, Request, multi_head
from flowscope.tap.trace import arguments_of, mapped, outputs_in, tensors_in

__all__ = [
    "Seam",
    "Visit",
    "block_visits",
    "check_visit",
    "chosen_chain",
    "full_mask",
    "refuse_another_answer",
    "refuse_streams",
    "refuse_training",
    "repeated_keys",
    "unchecked_visits",
    "visited",
    "without_cache",
    "written_out",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Visit:
    """One call of a block during a pass of its model, with copies of its arguments.

    Attributes
    ----------
    module, path
        The block, and its name in the model.
    args, kwargs
        What the model called it with.
    H0
        The state that entered it, as it stands in these arguments.
    place
        Which of its outputs is the state.
    answer
        The state that left it.
    """

    module: nn.Module
    path: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    H0: Tensor
    place: int
    answer: Tensor

    def run(self, H: Tensor, seam: "Seam | None" = None) -> Tensor:
        """The module with another state, its attention written out or answered by the seam."""

        def swap(tensor: Tensor) -> Tensor:
            return H if tensor is self.H0 else tensor

        with unrouted_calls(), seam or Seam():  # no tap around it hears this run
            output = self.module(
                *mapped(self.args, Tensor, swap), **mapped(self.kwargs, Tensor, swap)
            )
        return outputs_in(output)[self.place]

    def write(self, H: Tensor) -> Tensor:
        """What the block adds to a state; `flowscope.pde.jacobian_bounds` takes its derivatives."""
        return self.run(H) - H


class Seam(TorchFunctionMode):
    """Answers one attention call of a block, if any; the others run written out."""

    def __init__(
        self, call: int | None = None, answer: Callable[[Request], Tensor] | None = None
    ) -> None:
        super().__init__()
        self._call, self._answer, self._seen = call, answer or written_out, 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Let every function through but attention."""
        kwargs = kwargs or {}
        if func is ATTENTION:
            return self._attend(*args, **kwargs)
        if func is MULTI_HEAD:
            return multi_head(self._attend, args, kwargs)
        return func(*args, **kwargs)

    def _attend(self, *args: Any, **kwargs: Any) -> Tensor:
        request = REQUESTS[ATTENTION](*args, **kwargs)
        number, self._seen = self._seen, self._seen + 1
        return self._answer(request) if number == self._call else written_out(request)


def written_out(request: Request) -> Tensor:
    """Attention as a softmax, which has derivatives of every kind."""
    k, v = repeated_keys(request)
    return row_softmax(request.q, k, request.scale, full_mask(request)) @ v


def repeated_keys(request: Request) -> tuple[Tensor, Tensor]:
    """Keys and values with one head for each head of queries."""
    groups = request.q.shape[-3] // request.k.shape[-3]
    if groups == 1:
        return request.k, request.v
    return request.k.repeat_interleave(groups, -3), request.v.repeat_interleave(groups, -3)


def full_mask(request: Request) -> Tensor | None:
    """Mask of an attention call, that of the past written out; None where there is none."""
    if not request.causal:
        return request.mask
    shape = request.q.shape[-2], request.k.shape[-2]
    return torch.ones(shape, dtype=torch.bool, device=request.q.device).tril()


def refuse_training(model: nn.Module) -> None:
    """Refuse a model in training mode, where a second run of a block is another."""
    if model.training:
        raise InvalidInputError(
            "the model is in training mode, where dropout makes each run another; call model.eval()"
            " first."
        )


def refuse_streams(chain: Chain, block: Block) -> None:
    """Refuse a block whose state is more than one tensor."""
    if len(block.places) != 1 or len(chain.streams) != 1:
        raise UnsupportedModelError(
            f"{block.path} passes {max(len(block.places), len(chain.streams))} streams through one "
            "attention (text and image, say): its state is not one tensor, so it is not cut."
        )


def block_visits(
    model: nn.Module, inputs: Mapping[str, Any], chain: str | None = None
) -> list[Visit]:
    """Every block of a model, from one pass, ready to be run with another state.

    Parameters
    ----------
    model
        Any model that `flowscope.Tap` reads, in evaluation mode, in float32 or float64.
    inputs
        One batch, as keyword arguments of the model.
    chain
        Name of the chain of blocks; the model's depth by default.

    Raises
    ------
    InvalidInputError
        The model is in training mode or in half precision.
    UnsupportedModelError
        A block cannot be run alone: several streams through one attention, a cache of keys, or
        another answer than in the model.

    Notes
    -----
    Copies of the arguments of all blocks are held at once.

    Examples
    --------
    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    >>> model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double().eval()
    >>> visits = block_visits(model, {"src": torch.randn(1, 5, 8).double()})
    >>> [tuple(visit.write(visit.H0).shape) for visit in visits]
    [(1, 5, 8), (1, 5, 8)]
    """
    visits = unchecked_visits(model, inputs, chain)
    for visit in visits:
        check_visit(visit)
    return visits


def unchecked_visits(
    model: nn.Module, inputs: Mapping[str, Any], chain: str | None = None
) -> list[Visit]:
    """Every block as `block_visits` returns it, before `check_visit` has seen it."""
    refuse_training(model)
    owner = chosen_chain(model_anatomy(model, inputs), chain)
    for block in owner.blocks:
        refuse_streams(owner, block)
    return visited(model, inputs, owner, owner.blocks)


@torch.no_grad()
def check_visit(visit: Visit) -> None:
    """Refuse a block that overflowed, or whose answer, run alone, is another."""
    if not bool(visit.answer.norm().isfinite()):
        raise InvalidInputError(
            f"the state after {visit.path} is not finite: the model overflows there. Load it in a "
            "wider precision."
        )
    refuse_another_answer(visit, visit.run(visit.H0))


def without_cache(model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs without a cache: a block that is run again would add its keys a second time."""
    root: nn.Module = getattr(model, "_orig_mod", model)
    takes = "use_cache" in inspect.signature(root.forward).parameters
    return {**inputs, **({"use_cache": False} if takes else {})}


def chosen_chain(anatomy: Anatomy, name: str | None) -> Chain:
    """A chain of blocks by its name; the depth of the model by default."""
    if name is not None:
        return anatomy.chain(name)
    if isinstance(anatomy.depth, Unavailable):
        raise UnsupportedModelError(f"This model has no chain of blocks: {anatomy.depth.reason}.")
    return anatomy.depth


def visited(
    model: nn.Module, inputs: Mapping[str, Any], chain: Chain, blocks: Sequence[Block]
) -> list[Visit]:
    """Calls of some blocks of a chain in one pass of the model, in the order of the blocks."""
    root: nn.Module = getattr(model, "_orig_mod", model)
    stream = chain.streams[0]
    numbers: dict[str, int] = dict.fromkeys((block.path for block in chain.blocks), 0)
    calls: dict[tuple[str, int], Block] = {}  # of the same module, one after the other
    wanted = {block.index for block in blocks}
    for block in chain.blocks:
        if block.index in wanted:
            calls[block.path, numbers[block.path]] = block
        numbers[block.path] += 1
    numbers = dict.fromkeys(numbers, 0)
    seen: dict[int, Visit] = {}

    def watcher(path: str, module: nn.Module) -> Watcher:
        def watch(proceed: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            block = calls.get((path, numbers[path]))
            numbers[path] += 1
            if block is None:
                return proceed(*args, **kwargs)
            seen[block.index] = visit = _copied(block, module, stream, args, kwargs)
            output = proceed(*args, **kwargs)
            answer = outputs_in(output)[block.places[stream]].detach().clone()
            seen[block.index] = replace(visit, answer=answer)
            return output

        return watch

    # In this thread alone: another thread's pass through the model is none of ours.
    with ExitStack() as undo, torch.no_grad(), eager_code():
        for path in numbers:
            module = root.get_submodule(path)
            undo.callback(thread_watchers().add(module, watcher(path, module)))
        model(**inputs)
    return [seen[block.index] for block in blocks]


def _copied(block: Block, module: nn.Module, stream: str, args: Any, kwargs: Any) -> Visit:
    copies: dict[int, Tensor] = {}

    def copy(tensor: Tensor) -> Tensor:
        return copies.setdefault(id(tensor), tensor.detach().clone())

    positional, named = mapped(args, Tensor, copy), mapped(kwargs, Tensor, copy)
    hidden = dict(tensors_in(arguments_of(module, positional, named)))[stream]
    _refuse_what_cannot_be_rerun(block, positional, named, hidden)
    return Visit(
        module=module,
        path=block.path,
        args=positional,
        kwargs=named,
        H0=hidden,
        place=block.places[stream],
        answer=hidden,
    )


def _refuse_what_cannot_be_rerun(
    block: Block, args: tuple[Any, ...], kwargs: dict[str, Any], H0: Tensor
) -> None:
    if H0.dtype not in (torch.float32, torch.float64):
        raise InvalidInputError(
            f"derivatives in {str(H0.dtype).removeprefix('torch.')} lose most of their digits; run "
            "the block in float32 or float64: model.float() or model.double()."
        )
    values = [*args, *kwargs.values()]
    if any(hasattr(value, "update") and hasattr(value, "get_seq_length") for value in values):
        raise UnsupportedModelError(
            f"{block.path} writes its keys into a cache, so a second run is another; pass "
            "use_cache=False in the inputs."
        )


def refuse_another_answer(visit: Visit, again: Tensor) -> None:
    """Refuse a block whose answer, run alone, is not the one in the model."""
    size = max(float(visit.answer.norm()), torch.finfo(again.dtype).tiny)
    same = again.shape == visit.answer.shape
    apart = float((again - visit.answer).norm()) / size if same else 1.0
    bound = 1e3 * torch.finfo(again.dtype).eps
    if not apart <= bound:
        raise UnsupportedModelError(
            f"{visit.path} run alone answers otherwise than in the model (by {apart:.2g} of its "
            f"size, allowed {bound:.2g}): it depends on more than its arguments."
        )
