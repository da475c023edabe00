"""Measure how far each layer moves the output: the pass over all prompts, segments and controls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import MINIMUM_UNITS, resampled_counts
from flowscope.flows import Segment
from flowscope.instruments.audit.depth_pass import Measured, measured
from flowscope.instruments.audit.reading import (
    Depth,
    depth_probes,
    prompt_counts,
    random_weights,
    shared_pass,
)
from flowscope.instruments.audit.subject import AuditBench
from flowscope.instruments.audit.tokens.tables import telling_row
from flowscope.instruments.audit.units import distinct_prompts
from flowscope.instruments.audit.variation import tables
from flowscope.instruments.audit.variation.cross_fit import gate_table, joined_segments
from flowscope.instruments.audit.variation.judge import SegmentEvidence, stretches
from flowscope.instruments.audit.variation.second_look import SecondLook, second_look
from flowscope.lab.claim import Abstention
from flowscope.records import Unavailable

__all__ = ["measure", "probes"]

probes = depth_probes


def measure(bench: AuditBench) -> None:
    """Read every layer on every prompt, and the random-weights twin on a few."""
    reading = measured(shared_pass(bench)["depth"])
    layers = tables.layer_table(reading.depth, prompt_counts(bench))
    medians = tables.prompt_medians(reading.depth)
    bench.put_arrays("prompts", medians)
    if reading.space != "output":
        # Without an output over outcomes, states vary and attention contracts; nothing else.
        bench.put("layers", layers.assign(space="hidden", status="abstained"))
        hidden = Depth(
            reading=reading, control=random_weights(bench), look=Unavailable(reading.because)
        )
        bench.once("depth", lambda: hidden)
        raise Abstention(reading.because)
    depth = _depth(bench, reading, distinct_prompts(medians))
    bench.once("depth", lambda: depth)
    _write(bench, depth, layers)


def _depth(bench: AuditBench, reading: Measured, distinct: NDArray[np.int64]) -> Depth:
    subject, config = bench.subject, bench.config
    control = random_weights(bench)
    gate = gate_table(
        reading.depth,
        control if isinstance(control, Unavailable) else control.depth,
        distinct,
        threshold=config.threshold,
        resamples=config.resamples,
        seed=config.seed,
    )
    bench.put("gate", gate)
    segments, crossed = joined_segments(stretches(gate))
    # The second look keeps the states of its first batch, which holds no more than the few prompts.
    row = telling_row(reading.depth, min(config.batch, len(subject.few)))
    bench.list_pass("second look", len(subject.few))
    counter = bench.counter("second look")
    few = subject.few_batches(config.batch)
    look = second_look(subject.model, few, segments, row, config.readout)
    counter.finish()
    evidence = tuple(
        _evidence(bench, reading, control, look, segment, number)
        for number, segment in enumerate(segments)
    )
    if len(distinct) >= MINIMUM_UNITS:
        pairs = zip(evidence, crossed, strict=True)
        evidence = tuple(replace(part, crossed=decision) for part, decision in pairs)
    return Depth(
        reading=reading,
        control=control,
        segments=segments,
        evidence=evidence,
        look=look,
        row=row,
    )


def _evidence(
    bench: AuditBench,
    reading: Measured,
    control: Measured | Unavailable,
    look: SecondLook,
    segment: Segment,
    number: int,
) -> SegmentEvidence:
    threshold = bench.config.threshold
    value, interval, above = tables.segment_statistics(
        reading.depth, segment, prompt_counts(bench), threshold
    )
    fresh: float | Unavailable
    if isinstance(control, Unavailable):
        fresh = control
    else:
        few = resampled_counts(len(bench.subject.few), resamples=2, seed=0)
        fresh, _, _ = tables.segment_statistics(control.depth, segment, few, threshold)
    return SegmentEvidence(
        first=segment.first,
        last=segment.last,
        kind=segment.kind,
        relative_variation=value,
        interval=interval,
        share_above=above,
        mass_residual=look.mass_residual,
        mass_bound=_mass_bound(look.vocabulary),
        threshold=threshold,
        random_weights=fresh,
        linear_interpolation=float(look.straight[number]),
    )


def _write(bench: AuditBench, depth: Depth, layers: pd.DataFrame) -> None:
    assert not isinstance(depth.look, Unavailable)
    values = depth.reading.depth
    bench.put("layers", tables.placed_layers(layers, depth.evidence))
    bench.put("segments", tables.segment_table(values, depth.evidence, depth.look.chord))
    bench.put("jumps", tables.jump_table(layers))


def _mass_bound(outcomes: int) -> float:
    """How far a float64 softmax may miss one: it adds its terms in a few lanes, one by one."""
    lanes = max(float(np.sqrt(outcomes)), 4.0) + outcomes / 8
    return lanes * float(np.finfo(np.float64).eps)
