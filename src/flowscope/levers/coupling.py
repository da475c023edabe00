r"""Two generations coupled inside the attention of a loaded model, then undone.

Replicas A and B run side by side in one batch. Every self-attention reads the keys of both, each
under a softmax of its own (source 004, eqs 18 and 19):

$$
\mathrm{out}_A = \frac{1}{1+g}\bigl(\sigma(\alpha\, q_A k_A^\top)\, v_A
               + g\, \sigma(\alpha\, q_A k_B^\top)\, v_B\bigr),
\qquad 0 \le g \le 1 ,
$$

and the same with A and B exchanged. The weights sum to one; at $g = 0$ the replicas are apart, and
the model is itself bit for bit. With $w = g/(1+g)$ the output is
$\mathrm{intra} + w\,(\mathrm{inter} - \mathrm{intra})$.

The batch is laid out in guidance branches, and each branch in halves:

| ``branches`` | rows of the batch |
|---|---|
| 1 | A, B |
| 2 | A and B with the condition, A and B without it |

Keys of another stream than the queries (cross-attention) are left alone. In joint attention over
image and text (SD3, Flux) the other replica's *image* keys stand beside one's own text keys; the
softmax runs over both, for image and text queries alike. A mask with a batch axis follows its keys.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.levers.replacement import Replacement
from flowscope.levers.schedule import Schedule, Strengths
from flowscope.levers.selection import Selection, indices, place, refuse_cached
from flowscope.levers.streams import ImageKeys
from flowscope.tap import AttentionCall, Site
from flowscope.tap.dispatch import is_routed
from flowscope.tap.kernels import interface_attention

__all__ = ["CouplingChange", "ReplicaCoupling", "couple"]

_Arguments: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor | None]


@dataclass(frozen=True, kw_only=True, eq=False)
class CouplingChange:
    """What the lever did at one attention call of the model, over the passes so far.

    Attributes
    ----------
    site
        Where.
    passes
        How often it was coupled; passes with g = 0 do not count.
    g
        Mean strength over these.
    change
        ‖out − intra‖ / ‖intra‖ over all of them; None unless ``watch`` was asked for.
    """

    site: Site
    passes: int
    g: float
    change: float | None


class ReplicaCoupling(Replacement):
    """A model with its two half batches coupled, for as long as the ``with`` block lasts.

    Made by `couple`. `summary` and `table` tell what was coupled.
    """

    def __init__(
        self,
        model: nn.Module,
        schedule: Schedule,
        selection: Selection,
        *,
        branches: int,
        watch: bool,
    ) -> None:
        super().__init__(
            model,
            selection,
            idle=schedule.at_rest,
            never="Cross-attention is never coupled.",
        )
        self._schedule, self._branches, self._watch = schedule, branches, watch
        self._image = ImageKeys(model, self._tap)
        self._sums: dict[Site, _Sums] = {}
        self._g = 0.0  # at the running call

    def __enter__(self) -> Self:
        super().__enter__()
        if not self._idle:
            self._image.follow(self._undo)
        return self

    def _forget(self) -> None:
        self._sums = {}
        self._schedule.forget()

    def summary(self) -> tuple[CouplingChange, ...]:
        """What was coupled so far, one record per attention call of the model, in call order."""
        return tuple(sums.change(site) for site, sums in self._sums.items())

    @property
    def table(self) -> pd.DataFrame:
        """The summary as a tidy table: one line per attention call of the model."""
        lines = [
            (c.site.chain, c.site.index, c.site.call, c.passes, c.g, c.change)
            for c in self.summary()
        ]
        return pd.DataFrame(lines, columns=["chain", "layer", "call", "passes", "g", "change"])

    def _listen(self, call: AttentionCall) -> Tensor | None:
        if not self._known:
            self._refuse_absent()
            self._known = True
        if not self._selection.takes(call):
            return None
        # Without a replacement the model runs its own kernel: g = 0 is bitwise neutral.
        self._g = self._schedule.strength(call, self._tap.anatomy, self._selection)
        return self._replaced(call) if self._g else None

    def _replaced(self, call: AttentionCall) -> Tensor:
        refuse_cached(call, "The other replica's keys must be those of the same tokens")
        self._image.refuse_folded(call)
        _refuse_unpaired(call, self._branches)
        image = self._image.of(call)
        g, sums = self._g, self._sums.get(call.site)
        if sums is None:
            sums = self._sums[call.site] = _Sums()
        sums.add(g)
        weight, intra = g / (1 + g), call.output()
        kept = _may_be_overwritten(intra, call)
        parts = []
        for part, (q, k, v, mask) in zip(
            intra.chunk(2 * self._branches), self._exchanged(call, image), strict=True
        ):
            with torch._C.DisableTorchFunction():  # an outer tap hears the model's own call alone
                inter = self._inter(call, q, k, v, mask)
            if self._watch:
                sums.watch(part.detach(), inter.detach(), weight)
            parts.append(part.lerp_(inter, weight) if kept else torch.lerp(part, inter, weight))
        return intra if kept else torch.cat(parts)

    def _exchanged(self, call: AttentionCall, image: slice | None) -> list[_Arguments]:
        """Queries of each half of each branch, with keys, values and mask of the other half."""
        halves = 2 * self._branches
        q, k, v = (x.chunk(halves) for x in (call.q, call.k, call.v))
        mask = call.mask
        follows = mask is not None and mask.ndim == 4 and mask.shape[0] > 1
        masks = mask.chunk(halves) if mask is not None and follows else None
        found: list[_Arguments] = []
        for own in range(halves):
            other = own ^ 1
            keys, values = k[other], v[other]
            if image is not None:
                keys, values = _beside(k[own], keys, image, -2), _beside(v[own], values, image, -2)
            if masks is not None:
                mask = masks[other]
                if image is not None and mask.shape[-1] > 1:
                    mask = _beside(masks[own], mask, image, -1)
            found.append((q[own], keys, values, mask))
        return found

    def _inter(
        self, call: AttentionCall, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Attention of some rows over the keys of others."""
        if self._tap.anatomy.seam == "interface":
            return interface_attention(q, k, v, mask, call.scale, call.softcap, call.dropout)
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            mask,
            call.dropout,
            call.causal,
            scale=call.scale,
            enable_gqa=q.shape[-3] != k.shape[-3],
        )


