r"""Transport attention on a loaded model: other column sums in place of a softmax, then undone.

Softmax attention fixes how much each query gives (one) and leaves how much each key receives to
itself. The lever replaces $P = \operatorname{softmax} z$ by a coupling with the same logits, rows
that still sum to one and columns drawn to masses $c$ (`flowscope.transport.iterations`):

| kind | columns | causal models |
|---|---|---|
| ``"sinkhorn"`` | equal for every key | refused: only the identity is left |
| ``"unbalanced"`` | drawn to equal ones with strength ρ (``relaxation``) | yes |
| ``"prescribed"`` | $(1-s)\,P^\top 1 + s\,\bar P^\top 1$ (``strength`` s) | lookahead only |

$\bar P$ is uniform attention over what each query may see: ``strength`` goes from the model's own
columns (0) to those that the mask alone gives each key (1); all of these can be reached.

A column sum over a whole sequence tells earlier rows of later tokens. On a causal model sums run
over the queries up to each row instead, unless ``lookahead`` is asked for. A call is causal when no
query in it sees a later key; a prefix language model is not, and is summed over whole sequences.

A model that was not trained this way gets worse: measure how much. Sequences are read whole: with a
key–value cache the queries that came before are missing from the columns, so such calls are
refused.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.levers.replacement import Replacement
from flowscope.levers.selection import (
    Selection,
    counted_queries,
    indices,
    merged,
    place,
    refuse_cached,
    restricted,
    sees_nothing_later,
    under_mask,
    unmasked_logits,
)
from flowscope.tap import AttentionCall, Site
from flowscope.transport.iterations import (
    column_error,
    even_columns,
    online_attention,
    prescribed_attention,
    sinkhorn_attention,
    spread_columns,
    unbalanced_attention,
)

__all__ = ["AttentionChange", "TransportAttention", "transport_attention"]

_OPTIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "sinkhorn": ((),),
    "unbalanced": (("relaxation",),),
    "prescribed": (("columns",), ("strength",)),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionChange:
    """What the lever did at one attention call: means over the passes so far, one number a head.

    Attributes
    ----------
    site
        Where.
    heads
        The query heads that were changed.
    total_variation
        ½Σ|Π − P| between the new attention and the softmax, mean over queries.
    column_error
        What the columns still miss: ℓ₁, relative to the total mass, mean over sequences.
    softmax_column_error
        The same for the model's own softmax.
    queries
        Queries read, padding left out.
    """

    site: Site
    heads: tuple[int, ...]
    total_variation: tuple[float, ...]
    column_error: tuple[float, ...]
    softmax_column_error: tuple[float, ...]
    queries: int


class TransportAttention(Replacement):
    """A model with transport attention, for as long as the ``with`` block lasts.

    Made by `transport_attention`. `summary` and `table` tell what was changed.
    """

    def __init__(self, model: nn.Module, rule: "_Rule", selection: Selection) -> None:
        super().__init__(model, selection, idle=not rule.iterations)
        self._rule = rule
        self._sums: dict[Site, _Sums] = {}

    def _forget(self) -> None:
        self._sums = {}

    def summary(self) -> tuple[AttentionChange, ...]:
        """What was changed so far, one record per attention call of the model, in call order."""
        return tuple(sums.change(site) for site, sums in self._sums.items())

    @property
    def table(self) -> pd.DataFrame:
        """The summary as a tidy table: one line per layer and head."""
        lines = [
            (c.site.chain, c.site.index, c.site.call, *line)
            for c in self.summary()
            for line in zip(
                c.heads, c.total_variation, c.column_error, c.softmax_column_error, strict=True
            )
        ]
        measured = ["total_variation", "column_error", "softmax_column_error"]
        return pd.DataFrame(lines, columns=["chain", "layer", "call", "head", *measured])

    def _replaced(self, call: AttentionCall) -> Tensor:
        refuse_cached(call, "Column sums need every query of the sequence")
        heads = self._selection.heads_of(call)
        chosen = restricted(call, heads)
        with torch.autocast(call.q.device.type, enabled=False):
            z = under_mask(chosen, unmasked_logits(chosen))
            counted = counted_queries(z, call.cross)
            softmax = unbalanced_attention(z, 0, 0.0)
            try:
                attention, columns = self._rule.attention(z, softmax, counted)
            except InvalidInputError as error:
                raise InvalidInputError(f"At {place(call)}: {error}") from error
            sums = self._sums.setdefault(call.site, _Sums(heads))
            sums.add(attention.detach(), softmax.detach(), columns.detach(), counted)
            weights = F.dropout(attention, call.dropout) if call.dropout else attention
            changed = (weights @ chosen.v.to(weights.dtype)).to(call.v.dtype)
        return merged(call, changed, heads, counted)


def transport_attention(
    model: nn.Module,
    *,
    kind: Literal["sinkhorn", "unbalanced", "prescribed"],
    iterations: int,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    chain: str | None = None,
    cross: bool = False,
    relaxation: float | None = None,
    columns: Float[Tensor, "*batch m"] | None = None,
    strength: float | None = None,
    lookahead: bool = False,
) -> TransportAttention:
    r"""Swap the softmax of a loaded model for transport attention while a ``with`` block lasts.

    Parameters
    ----------
    model
        Any model that `flowscope.Tap` reads; weights and gradients are left alone, so it can be
        trained inside the block.
    kind
        ``"sinkhorn"``, ``"unbalanced"`` or ``"prescribed"``: see the table of the module.
    iterations
        Column and row steps; 0 is the model itself, bit for bit.
    layers, heads
        Positions in depth and query heads; all by default. Other heads keep the model's own output.
    chain
        Name of a chain of blocks (``tap.anatomy``), where a model has several, as encoder and
        decoder; all by default.
    cross
        Whether cross-attention is changed too. Padding among its queries cannot be told from it,
        and then counts in the columns.
    relaxation
        ``"unbalanced"`` only: strength ρ > 0 in units of the logits.
    columns, strength
        ``"prescribed"`` only, one of them: column masses, one per key, that broadcast over
        sequences and heads; or s in [0, 1].
    lookahead
        Whether column sums of a causal model may run over the whole sequence. Earlier rows then
        depend on later tokens, and losses and perplexities are not those of a language model. By
        default ``"unbalanced"`` sums over the queries up to each row (`online_attention`), and
        ``"prescribed"``, which cannot, is refused.

    Notes
    -----
    A key that no query may see is padding: it gets no mass, its query counts in no column and keeps
    the model's own output, so a padded batch gives what its sequences give alone. Additive masks
    below −9000 are read as −∞. Dropout of attention weights is applied as the model asks. Half
    precision is widened inside. Memory and time are those of attention written out, ``heads ·
    queries · keys`` an iteration.

    Raises
    ------
    InvalidInputError
        Here, for options that do not belong to the kind; from the forward pass, naming the layer,
        when the columns cannot be reached (``"sinkhorn"`` under a causal mask) or a cache is used.

    Examples
    --------
    >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True, norm_first=True)
    >>> model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    >>> with transport_attention(model, kind="sinkhorn", iterations=5, layers=[1]) as lever:
    ...     _ = model(torch.randn(4, 6, 8))
    >>> [(change.site.index, change.heads, change.queries) for change in lever.summary()]
    [(1, (0, 1), 24)]
    """
    rule = _Rule(kind, iterations, relaxation, columns, strength, lookahead)
    selection = Selection(
        layers=indices(layers, "layers"), heads=indices(heads, "heads"), chain=chain, cross=cross
    )
    return TransportAttention(model, rule, selection)


@dataclass(frozen=True, eq=False)
class _Rule:
    """Which attention: a kind and its numbers."""

    kind: str
    iterations: int
    relaxation: float | None
    columns: Tensor | None
    strength: float | None
    lookahead: bool

    def __post_init__(self) -> None:
        if self.kind not in _OPTIONS:
            raise InvalidInputError(f"kind must be one of {list(_OPTIONS)}; got {self.kind!r}.")
        names = ("relaxation", "columns", "strength")
        given = tuple(name for name in names if getattr(self, name) is not None)
        if given not in _OPTIONS[self.kind]:
            needs = " or ".join(name for names in _OPTIONS[self.kind] for name in names)
            raise InvalidInputError(
                f"kind={self.kind!r} takes {needs or 'no option of its own'}; got "
                f"{', '.join(given) or 'none'}."
            )
        k, rho, s = self.iterations, self.relaxation, self.strength
        if isinstance(k, bool) or not isinstance(k, int) or k < 0:
            raise InvalidInputError(f"iterations must be a whole number >= 0; got {k!r}.")
        if rho is not None and not 0 < rho < math.inf:
            raise InvalidInputError(
                f"relaxation must be positive and finite; got {rho}. Zero is the model itself; for "
                'the limit use kind="sinkhorn" or kind="prescribed".'
            )
        if s is not None and not 0 <= s <= 1:
            raise InvalidInputError(f"strength must lie in [0, 1]; got {s}.")

    def attention(self, z: Tensor, softmax: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
        """The attention, and the columns it was to have."""
        k, online = self.iterations, not self.lookahead and sees_nothing_later(z > -torch.inf)
        if self.kind == "prescribed" and online:
            raise InvalidInputError(
                "prescribed columns of a causal call tell earlier rows of later tokens. For "
                'analysis pass lookahead=True; to keep the model causal use kind="unbalanced".'
            )
        if self.columns is not None:
            columns = self.columns.to(z).expand(*z.shape[:-2], -1)
            return prescribed_attention(z, columns, k, queries=counted), columns
        if self.strength is not None:
            # Reachable by construction: no check, which columns that underflow would not pass.
            own, spread = (softmax * counted[..., None]).sum(-2), spread_columns(z, queries=counted)
            columns = (1 - self.strength) * own + self.strength * spread
            positive = columns.clamp_min(torch.finfo(z.dtype).tiny)
            return unbalanced_attention(z, k, math.inf, columns=positive, queries=counted), columns
        columns = even_columns(z, queries=counted)
        if self.relaxation is not None:
            attend = online_attention if online else unbalanced_attention
            return attend(z, k, self.relaxation, queries=counted), columns
        return sinkhorn_attention(z, k, queries=counted), columns


@dataclass(eq=False)
class _Sums:
    """Streaming sums at one site, per head: over queries (the first), over sequences (the rest)."""

    heads: tuple[int, ...]
    values: list[Tensor] = field(default_factory=list)
    queries: float = 0.0
    sequences: int = 0

    def add(self, attention: Tensor, softmax: Tensor, columns: Tensor, counted: Tensor) -> None:
        moved = 0.5 * (attention - softmax).abs().sum(-1).mul(counted).sum(-1)
        left, before = (column_error(p, columns, queries=counted) for p in (attention, softmax))
        new = [x.reshape(-1, len(self.heads)).sum(0).cpu().double() for x in (moved, left, before)]
        self.values = [a + b for a, b in zip(self.values, new, strict=True)] if self.values else new
        self.queries += float(counted.sum()) / len(self.heads)
        self.sequences += math.prod(attention.shape[:-3])

    def change(self, site: Site) -> AttentionChange:
        moved, left, before = self.values
        return AttentionChange(
            site=site,
            heads=self.heads,
            total_variation=tuple((moved / max(self.queries, 1)).tolist()),
            column_error=tuple((left / self.sequences).tolist()),
            softmax_column_error=tuple((before / self.sequences).tolist()),
            queries=round(self.queries),
        )
