r"""What coupled replicas differ in, block by block: Gram matrices, never hidden states.

For $M$ pairs in one batch, A first and then B, the rows of

$$
V_{s,\ell} = \tfrac{1}{\sqrt2}\,\mathrm{vec}\bigl(H^A_{s,\ell} - H^B_{s,\ell}\bigr)
$$

are kept for the first reverse step only. Of every later step that is asked for the probe keeps
the Gram matrix of $[V_0; V_s]$ (`flowscope.replica.stacked_gram`), which holds everything that the
modes and their nulls need: $4M^2$ numbers in place of $MD$.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.probes.reducer import Arrays
from flowscope.replica import stacked_gram
from flowscope.tap import BlockPass

__all__ = ["DifferenceProbe"]


class DifferenceProbe:
    """Listens to the blocks of a depth while pairs of replicas run.

    Parameters
    ----------
    layers
        Blocks of the depth.
    pairs
        Pairs in the batch.
    kept
        Reverse steps whose Gram matrices are kept; the first is always among them.

    Notes
    -----
    State: the differences of the first step, ``layers · pairs · D`` numbers in the model's own
    precision, and the matrices. A batch with guidance has its branch with labels first, and that
    one is read.
    """

    def __init__(self, *, layers: int, pairs: int, kept: Collection[int]) -> None:
        self._layers, self._pairs = layers, pairs
        self._kept = tuple(sorted({0, *kept}))
        self._first: dict[int, Tensor] = {}
        self._grams: dict[tuple[int, int], Tensor] = {}
        self._sizes: dict[tuple[int, int], Tensor] = {}
        self._step = 0

    def begin(self, step: int) -> None:
        """Say which reverse step comes next."""
        self._step = step

    def update(self, block: BlockPass) -> None:
        """Read one block of the depth."""
        rows = 2 * self._pairs
        hidden = block.hidden_out[:rows]
        if len(hidden) < rows:
            raise InvalidInputError(
                f"The probe was made for {self._pairs} pairs, {rows} rows; the batch has "
                f"{len(hidden)}. Run all pairs in one batch."
            )
        layer, step = block.site.index, self._step
        difference = ((hidden[: self._pairs] - hidden[self._pairs :]) / 2**0.5).flatten(1)
        squares = torch.stack([_square(difference), _square(hidden)])
        self._sizes[layer, step] = squares / squares.new_tensor([self._pairs, rows])
        if step == 0:
            self._first[layer] = difference.clone()
        if step in self._kept:
            self._grams[layer, step] = stacked_gram(self._first[layer], difference)

    def basis(self, layer: int, vectors: Float[Tensor, "pairs modes"]) -> Float[Tensor, "modes D"]:
        """Modes in the hidden space: unit combinations of the first differences of a layer."""
        first = self._first[layer].double()
        modes: Tensor = vectors.to(first).mT @ first
        return torch.nn.functional.normalize(modes, dim=1)

    def arrays(self) -> Arrays:
        """Gram matrices by layer and kept step, and mean squares by layer and step."""
        steps = sorted({step for _, step in self._sizes})
        kept = [step for step in self._kept if step in steps]
        layers = range(self._layers)
        gram = torch.stack([torch.stack([self._grams[i, s] for s in kept]) for i in layers])
        sizes = torch.stack([torch.stack([self._sizes[i, s] for s in steps]) for i in layers])
        return {
            "gram": gram.cpu().numpy(),
            "kept": np.asarray(kept),
            "difference": sizes[..., 0].double().cpu().numpy(),
            "hidden": sizes[..., 1].double().cpu().numpy(),
        }


def _square(x: Tensor) -> Tensor:
    """Sum of squares, in float32 or better, without a wide copy."""
    wide = torch.promote_types(x.dtype, torch.float32)
    norm: Tensor = torch.linalg.vector_norm(x, dtype=wide)
    return norm.square()
