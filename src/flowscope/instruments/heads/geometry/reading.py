"""The measuring passes over the heads of a model: batches in, scalars per prompt out, resumable."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flowscope.errors import UnsupportedModelError
from flowscope.models.prompts import Batch
from flowscope.probes import (
    Arrays,
    AttentionInputs,
    ChainKind,
    GeometryProbe,
    InputBatch,
    MatchedProbe,
    PermutedProbe,
    Piece,
    TapProbe,
    model_anatomy,
    tap_pass,
)
from flowscope.probes.heads.chain_probe import ChainProbe
from flowscope.records import Shards, Unavailable
from flowscope.tap import AttentionCall, Chain, Tail

__all__ = ["HeadReading", "read_heads", "read_matched"]


_SCOUT = 8  # tokens that are enough to find the blocks

Advance = Callable[[int], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadReading:
    """What a pass left behind.

    Attributes
    ----------
    arrays
        Those of the probe, one row per prompt.
    because
        Why heads of a layer (from 0) have no number, where they have none.
    crossed
        Layers that attend to another sequence too.
    """

    arrays: Arrays
    because: dict[int, str]
    crossed: int = 0


def read_heads(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    walk: ChainKind,
    damping: float,
    permutations: int = 0,
    shards: Shards | None = None,
    advance: Advance = lambda prompts: None,
) -> tuple[HeadReading, HeadReading | Unavailable]:
    """Run every batch under the tap; with a run folder, finished batches are not run again.

    Parameters
    ----------
    model, batches
        What is read, on what.
    walk, damping
        Which kernel walks, and the probability of a jump of the damped one.
    permutations
        How often the keys of each prompt are permuted, for the second reading; 0 for none.
    shards
        Where finished batches are written.
    advance
        Called with the number of prompts after every batch.

    Returns
    -------
    The heads (`GeometryProbe`), and the same with their keys permuted (`PermutedProbe`).
    """
    probes: dict[str, _Chains] = {
        "heads": _Chains(lambda n: GeometryProbe(n, chain=walk, damping=damping))
    }
    if permutations:
        probes["permuted"] = _Chains(
            lambda n: PermutedProbe(n, permutations=permutations), prefix="permuted-"
        )
    stores = dict.fromkeys(probes, shards) if shards is not None else {}
    pieces = _passed(model, batches, probes, stores, advance)
    if not permutations:
        return _joined(pieces["heads"]), Unavailable("keys were not permuted")
    return _joined(pieces["heads"]), _joined(pieces["permuted"])


def read_matched(
    model: nn.Module,
    batches: Iterable[Batch],
    keys: Mapping[int, NDArray[np.float64]],
    *,
    walk: ChainKind,
    damping: float,
    permutation: int = 0,
    advance: Advance = lambda prompts: None,
) -> HeadReading:
    """Read a model whose heads are scaled to the effective keys of another (`MatchedProbe`).

    Parameters
    ----------
    model, batches
        What is read, on what.
    keys
        Effective keys by prompt, ``[layers, heads]`` each.
    walk, damping, advance
        As for `read_heads`.
    permutation
        Number of the permutation of keys, for the unmasked chain.
    """
    moved = permutation if walk == "unmasked" else None
    probe = _Chains(
        lambda n: MatchedProbe(n, keys=keys, chain=walk, damping=damping, permutation=moved)
    )
    return _joined(_passed(model, batches, {"matched": probe}, {}, advance)["matched"])


@torch.no_grad()
def _passed(
    model: nn.Module,
    batches: Iterable[Batch],
    probes: Mapping[str, "_Chains"],
    stores: Mapping[str, Shards],
    advance: Advance,
) -> dict[str, list[Piece]]:
    return tap_pass(model, _scouted(model, batches), probes, shards=stores, advance=advance)


def _inputs(model: nn.Module, batch: Batch) -> dict[str, Any]:
    """Inputs of a pass that forms no output over a vocabulary, where the model can be asked."""
    asked = "logits_to_keep" in inspect.signature(model.forward).parameters
    return {**batch.inputs, "logits_to_keep": 1} if asked else batch.inputs


def _scouted(model: nn.Module, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Batches for `_inputs`, after the tap has found the blocks on a few tokens of the first.

    What its probing pass finds does not depend on the length, and is remembered for the model.
    """
    whole = iter(batches)
    first = next(whole, None)
    if first is None:
        return
    if all(isinstance(x, Tensor) and _is_text(x) for x in first.inputs.values()):
        given = _inputs(model, first)
        short = {n: x[:1, :_SCOUT] if isinstance(x, Tensor) else x for n, x in given.items()}
        model_anatomy(model, short)
    for batch in chain([first], whole):
        yield replace(batch, inputs=_inputs(model, batch))


def _is_text(tensor: Tensor) -> bool:
    """Whether an input is token numbers or a mask of them; a waveform cannot be cut to a few."""
    return tensor.ndim == 2 and not tensor.is_floating_point()


class _Chains(TapProbe):
    """Feeds the attention calls of the chain of blocks to a probe of chains.

    Parameters
    ----------
    made
        The probe, from the number of blocks.
    prefix
        Start of the names of its shards.
    """

    hears = ("attention",)
    purpose = "heads to measure"

    def __init__(self, made: Callable[[int], ChainProbe], prefix: str = "") -> None:
        self._made = made
        self.prefix = prefix  # type: ignore[misc]

    def open(self, chain: Chain, tail: Tail | Unavailable) -> None:
        self._probe = self._made(len(chain))

    def begin(self, batch: InputBatch) -> None:
        self._probe.begin(batch.prompts, batch.present)

    def attention(self, call: AttentionCall, inputs: AttentionInputs) -> None:
        self._probe.update(call)

    def end(self) -> Piece:
        self._probe.end()
        arrays = self._probe.arrays()
        self._probe.clear()
        because = {str(layer): reason for layer, reason in self._probe.because.items()}
        return Piece(
            arrays=arrays, meta={"because": because, "crossed": sorted(self._probe.crossed)}
        )


def _joined(pieces: list[Piece]) -> HeadReading:
    because: dict[int, str] = {}
    for piece in pieces:
        because |= {int(layer): reason for layer, reason in piece.meta["because"].items()}
    parts = [piece.arrays for piece in pieces if piece.arrays]
    if not parts:
        reason = next(iter(because.values()), "no attention call was seen on its chain of blocks")
        raise UnsupportedModelError(f"No head of this model has a chain: {reason}.")
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    crossed = {layer for piece in pieces for layer in piece.meta["crossed"]}
    return HeadReading(arrays=arrays, because=because, crossed=len(crossed))
