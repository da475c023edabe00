"""The stages of ``flowscope audit``: what each measures and which tables it writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from flowscope.evidence import not_measured, resampled_counts
from flowscope.evidence.bootstrap import Counts
from flowscope.flows import Segment, segments_of
from flowscope.instruments.audit import judge, summary
from flowscope.instruments.audit.claims import (
    ADEQUACY,
    CONTRACTION,
    LOCKING,
    ROTATION,
    VARIATION,
)
from flowscope.instruments.audit.contraction_stage import ContractionStage
from flowscope.instruments.audit.depth_pass import DepthReading, Measured, Sampling, measured
from flowscope.instruments.audit.flow_stage import FlowStage
from flowscope.instruments.audit.paths import PathReading, Paths
from flowscope.instruments.audit.rotation_stage import RotationStage
from flowscope.instruments.audit.second_look import SecondLook, second_look
from flowscope.instruments.audit.subject import AuditBench
from flowscope.instruments.audit.variation_rule import SegmentEvidence
from flowscope.lab.claim import Abstention, Claim
from flowscope.models.prompts import batches_of
from flowscope.models.twin import fresh_twin
from flowscope.probes import Piece, TapProbe, tap_pass
from flowscope.records import Unavailable, Verdict

__all__ = ["Depth", "contraction", "depth", "flow", "rotation"]

_SHOWN_PROMPTS, _SHOWN_POSITIONS = 4, 64


@dataclass(frozen=True, kw_only=True, eq=False)
class Depth:
    """What the pass over all prompts left for the later stages.

    Attributes
    ----------
    reading, control
        The model, and its random-weights twin on a few prompts or why there is none.
    segments, evidence
        Segments of the depth, and what decides whether the theory applies to each; empty where the
        model has no output over outcomes.
    """

    reading: Measured
    control: Measured | Unavailable
    segments: tuple[Segment, ...]
    evidence: tuple[SegmentEvidence, ...]

    @property
    def passing(self) -> list[SegmentEvidence]:
        """Segments that passed the gate on variation."""
        return [segment for segment in self.evidence if segment.decision == "holds"]


def depth(bench: AuditBench) -> None:
    """Read every layer on every prompt, and the random-weights twin on a few."""
    subject, config = bench.subject, bench.config
    reading = measured(_shared_pass(bench)["depth"])
    layers = summary.layer_table(reading.depth, _counts(bench))
    if reading.space != "output":
        _hidden(bench, reading, layers)
        _decide(bench, judge.depth, VARIATION, LOCKING)
        return
    segments = segments_of(layers["relative_step"].to_numpy()[1:])
    control = _control(bench)
    # The second look keeps the states of its first batch, which holds no more than the few prompts.
    row = summary.telling_row(reading.depth, min(config.batch, len(subject.few)))
    bench.list_pass("second look", len(subject.few))
    counter = bench.counter("second look")
    look = second_look(subject.model, subject.few_batches(config.batch), segments, row)
    counter.finish()
    evidence = tuple(
        _evidence(bench, reading, control, look, segment, number)
        for number, segment in enumerate(segments)
    )
    made = Depth(reading=reading, control=control, segments=tuple(segments), evidence=evidence)
    bench.once("depth", lambda: made)
    _write(bench, made, layers, look)
    bench.put("simplex_path", _named_path(bench, look.path, reading, row))
    bench.put("tokens", _token_table(bench, reading))
    locking = summary.locking_of(reading.depth, evidence, _counts(bench), config.seed)
    bench.once("locking", lambda: locking)
    if not isinstance(locking, Unavailable):
        bench.put("locking", locking.table)
    _decide(bench, judge.depth, VARIATION, LOCKING)


def contraction(bench: AuditBench) -> None:
    """Read the curvature of attention, its answer to sweeps, and the output path."""
    made: Depth = bench.shared("depth")
    stage, fresh = _contraction(bench), made.control
    words = ""
    if made.reading.space == "output":
        words = stage.output_path(made.evidence, made.segments)
    else:
        stage.no_output_path(made.reading.because)
    twin = fresh if isinstance(fresh, Unavailable) else fresh.curvature
    bench.once("contraction", lambda: stage.verdict(made.reading.curvature, twin, words))
    _decide(bench, judge.contraction, CONTRACTION)


def flow(bench: AuditBench) -> None:
    """Fit a flow on some prompts and forecast the layers of others."""
    paths = _paths(bench)
    if not isinstance(paths, Unavailable):
        stage = _flow(bench)
        stage.depth_loss(paths)
        bench.once("flow", lambda: stage.adequacy(paths, bench.shared("depth").passing))
    _decide(bench, judge.flow, ADEQUACY)


def rotation(bench: AuditBench) -> None:
    """Measure how much of the motion turns at the central layers."""
    paths = _paths(bench)
    if not isinstance(paths, Unavailable):
        stage = RotationStage(config=bench.config, put=bench.put, progress=bench.progress)
        bench.once("rotation", lambda: stage.verdict(paths, bench.shared("depth").passing))
    _decide(bench, judge.rotation, ROTATION)


def depth_probes(bench: AuditBench) -> dict[str, TapProbe]:
    """What the stage `depth` reads of every prompt."""
    return {"depth": DepthReading(Sampling(pairs=bench.config.curvature_pairs, null=True))}


def path_probes(bench: AuditBench) -> dict[str, TapProbe]:
    """What the stages `flow` and `rotation` read of every prompt; nothing where tokens are not."""
    config, prompts = bench.config, bench.subject.prompts
    if not config.flow_positions or prompts.images:
        return {}
    positions, close = config.flow_positions, config.flow_close
    reading = PathReading(prompts=len(prompts), positions=positions, close=close)
    return {"paths": bench.once("path reading", lambda: reading)}


def _shared_pass(bench: AuditBench) -> dict[str, list[Piece]]:
    """Make the one pass over all prompts, for every stage of the run that reads them all."""
    subject, (probes, shards) = bench.subject, bench.probes()
    prompts = len(subject.prompts)
    bench.list_pass("measuring", prompts)
    advance = bench.counter("measuring", prompts).advance
    batches = subject.batches(bench.config.batch)
    return tap_pass(subject.model, batches, probes, shards=shards, advance=advance)


def _decide(
    bench: AuditBench, judging: Callable[[AuditBench], list[Verdict]], *claims: Claim
) -> None:
    """Hand over the verdicts on these claims, or let the claims abstain."""
    try:
        bench.decide(*judging(bench))
    except Abstention as reason:
        bench.decide(*(not_measured(claim, str(reason)) for claim in claims))


def _paths(bench: AuditBench) -> Paths | Unavailable:
    """Paths of a few tokens of every prompt; both the flow and its rotation are read on them."""
    made: Depth = bench.shared("depth")
    if made.reading.space != "output":
        return bench.once("paths", lambda: Unavailable(made.reading.because))
    reason = _flow(bench).obstacle(made.passing)
    if reason:
        return bench.once("paths", lambda: Unavailable(reason))
    reading: PathReading = bench.shared("path reading")
    return bench.once("paths", reading.paths)


def _counts(bench: AuditBench) -> Counts:
    prompts, config = len(bench.subject.prompts), bench.config
    return bench.once(
        "counts", lambda: resampled_counts(prompts, resamples=config.resamples, seed=config.seed)
    )


def _control(bench: AuditBench) -> Measured | Unavailable:
    loaded = bench.subject.loaded
    if not bench.config.controls:
        return Unavailable("controls are switched off")
    twin = fresh_twin(loaded.model, bench.config.seed)
    if isinstance(twin, Unavailable):
        return twin
    few, name = bench.subject.few, "random weights"
    bench.list_pass(name, len(few))
    # The null is asked of the model itself, not of its control.
    reading = DepthReading(Sampling(pairs=bench.config.curvature_pairs, null=False))
    batches = batches_of(replace(loaded, model=twin), few, bench.config.batch)
    advance = bench.counter(name, len(few)).advance
    return measured(tap_pass(twin, batches, {"depth": reading}, advance=advance)["depth"])


def _hidden(bench: AuditBench, reading: Measured, layers: pd.DataFrame) -> None:
    """A model without an output over outcomes: its states vary, its attention contracts."""
    bench.put("layers", layers.assign(space="hidden", status="abstained"))
    bench.put_arrays("prompts", summary.prompt_medians(reading.depth))
    made = Depth(reading=reading, control=_control(bench), segments=(), evidence=())
    bench.once("depth", lambda: made)
    _write_heads(bench, made)


def _evidence(
    bench: AuditBench,
    reading: Measured,
    control: Measured | Unavailable,
    look: SecondLook,
    segment: Segment,
    number: int,
) -> SegmentEvidence:
    threshold = bench.config.threshold
    value, interval, above = summary.segment_statistics(
        reading.depth, segment, _counts(bench), threshold
    )
    fresh: float | Unavailable
    if isinstance(control, Unavailable):
        fresh = control
    else:
        few = resampled_counts(len(bench.subject.few), resamples=2, seed=0)
        fresh, _, _ = summary.segment_statistics(control.depth, segment, few, threshold)
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


def _write(bench: AuditBench, made: Depth, layers: pd.DataFrame, look: SecondLook) -> None:
    values = made.reading.depth
    bench.put("layers", summary.placed_layers(layers, made.evidence))
    bench.put("segments", summary.segment_table(values, made.evidence, look.chord))
    bench.put("jumps", summary.jump_table(layers))
    bench.put("locking_depth", summary.locking_depth_table(values))
    bench.put_arrays("prompts", summary.prompt_medians(values))
    _write_heads(bench, made)


def _write_heads(bench: AuditBench, made: Depth) -> None:
    if made.reading.heads:
        fresh = {} if isinstance(made.control, Unavailable) else made.control.heads
        seed, resamples = bench.config.seed, bench.config.resamples
        table = summary.head_table(made.reading.heads, fresh, resamples=resamples, seed=seed)
        bench.put("heads", table)


def _contraction(bench: AuditBench) -> ContractionStage:
    config, subject = bench.config, bench.subject
    few = resampled_counts(len(subject.few), resamples=config.resamples, seed=config.seed)
    return ContractionStage(
        model=subject.model,
        config=config,
        counts=_counts(bench),
        few_counts=few,
        few_batches=lambda: subject.few_batches(config.batch),
        list_pass=bench.list_pass,
        put=bench.put,
        note=bench.note,
        progress=bench.progress,
    )


def _flow(bench: AuditBench) -> FlowStage:
    subject = bench.subject
    return FlowStage(
        kind=subject.loaded.kind,
        prompts=subject.prompts,
        config=bench.config,
        counts=_counts(bench),
        put=bench.put,
        note=bench.note,
        progress=bench.progress,
    )


def _token_table(bench: AuditBench, reading: Measured) -> pd.DataFrame:
    prompts, word = bench.subject.prompts, bench.subject.word
    table = summary.token_table(reading.depth, _SHOWN_PROMPTS, _SHOWN_POSITIONS)
    ids = [
        prompts.items[p][q] if not prompts.images else 0
        for p, q in zip(table["prompt"], table["position"], strict=True)
    ]
    table["token"] = ["image" if prompts.images else word(int(i)) for i in ids]
    table["top_token"] = [word(int(i)) for i in table.pop("argmax")]
    return table


def _named_path(bench: AuditBench, path: pd.DataFrame, reading: Measured, row: int) -> pd.DataFrame:
    for name in ("first", "second"):
        path[f"{name}_token"] = bench.subject.word(int(path.pop(f"{name}_id").iloc[0]))
    path["prompt"] = int(reading.depth["prompt"][row])
    path["position"] = int(reading.depth["position"][row])
    return path


def _mass_bound(outcomes: int) -> float:
    """How far a float64 softmax may miss one: it adds its terms in a few lanes, one by one."""
    lanes = max(float(np.sqrt(outcomes)), 4.0) + outcomes / 8
    return lanes * float(np.finfo(np.float64).eps)
