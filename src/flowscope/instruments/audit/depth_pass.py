"""The measuring pass of an audit: batches through the model, scalars into shards, resumable."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from flowscope.errors import UnsupportedModelError
from flowscope.models.prompts import Batch
from flowscope.probes import (
    Arrays,
    AttentionEntropyProbe,
    AttentionInputs,
    CurvatureProbe,
    DepthProbe,
    HiddenProbe,
    Rows,
    pooled_readout,
    positions_readout,
)
from flowscope.records import Run, ShardKey, Unavailable
from flowscope.tap import Anatomy, AttentionCall, BlockPass, Chain, Tail, Tap

__all__ = ["Measured", "Sampling", "measured"]

Advance = Callable[[int], None]
_PREFIXES = ("head_", "curvature_")


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How many pairs of rows per prompt the curvature is read on, and whether with its null."""

    pairs: int = 4
    null: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """What the pass left behind.

    Attributes
    ----------
    depth
        One row per token: the arrays of `DepthProbe`, or of `HiddenProbe` when `space` is hidden.
    heads
        Entropy sums per prompt, layer and head; empty when a block made no self-attention call.
    curvature
        One row per pair of rows: the arrays of `CurvatureProbe`, or why there are none.
    space
        ``"output"`` when distributions over outcomes were read, ``"hidden"`` when they could not.
    because
        Why the output could not be read; empty when it could.
    """

    depth: Arrays
    heads: Arrays
    curvature: Arrays | Unavailable
    space: str
    because: str


class _Instruments:
    """The probes of one model, chosen when its anatomy is known."""

    def __init__(self, tap: Tap, inputs: AttentionInputs, sampling: Sampling) -> None:
        self._tap, self._inputs, self._sampling = tap, inputs, sampling
        self.depth: DepthProbe | HiddenProbe | None = None
        self.heads: AttentionEntropyProbe | None = None
        self.curvature: CurvatureProbe | None = None
        self.because = ""
        self._batch: Batch | None = None

    def begin(self, batch: Batch) -> None:
        self._batch = batch
        if self.depth is not None:
            self._begin(self._tap.anatomy)

    def _begin(self, anatomy: Anatomy) -> None:
        assert self._batch is not None
        if self.depth is None:
            self._choose(anatomy)
        assert self.depth is not None
        assert self.heads is not None
        assert self.curvature is not None
        self.depth.begin(Rows.of_mask(self._batch.prompts, self._batch.mask))
        self.heads.begin(self._batch.prompts, self._batch.mask)
        self.curvature.begin(self._batch.prompts, self._batch.mask)

    def _choose(self, anatomy: Anatomy) -> None:
        depth, tail = anatomy.depth, anatomy.tail
        if isinstance(depth, Unavailable):
            raise UnsupportedModelError(f"This model has no depth to audit: {depth.reason}.")
        self.heads = AttentionEntropyProbe(len(depth))
        sampling = self._sampling
        self.curvature = CurvatureProbe(len(depth), pairs=sampling.pairs, null=sampling.null)
        if isinstance(tail, Tail) and tail.target == "logits":
            pooled = not tail.positionwise
            readout = pooled_readout(tail) if pooled else positions_readout(tail)
            self.depth = DepthProbe(readout, width=tail.width, pooled=pooled)
            return
        self.depth = HiddenProbe()
        self.because = (
            tail.reason
            if isinstance(tail, Unavailable)
            else f"the model has no distribution over outcomes: its output is {tail.target}"
        )

    def on_attention(self, call: AttentionCall) -> None:
        if self.heads is None:
            self._begin(self._tap.anatomy)
        assert self.heads is not None
        assert self.curvature is not None
        if call.site.chain == self._chain.name:
            self.heads.update(call)
            if not call.cross:
                self.curvature.update(call, self._inputs.of(call))

    def on_block(self, event: BlockPass) -> None:
        assert self.depth is not None
        chain = self._chain
        if event.site.chain == chain.name and event.site.stream == chain.streams[0]:
            self.depth.update(event)

    @property
    def _chain(self) -> Chain:
        chain = self._tap.anatomy.depth
        assert isinstance(chain, Chain)
        return chain

    def end(self) -> tuple[Arrays, dict[str, Any]]:
        """What the batch left behind, and what is to be known about it; nothing stays here."""
        assert self.depth is not None
        assert self.heads is not None
        assert self.curvature is not None
        arrays: Arrays = {}
        for probe in (self.depth, self.heads, self.curvature):
            probe.end()
            arrays |= probe.arrays()
            probe.clear()
        space = "output" if isinstance(self.depth, DepthProbe) else "hidden"
        meta = {"space": space, "because": self.because, "uncurved": self.curvature.because}
        return arrays, meta


@torch.no_grad()
def measured(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    sampling: Sampling,
    run: Run | None = None,
    fingerprint: str = "",
    advance: Advance = lambda prompts: None,
) -> Measured:
    """Run every batch under the tap; with a run folder, finished batches are not run again.

    Parameters
    ----------
    model, batches
        What is measured, on what.
    sampling
        Which pairs of rows the curvature is read on.
    run, fingerprint
        Where shards are kept, and what decides their content.
    advance
        Told the number of prompts after every batch.
    """
    done: list[tuple[Arrays, dict[str, Any]]] = []
    with Tap(model) as tap:
        inputs = AttentionInputs(model, tap)
        instruments = _Instruments(tap, inputs, sampling)
        tap.on_attention(instruments.on_attention)
        tap.on_block(instruments.on_block)
        with inputs:  # the tap listens already, so its anatomy is there when inputs are hooked
            for number, batch in enumerate(batches):
                key = ShardKey(name=f"{number:05d}", fingerprint=fingerprint) if run else None
                shard = run.find_shard(key) if run is not None and key is not None else None
                if shard is not None:
                    done.append((dict(shard.arrays), dict(shard.meta)))
                else:
                    instruments.begin(batch)
                    model(**batch.inputs)
                    done.append(instruments.end())
                    if run is not None and key is not None:
                        run.write_shard(key, *done[-1])
                advance(len(batch.prompts))
    return _joined(done)


def _joined(done: list[tuple[Arrays, dict[str, Any]]]) -> Measured:
    def table(*prefixes: str) -> Arrays:
        parts = [{n: v for n, v in arrays.items() if n.startswith(prefixes)} for arrays, _ in done]
        parts = [part for part in parts if part]
        return {n: np.concatenate([part[n] for part in parts]) for n in parts[0]} if parts else {}

    names = {name for arrays, _ in done for name in arrays if not name.startswith(_PREFIXES)}
    reasons = [meta["uncurved"] for _, meta in done if meta["uncurved"]]
    curvature: Arrays | Unavailable = table("curvature_")
    if reasons or not curvature:
        switched_off = "the measurement is switched off (curvature_pairs is 0)"
        curvature = Unavailable(reasons[0] if reasons else switched_off)
    return Measured(
        depth={n: np.concatenate([arrays[n] for arrays, _ in done]) for n in sorted(names)},
        heads=table("head_"),
        curvature=curvature,
        space=done[0][1]["space"],
        because=done[0][1]["because"],
    )
