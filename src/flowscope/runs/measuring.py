"""The measuring pass of an audit: batches through the model, scalars into shards, resumable."""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.probes import (
    Arrays,
    AttentionEntropyProbe,
    DepthProbe,
    HiddenProbe,
    Rows,
    pooled_readout,
    positions_readout,
)
from flowscope.records import Run, ShardKey, Unavailable
from flowscope.runs.batches import Batch
from flowscope.tap import Anatomy, AttentionCall, BlockPass, Chain, Tail, Tap

__all__ = ["Measured", "fresh_twin", "measured", "refuse_broken_weights"]

Advance = Callable[[int], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """What the pass left behind.

    Attributes
    ----------
    depth
        One row per token: the arrays of `DepthProbe`, or of `HiddenProbe` when `space` is hidden.
    heads
        Entropy sums per prompt, layer and head; empty when a block made no self-attention call.
    space
        ``"output"`` when distributions over outcomes were read, ``"hidden"`` when they could not.
    because
        Why the output could not be read; empty when it could.
    """

    depth: Arrays
    heads: Arrays
    space: str
    because: str


def refuse_broken_weights(model: nn.Module) -> None:
    """Raise when a parameter holds NaN or infinity: every number after it would be nonsense."""
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and not parameter.is_meta:
            bad = int((~torch.isfinite(parameter)).sum())
            if bad:
                raise InvalidInputError(
                    f"The weight {name} holds {bad} values that are NaN or infinite; the "
                    "checkpoint is damaged. Load it again from its source."
                )


def fresh_twin(model: nn.Module, seed: int) -> nn.Module | Unavailable:
    """The same architecture with random weights, on the same device and in the same dtype."""
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        return Unavailable("only a transformers configuration can be initialised anew")
    parameter = next(model.parameters())
    if parameter.is_meta:
        return Unavailable("the weights are off-loaded")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        twin: nn.Module = type(model)(copy.deepcopy(model.config))
    return twin.to(parameter.device, parameter.dtype).eval()


class _Instruments:
    """The probes of one model, chosen when its anatomy is known."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self.depth: DepthProbe | HiddenProbe | None = None
        self.heads: AttentionEntropyProbe | None = None
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
        self.depth.begin(Rows.of_mask(self._batch.prompts, self._batch.mask))
        self.heads.begin(self._batch.prompts, self._batch.mask)

    def _choose(self, anatomy: Anatomy) -> None:
        depth, tail = anatomy.depth, anatomy.tail
        if isinstance(depth, Unavailable):
            raise UnsupportedModelError(f"This model has no depth to audit: {depth.reason}.")
        self.heads = AttentionEntropyProbe(len(depth))
        if isinstance(tail, Tail) and tail.target == "logits":
            pooled = not tail.positionwise
            readout = pooled_readout(tail) if pooled else positions_readout(tail)
            self.depth = DepthProbe(readout, width=tail.width, pooled=pooled)
            return
        self.depth = HiddenProbe()
        self.because = (
            tail.reason
            if isinstance(tail, Unavailable)
            else f"the model has no output over outcomes: it ends in {tail.target}"
        )

    def on_attention(self, call: AttentionCall) -> None:
        if self.heads is None:
            self._begin(self._tap.anatomy)
        assert self.heads is not None
        if call.site.chain == self._chain.name:
            self.heads.update(call)

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

    def end(self) -> None:
        assert self.depth is not None
        assert self.heads is not None
        self.depth.end()
        self.heads.end()


@torch.no_grad()
def measured(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    run: Run | None = None,
    fingerprint: str = "",
    advance: Advance = lambda prompts: None,
) -> Measured:
    """Run every batch under the tap; with a run folder, finished batches are not run again.

    Parameters
    ----------
    model, batches
        What is measured, on what.
    run, fingerprint
        Where shards are kept, and what decides their content.
    advance
        Told the number of prompts after every batch.
    """
    done: list[tuple[Arrays, Arrays, dict[str, Any]]] = []
    with Tap(model) as tap:
        instruments = _Instruments(tap)
        tap.on_attention(instruments.on_attention)
        tap.on_block(instruments.on_block)
        for number, batch in enumerate(batches):
            key = ShardKey(name=f"{number:05d}", fingerprint=fingerprint) if run else None
            if run is not None and key is not None and run.shard_done(key):
                shard = run.read_shard(key)
                done.append(_unpacked(dict(shard.arrays), dict(shard.meta)))
            else:
                done.append(_one(model, instruments, batch))
                if run is not None and key is not None:
                    depth, heads, meta = done[-1]
                    run.write_shard(key, {**depth, **heads}, meta)
            advance(len(batch.prompts))
    return _joined(done)


def _one(
    model: nn.Module, instruments: _Instruments, batch: Batch
) -> tuple[Arrays, Arrays, dict[str, Any]]:
    instruments.begin(batch)
    model(**batch.inputs)
    instruments.end()
    assert instruments.depth is not None
    assert instruments.heads is not None
    space = "output" if isinstance(instruments.depth, DepthProbe) else "hidden"
    found = instruments.depth.arrays(), instruments.heads.arrays()
    instruments.depth.clear()
    instruments.heads.clear()
    return *found, {"space": space, "because": instruments.because}


def _unpacked(arrays: Arrays, meta: dict[str, Any]) -> tuple[Arrays, Arrays, dict[str, Any]]:
    heads = {name: values for name, values in arrays.items() if name.startswith("head_")}
    depth = {name: values for name, values in arrays.items() if name not in heads}
    return depth, heads, meta


def _joined(done: list[tuple[Arrays, Arrays, dict[str, Any]]]) -> Measured:
    parts = [[d for d, _, _ in done], [h for _, h, _ in done if h]]
    depth, heads = (
        {name: np.concatenate([p[name] for p in pieces]) for name in pieces[0]} if pieces else {}
        for pieces in parts
    )
    meta = done[0][2]
    return Measured(depth=depth, heads=heads, space=meta["space"], because=meta["because"])
