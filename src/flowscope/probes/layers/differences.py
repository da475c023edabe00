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
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.probes.reducer import Arrays
from flowscope.replica.modes import assembled_gram, wide_product
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
    precision, as many again while a step with a reference runs, and the matrices. Nothing waits
    for a device while the model runs. A batch with guidance has its branch with labels first, and
    that one is read.

    A *reference* is a pass over the first latents at the time of a later step (erratum E99): blocks
    are modulated by the time, so that the same difference of latents has other modes at another
    time. Of a step with a reference the Gram matrix of [reference; V_s] is kept too.
    """

    def __init__(self, *, layers: int, pairs: int, kept: Collection[int]) -> None:
        self._layers, self._pairs = layers, pairs
        self._kept = tuple(sorted({0, *kept}))
        self._first: dict[int, Tensor] = {}
        self._then: dict[int, Tensor] = {}
        self._reference: dict[int, Tensor] = {}
        self._products: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self._clocked: dict[tuple[int, int], tuple[Tensor, Tensor, Tensor]] = {}
        self._sizes: dict[tuple[int, int], Tensor] = {}
        self._step, self._referring = 0, False

    def begin(self, step: int, *, reference: bool = False) -> None:
        """Say which reverse step comes next, and whether it is only its reference."""
        self._step, self._referring = step, reference
        if reference:
            self._reference.clear()

    def update(self, block: BlockPass) -> None:
        """Read one block of the depth."""
        with torch._C.DisableTorchFunction():  # taps need not hear it: half of its time on a host
            self._read(block)

    def _read(self, block: BlockPass) -> None:
        rows = 2 * self._pairs
        hidden = block.hidden_out[:rows]
        if len(hidden) < rows:
            raise InvalidInputError(
                f"The probe was made for {self._pairs} pairs, {rows} rows; the batch has "
                f"{len(hidden)}. Run all pairs in one batch."
            )
        layer, step = block.site.index, self._step
        difference = ((hidden[: self._pairs] - hidden[self._pairs :]) / 2**0.5).flatten(1)
        if self._referring:
            self._reference[layer] = difference
            return
        self._sizes[layer, step] = torch.stack([_square(difference), _square(hidden)])
        if step == 0:
            self._first[layer] = difference
            self._then[layer] = wide_product(difference, difference)
        reference = self._reference.pop(layer, None)
        if step not in self._kept and reference is None:
            return
        now = wide_product(difference, difference)
        if step in self._kept:
            self._products[layer, step] = wide_product(difference, self._first[layer]), now
        if reference is not None:
            own = wide_product(reference, reference)
            self._clocked[layer, step] = own, wide_product(difference, reference), now

    def arrays(self) -> Arrays:
        """Gram matrices by layer and kept step, and mean squares by layer and step.

        ``gram`` holds those of [V_0; V_s] at the steps ``kept``, ``clock_gram`` those of
        [reference; V_s] at the steps ``clock``.

        Raises
        ------
        InvalidInputError
            When a hidden state was not finite.
        """
        steps = sorted({step for _, step in self._sizes})
        kept = [step for step in self._kept if step in steps]
        clock = sorted({step for _, step in self._clocked})
        layers = range(self._layers)
        grams = [[assembled_gram(self._then[i], *self._products[i, s]) for s in kept]
                 for i in layers]  # fmt: skip
        clocked = [[assembled_gram(*self._clocked[i, s]) for s in clock] for i in layers]
        sizes = torch.stack([torch.stack([self._sizes[i, s] for s in steps]) for i in layers])
        found = {
            "gram": torch.stack([torch.stack(row) for row in grams]).cpu().numpy(),
            "kept": np.asarray(kept),
            "difference": sizes[..., 0].double().cpu().numpy() / self._pairs,
            "hidden": sizes[..., 1].double().cpu().numpy() / (2 * self._pairs),
        }
        if clock:
            found["clock_gram"] = torch.stack([torch.stack(row) for row in clocked]).cpu().numpy()
            found["clock"] = np.asarray(clock)
        return found


def _square(x: Tensor) -> Tensor:
    """Sum of squares, in float32 or better, without a wide copy."""
    wide = torch.promote_types(x.dtype, torch.float32)
    norm: Tensor = torch.linalg.vector_norm(x, dtype=wide)
    return norm.square()
