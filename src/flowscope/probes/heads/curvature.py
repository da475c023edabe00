r"""Curvature of every head on sampled pairs of rows: whether attention brings its points closer.

The points of a layer are its normalised inputs $x_i$ (`AttentionInputs`), the metric is
$d(i,j) = \lVert x_i - x_j \rVert$ for queries and keys alike, and for a pair of rows

$$ \kappa(i,i') = 1 - W_1(\hat P_i, \hat P_{i'}) / d(i,i'), $$

$\hat P$ being restricted to the keys that both rows may see (for causal rows those of the earlier
one) and renormalised. Beside it the same pair with its keys *permuted*, one permutation for both
rows: the rows overlap as before, but where they look no longer has to do with where the points are.
$W_1$ itself and the plain total variation distance of the two rows are left too: where one orders
the pairs as the other does, $\kappa$ says nothing but how far the rows overlap.

Pairs are drawn by the smallest hashes of (prompt, position), the same for every layer, head and
setting, so merging is exact and differences between settings are paired. A pair is left out of a
layer when its points are not further apart than the 5 % quantile of that prompt's distances, when a
row keeps less than 0.001 of its mass on the common keys, or when fewer than two keys are common.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import FlowscopeError
from flowscope.probes.reducer import Reducer
from flowscope.records import Unavailable
from flowscope.tap import AttentionCall
from flowscope.transport.rows import common_support, excess_distances

__all__ = ["LEFT_OUT", "CurvatureProbe", "hashed", "sampled_pairs"]

LEFT_OUT = {
    1: "not above the 5 % quantile of distances",
    2: "too little mass on the common keys",
    3: "fewer than two common keys",
}
"""Why a pair of rows is left out, by its code in ``curvature_left_out`` (0: it is not)."""

_NEAR, _SAME, _FLOOR, _PINNED = 0.05, 1e-6, 1e-3, 0.99


def hashed(prompt: int, positions: NDArray[np.integer], salt: int = 0) -> NDArray[np.uint64]:
    """A number per (prompt, position) that looks random and is always the same (SplitMix64)."""
    word = np.uint64
    with np.errstate(over="ignore"):
        x = positions.astype(np.uint64) + word(prompt + 1) * word(0x9E3779B97F4A7C15)
        x = x + word(salt) * word(0xD1B54A32D192ED03)
        for _ in range(2):  # neighbouring positions differ by one: one round leaves a pattern
            x = (x ^ (x >> word(30))) * word(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> word(27))) * word(0x94D049BB133111EB)
            x = x ^ (x >> word(31))
    return x


def sampled_pairs(prompt: int, positions: NDArray[np.integer], count: int) -> NDArray[np.int64]:
    """At most ``count`` disjoint pairs of a prompt's positions, the earlier first.

    Examples
    --------
    >>> sampled_pairs(0, np.arange(6), 2).shape
    (2, 2)
    """
    order = np.asarray(positions, np.int64)[np.argsort(hashed(prompt, positions), kind="stable")]
    whole = min(count, len(order) // 2)
    return np.sort(order[: 2 * whole].reshape(whole, 2), axis=1)


class _Layer(NamedTuple):
    """What one layer says of the pairs of a prompt, ``[pairs, heads]`` each."""

    kappa: NDArray[np.float64]
    null: NDArray[np.float64]
    transport: NDArray[np.float64]
    total_variation: NDArray[np.float64]
    kept: NDArray[np.float64]
    left_out: NDArray[np.int8]
    pinned: NDArray[np.int8]


class CurvatureProbe(Reducer):
    """Curvature of every head of a chain on sampled pairs of rows.

    `arrays` has one row per pair: ``curvature_prompt``, ``curvature_first``, ``curvature_second``,
    and ``[pairs, layers, heads]`` arrays ``curvature_kappa``, ``curvature_null``,
    ``curvature_transport`` ($W_1$ of the rows) and ``curvature_total_variation`` (NaN where left
    out), ``curvature_kept``, ``curvature_left_out`` (a code of `LEFT_OUT`) and
    ``curvature_pinned`` (both rows put 0.99 of their mass on one and the same key).

    Parameters
    ----------
    layers
        Number of blocks in the chain.
    pairs
        Pairs per prompt.
    null
        Whether the permuted pairs are measured too.
    """

    keys = ("curvature_prompt", "curvature_first", "curvature_second")

    def __init__(self, layers: int, *, pairs: int = 4, null: bool = True) -> None:
        super().__init__()
        self._layers, self._count, self._null = layers, pairs, null
        self._prompts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._mask = torch.zeros(0)
        self._pairs: list[NDArray[np.int64]] = []
        self._found: dict[int, list[_Layer]] = {}
        self.because = ""

    def begin(self, prompts: NDArray[np.int64], mask: Tensor) -> None:
        """A batch starts: the prompt of each row, and which positions count."""
        self._prompts, self._mask = prompts, mask.bool().cpu()
        self._pairs, self._found = [], {}

    def update(self, call: AttentionCall, x: Tensor | Unavailable) -> None:
        """One self-attention call of the chain and its points; the first of a block counts."""
        if call.cross or call.site.call != 0 or self.because or not self._count:
            return
        if isinstance(x, Unavailable):
            self.because = x.reason
            return
        self._pairs = self._pairs or self._drawn(x.shape[1])
        try:
            self._found[call.site.index] = self._measured(call, x)
        except FlowscopeError as error:
            self.because = f"layer {call.site.index + 1}: {error}"

    def _drawn(self, length: int) -> list[NDArray[np.int64]]:
        pairs = []
        for number, mask in zip(self._prompts, self._mask, strict=True):
            # A mask of one entry stands for a whole image: all its patches count.
            counted = mask.nonzero()[:, 0] if len(mask) == length else torch.arange(length)
            pairs.append(sampled_pairs(int(number), counted.numpy(), self._count))
        return pairs

    def _measured(self, call: AttentionCall, x: Tensor) -> list[_Layer]:
        rows = np.unique(np.concatenate([p.ravel() for p in self._pairs]))
        index = torch.as_tensor(rows, device=call.q.device)
        logits = call.logits(index).cpu()
        seen = (logits > torch.finfo(logits.dtype).min / 2).numpy()
        laws = torch.softmax(logits.double(), -1).numpy()
        points = x.detach().cpu().double()
        found = []
        for number, (prompt, pairs) in enumerate(zip(self._prompts, self._pairs, strict=True)):
            at = np.searchsorted(rows, pairs)
            two = laws[number][:, at].swapaxes(0, 1), seen[number][:, at].swapaxes(0, 1)
            d = _distances(points[number])
            found.append(self._layer(int(prompt), pairs, *two, d, self._nearest(d, number)))
        return found

    def _nearest(self, d: NDArray[np.float64], number: int) -> float:
        """The 5 % quantile of the distances between the positions of a prompt that count.

        Before the first layer a repeated word is one point. Where more than one pair in twenty is
        such a pair the quantile is rounding, so points that are one but for rounding are near too.
        """
        mask = self._mask[number].numpy()
        own = d[np.ix_(mask, mask)] if len(mask) == len(d) else d
        apart = own[np.triu_indices(len(own), 1)]
        return float(max(np.quantile(apart, _NEAR), _SAME * apart.max()))

    def _layer(
        self,
        prompt: int,
        pairs: NDArray[np.int64],
        laws: NDArray[np.float64],
        seen: NDArray[np.bool_],
        d: NDArray[np.float64],
        nearest: float,
    ) -> _Layer:
        """The pairs of a prompt at one layer; ``laws`` and ``seen`` are ``[pairs, H, 2, keys]``."""
        both = np.asarray(seen.all((1, 2)))
        shared = common_support(laws[:, :, 0], laws[:, :, 1], both[:, None])
        kept = np.minimum(shared.kept_p.numpy(), shared.kept_q.numpy())
        apart = d[pairs[:, 0], pairs[:, 1]][:, None]
        code = np.where(kept >= _FLOOR, 0, 2)
        code[both.sum(-1) < 2] = 3
        code[apart[:, 0] <= nearest] = 1
        told = code == 0
        p, q = shared.p.numpy()[told], shared.q.numpy()[told]
        gap = np.broadcast_to(apart, told.shape)[told]
        kappa, null, moved, apart_rows, pinned = (np.full(told.shape, np.nan) for _ in range(5))
        pinned[told] = np.minimum(p, q).max(-1, initial=0.0) >= _PINNED
        moved[told] = excess_distances(p, q, d)
        apart_rows[told] = np.abs(p - q).sum(-1) / 2
        kappa[told] = 1 - moved[told] / gap
        if self._null:
            place = _permuted(prompt, pairs, both)[np.nonzero(told)[0]]
            a, b = (np.take_along_axis(x, place, -1) for x in (p, q))
            null[told] = 1 - excess_distances(a, b, d) / gap
        codes, sinks = code.astype(np.int8), (pinned == 1).astype(np.int8)
        return _Layer(kappa, null, moved, apart_rows, kept, codes, sinks)

    def end(self) -> None:
        """The batch is over; a few scalars per pair, layer and head stay."""
        if len(self._found) == self._layers and not self.because:
            sizes = [len(p) for p in self._pairs]
            pairs = np.concatenate(self._pairs)
            layers = [self._found[i] for i in range(self._layers)]
            table = {
                f"curvature_{name}": np.stack(
                    [np.concatenate([getattr(part, name) for part in layer]) for layer in layers], 1
                )
                for name in _Layer._fields
            }
            table = {
                n: v.astype(np.float32) if v.dtype.kind == "f" else v for n, v in table.items()
            }
            table["curvature_prompt"] = np.repeat(self._prompts, sizes)
            table["curvature_first"], table["curvature_second"] = pairs.T
            self.take(table)
        self._pairs, self._found = [], {}


def _distances(x: Tensor) -> NDArray[np.float64]:
    """Distances of points in float64, by their Gram matrix: exact to 1e-8 of their norms."""
    centred = x - x.mean(0)
    d = torch.cdist(centred, centred, compute_mode="use_mm_for_euclid_dist")
    d = ((d + d.T) / 2).fill_diagonal_(0.0)
    found: NDArray[np.float64] = d.numpy()
    return found


def _permuted(prompt: int, pairs: NDArray[np.int64], both: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each pair, which key stands at which place: its common keys permuted, others at home."""
    place = np.tile(np.arange(both.shape[1]), (len(pairs), 1))
    for k, pair in enumerate(pairs):
        keys = np.flatnonzero(both[k])
        place[k, keys] = keys[np.argsort(hashed(prompt, keys, 1 + int(pair[0])), kind="stable")]
    return place
