r"""The Markov geometry of every head, text by text: a few scalars per prompt, layer and head.

The chain of a head is summarised by `flowscope.markov.chain_quantities`; the sectors of its scores
come from the logits without mask.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.markov import QUANTITIES, chain_quantities, quasi_quantities, sector_quantities
from flowscope.probes.heads.chain_probe import ChainPiece, ChainProbe

__all__ = ["GeometryProbe"]


class GeometryProbe(ChainProbe):
    """Statistics of the chain of every head: all of `flowscope.markov.QUANTITIES`.

    `arrays` has ``geometry_prompt``, ``geometry_tokens`` and ``geometry_NAME`` for each of them.
    """

    prefix = "geometry"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers."""
        return QUANTITIES

    def _quantities(self, pieces: list[ChainPiece], logits: Tensor) -> NDArray[np.float64]:
        if self._chain == "quasi-stationary":
            values = quasi_quantities(logits)
        else:
            values = chain_quantities(logits, self._jump)
        free = [piece.free for piece in pieces if piece.free is not None]
        if len(free) == len(pieces):
            same = all(piece.free is piece.logits for piece in pieces)
            values |= sector_quantities(logits if same else torch.cat(free))
        blank = torch.full((len(logits),), torch.nan)
        columns = [values.get(name, blank).double().cpu() for name in QUANTITIES]
        return np.stack([column.numpy() for column in columns])
