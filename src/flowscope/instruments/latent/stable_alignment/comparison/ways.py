"""The ways in which two models are combined, and after which blocks states move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flowscope.instruments.latent.stable_alignment import StableAlignment
from flowscope.instruments.latent.stable_alignment.names import LAYER_SETS, PAIRED, TRANSPORT
from flowscope.levers.agreement import Align, Coupling

__all__ = ["Way", "blocks_of", "consensus_ways"]


@dataclass(frozen=True, kw_only=True)
class Way:
    """A consensus: coupling, alignment, blocks and strength."""

    method: str
    layers: str
    strength: float
    align: Align = "none"

    @property
    def coupling(self) -> Coupling:
        """How tokens are coupled."""
        return "transport" if self.method == TRANSPORT else "paired"

    @property
    def shard(self) -> str:
        """Its name in the name of a shard."""
        return f"{self.coupling}-{self.layers}-{self.strength:g}-{self.align}"


def blocks_of(layers: str, depth: int) -> Sequence[int]:
    """Indices of the blocks of a set.

    >>> {name: list(blocks_of(name, 6)) for name in ("early", "last")}
    {'early': [0, 1], 'last': [5]}
    """
    third = max(depth // 3, 1)
    sets = {
        "all": range(depth),
        "early": range(third),
        "middle": range(third, max(depth - third, third + 1)),
        "late": range(depth - third, depth),
        "last": range(depth - 1, depth),
        "one early": range(third - 1, third),
    }
    return sets[layers]


def consensus_ways(study: StableAlignment) -> Iterator[Way]:
    """Every consensus of the children; transport is the costly one and moves after one block."""
    for layers in LAYER_SETS:
        for strength in study.strengths:
            yield Way(method=PAIRED, layers=layers, strength=strength)
    if study.transported:
        for layers in ("one early", "last"):
            yield Way(method=TRANSPORT, layers=layers, strength=max(study.strengths))
