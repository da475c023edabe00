"""The measuring pass over the heads of a model: batches in, scalars per prompt out, resumable."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flowscope.errors import UnsupportedModelError
from flowscope.models.prompts import Batch
from flowscope.probes import (
    Arrays,
    AttentionInputs,
    ChainKind,
    GeometryProbe,
    InputBatch,
    Piece,
    TapProbe,
    model_anatomy,
    tap_pass,
)
from flowscope.records import Shards, Unavailable
from flowscope.tap import AttentionCall, Chain, Tail

__all__ = ["HeadReading", "read_heads"]


_SCOUT = 8  # tokens that are enough to find the blocks


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadReading:
    """What the pass left behind.

    Attributes
    ----------
    arrays
        Those of `GeometryProbe`, one row per prompt.
    because
        Why heads of a layer (from 0) have no number, where they have none.
    crossed
        Layers that attend to another sequence too.
    """

    arrays: Arrays
    because: dict[int, str]
    crossed: int = 0


@torch.no_grad()
def read_heads(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    walk: ChainKind,
    damping: float,
    permuted: bool = False,
    shards: Shards | None = None,
    advance: Callable[[int], None] = lambda prompts: None,
) -> HeadReading:
    """Run every batch under the tap; with a run folder, finished batches are not run again.

    Parameters
    ----------
    model, batches
        What is read, on what.
    walk, damping
        Which kernel walks, and the probability of a jump of the damped one.
    permuted
        Whether keys are permuted (see `GeometryProbe`).
    shards
        Where finished batches are written.
    advance
        Called with the number of prompts after every batch.
    """
    reading = _Geometry(chain=walk, damping=damping, permuted=permuted)
    pieces = tap_pass(
        model,
        _scouted(model, batches),
        {"heads": reading},
        shards={"heads": shards} if shards is not None else {},
        advance=advance,
    )
    return _joined(pieces["heads"])


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
    if all(isinstance(x, Tensor) and x.ndim == 2 for x in first.inputs.values()):
        given = _inputs(model, first)
        short = {n: x[:1, :_SCOUT] if isinstance(x, Tensor) else x for n, x in given.items()}
        model_anatomy(model, short)
    for batch in chain([first], whole):
        yield replace(batch, inputs=_inputs(model, batch))


class _Geometry(TapProbe):
    """Feeds the attention calls of the chain of blocks to a `GeometryProbe`."""

    hears = ("attention",)
    purpose = "heads to measure"

    def __init__(self, **options: Any) -> None:
        self._options = options

    def open(self, chain: Chain, tail: Tail | Unavailable) -> None:
        self._probe = GeometryProbe(len(chain), **self._options)

    def begin(self, batch: InputBatch) -> None:
        self._probe.begin(batch.prompts, batch.mask)

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
