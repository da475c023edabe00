r"""The Markov chain of an attention head: which kernel walks on the tokens, said honestly.

A causal mask makes every chain absorbing at the first token: its stationary law is a point mass,
currents and labels are empty. What is read instead is chosen by the user and said by every output:

* ``"unmasked"``: $\operatorname{softmax}_j z_{ij}$ over *all* tokens of the sequence, causal mask
  taken off. For a causal model these are logits of pairs that the model itself never uses. Where
  the mask is mutual (none, or a window that hides $(i,j)$ and $(j,i)$ together) it is kept, and the
  chain is the model's own.
* ``"damped"``: the model's own kernel, with probability $\delta$ of a jump to any token.
* ``"quasi-stationary"``: the model's own causal kernel, conditioned on not having been absorbed.

Padding is left out of the chain: its tokens are neither rows nor columns. The logits hold scale,
soft-cap and additive bias. A bias of a pair that the mask hides is not known, so a biased causal
model (ALiBi, T5 decoders) has no unmasked chain and is refused with that reason.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flowscope.records import Unavailable
from flowscope.tap import AttentionCall

__all__ = ["ChainKind", "HeadLogits", "head_logits"]

ChainKind = Literal["unmasked", "damped", "quasi-stationary"]

# Libraries mask by -1e4, by the smallest number of a dtype or by -inf.
_FORBIDDEN = -9e3
_HELD = 2**23  # numbers of the logits that are formed at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadLogits:
    """Attention logits of some heads on one sequence, padding left out.

    Attributes
    ----------
    heads
        Which query heads.
    free
        Logits of all pairs of tokens, as if there were no mask; float32 or better.
    visible
        The pairs that the model's mask leaves; None when it leaves all.
    biased
        Whether an additive bias is part of the logits, known on visible pairs only.
    """

    heads: slice
    free: Float[Tensor, "H n n"]
    visible: Bool[Tensor, "#H n n"] | None
    biased: bool

    @property
    def own(self) -> Float[Tensor, "H n n"]:
        """What enters the model's softmax: −∞ where masked."""
        if self.visible is None:
            return self.free
        return self.free.masked_fill(~self.visible, -torch.inf)

    @property
    def mutual(self) -> bool:
        """Whether the mask hides no pair on one side only."""
        return self.visible is None or bool((self.visible == self.visible.mT).all())

    def of_chain(self, kind: ChainKind) -> Float[Tensor, "H n n"] | Unavailable:
        """Logits of a chain, −∞ where there is no such pair; or why it has none."""
        if self.visible is not None and not bool(self.visible.any(-1).all()):
            return Unavailable("a token that is no padding may attend to nothing")
        if kind != "unmasked":
            return self.own
        if self.mutual:
            return self.own
        if self.biased:
            return Unavailable(
                "an additive bias is part of these logits, and that of pairs hidden by the mask is "
                "not known: there is no unmasked chain. Ask for the damped one"
            )
        return self.free


def head_logits(
    call: AttentionCall, row: int, positions: Int[Tensor, " n"] | None = None
) -> Iterator[HeadLogits]:
    """Logits of every head of a self-attention call on one sequence of the batch, a few at a time.

    Parameters
    ----------
    call
        With as many keys as queries: the keys are the tokens themselves.
    row
        Which sequence.
    positions
        The tokens that count; all by default.
    """
    heads, tokens = call.q.shape[-3], call.q.shape[-2]
    at = torch.arange(tokens, device=call.q.device) if positions is None else positions
    at = at.to(call.q.device)
    shared = heads // call.k.shape[-3]
    step = max(_HELD // max(len(at) ** 2, 1), 1)
    for start in range(0, heads, step):
        some = slice(start, min(start + step, heads))
        q, k = (_widened(x[row]) for x in (call.q[:, some], call.k))
        own = torch.arange(some.start, some.stop, device=q.device) // shared
        q, k = q[:, at] * call.scale, k[own][:, at]
        with torch.autocast(q.device.type, enabled=False):
            z = q @ k.mT
        if call.softcap is not None:
            z = call.softcap * torch.tanh(z / call.softcap)
        visible, bias = _mask(call, row, some, at)
        yield HeadLogits(
            heads=some,
            free=z if bias is None else z + bias,
            visible=visible,
            biased=bias is not None,
        )


def _mask(
    call: AttentionCall, row: int, heads: slice, at: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Pairs that are visible (None: all) and the additive bias on them (None: none)."""
    visible, bias = None, None
    if call.mask is not None:
        number, queries, keys = call.q.shape[-3], call.q.shape[-2], call.k.shape[-2]
        per_head = call.mask.ndim > 2 and call.mask.shape[-3] > 1
        whole = call.mask.expand(call.q.shape[0], number if per_head else 1, queries, keys)
        mask = whole[row, heads if per_head else slice(None)][:, at][:, :, at]
        if mask.dtype == torch.bool:
            visible = mask
        else:
            visible = mask > _FORBIDDEN
            known = _widened(mask).masked_fill(~visible, 0.0)
            bias = known if bool((known != 0).any()) else None
    if call.causal:
        earlier = at[:, None] >= at[None, :]
        visible = earlier[None] if visible is None else visible & earlier
    if visible is not None and bool(visible.all()):
        visible = None
    return visible, bias


def _widened(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
