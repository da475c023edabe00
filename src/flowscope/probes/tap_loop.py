"""The loop over batches of a tapped model: several probes share each forward pass.

A batch whose shards are all in the run folder is not run; a batch some of whose shards are missing
is run for the probes that lack theirs. Where several processes make the shards of a run, each
batch is first made by one of them; the loop then finds the shards, and runs what stays in memory.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.probes.inputs import AttentionInputs
from flowscope.probes.reducer import Arrays
from flowscope.records import Crew, Shards, Task, Unavailable
from flowscope.tap import Anatomy, AttentionCall, BlockPass, Chain, Tail, Tap

__all__ = [
    "InputBatch",
    "Piece",
    "PlainBatch",
    "TapProbe",
    "model_anatomy",
    "names_prompts",
    "stream_length",
    "tap_pass",
]

Hears = Literal["attention", "inputs", "blocks", "states"]


class InputBatch(Protocol):
    """What goes through the model at once."""

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Keyword arguments of the model."""

    @property
    def prompts(self) -> NDArray[np.int64]:
        """Number of the prompt in each row."""

    @property
    def mask(self) -> Tensor:
        """Which positions of each row count: text, neither special tokens nor padding."""

    @property
    def named(self) -> Tensor:
        """At which of them the output is read: in a masked model those that were hidden."""

    @property
    def present(self) -> Tensor:
        """Which positions are there, special tokens included: what attention can look at."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PlainBatch:
    """Inputs of one forward pass whose rows are no prompts."""

    inputs: Mapping[str, Any]
    prompts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    mask: Tensor = field(default_factory=lambda: torch.ones(1, 1, dtype=torch.bool))

    @property
    def named(self) -> Tensor:
        """As the mask."""
        return self.mask

    @property
    def present(self) -> Tensor:
        """As the mask."""
        return self.mask


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """What a probe returns for one batch: the content of one shard."""

    arrays: Arrays = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)


class TapProbe:
    """A probe that `tap_pass` feeds with the chain of blocks of a model.

    For every batch that the probe takes part in, `begin` is called at its first event, then
    `attention` and `block` in the order of the forward pass, then `end`. A subclass overrides what
    it needs.

    Attributes
    ----------
    hears
        ``"attention"``: attention calls of the chain of blocks. ``"inputs"``: the states behind
        these calls, too. ``"blocks"``: passes of the main stream through the blocks, with what each
        block adds. ``"states"``: the same without the additions, which need a torch function mode.
    purpose
        Finishes "This model has no …" where the model has no chain of blocks.
    prefix
        Start of the names of its shards, before the number of the batch; None for a probe whose
        results stay in memory and are made again when a run is resumed.
    """

    hears: ClassVar[tuple[Hears, ...]] = ("blocks",)
    purpose: ClassVar[str] = "depth to read"
    prefix: ClassVar[str | None] = ""

    def open(self, chain: Chain, tail: Tail | Unavailable) -> None:
        """Receive the anatomy, once, before the first `begin`."""

    def begin(self, batch: InputBatch) -> None:
        """Start a batch."""

    def attention(self, call: AttentionCall, inputs: AttentionInputs) -> Tensor | None:
        """Read an attention call; a tensor that is returned replaces the output of the call."""
        return None

    def block(self, event: BlockPass) -> None:
        """Read one block."""

    def end(self) -> Piece:
        """Return what the batch left, and forget it."""
        return Piece()


@torch.no_grad()
def tap_pass(
    model: nn.Module,
    batches: Iterable[InputBatch],
    probes: Mapping[str, TapProbe],
    *,
    shards: Mapping[str, Shards] | None = None,
    advance: Callable[[int], None] = lambda prompts: None,
) -> dict[str, list[Piece]]:
    """Run every batch once for all probes and return the pieces of each probe, a piece per batch.

    Parameters
    ----------
    model, batches
        What is run, on what.
    probes
        Probes by name, in the order in which they hear of an event.
    shards
        Shards of some of the probes, by the same names: a piece is written under the prefix of its
        probe and the number of its batch, and a piece that is there is read instead of measured.
    advance
        Called with the number of prompts after every batch.

    Raises
    ------
    UnsupportedModelError
        The model has no chain of blocks, or nothing of it was seen.
    InvalidInputError
        Two probes would write the same shards, or shards are given for a probe that is not there.
    """
    stores = _stores(shards or {}, probes)
    pieces: dict[str, list[Piece]] = {name: [] for name in probes}
    with Tap(model) as tap:
        feed = _Feed(tap, AttentionInputs(model, tap), probes)
        # The tap listens already, so that its anatomy is there when the inputs are hooked.
        with feed.inputs if feed.needs_inputs else nullcontext():
            loop = _Loop(model, feed, probes, stores, advance)
            if (crew := _crew(stores)) is not None:
                batches = list(batches)
                crew.spread([loop.task(number, batch) for number, batch in enumerate(batches)])
            for number, batch in enumerate(batches):
                for name, piece in loop.pieces(number, batch, probes).items():
                    pieces[name].append(piece)
                loop.count(number, batch)
    return pieces


def _crew(stores: Mapping[str, tuple[Shards, str]]) -> Crew | None:
    return next((store.crew for store, _ in stores.values()), None)


class _Loop:
    """What is done with one batch: its pieces from shards, or from a run of the model."""

    def __init__(
        self,
        model: nn.Module,
        feed: "_Feed",
        probes: Mapping[str, TapProbe],
        stores: Mapping[str, tuple[Shards, str]],
        advance: Callable[[int], None],
    ) -> None:
        self._model, self._feed, self._probes = model, feed, probes
        self._stores, self._advance = stores, advance
        self._counted: set[int] = set()

    def pieces(
        self, number: int, batch: InputBatch, probes: Mapping[str, TapProbe]
    ) -> dict[str, Piece]:
        """Pieces of these probes, in their order; what was made is written."""
        finished = _finished(self._stores, number)
        missing = {name: probe for name, probe in probes.items() if name not in finished}
        made: dict[str, Piece] = {}
        kept = {name: probe for name, probe in missing.items() if name not in self._stores}
        written = {name: probe for name, probe in missing.items() if name in self._stores}
        # A shard holds the numbers of its prompts among all prompts of the text.
        skipped = getattr(batch, "skipped", 0)
        numbered = _renumbered(batch, skipped)
        if missing:
            made = self._feed.run(self._model, batch, missing, dict.fromkeys(written, numbered))
        for name in written:
            store, prefix = self._stores[name]
            store.write(f"{prefix}{number:05d}", made[name].arrays, made[name].meta)
        pieces = {**finished, **{name: made[name] for name in written}}
        local = {name: _locally(piece, skipped) for name, piece in pieces.items()}
        return {name: made[name] if name in kept else local[name] for name in probes}

    def task(self, number: int, batch: InputBatch) -> Task:
        """The making of the shards of one batch, which any process may do."""
        written = {name: self._probes[name] for name in self._stores}

        def make() -> None:
            self.pieces(number, batch, written)
            self.count(number, batch)

        store, prefix = next(iter(self._stores.values()))
        return Task(
            name=store.task_name(f"{prefix}{number:05d}"),
            done=lambda: len(_finished(self._stores, number)) == len(self._stores),
            make=make,
        )

    def count(self, number: int, batch: InputBatch) -> None:
        """Advance once for each batch."""
        if number not in self._counted:
            self._counted.add(number)
            self._advance(len(batch.prompts))


def model_anatomy(model: nn.Module, inputs: Mapping[str, Any]) -> Anatomy:
    """Anatomy of a model, from one forward pass; later taps of the model reuse it."""
    with Tap(model) as tap, torch.no_grad():
        tap.on_block(lambda event: None, writes=False)
        model(**inputs)
        return tap.anatomy


def stream_length(model: nn.Module, inputs: Mapping[str, Any]) -> int:
    """Positions of the main residual stream, from one forward pass."""
    lengths: list[int] = []
    with Tap(model) as tap, torch.no_grad():
        tap.on_block(lambda event: lengths.append(int(event.hidden_in.shape[1])))
        model(**inputs)
    if not lengths:
        raise UnsupportedModelError("No block of this model was seen while it ran.")
    return lengths[-1]


def _stores(
    shards: Mapping[str, Shards], probes: Mapping[str, TapProbe]
) -> dict[str, tuple[Shards, str]]:
    """Shards and prefix of every probe that writes shards."""
    unknown = sorted(set(shards) - set(probes))
    if unknown:
        raise InvalidInputError(f"There are shards for {unknown[0]!r}, which is no probe here.")
    stores = {
        name: (store, prefix)
        for name, store in shards.items()
        if (prefix := probes[name].prefix) is not None
    }
    places = {(store.run.folder, store.fingerprint, prefix) for store, prefix in stores.values()}
    if len(places) < len(stores):
        raise InvalidInputError(
            f"The probes {', '.join(stores)} would write the same shards: give each a prefix."
        )
    return stores


def _renumbered(batch: InputBatch, skipped: int) -> InputBatch:
    if not skipped:
        return batch
    changed = {"prompts": batch.prompts + skipped}
    return cast(InputBatch, replace(cast(Any, batch), **changed))


def _locally(piece: Piece, skipped: int) -> Piece:
    """A piece whose prompts are numbered from the first one of the run."""
    if not skipped:
        return piece
    arrays = {
        name: values - skipped if names_prompts(name) else values
        for name, values in piece.arrays.items()
    }
    return replace(piece, arrays=arrays)


def names_prompts(name: str) -> bool:
    """Whether an array of a piece holds numbers of prompts, by its name."""
    return name == "prompt" or name.endswith("_prompt")


def _finished(stores: Mapping[str, tuple[Shards, str]], number: int) -> dict[str, Piece]:
    shards = {name: store.find(f"{prefix}{number:05d}") for name, (store, prefix) in stores.items()}
    return {
        name: Piece(arrays=dict(shard.arrays), meta=shard.meta)
        for name, shard in shards.items()
        if shard is not None
    }


class _Feed:
    """Hands the events of a tap to the probes that take part in the running batch."""

    def __init__(self, tap: Tap, inputs: AttentionInputs, probes: Mapping[str, TapProbe]) -> None:
        self._tap, self.inputs = tap, inputs
        self.needs_inputs = any("inputs" in probe.hears for probe in probes.values())
        self._opened: set[str] = set()
        self._active: dict[str, TapProbe] = {}
        self._batch: InputBatch | None = None
        self._own: Mapping[str, InputBatch] = {}
        for name, probe in probes.items():
            if {"attention", "inputs"} & set(probe.hears):
                tap.on_attention(partial(self._attention, name))
        for name, probe in probes.items():
            if {"blocks", "states"} & set(probe.hears):
                tap.on_block(partial(self._block, name), writes="blocks" in probe.hears)

    def run(
        self,
        model: nn.Module,
        batch: InputBatch,
        probes: dict[str, TapProbe],
        own: Mapping[str, InputBatch],
    ) -> dict[str, Piece]:
        """Run one batch for these probes; every other probe hears nothing of it.

        ``own`` is the batch as some of the probes see it.
        """
        self._active, self._batch, self._own = probes, batch, own
        model(**batch.inputs)
        tail = self._tap.anatomy.tail
        if isinstance(tail, Tail):
            tail.release()
        if self._batch is not None:
            raise UnsupportedModelError("No block of this model was seen while it ran.")
        self._active = {}
        return {name: probe.end() for name, probe in probes.items()}

    def _attention(self, name: str, call: AttentionCall) -> Tensor | None:
        chain, probe = self._start(), self._active.get(name)
        if probe is None or call.site.chain != chain.name:
            return None
        # What a probe computes is not part of the pass: no function mode need look at it.
        with torch._C.DisableTorchFunction():
            return probe.attention(call, self.inputs)

    def _block(self, name: str, event: BlockPass) -> None:
        chain, probe = self._start(), self._active.get(name)
        main = event.site.chain == chain.name and event.site.stream == chain.streams[0]
        if probe is not None and main:
            with torch._C.DisableTorchFunction():
                probe.block(event)

    def _start(self) -> Chain:
        """Begin the batch at its first event, when the anatomy is known."""
        anatomy = self._tap.anatomy
        batch, self._batch = self._batch, None
        for name, probe in self._active.items() if batch is not None else ():
            if not isinstance(anatomy.depth, Chain):
                raise UnsupportedModelError(
                    f"This model has no {probe.purpose}: {anatomy.depth.reason}."
                )
            if name not in self._opened:
                probe.open(anatomy.depth, anatomy.tail)
                self._opened.add(name)
            assert batch is not None
            probe.begin(self._own.get(name, batch))
        assert isinstance(anatomy.depth, Chain)
        return anatomy.depth
