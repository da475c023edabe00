r"""Dials of the geometry of attention on a loaded model, then undone.

The scores of a self-attention call (its logits before mask and bias, scale and soft-cap applied)
fall into three sectors, with $w = \operatorname{diag} W$ (`flowscope.markov`):

$$
W_{ij} - w_i = -\tfrac12 D_{ij} - \tfrac12 (w_i - w_j) + A_{ij} ,
$$

metric, exact and flux. The lever turns each of them by a factor, tilts by degrees and heats:

$$
z'_{ij} = \tfrac1\tau\Bigl(-\tfrac12\, c_{\rm metric} D_{ij} - \tfrac12\, c_{\rm exact} (w_i - w_j)
          + c_{\rm flux} A_{ij} - \alpha \log g_j + m_{ij}\Bigr),
$$

$m$ being the model's own mask and bias; or it takes the logits of the operator square at $(a, b)$
in place of the first three. Every term but the tilt is made of tokens $i$ and $j$ alone, and the
degrees $g_j$ of a causal call are summed over the tokens up to the row: no row learns of a later
token.

A change of logits hurts by its size alone. The null for every dial is therefore a random change of
the same size: in place of $\Delta = z' - z$, row by row, a Gaussian direction over the keys that
the row sees, with the Euclidean norm of $\Delta$, both without their means (logits are defined up
to a constant).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.levers.perturbation import centred, random_change
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
from flowscope.markov.dials import degree_tilt, dialled_logits, operator_square
from flowscope.tap import AttentionCall, Site

__all__ = ["GeometryAttention", "GeometryChange", "geometry_attention"]

_HELD = 2**24  # logits written out at once: a few heads at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class GeometryChange:
    """What the lever did at one attention call, over the passes so far, one number a head.

    Attributes
    ----------
    site
        Where.
    heads
        The query heads that were changed.
    norm
        Root mean square over queries of ‖Δz‖₂ over the keys that a query sees, mean removed.
    total_variation
        ½Σ|P' − P| between the new row and the old, mean over queries.
    queries
        Queries read, padding left out.
    """

    site: Site
    heads: tuple[int, ...]
    norm: tuple[float, ...]
    total_variation: tuple[float, ...]
    queries: int


class GeometryAttention(Replacement):
    """A model with its geometry dialled, for as long as the ``with`` block lasts.

    Made by `geometry_attention`. `summary` and `table` tell what was changed.
    """

    def __init__(self, model: nn.Module, dials: "_Dials", selection: Selection) -> None:
        never = "Cross-attention has no diagonal and is never dialled."
        super().__init__(model, selection, idle=dials.at_rest, never=never)
        self._dials = dials
        self._sums: dict[Site, _Sums] = {}

    def _forget(self) -> None:
        self._sums = {}

    def summary(self) -> tuple[GeometryChange, ...]:
        """What was changed so far, one record per attention call of the model, in call order."""
        return tuple(sums.change(site) for site, sums in self._sums.items())

    @property
    def table(self) -> pd.DataFrame:
        """The summary as a tidy table: one line per layer and head."""
        lines = [
            (c.site.chain, c.site.index, c.site.call, *line, c.queries)
            for c in self.summary()
            for line in zip(c.heads, c.norm, c.total_variation, strict=True)
        ]
        names = ["chain", "layer", "call", "head", "norm", "total_variation", "queries"]
        return pd.DataFrame(lines, columns=names)

    def _replaced(self, call: AttentionCall) -> Tensor:
        refuse_cached(call, "The sectors of W_ij need W_ji and W_jj, so the queries of all tokens")
        heads = self._selection.heads_of(call)
        with torch.autocast(call.q.device.type, enabled=False):
            parts = [self._part(call, some) for some in _groups(call, heads)]
        self._sums.setdefault(call.site, _Sums(heads)).add(parts)
        changed = torch.cat([part.output for part in parts], -3).to(call.v.dtype)
        return merged(call, changed, heads, torch.cat([part.counted for part in parts], -2))

    def _part(self, call: AttentionCall, heads: tuple[int, ...]) -> "_Part":
        """Some heads of a call, written out."""
        chosen = restricted(call, heads)
        bare = unmasked_logits(chosen)
        old = under_mask(chosen, bare)
        visible, counted = old > -torch.inf, counted_queries(old, cross=False)
        try:
            free = self._dials.logits(chosen, bare, visible)
        except InvalidInputError as error:
            raise InvalidInputError(f"At {place(call)}: {error}") from error
        new = under_mask(chosen, free, self._dials.temperature)
        change = centred((new - old).detach(), visible)
        if self._dials.noise is not None:
            change = random_change(change, visible, self._dials.noise, call.site, heads)
            new = old + change
        before, after = _rows(old, visible), _rows(new, visible)
        weights = F.dropout(after, call.dropout) if call.dropout else after
        return _Part(
            output=weights @ chosen.v.to(weights.dtype),
            counted=counted,
            squares=_over_queries(change.square().sum(-1), counted),
            moved=_over_queries(0.5 * (after - before).detach().abs().sum(-1), counted),
        )


def geometry_attention(
    model: nn.Module,
    *,
    metric: float = 1.0,
    exact: float = 1.0,
    flux: float = 1.0,
    alpha: float = 0.0,
    temperature: float = 1.0,
    square: tuple[float, float] | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    chain: str | None = None,
    noise: int | None = None,
) -> GeometryAttention:
    r"""Turn the dials of self-attention on a loaded model while a ``with`` block lasts.

    Parameters
    ----------
    model
        Any model that `flowscope.Tap` reads; its weights are left alone.
    metric, exact, flux
        Factors on the three sectors; 1 is the model's own. ``flux=0`` makes the unmasked chain
        reversible.
    alpha
        Normalisation by degrees, in [0, 1]: α log g_j is taken from the logits. Degrees are those
        of the dialled scores, over all tokens, or over the tokens up to the row when no query of
        the call sees a later key, windows or not.
    temperature
        Divides the logits, bias included.
    square
        (a, b) of the operator square, in place of the factors: (1, 1) is attention, (0, 1)
        softmax(−½D), (0, 0) softmax(−¼‖m_i − m_j‖²). Refused under a soft-cap: it is made of plain
        products.
    layers, heads
        Positions in depth and query heads; all by default. Other heads keep the model's own output.
    chain
        Name of a chain of blocks (``tap.anatomy``), where a model has several.
    noise
        A seed: a random change of the same norm instead of the change itself. It is drawn for each
        layer, head, query and key, the same for every sequence and pass, whatever it is batched
        with; padding does not shift it. Average over seeds.

    Notes
    -----
    Cross-attention has no diagonal and is never touched. A key that no query may see is padding:
    it enters no degree, and its query keeps the model's own output. Additive masks below −9000 are
    read as −∞. Dropout of attention weights is applied as the model asks. Half precision is widened
    inside. Time is that of attention written out; a few heads are held at once.

    Raises
    ------
    InvalidInputError
        Here, for dials that are not finite, out of range or do not go together; from the forward
        pass, naming the layer, for layers and heads that are not there and a soft-capped
        ``square``.
    TapError
        From the forward pass, when a key–value cache is used.

    Examples
    --------
    >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True, norm_first=True)
    >>> model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    >>> with geometry_attention(model, flux=0.0, layers=[1]) as lever:
    ...     _ = model(torch.randn(4, 6, 8))
    >>> [(change.site.index, change.heads, change.queries) for change in lever.summary()]
    [(1, (0, 1), 24)]
    """
    dials = _Dials(metric, exact, flux, alpha, temperature, square, noise)
    selection = Selection(
        layers=indices(layers, "layers"), heads=indices(heads, "heads"), chain=chain, cross=False
    )
    return GeometryAttention(model, dials, selection)


@dataclass(frozen=True, eq=False)
class _Dials:
    """Where the dials stand."""

    metric: float
    exact: float
    flux: float
    alpha: float
    temperature: float
    square: tuple[float, float] | None
    noise: int | None

    def __post_init__(self) -> None:
        for name in ("metric", "exact", "flux"):
            if not math.isfinite(getattr(self, name)):
                raise InvalidInputError(f"{name} must be finite; got {getattr(self, name)}.")
        if not 0 <= self.alpha <= 1:
            raise InvalidInputError(f"alpha must lie in [0, 1]; got {self.alpha}.")
        if not 0 < self.temperature < math.inf:
            raise InvalidInputError(
                f"temperature must be positive and finite; got {self.temperature}."
            )
        if self.square is not None:
            self._refuse_square(self.square)
        seed = self.noise
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise InvalidInputError(f"noise must be None or a seed, from 0 on; got {seed!r}.")

    def _refuse_square(self, square: tuple[float, float]) -> None:
        if len(square) != 2 or not all(math.isfinite(x) for x in square):
            raise InvalidInputError(f"square must be two finite numbers (a, b); got {square!r}.")
        if self._factors != (1, 1, 1):
            raise InvalidInputError(
                "square takes the place of metric, exact and flux; got it together with "
                f"{self._factors}. Give one or the other."
            )

    @property
    def _factors(self) -> tuple[float, float, float]:
        return self.metric, self.exact, self.flux

    @property
    def at_rest(self) -> bool:
        """Whether every dial leaves the model as it is."""
        plain = self._factors == (1, 1, 1) and self.square in (None, (1, 1))
        return plain and self.alpha == 0 and self.temperature == 1

    def logits(self, call: AttentionCall, bare: Tensor, visible: Tensor) -> Tensor:
        """The dialled logits before mask, bias and temperature."""
        if self.square is not None and call.softcap is not None:
            raise InvalidInputError(
                f"square is made of plain products of q and k, and this call caps its logits at "
                f"{call.softcap:g}. Use metric, exact and flux."
            )
        if bare.shape[-1] < 2:
            return bare  # one token sees itself, whatever the dials say
        free = bare
        pairs, seen = _pairs(visible)
        if self.square not in (None, (1, 1)):
            free = self._squared(call, seen).masked_fill(~pairs, -torch.inf)
        elif self._factors != (1, 1, 1) or self.alpha:
            free = _cleaned(bare, pairs, seen)
        if self._factors != (1, 1, 1):
            free = dialled_logits(free, metric=self.metric, exact=self.exact, flux=self.flux)
        if self.alpha:  # D of dialled logits is the dialled D
            free = free + degree_tilt(free, alpha=self.alpha, causal=sees_nothing_later(visible))
        return free

    def _squared(self, call: AttentionCall, seen: Tensor) -> Tensor:
        assert self.square is not None
        a, b = self.square
        q, k = (x.masked_fill(~seen[..., None], 0.0) for x in (call.q, call.k))
        return operator_square(q, k, call.scale, a=a, b=b)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """Some heads of a call: the new output, which queries count, sums over them for each head."""

    output: Tensor
    counted: Tensor
    squares: Tensor
    moved: Tensor


@dataclass(eq=False)
class _Sums:
    """Streaming sums over queries at one site, per head."""

    heads: tuple[int, ...]
    squares: Tensor | float = 0.0
    moved: Tensor | float = 0.0
    queries: float = 0.0

    def add(self, parts: Sequence[_Part]) -> None:
        self.squares = self.squares + torch.cat([part.squares for part in parts])
        self.moved = self.moved + torch.cat([part.moved for part in parts])
        self.queries += sum(float(part.counted.sum()) for part in parts) / len(self.heads)

    def change(self, site: Site) -> GeometryChange:
        number = max(self.queries, 1.0)
        squares, moved = torch.as_tensor(self.squares), torch.as_tensor(self.moved)
        return GeometryChange(
            site=site,
            heads=self.heads,
            norm=tuple((squares / number).sqrt().tolist()),
            total_variation=tuple((moved / number).tolist()),
            queries=round(self.queries),
        )


def _groups(call: AttentionCall, heads: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The heads, as many at a time as may be written out at once."""
    one = math.prod(call.q.shape[:-3]) * call.q.shape[-2] * call.k.shape[-2]
    step = max(_HELD // max(one, 1), 1)
    for start in range(0, len(heads), step):
        yield heads[start : start + step]


def _pairs(visible: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of tokens that are joined in either direction, and the tokens that are seen at all.

    A token that no query sees is padding and joined to itself alone.
    """
    seen = visible.any(-2)
    joined = (visible | visible.mT) & seen[..., :, None] & seen[..., None, :]
    itself = torch.eye(visible.shape[-1], dtype=torch.bool, device=visible.device)
    return joined | itself, seen


def _cleaned(bare: Tensor, pairs: Tensor, seen: Tensor) -> Tensor:
    """Scores with −∞ where there is no pair; padding may hold anything, NaN too."""
    known = bare.masked_fill(~(seen[..., :, None] & seen[..., None, :]), 0.0)
    return known.masked_fill(~pairs, -torch.inf)


def _rows(z: Tensor, visible: Tensor) -> Tensor:
    """Softmax over keys; zero where nothing is seen."""
    empty = ~visible.any(-1, keepdim=True)
    return torch.softmax(z.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)


def _over_queries(values: Tensor, counted: Tensor) -> Tensor:
    """Sum over the queries that count, per head."""
    kept = values.masked_fill(~counted, 0.0).double().sum(-1)
    return kept.reshape(-1, kept.shape[-1]).sum(0).cpu()
