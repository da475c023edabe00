r"""What the tap tells: attention calls and block passes, as frozen events.

An attention call with query $q_i$, keys $k_j$, values $v_j$ computes

$$
s_{ij} = \alpha\, q_i \cdot k_j, \qquad
z_{ij} = c \tanh(s_{ij} / c) + m_{ij}, \qquad
P_{ij} = \operatorname{softmax}_j z_{ij}, \qquad
o_i = \sum_j P_{ij} v_j ,
$$

with scale $\alpha$, soft-cap $c$ (absent: the identity) and mask $m$ (an additive bias, or
$-\infty$ where a boolean mask or causality forbids the key). Row $i$ is the query, $j$ the key.

A block adds *writes* to the residual stream: ``hidden_out = hidden_in + Σ writes``.

Tensors are the model's own, on its device and in its dtype: copy what you want to keep, and keep no
event, or its activations stay alive.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flowscope.errors import TapError

__all__ = ["AttentionCall", "BlockPass", "Rows", "Site", "Write", "WriteKind", "event"]

WriteKind = Literal["attention", "cross_attention", "feed_forward", "mixed", "external"]
Rows = slice | Tensor
_Event = TypeVar("_Event")


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where in a model an event happened; equal sites compare equal, so a site can be a key.

    Attributes
    ----------
    chain
        Name of the chain of blocks, e.g. ``"transformer.h"``; ``"outside"`` when the call belongs
        to no chain.
    index
        Position in *call* order on that chain, from 0 (a shared layer run L times gives L sites).
    path
        Qualified name of the module that made the call.
    call
        Which attention call of the block this is, from 0; always 0 for a block pass.
    stream
        Name of the residual stream (the block argument that carries it); for an attention call, the
        streams its queries came from, joined by ``"+"``.
    """

    chain: str
    index: int
    path: str
    call: int
    stream: str


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionCall:
    """One call of attention: everything that decides its output.

    Attributes
    ----------
    site
        Where the call happened.
    q, k, v
        Queries, keys, values as the kernel receives them (after rotary embedding and q/k norms).
    mask
        What the kernel was given: boolean (True = may attend), additive, or None.
    causal
        Whether the kernel itself masks $j > i$ on top of ``mask``. Many models pass no mask and
        this flag: reading ``mask`` alone would show an unmasked model.
    scale, softcap
        The scale α and the soft-cap c of the module docstring (None: no soft-cap).
    groups
        Query heads that share one key head (1: none), whether or not ``k`` comes repeated.
    dropout
        Probability with which the kernel drops attention weights.
    cross
        Whether the keys come from another sequence than the queries.
    forward
        Number of the model's forward pass since the tap was entered, from 0.
    """

    site: Site
    q: Float[Tensor, "*batch Hq Lq d"]
    k: Float[Tensor, "*batch Hk Lk d"]
    v: Float[Tensor, "*batch Hk Lk dv"]
    mask: Float[Tensor, "..."] | Bool[Tensor, "..."] | None
    causal: bool
    scale: float
    softcap: float | None
    groups: int
    dropout: float
    cross: bool
    forward: int
    _kernel: Callable[[], Tensor] = field(repr=False)
    _done: list[Tensor] = field(default_factory=list, repr=False)

    def scores(self, rows: Rows | None = None) -> Float[Tensor, "*batch Hq rows Lk"]:
        """Raw scores $W_{ij} = q_i · k_j$: no scale, no cap, no mask; float32 or better."""
        q = self.q if rows is None else self.q[..., rows, :]
        with torch.autocast(q.device.type, enabled=False):
            q, k = _widened(q), _widened(self.k)
            if q.ndim < 3 or q.shape[-3] == k.shape[-3]:
                return q @ k.mT
            shared = q.reshape(*q.shape[:-3], k.shape[-3], -1, *q.shape[-2:])
            return (shared @ k.unsqueeze(-3).mT).flatten(-4, -3)

    def logits(
        self, rows: Rows | None = None, *, masked: bool = True
    ) -> Float[Tensor, "*batch Hq rows Lk"]:
        """Attention logits $z_{ij}$, $-∞$ where masked; float32 or better.

        Parameters
        ----------
        rows
            The query rows wanted (a slice or an index tensor); all of them by default. Ask for a
            few at a time when the sequence is long: memory is ``Hq · rows · Lk``.
        masked
            Whether mask, additive bias and causality are applied. Without them every pair has its
            logit, those that the model computes and never uses included.
        """
        z = self.scores(rows) * self.scale
        if self.softcap is not None:
            z = self.softcap * torch.tanh(z / self.softcap)
        if not masked:
            return z
        if self.mask is not None:
            mask = self.mask if self.mask.shape[-2] == 1 else self.mask[..., _or_all(rows), :]
            z = z.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else z + mask
        if self.causal:
            row = torch.arange(self.q.shape[-2], device=z.device)[_or_all(rows)]
            z = z.masked_fill(torch.arange(z.shape[-1], device=z.device) > row[:, None], -torch.inf)
        return z

    def probabilities(self, rows: Rows | None = None) -> Float[Tensor, "*batch Hq rows Lk"]:
        """Attention probabilities $P_{ij}$, float32 or better.

        A row that may attend to nothing is all zeros, as in torch's own kernel.
        """
        z = self.logits(rows)
        empty = (z == -torch.inf).all(-1, keepdim=True)
        return torch.softmax(z.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)

    def output(self) -> Float[Tensor, "*batch Hq Lq dv"]:
        """What the model's own kernel returns for this call, computed once.

        Asking for it is free for a listener that only reads: the model uses the same tensor.
        """
        if not self._done:
            self._done.append(self._kernel())
        return self._done[0]


class Write(NamedTuple):
    """One addition to the residual stream, gates and post-norms included."""

    kind: WriteKind
    tensor: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockPass:
    """One block applied to one residual stream: ``hidden_out = hidden_in + Σ writes``.

    Attributes
    ----------
    site
        Where; ``site.stream`` names the stream (SD3 and Flux blocks carry two).
    hidden_in, hidden_out
        The stream before and after the block.
    forward
        Number of the model's forward pass since the tap was entered, from 0.
    """

    site: Site
    hidden_in: Float[Tensor, "*batch L d"]
    hidden_out: Float[Tensor, "*batch L d"]
    forward: int
    _writes: tuple[Write, ...] | None = field(repr=False)

    @property
    def writes(self) -> tuple[Write, ...]:
        """The additions in order.

        Empty when the block does not simply add (post-norm models): what needs writes must then
        abstain, and the anatomy says why.

        Raises
        ------
        TapError
            When no listener asked for writes: they are followed on request.
        """
        if self._writes is None:
            raise TapError(
                f"Additions of block {self.site.path} were not followed, because the listener was "
                "added with writes=False. Add it with tap.on_block(listener)."
            )
        return self._writes


def event(kind: type[_Event], **values: Any) -> _Event:
    """An event of all its values.

    The initialiser of a frozen class writes them one by one, which takes six times as long.
    """
    made = object.__new__(kind)
    made.__dict__.update(values)
    return made


def _widened(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _or_all(rows: Rows | None) -> Rows:
    return slice(None) if rows is None else rows
