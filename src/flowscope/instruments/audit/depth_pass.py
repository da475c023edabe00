"""What the measuring pass of an audit reads of every batch: scalars per token, head and pair."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowscope.probes import (
    Arrays,
    AttentionEntropyProbe,
    AttentionInputs,
    CurvatureProbe,
    DepthProbe,
    HiddenProbe,
    InputBatch,
    Piece,
    Rows,
    TapProbe,
    pooled_readout,
    positions_readout,
)
from flowscope.records import Unavailable
from flowscope.tap import AttentionCall, BlockPass, Chain, Operands, Tail

__all__ = ["DepthReading", "Measured", "Sampling", "measured"]

_PREFIXES = ("head_", "curvature_")


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What is read of a batch.

    ``pairs`` of rows per prompt for the curvature, with its ``null`` or without, and what the
    output product reads (`Tail.widened`).
    """

    pairs: int = 4
    null: bool = True
    operands: Operands = "exact"


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


class DepthReading(TapProbe):
    """The probes of the measuring pass, chosen when the anatomy of the model is known."""

    hears = ("inputs", "states")
    purpose = "depth to audit"

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._because = ""
        self._open = False

    def open(self, chain: Chain, tail: Tail | Unavailable) -> None:
        """Choose where variation is read: over outcomes, or in the hidden states."""
        sampling = self._sampling
        self._heads = AttentionEntropyProbe(len(chain))
        self._curvature = CurvatureProbe(len(chain), pairs=sampling.pairs, null=sampling.null)
        self._depth: DepthProbe | HiddenProbe
        self._pooled = isinstance(tail, Tail) and not tail.positionwise
        if isinstance(tail, Tail) and tail.target == "logits":
            made = pooled_readout if self._pooled else positions_readout
            self._depth = DepthProbe(made(tail, sampling.operands))
            return
        self._depth = HiddenProbe()
        self._because = (
            tail.reason
            if isinstance(tail, Unavailable)
            else f"the model has no distribution over outcomes: its output is {tail.target}"
        )

    @property
    def logits(self) -> DepthProbe | None:
        """The probe that reads logits, while it reads a batch."""
        return self._depth if self._open and isinstance(self._depth, DepthProbe) else None

    def begin(self, batch: InputBatch) -> None:
        """Start a batch; a model that pools the tokens of a text has no output at a token."""
        if self._pooled and batch.named.shape[1] > 1 and isinstance(self._depth, DepthProbe):
            self._depth = HiddenProbe()
            self._because = "the model pools the tokens of a text before its output"
        self._open = True
        self._depth.begin(Rows.of_mask(batch.prompts, batch.named))
        self._heads.begin(batch.prompts, batch.mask)
        self._curvature.begin(batch.prompts, batch.mask)

    def attention(self, call: AttentionCall, inputs: AttentionInputs) -> None:
        """Read entropies, and curvature where the call attends to its own sequence."""
        self._heads.update(call)
        if not call.cross:
            self._curvature.update(call, inputs.of(call))

    def block(self, event: BlockPass) -> None:
        """Read one step of depth."""
        self._depth.update(event)

    def end(self) -> Piece:
        """Return the scalars of the batch, and what is to be known about them."""
        self._open = False
        arrays: Arrays = {}
        for probe in (self._depth, self._heads, self._curvature):
            probe.end()
            arrays |= probe.arrays()
            probe.clear()
        space = "output" if isinstance(self._depth, DepthProbe) else "hidden"
        meta = {"space": space, "because": self._because, "uncurved": self._curvature.because}
        return Piece(arrays=arrays, meta=meta)


def measured(pieces: Sequence[Piece]) -> Measured:
    """Join the pieces of a `DepthReading`, one per batch."""

    def table(*prefixes: str) -> Arrays:
        parts = [{n: v for n, v in p.arrays.items() if n.startswith(prefixes)} for p in pieces]
        parts = [part for part in parts if part]
        return {n: np.concatenate([part[n] for part in parts]) for n in parts[0]} if parts else {}

    names = {name for piece in pieces for name in piece.arrays if not name.startswith(_PREFIXES)}
    reasons = [piece.meta["uncurved"] for piece in pieces if piece.meta["uncurved"]]
    curvature: Arrays | Unavailable = table("curvature_")
    if reasons or not curvature:
        switched_off = "the measurement is switched off (curvature_pairs is 0)"
        curvature = Unavailable(reasons[0] if reasons else switched_off)
    return Measured(
        depth={n: np.concatenate([piece.arrays[n] for piece in pieces]) for n in sorted(names)},
        heads=table("head_"),
        curvature=curvature,
        space=pieces[0].meta["space"],
        because=pieces[0].meta["because"],
    )
