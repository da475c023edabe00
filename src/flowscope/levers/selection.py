"""Which attention calls of a model a lever acts on, what they show, and how a part is put back."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from flowscope.errors import InvalidInputError, TapError
from flowscope.tap import Anatomy, AttentionCall, AttentionSite

__all__ = [
    "Selection",
    "counted_queries",
    "indices",
    "merged",
    "place",
    "refuse_cached",
    "restricted",
    "sees_nothing_later",
    "under_mask",
    "unmasked_logits",
]

# Libraries mask by -1e4, by the smallest number of a dtype or by -inf. A lever that changes logits
# would revive what the first two hide, so any bias from here on is read as a mask.
_FORBIDDEN = -9e3


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """Which calls, and which heads of them."""

    layers: tuple[int, ...] | None
    heads: tuple[int, ...] | None
    chain: str | None
    cross: bool

    def takes(self, call: AttentionCall | AttentionSite) -> bool:
        """Whether this call is among them."""
        site = call.site
        if (call.cross and not self.cross) or self.chain not in (None, site.chain):
            return False
        # An index outside every chain counts calls, not layers.
        counts = self.chain is not None or site.chain != "outside"
        return self.layers is None or (counts and site.index in self.layers)

    def heads_of(self, call: AttentionCall) -> tuple[int, ...]:
        """The query heads to act on; refused where the call has fewer."""
        number = call.q.shape[-3]
        if self.heads is None:
            return tuple(range(number))
        if max(self.heads) >= number:
            raise InvalidInputError(
                f"heads asks for head {max(self.heads)} at {place(call)}, which has {number} "
                f"(0 to {number - 1})."
            )
        return self.heads

    def refuse_absent(self, anatomy: Anatomy) -> None:
        """Raise when a layer that was asked for is not there, or nothing is."""
        found = {a.site.index for a in anatomy.attentions if self.takes(a)}
        missing = sorted(set(self.layers or ()) - found)
        if missing or not found:
            there = "; ".join(
                f"0 to {len(chain) - 1} of {chain.name!r}" for chain in anatomy.chains
            )
            raise InvalidInputError(
                f"No attention to change at layers {missing or 'of any number'} (chain "
                f"{self.chain or 'any'}, cross={self.cross}). The layers are {there or 'unknown'}."
            )


def indices(numbers: Sequence[int] | None, what: str) -> tuple[int, ...] | None:
    """Whole numbers from 0 in order, or None for all."""
    if numbers is None:
        return None
    found = tuple(sorted(set(numbers)))
    if not found or any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in found):
        raise InvalidInputError(
            f"{what} must be None (all) or whole numbers from 0, at least one; got {numbers!r}."
        )
    return found


def place(call: AttentionCall) -> str:
    """Where a call is, for a message."""
    return f"layer {call.site.index} of {call.site.chain} ({call.site.path})"


def restricted(call: AttentionCall, heads: tuple[int, ...]) -> AttentionCall:
    """The call with these query heads alone, each with a key head of its own."""
    number, keys = call.q.shape[-3], call.k.shape[-3]
    if len(heads) == number == keys:
        return call
    own = torch.tensor(heads, device=call.q.device)
    shared = own // (number // keys)
    mask = call.mask
    if mask is not None and mask.ndim > 2 and mask.shape[-3] == number > 1:
        mask = mask.index_select(-3, own)
    return replace(
        call,
        q=call.q.index_select(-3, own),
        k=call.k.index_select(-3, shared),
        v=call.v.index_select(-3, shared),
        mask=mask,
    )


def merged(call: AttentionCall, changed: Tensor, heads: tuple[int, ...], counted: Tensor) -> Tensor:
    """The changed rows of the changed heads, the model's own output elsewhere."""
    if len(heads) == call.q.shape[-3] and bool(counted.all()):
        return changed
    own, index = call.output(), torch.tensor(heads, device=changed.device)
    rows = torch.where(counted[..., None], changed, own.index_select(-3, index))
    return own.index_copy(-3, index, rows)


def refuse_cached(call: AttentionCall, why: str) -> None:
    """Raise, saying why, when a self-attention call lacks queries of the tokens it has keys of."""
    queries, keys = call.q.shape[-2], call.k.shape[-2]
    if not call.cross and queries != keys:
        raise TapError(
            f"At {place(call)}: {queries} queries meet {keys} keys, as with a key-value cache. "
            f"{why}: run it whole, with use_cache=False."
        )


def unmasked_logits(call: AttentionCall) -> Tensor:
    """Logits of a call before its mask and bias: scale and soft-cap applied."""
    return replace(call, mask=None, causal=False).logits()


def under_mask(call: AttentionCall, z: Tensor, temperature: float = 1.0) -> Tensor:
    """Logits z with the mask and bias of a call on them, all of it over a temperature."""
    mask = call.mask
    if mask is not None:
        if mask.dtype == torch.bool:
            z = z.masked_fill(~mask, -torch.inf)
        else:
            z = (z + mask).masked_fill(mask <= _FORBIDDEN, -torch.inf)
    if call.causal:
        row = torch.arange(z.shape[-2], device=z.device)
        z = z.masked_fill(torch.arange(z.shape[-1], device=z.device) > row[:, None], -torch.inf)
    return z if temperature == 1 else z / temperature


def counted_queries(z: Tensor, cross: bool) -> Tensor:
    """The queries that count: they see something and, where keys are queries, are seen."""
    allowed = z > -torch.inf
    counted = allowed.any(-1)
    return counted if cross else counted & allowed.any(-2)


def sees_nothing_later(visible: Tensor) -> bool:
    """Whether no query sees a later key."""
    return visible.shape[-1] == visible.shape[-2] > 1 and not bool(visible.triu(1).any())
