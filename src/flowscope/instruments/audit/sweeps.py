"""The passes of the contraction stage beside the measuring pass: sweeps and the output path.

A sweep alters attention at *all* layers of the depth at once, through the tap's replacement, so
that every layer answers to what the layers before it did; rows and metric are those of the altered
model. Both passes read a few prompts only.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from flowscope.flows import Segment
from flowscope.models.prompts import Batch
from flowscope.probes import (
    Arrays,
    AttentionInputs,
    CurvatureProbe,
    EvolutionProbe,
    Rows,
    Setting,
    altered,
    attention_output,
    positions_readout,
)
from flowscope.records import Unavailable
from flowscope.tap import AttentionCall, BlockPass, Chain, Tail, Tap

__all__ = ["evolution", "responses"]

Batches = Callable[[], Iterable[Batch]]


@torch.no_grad()
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
    with Tap(model) as tap:
        inputs = AttentionInputs(model, tap)
        listener = _Sweep(tap, inputs, setting, pairs)
        tap.on_attention(listener.on_attention)
        with inputs:
            for batch in batches:
                listener.batch = batch
                model(**batch.inputs)
                listener.end()
    because = listener.probe.because if listener.probe else "no attention was seen"
    arrays = listener.probe.arrays() if listener.probe else {}
    return Unavailable(because) if because or not arrays else arrays


class _Sweep:
    """Alters every self-attention call of the depth, and measures what it became."""

    def __init__(self, tap: Tap, inputs: AttentionInputs, setting: Setting, pairs: int) -> None:
        self._tap, self._inputs, self._setting, self._pairs = tap, inputs, setting, pairs
        self.probe: CurvatureProbe | None = None
        self.batch: Batch | None = None
        self._begun = False

    def on_attention(self, call: AttentionCall) -> Tensor | None:
        chain = self._tap.anatomy.depth
        assert isinstance(chain, Chain)
        assert self.batch is not None
        if call.site.chain != chain.name or call.cross:
            return None
        if self.probe is None:
            self.probe = CurvatureProbe(len(chain), pairs=self._pairs, null=False)
        if not self._begun:
            self.probe.begin(self.batch.prompts, self.batch.mask)
            self._begun = True
        unchanged = self._setting.value == 1
        changed = call if unchanged else altered(call, self._setting, self.batch.mask)
        self.probe.update(changed, self._inputs.of(call))
        return None if unchanged else attention_output(changed)

    def end(self) -> None:
        assert self.probe is not None
        self.probe.end()
        self._begun = False


@torch.no_grad()
def evolution(
    model: nn.Module,
    batches: Iterable[Batch],
    segments: Sequence[Segment],
    *,
    positions: int,
    top: int,
) -> Arrays | Unavailable:
    """The inequality along the output path of a few tokens per prompt, or why it cannot be read."""
    if not positions:
        return Unavailable("the measurement is switched off (evi_positions is 0)")
    probe: EvolutionProbe | Unavailable | None = None
    with Tap(model) as tap:
        current: list[Batch] = []

        def on_block(event: BlockPass) -> None:
            nonlocal probe
            chain = tap.anatomy.depth
            assert isinstance(chain, Chain)
            if event.site.chain != chain.name or event.site.stream != chain.streams[0]:
                return
            if probe is None:
                probe = _evolution_probe(model, tap, segments, positions, top)
            if isinstance(probe, EvolutionProbe):
                if event.site.index == 0:
                    probe.begin(Rows.of_mask(current[0].prompts, current[0].mask))
                probe.update(event)

        tap.on_block(on_block)
        for batch in batches:
            current[:] = [batch]
            model(**batch.inputs)
            if not isinstance(probe, EvolutionProbe):
                break
            probe.end()
    if probe is None:
        return Unavailable("no block was seen")
    return probe if isinstance(probe, Unavailable) else probe.arrays()


def _evolution_probe(
    model: nn.Module, tap: Tap, segments: Sequence[Segment], positions: int, top: int
) -> EvolutionProbe | Unavailable:
    tail = tap.anatomy.tail
    if not isinstance(tail, Tail) or not tail.positionwise:
        return Unavailable("the output of a single position cannot be computed")
    named = getattr(model, "get_output_embeddings", lambda: None)()
    matrix = getattr(named, "weight", None)
    if not isinstance(matrix, Tensor) or matrix.shape[0] != tail.width:
        return Unavailable("the model has no output matrix, so that its outcomes have no distances")
    readout = positions_readout(tail)
    return EvolutionProbe(readout, matrix, segments, positions=positions, top=top)
