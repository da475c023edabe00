"""The measuring pass over the heads of a model: batches in, scalars per prompt out, resumable."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flowscope.errors import UnsupportedModelError
from flowscope.models.prompts import Batch
from flowscope.probes import Arrays, ChainKind, GeometryProbe
from flowscope.records import Run, ShardKey
from flowscope.tap import AttentionCall, Chain, Tap

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
    run: Run | None = None,
    fingerprint: str = "",
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
    run, fingerprint
        Where shards are kept, and what decides their content.
    advance
        Told the number of prompts after every batch.
    """
    done: list[tuple[Arrays, dict[str, Any]]] = []
    batches = _scouted(model, batches)
    with Tap(model) as tap:
        listener = _Listener(tap, walk, damping, permuted)
        tap.on_attention(listener)
        for number, batch in enumerate(batches):
            key = ShardKey(name=f"{number:05d}", fingerprint=fingerprint) if run else None
            shard = run.find_shard(key) if run is not None and key is not None else None
            if shard is not None:
                done.append((dict(shard.arrays), dict(shard.meta)))
            else:
                listener.begin(batch)
                model(**_inputs(model, batch))
                done.append(listener.end())
                if run is not None and key is not None:
                    run.write_shard(key, *done[-1])
            advance(len(batch.prompts))
    return _joined(done)


def _inputs(model: nn.Module, batch: Batch) -> dict[str, Any]:
    """Inputs of a pass that forms no output over a vocabulary, where the model can be asked."""
    asked = "logits_to_keep" in inspect.signature(model.forward).parameters
    return {**batch.inputs, "logits_to_keep": 1} if asked else batch.inputs


def _scouted(model: nn.Module, batches: Iterable[Batch]) -> Iterator[Batch]:
    """The same batches, after the tap has found the blocks on a few tokens of the first.

    What its probing pass finds does not depend on the length, and is remembered for the model.
    """
    whole = iter(batches)
    first = next(whole, None)
    if first is None:
        return iter(())
    if all(isinstance(x, Tensor) and x.ndim == 2 for x in first.inputs.values()):
        given = _inputs(model, first)
        short = {n: x[:1, :_SCOUT] if isinstance(x, Tensor) else x for n, x in given.items()}
        with Tap(model) as scout:
            scout.on_attention(lambda call: None)
            model(**short)
    return chain([first], whole)


class _Listener:
    """The probe, made when the anatomy is known, given the calls of the chain of blocks."""

    def __init__(self, tap: Tap, walk: ChainKind, damping: float, permuted: bool) -> None:
        self._tap = tap
        self._how: dict[str, Any] = {"chain": walk, "damping": damping, "permuted": permuted}
        self._probe: GeometryProbe | None = None
        self._batch: Batch | None = None
        self._begun = False

    def begin(self, batch: Batch) -> None:
        self._batch, self._begun = batch, False

    def __call__(self, call: AttentionCall) -> None:
        depth = self._tap.anatomy.depth
        if not isinstance(depth, Chain):
            raise UnsupportedModelError(f"This model has no heads to measure: {depth.reason}.")
        if self._probe is None:
            self._probe = GeometryProbe(len(depth), **self._how)
        if not self._begun:
            assert self._batch is not None
            self._probe.begin(self._batch.prompts, self._batch.mask)
            self._begun = True
        if call.site.chain == depth.name:
            self._probe.update(call)

    def end(self) -> tuple[Arrays, dict[str, Any]]:
        """What the batch left behind; nothing stays here."""
        assert self._probe is not None
        self._probe.end()
        arrays = self._probe.arrays()
        self._probe.clear()
        because = {str(layer): reason for layer, reason in self._probe.because.items()}
        return arrays, {"because": because, "crossed": sorted(self._probe.crossed)}


def _joined(done: list[tuple[Arrays, dict[str, Any]]]) -> HeadReading:
    because: dict[int, str] = {}
    for _, meta in done:
        because |= {int(layer): reason for layer, reason in meta["because"].items()}
    parts = [arrays for arrays, _ in done if arrays]
    if not parts:
        reason = next(iter(because.values()), "no attention call was seen on its chain of blocks")
        raise UnsupportedModelError(f"No head of this model has a chain: {reason}.")
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    crossed = {layer for _, meta in done for layer in meta["crossed"]}
    return HeadReading(arrays=arrays, because=because, crossed=len(crossed))
