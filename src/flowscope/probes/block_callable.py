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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.probes.block_visit import (
    Seam,
    Visit,
    chosen_chain,
    full_mask,
    refuse_another_answer,
    refuse_streams,
    refuse_training,
    repeated_keys,
    visited,
    written_out,
)
from flowscope.probes.tap_loop import model_anatomy
from flowscope.replica import ReplicaBlock
from flowscope.tap import Anatomy, Block, Chain
from flowscope.tap.kernels import Request

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
    refuse_training(model)
    anatomy = model_anatomy(model, inputs)
    owner = chosen_chain(anatomy, chain)
    if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < len(owner):
        raise InvalidInputError(
            f"layer must be a whole number from 0 to {len(owner) - 1}, the blocks of "
            f"{owner.name!r}; got {layer!r}."
        )
    block = owner.blocks[layer]
    call = _attention_number(anatomy, owner, block)
    [visit] = visited(model, inputs, owner, [block])
    request = _stopped(visit, call, visit.H0)
    cut = _cut(visit, call, request)
    with torch.no_grad():
        refuse_another_answer(visit, cut.finish(visit.H0, written_out(request)))
    return LiveBlock(block=cut, H0=visit.H0, chain=owner.name, layer=block.index, path=block.path)


class _Reached(Exception):  # noqa: N818 - a way out, not an error
    """The self-attention was reached; carries what its kernel was asked for."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self.request = request


def _stopped(visit: Visit, call: int, H: Tensor) -> Request:
    """What the block's self-attention is asked for when the block is given H."""

    def stop(request: Request) -> Tensor:
        raise _Reached(request)

    try:
        visit.run(H, Seam(call, stop))
    except _Reached as reached:
        return reached.request
    raise UnsupportedModelError(
        f"{visit.path} run alone does not reach the self-attention that it has in the model: its "
        "path depends on more than its arguments, so it cannot be cut."
    )


def _cut(visit: Visit, call: int, request: Request) -> ReplicaBlock:
    def project(H: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        asked = _stopped(visit, call, H)
        return asked.q, *repeated_keys(asked)

    def finish(H: Tensor, o: Tensor) -> Tensor:
        return visit.run(H, Seam(call, lambda _: o))

    return ReplicaBlock(project, finish, request.scale, full_mask(request))


def _attention_number(anatomy: Anatomy, chain: Chain, block: Block) -> int:
    """Which attention call of the block is its self-attention."""
    if anatomy.seam != "sdpa":
        raise UnsupportedModelError(
            "This model does not compute its attention by torch's own kernel (its logits are "
            "soft-capped, or it was loaded on another backend), so its blocks are not cut."
        )
    refuse_streams(chain, block)
    own = [number for number, a in enumerate(block.attentions) if not a.cross]
    if len(own) != 1:
        raise UnsupportedModelError(
            f"{block.path} has {len(own)} self-attention calls; a block is cut at exactly one."
        )
    return own[0]
