"""The discovered structure of a model: chains of blocks, attention sites, the tail.

Sites are found, not named. A *chain* is the outermost run of sibling module calls in which the
output of one is the input of the next (the same tensor, through the same argument) and each call
contains attention. Encoder and decoder are separate chains; the last chain is the depth. How the
pieces are found is in `flowscope.tap.discovery`; this module only says what was found.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from flowscope.errors import TapError
from flowscope.records import Unavailable
from flowscope.tap.events import Site, WriteKind
from flowscope.tap.tail import Tail

__all__ = ["Anatomy", "AttentionSite", "Block", "Chain", "Listening"]

Listening = Literal["name", "mode", "interface"]


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionSite:
    """One place where attention is called, and what does not change from pass to pass."""

    site: Site
    cross: bool
    groups: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """One block of a chain.

    Attributes
    ----------
    index, path
        Position in call order, and the module that was called.
    attentions
        Its attention calls in order.
    places
        For each stream that passes through: the position of its tensor in the block's output.
    writes
        For each stream: the kinds of its additions in order, or why they cannot be followed.
    additions
        The same where norms may stand between the additions, as in post-norm blocks; their writes
        do not sum to the block.
    overwritten
        Streams whose input tensor the block writes into.
    sites
        For each stream: the site of its pass.
    """

    index: int
    path: str
    attentions: tuple[AttentionSite, ...]
    places: dict[str, int]
    writes: dict[str, tuple[WriteKind, ...] | Unavailable]
    additions: dict[str, tuple[WriteKind, ...] | Unavailable]
    overwritten: frozenset[str]
    sites: dict[str, Site]


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """Blocks in call order and the residual streams that run through all of them."""

    name: str
    blocks: tuple[Block, ...]
    streams: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.blocks)


@dataclass(frozen=True, kw_only=True, eq=False)
class Anatomy:
    """Everything the probing pass found.

    Attributes
    ----------
    chains
        Every chain, in call order.
    depth
        The chain that is the model's depth, or why there is none.
    outside
        Attention calls that belong to no chain.
    tail
        Everything after the last block, replayable, or why it is not.
    seam
        ``"sdpa"`` when torch's own attention is read in place, ``"interface"`` when the backend of
        a transformers model must be switched (equal within the tolerance of the dtype).
    order
        Every attention site in call order.
    listening
        How attention is heard: ``"name"`` when every call looks torch's function up by its name,
        ``"mode"`` when a torch function mode is needed, ``"interface"`` with the seam of that name.
    """

    chains: tuple[Chain, ...]
    depth: Chain | Unavailable
    outside: tuple[AttentionSite, ...]
    tail: Tail | Unavailable
    seam: str
    order: tuple[AttentionSite, ...]
    listening: Listening

    @property
    def attentions(self) -> tuple[AttentionSite, ...]:
        """Every attention site: those of the chains, then those outside."""
        inside = (a for chain in self.chains for block in chain.blocks for a in block.attentions)
        return (*inside, *self.outside)

    @cached_property
    def visits(self) -> dict[str, list[tuple[Chain, Block]]]:
        """Blocks by the module that is called, in call order."""
        found: dict[str, list[tuple[Chain, Block]]] = {}
        for chain in self.chains:
            for block in chain.blocks:
                found.setdefault(block.path, []).append((chain, block))
        return found

    def chain(self, name: str) -> Chain:
        """The chain of that name."""
        for chain in self.chains:
            if chain.name == name:
                return chain
        names = ", ".join(repr(chain.name) for chain in self.chains) or "none"
        raise TapError(f"No chain is named {name!r}; this model has {names}.")
