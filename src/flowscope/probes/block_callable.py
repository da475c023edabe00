r"""A block of a loaded model, cut open at its self-attention, with the state that entered it.

The mathematics of replicas asks for a block as two functions (`flowscope.replica.ReplicaBlock`):

$$
(Q, K, V) = \mathrm{project}(H), \qquad H^+ = \mathrm{finish}(H, o) .
$$

Both run the module of the block with what the model gave it (timestep, class, masks, text) and
another state. The first stops at the module's self-attention and hands out what the kernel was
given; the second hands the kernel's place ``o``. Other attention calls of the block, as to a
prompt, run as they are, written out as a softmax: torch's fused kernels have no forward derivative.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.probes.tap_loop import model_anatomy
from flowscope.records import Unavailable
from flowscope.replica import ReplicaBlock, row_softmax
from flowscope.tap import Anatomy, Block, Chain
from flowscope.tap.dispatch import ATTENTION, MULTI_HEAD, eager_code, thread_watchers
from flowscope.tap.kernels import REQUESTS, Request, multi_head
from flowscope.tap.trace import arguments_of, mapped, outputs_in, tensors_in

__all__ = ["LiveBlock", "live_block"]


@dataclass(frozen=True, kw_only=True, eq=False)
class LiveBlock:
    """A block of a loaded model as functions, and the state it was given.

    Attributes
    ----------
    block
        The block cut open at its self-attention; for any state of the shape of ``H0``.
    H0
        The hidden state that entered it.
    chain, layer, path
        Where it is: chain of blocks, position in call order, module.
    """

    block: ReplicaBlock
    H0: Float[Tensor, "batch N width"]
    chain: str
    layer: int
    path: str


def live_block(
    model: nn.Module, inputs: Mapping[str, Any], layer: int, *, chain: str | None = None
) -> LiveBlock:
    """A block of a loaded model, ready for `flowscope.replica.Propagator`.

    Parameters
    ----------
    model
        Any model that `flowscope.Tap` reads, in evaluation mode, in float32 or float64.
    inputs
        One batch, as keyword arguments of the model. Conditioning is that of the batch.
    layer
        Position of the block in call order, from 0.
    chain
        Name of the chain of blocks; the model's depth by default.

    Raises
    ------
    InvalidInputError
        If the layer does not exist, or the model is in training mode or in half precision.
    UnsupportedModelError
        If the block cannot be run alone or cut: several streams through one attention (text and
        image), no self-attention or more than one, attention that torch's own kernel does not
        compute, a cache of keys, or another answer than in the model.

    Notes
    -----
    Two forward passes of the model, then one of the block to see that it answers as it did there.
    The functions keep the block's arguments alive, not the model's other activations. For
    derivatives to 1e-5 use ``model.double()``.

    Examples
    --------
    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    >>> model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double().eval()
    >>> live = live_block(model, {"src": torch.randn(1, 5, 8).double()}, 1)
    >>> [tuple(x.shape) for x in live.block.project(live.H0)]
    [(1, 2, 5, 4), (1, 2, 5, 4), (1, 2, 5, 4)]
    """
    if model.training:
        raise InvalidInputError(
            "the model is in training mode, where dropout makes each run another; call model.eval()"
            " first."
        )
    anatomy = model_anatomy(model, inputs)
    owner = _chosen(anatomy, chain)
    if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < len(owner):
        raise InvalidInputError(
            f"layer must be a whole number from 0 to {len(owner) - 1}, the blocks of "
            f"{owner.name!r}; got {layer!r}."
        )
    block = owner.blocks[layer]
    call = _attention_number(anatomy, owner, block)
    earlier = sum(other.path == block.path for other in owner.blocks[:layer])
    visit = _visited(model, inputs, owner, block, earlier)
    request = _stopped(visit, call, visit.H0)
    cut = _cut(visit, call, request)
    _refuse_another_answer(visit, cut, request)
    return LiveBlock(block=cut, H0=visit.H0, chain=owner.name, layer=block.index, path=block.path)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Visit:
    """One call of a block during a pass of its model, with copies of its arguments."""

    module: nn.Module
    path: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    H0: Tensor
    place: int
    answer: Tensor

    def run(self, H: Tensor, seam: "_Seam") -> Tensor:
        """The module with another state, its attention calls answered by the seam."""

        def swap(tensor: Tensor) -> Tensor:
            return H if tensor is self.H0 else tensor

        with seam:
            output = self.module(
                *mapped(self.args, Tensor, swap), **mapped(self.kwargs, Tensor, swap)
            )
        return outputs_in(output)[self.place]


class _Reached(Exception):  # noqa: N818 - a way out, not an error
    """The self-attention was reached; carries what its kernel was asked for."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self.request = request


class _Seam(TorchFunctionMode):
    """Answers one attention call of a block; the others run written out."""

    def __init__(self, call: int, answer: Callable[[Request], Tensor]) -> None:
        super().__init__()
        self._call, self._answer, self._seen = call, answer, 0

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
        return self._answer(request) if number == self._call else _written_out(request)