def couple(
    model: nn.Module,
    g: Strengths | Callable[[int], Strengths],
    branches: int = 1,
    *,
    layers: Sequence[int] | None = None,
    chain: str | None = None,
    watch: bool = False,
) -> ReplicaCoupling:
    r"""Couple the two halves of the batch in every self-attention while a ``with`` block lasts.

    Parameters
    ----------
    model
        Any model that `flowscope.Tap` reads; its weights are left alone, and gradients flow.
    g
        Strength in [0, 1]: a number; for each layer, as a sequence with one number per layer of the
        chain or a mapping from layers (others are left alone); or, for each step, a function of the
        number of the forward pass inside the block (from 0) that returns either.
    branches
        Guidance branches in the batch, one after the other; A is the first half of each.
    layers
        Positions in depth; all by default.
    chain
        Name of a chain of blocks (``tap.anatomy``), where a model has several; ``"outside"`` for a
        U-Net, whose layers count attention calls.
    watch
        Whether to measure the size of the change, at the cost of reading both outputs once more.

    Notes
    -----
    Cost: the model's own attention, the same work again for the inter part on views of its keys
    (copied for joint attention only), and one pass over the output, which is written in place when
    no gradient is asked for. Dropout of attention weights is drawn for each part.

    Raises
    ------
    InvalidInputError
        Here, for numbers that are not in range; from the forward pass, for a batch that does not
        fall into pairs, schedules that do not fit the depth and layers that are not there.
    UnsupportedModelError
        From the forward pass, when attention cannot be seen, when image and text keys cannot be
        told apart, and when other axes are folded into the batch.
    TapError
        From the forward pass, when a key–value cache is used.

    Examples
    --------
    >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True, norm_first=True)
    >>> model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    >>> with couple(model, 0.5, layers=[0, 2]) as lever:
    ...     _ = model(torch.randn(4, 6, 8))
    >>> [(change.site.index, change.passes, change.g) for change in lever.summary()]
    [(0, 1, 0.5), (2, 1, 0.5)]
    """
    if isinstance(branches, bool) or not isinstance(branches, int) or branches < 1:
        raise InvalidInputError(f"branches must be a whole number from 1; got {branches!r}.")
    selection = Selection(layers=indices(layers, "layers"), heads=None, chain=chain, cross=False)
    return ReplicaCoupling(model, Schedule(g), selection, branches=branches, watch=watch)


def _refuse_unpaired(call: AttentionCall, branches: int) -> None:
    rows = call.q.shape[0]
    if not rows or rows % (2 * branches):
        raise InvalidInputError(
            f"The batch must fall into {branches} guidance branch(es) of two equal halves, so its "
            f"size must be a multiple of {2 * branches}; got {rows} at {place(call)}. Lay it out "
            "as A then B inside each branch."
        )


def _beside(own: Tensor, other: Tensor, image: slice, axis: int) -> Tensor:
    """The other's image tokens beside one's own text, in the order of the model."""
    own, other = own.transpose(0, axis), other.transpose(0, axis)
    mixed = torch.cat([own[: image.start], other[image], own[image.stop :]])
    return mixed.transpose(0, axis)


def _may_be_overwritten(intra: Tensor, call: AttentionCall) -> bool:
    """Whether nothing else looks at this memory: no gradient, no transform, no sharing.

    A tap or another mode around this one may have given the tensor away, or lent it.
    """
    if torch._C._len_torch_function_stack() or is_routed():
        return False
    inputs = (call.q, call.k, call.v)
    if torch.is_grad_enabled() and any(x.requires_grad for x in (intra, *inputs)):
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    memory = intra.untyped_storage()
    whole = memory.nbytes() == intra.numel() * intra.element_size()
    start = memory.data_ptr()
    return whole and all(x.untyped_storage().data_ptr() != start for x in inputs)


class _Sums:
    """Streaming sums at one site; norms stay on the device until they are asked for."""

    def __init__(self) -> None:
        self._passes, self._g = 0, 0.0
        self._moved: Tensor | None = None
        self._size: Tensor | None = None

    def add(self, g: float) -> None:
        """One more pass."""
        self._passes, self._g = self._passes + 1, self._g + g

    def watch(self, intra: Tensor, inter: Tensor, weight: float) -> None:
        """The size of the change of some rows, and of what was changed."""
        moved, size = (inter.float() - intra.float()).square().sum(), intra.float().square().sum()
        moved = weight**2 * moved
        self._moved = moved if self._moved is None else self._moved + moved
        self._size = size if self._size is None else self._size + size

    def change(self, site: Site) -> CouplingChange:
        """What the sums say."""
        change = None
        if self._moved is not None and self._size is not None:
            size = float(self._size)
            change = math.sqrt(float(self._moved) / size) if size else math.nan
        return CouplingChange(
            site=site, passes=self._passes, g=self._g / max(self._passes, 1), change=change
        )
