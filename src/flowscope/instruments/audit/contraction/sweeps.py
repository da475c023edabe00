"""The passes of the contraction stage beside the measuring pass: sweeps and the output path.

A sweep alters attention at *all* layers of the depth at once, through the tap's replacement, so
that every layer answers to what the layers before it did; rows and metric are those of the altered
model. Both passes read a few prompts only.
"""

from collections.abc import Callable, Iterable, Sequence

from torch import Tensor, nn

from flowscope.flows import Segment
from flowscope.models.prompts import Batch
from flowscope.probes import (
    Arrays,
    AttentionInputs,
    CurvatureProbe,
    EvolutionProbe,
    InputBatch,
    Piece,
    Rows,
    Setting,
    TapProbe,
    altered,
    attention_output,
    positions_readout,
    tap_pass,
)
from flowscope.records import Unavailable
from flowscope.tap import AttentionCall, BlockPass, Chain, Operands, Tail

__all__ = ["evolution", "responses"]

Batches = Callable[[], Iterable[Batch]]


def responses(
    model: nn.Module,
    batches: Batches,
    settings: Sequence[Setting],
    *,
    pairs: int,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> list[Arrays] | Unavailable:
    """Curvature of every head under each setting, on the same pairs of rows.

    Parameters
    ----------
    model, batches
        What, on what; the batches are asked for once per setting.
    settings
        The points of the sweep; 1 is the model as it is.
    pairs
        Pairs of rows per prompt.
    advance
        Told how many settings are done, of how many.
    """
    found = []
    for number, setting in enumerate(settings):
        advance(number, len(settings))
        arrays = _response(model, batches(), setting, pairs)
        if isinstance(arrays, Unavailable):
            return arrays
        found.append(arrays)
    advance(len(settings), len(settings))
    return found


def _response(
    model: nn.Module, batches: Iterable[Batch], setting: Setting, pairs: int
) -> Arrays | Unavailable:
    sweep = _Sweep(setting, pairs)
    tap_pass(model, batches, {"sweep": sweep})
    if sweep.probe is None:
        return Unavailable("no attention was seen")
    arrays = sweep.probe.arrays()
    return Unavailable(sweep.probe.because) if sweep.probe.because or not arrays else arrays


class _Sweep(TapProbe):
    """Alters every self-attention call of the depth, and measures what it became."""

    hears = ("inputs",)

    def __init__(self, setting: Setting, pairs: int) -> None:
        self._setting, self._pairs = setting, pairs
        self.probe: CurvatureProbe | None = None

    def open(self, chain: Chain, tail: Tail | Unavailable) -> None:
        self.probe = CurvatureProbe(len(chain), pairs=self._pairs, null=False)

    def begin(self, batch: InputBatch) -> None:
        assert self.probe is not None
        self.probe.begin(batch.prompts, batch.mask)
        self._present = batch.present

    def attention(self, call: AttentionCall, inputs: AttentionInputs) -> Tensor | None:
        assert self.probe is not None
        if call.cross:
            return None
        unchanged = self._setting.value == 1
        changed = call if unchanged else altered(call, self._setting, self._present)
        self.probe.update(changed, inputs.of(call))
        return None if unchanged else attention_output(changed)

    def end(self) -> Piece:
        assert self.probe is not None
        self.probe.end()
        return Piece()


def evolution(
    model: nn.Module,
    batches: Iterable[Batch],
    segments: Sequence[Segment],
    *,
    positions: int,
    top: int,
    operands: Operands = "exact",
) -> Arrays | Unavailable:
    """The inequality along the output path of a few tokens per prompt, or why it cannot be read."""
    if not positions:
        return Unavailable("the measurement is switched off (evi_positions is 0)")
    path = _OutputPath(model, segments, positions, top, operands)
    try:
        tap_pass(model, batches, {"path": path})
    except _NoOutputPath as reason:
        return Unavailable(str(reason))
    return path.probe.arrays() if path.probe is not None else Unavailable("no block was seen")


class _NoOutputPath(Exception):  # noqa: N818 - ends a pass that can read nothing
    """The output of a single position cannot be read; the message is the reason."""


class _OutputPath(TapProbe):
    """Feeds the blocks of the depth to an `EvolutionProbe`."""

    def __init__(
        self,
        model: nn.Module,
        segments: Sequence[Segment],
        positions: int,
        top: int,
        operands: Operands,
    ) -> None:
        self._model, self._segments, self._operands = model, segments, operands
        self._positions, self._top = positions, top
        self.probe: EvolutionProbe | None = None

    def open(self, chain: Chain, tail: Tail | Unavailable) -> None:
        if not isinstance(tail, Tail) or not tail.positionwise:
            raise _NoOutputPath("the output of a single position cannot be computed")
        named = getattr(self._model, "get_output_embeddings", lambda: None)()
        matrix = getattr(named, "weight", None)
        if not isinstance(matrix, Tensor) or matrix.shape[0] != tail.width:
            raise _NoOutputPath(
                "the model has no output matrix, so that its outcomes have no distances"
            )
        self.probe = EvolutionProbe(
            positions_readout(tail, self._operands),
            matrix,
            self._segments,
            positions=self._positions,
            top=self._top,
        )

    def begin(self, batch: InputBatch) -> None:
        assert self.probe is not None
        self.probe.begin(Rows.of_mask(batch.prompts, batch.named))

    def block(self, event: BlockPass) -> None:
        assert self.probe is not None
        self.probe.update(event)

    def end(self) -> Piece:
        assert self.probe is not None
        self.probe.end()
        return Piece()