def _stopped(visit: _Visit, call: int, H: Tensor) -> Request:
    """What the block's self-attention is asked for when the block is given H."""

    def stop(request: Request) -> Tensor:
        raise _Reached(request)

    try:
        visit.run(H, _Seam(call, stop))
    except _Reached as reached:
        return reached.request
    raise UnsupportedModelError(
        f"{visit.path} run alone does not reach the self-attention that it has in the model: its "
        "path depends on more than its arguments, so it cannot be cut."
    )


def _cut(visit: _Visit, call: int, request: Request) -> ReplicaBlock:
    def project(H: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        asked = _stopped(visit, call, H)
        return asked.q, *_repeated(asked)

    def finish(H: Tensor, o: Tensor) -> Tensor:
        return visit.run(H, _Seam(call, lambda _: o))

    return ReplicaBlock(project, finish, request.scale, _mask(request))


def _written_out(request: Request) -> Tensor:
    k, v = _repeated(request)
    return row_softmax(request.q, k, request.scale, _mask(request)) @ v


def _repeated(request: Request) -> tuple[Tensor, Tensor]:
    """Keys and values with one head for each head of queries."""
    groups = request.q.shape[-3] // request.k.shape[-3]
    if groups == 1:
        return request.k, request.v
    return request.k.repeat_interleave(groups, -3), request.v.repeat_interleave(groups, -3)


def _mask(request: Request) -> Tensor | None:
    if not request.causal:
        return request.mask
    shape = request.q.shape[-2], request.k.shape[-2]
    return torch.ones(shape, dtype=torch.bool, device=request.q.device).tril()


def _chosen(anatomy: Anatomy, name: str | None) -> Chain:
    if name is not None:
        return anatomy.chain(name)
    if isinstance(anatomy.depth, Unavailable):
        raise UnsupportedModelError(f"This model has no chain of blocks: {anatomy.depth.reason}.")
    return anatomy.depth


def _attention_number(anatomy: Anatomy, chain: Chain, block: Block) -> int:
    """Which attention call of the block is its self-attention."""
    if anatomy.seam != "sdpa":
        raise UnsupportedModelError(
            "This model does not compute its attention by torch's own kernel (its logits are "
            "soft-capped, or it was loaded on another backend), so its blocks are not cut."
        )
    if len(block.places) != 1 or len(chain.streams) != 1:
        raise UnsupportedModelError(
            f"{block.path} passes {max(len(block.places), len(chain.streams))} streams through one "
            "attention (text and image, say): its state is not one tensor, so it is not cut."
        )
    own = [number for number, a in enumerate(block.attentions) if not a.cross]
    if len(own) != 1:
        raise UnsupportedModelError(
            f"{block.path} has {len(own)} self-attention calls; a block is cut at exactly one."
        )
    return own[0]


def _visited(
    model: nn.Module, inputs: Mapping[str, Any], chain: Chain, block: Block, earlier: int
) -> _Visit:
    """The block's call in a pass of the model; ``earlier`` calls of the same module go before."""
    root: nn.Module = getattr(model, "_orig_mod", model)
    module, stream = root.get_submodule(block.path), chain.streams[0]
    visits: list[tuple[tuple[Any, ...], dict[str, Any], Tensor]] = []
    answers: list[Tensor] = []

    def watch(proceed: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        copies: dict[int, Tensor] = {}

        def copy(tensor: Tensor) -> Tensor:
            return copies.setdefault(id(tensor), tensor.detach().clone())

        positional, named = mapped(args, Tensor, copy), mapped(kwargs, Tensor, copy)
        hidden = dict(tensors_in(arguments_of(module, positional, named)))[stream]
        visits.append((positional, named, hidden))
        output = proceed(*args, **kwargs)
        answers.append(outputs_in(output)[block.places[stream]].detach().clone())
        return output

    # In this thread alone: another thread's pass through the model is none of ours.
    with ExitStack() as undo, torch.no_grad(), eager_code():
        undo.callback(thread_watchers().add(module, watch))
        model(**inputs)
    args, kwargs, H0 = visits[earlier]
    _refuse_what_cannot_be_rerun(block, args, kwargs, H0)
    return _Visit(
        module=module,
        path=block.path,
        args=args,
        kwargs=kwargs,
        H0=H0,
        place=block.places[stream],
        answer=answers[earlier],
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


def _refuse_another_answer(visit: _Visit, cut: ReplicaBlock, request: Request) -> None:
    """The block cut and joined again must be the block in the model."""
    with torch.no_grad():
        again = cut.finish(visit.H0, _written_out(request))
    size = max(float(visit.answer.norm()), torch.finfo(again.dtype).tiny)
    same = again.shape == visit.answer.shape
    apart = float((again - visit.answer).norm()) / size if same else 1.0
    bound = 1e3 * torch.finfo(again.dtype).eps
    if not apart <= bound:
        raise UnsupportedModelError(
            f"{visit.path} run alone answers otherwise than in the model (by {apart:.2g} of its "
            f"size, allowed {bound:.2g}): it depends on more than its arguments."
        )
