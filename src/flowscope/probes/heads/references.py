r"""Entropy production of heads under two nulls: keys permuted, and random weights as sharp.

* **Keys permuted.** The same logits with the keys of a prompt in another order, the same for all
  rows and heads, each token's weight on itself kept (`flowscope.markov.keys_permuted`). Rows are as
  sharp as before; where $i$ looks has nothing to do with where $j$ looks.
* **As sharp.** The logits of another model (the same network with random weights), times the
  factor with which the head has the effective keys of the head that it is compared with, on the
  same prompt (`flowscope.markov.matching_scale`).
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.markov import chain_production, keys_permuted, matching_scale
from flowscope.probes.heads.chain_probe import ChainPiece, ChainProbe
from flowscope.probes.heads.chains import ChainKind
from flowscope.probes.heads.curvature import hashed

__all__ = ["MatchedProbe", "PermutedProbe"]

_SALT = 2  # of the first permutation of keys


class PermutedProbe(ChainProbe):
    """Entropy production of every head with its keys permuted, several times.

    `arrays` has ``permuted_prompt``, ``permuted_tokens`` and ``permuted_0``, ``permuted_1`` … of
    shape ``[prompts, layers, heads]``. A permutation depends on the number of the prompt and on
    nothing else, so that merging is exact. Keys can only be permuted where every pair is there.

    Parameters
    ----------
    layers
        Number of blocks in the chain of blocks.
    permutations
        Number of permutations per prompt.
    """

    prefix = "permuted"

    def __init__(self, layers: int, *, permutations: int = 3) -> None:
        super().__init__(layers)
        self._count = permutations

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers: a permutation each."""
        return tuple(map(str, range(self._count)))

    def _refused(self, logits: Tensor) -> str:
        whole = bool(logits.isfinite().all())
        return "" if whole else "a mask says which keys there are: they cannot be permuted"

    def _quantities(self, pieces: list[ChainPiece], logits: Tensor) -> NDArray[np.float64]:
        values = []
        for number in range(self._count):
            moved = [
                keys_permuted(piece.logits, _order(piece, number).to(logits.device))
                for piece in pieces
            ]
            values.append(chain_production(torch.cat(moved)).double().cpu().numpy())
        return np.stack(values)


def _order(piece: ChainPiece, number: int) -> Tensor:
    keys = hashed(piece.prompt, np.arange(piece.logits.shape[-1]), _SALT + number)
    return torch.as_tensor(np.argsort(keys, kind="stable"))


class MatchedProbe(ChainProbe):
    """Entropy production of every head with its logits scaled to given effective keys.

    `arrays` has ``matched_prompt``, ``matched_tokens``, and ``matched_production``,
    ``matched_scale`` (the factor on the logits) and ``matched_permuted`` (the entropy production
    with the keys of the scaled head permuted) of shape ``[prompts, layers, heads]``, NaN where no
    factor gives so many keys.

    Parameters
    ----------
    layers
        Number of blocks in the chain of blocks.
    keys
        Effective keys by prompt, ``[layers, heads]`` each.
    chain, damping
        As for `ChainProbe`.
    permutation
        Number of the permutation of keys; None permutes none.
    """

    prefix = "matched"

    def __init__(
        self,
        layers: int,
        *,
        keys: Mapping[int, NDArray[np.float64]],
        chain: ChainKind = "unmasked",
        damping: float = 0.01,
        permutation: int | None = None,
    ) -> None:
        super().__init__(layers, chain=chain, damping=damping)
        self._wanted, self._permutation = keys, permutation

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers."""
        return ("production", "scale", "permuted")

    def _quantities(self, pieces: list[ChainPiece], logits: Tensor) -> NDArray[np.float64]:
        wanted = np.concatenate([self._keys_of(piece) for piece in pieces])
        scale = matching_scale(logits, torch.as_tensor(wanted, device=logits.device))
        reached = scale.isfinite()
        values = np.full((3, len(logits)), np.nan)
        values[1] = scale.double().cpu().numpy()
        if bool(reached.any()):
            rows = reached.cpu().numpy()
            scaled = logits[reached] * scale[reached, None, None]
            values[0, rows] = chain_production(scaled, self._jump).double().cpu().numpy()
            if self._permutation is not None and bool(scaled.isfinite().all()):
                other = self._moved(pieces, logits)[reached] * scale[reached, None, None]
                values[2, rows] = chain_production(other).double().cpu().numpy()
        return values

    def _moved(self, pieces: list[ChainPiece], logits: Tensor) -> Tensor:
        number = self._permutation or 0
        return torch.cat(
            [keys_permuted(p.logits, _order(p, number).to(logits.device)) for p in pieces]
        )

    def _keys_of(self, piece: ChainPiece) -> NDArray[np.float64]:
        """Wanted keys of the heads of a piece; NaN where the other model has no such head."""
        missing = np.full(len(piece.logits), np.nan)
        whole = self._wanted.get(piece.prompt)
        if whole is None or piece.layer >= len(whole):
            return missing
        part = whole[piece.layer, piece.heads]
        missing[: len(part)] = part
        return missing
