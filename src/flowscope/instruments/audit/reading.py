"""What the stages of an audit share: the pass over all prompts, the depth that it leaves, paths."""

from __future__ import annotations

from dataclasses import dataclass, replace

from flowscope.evidence import resampled_counts
from flowscope.evidence.bootstrap import Counts
from flowscope.flows import Segment
from flowscope.instruments.audit.depth_pass import DepthReading, Measured, Sampling, measured
from flowscope.instruments.audit.paths import PathReading, Paths
from flowscope.instruments.audit.subject import AuditBench
from flowscope.instruments.audit.variation import VARIATION
from flowscope.instruments.audit.variation.judge import SegmentEvidence
from flowscope.instruments.audit.variation.second_look import SecondLook
from flowscope.models.prompts import batches_of
from flowscope.models.twin import fresh_twin
from flowscope.probes import Piece, TapProbe, tap_pass
from flowscope.records import Unavailable
from flowscope.records.verdict_text import verdict_label

__all__ = [
    "Depth",
    "depth_of",
    "depth_probes",
    "depth_reading",
    "no_passing_segment",
    "path_probes",
    "paths_of",
    "prompt_counts",
    "random_weights",
    "shared_pass",
    "shared_pieces",
]

_DEPTH = "depth"
_PIECES = "pieces"


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
    look, row
        The second look at a few prompts and the row of `reading` whose path it follows; why there
        is none where the model has no output over outcomes.
    """

    reading: Measured
    control: Measured | Unavailable
    segments: tuple[Segment, ...] = ()
    evidence: tuple[SegmentEvidence, ...] = ()
    look: SecondLook | Unavailable
    row: int = 0

    @property
    def passing(self) -> list[SegmentEvidence]:
        """Segments that passed the gate on variation."""
        return [segment for segment in self.evidence if segment.decision == "holds"]


def depth_of(bench: AuditBench) -> Depth:
    """Return what the stage `variation` left."""
    depth: Depth = bench.shared(_DEPTH)
    return depth


def prompt_counts(bench: AuditBench) -> Counts:
    """Return the resampled prompts that all stages share."""
    prompts, config = len(bench.subject.prompts), bench.config
    return bench.once(
        "counts", lambda: resampled_counts(prompts, resamples=config.resamples, seed=config.seed)
    )


def depth_probes(bench: AuditBench) -> dict[str, TapProbe]:
    """Return what the stage `variation` reads of every prompt."""
    return {_DEPTH: depth_reading(bench)}


def depth_reading(bench: AuditBench) -> DepthReading:
    """Return the probe of the stage `variation`, whose logits other probes of the pass may take."""
    return bench.once("depth reading", lambda: DepthReading(_sampling(bench, null=True)))


def _sampling(bench: AuditBench, *, null: bool) -> Sampling:
    config = bench.config
    return Sampling(pairs=config.curvature_pairs, null=null, operands=config.readout)


def path_probes(bench: AuditBench) -> dict[str, TapProbe]:
    """Return the probe of the stages that follow tokens; nothing where tokens have no path."""
    config, prompts = bench.config, bench.subject.prompts
    if not config.flow_positions or prompts.images:
        return {}
    positions, close = config.flow_positions, config.flow_close
    reading = PathReading(
        prompts=len(prompts), positions=positions, close=close, operands=config.readout
    )
    return {"paths": bench.once("path reading", lambda: reading)}


def shared_pass(bench: AuditBench) -> dict[str, list[Piece]]:
    """Make the one pass over all prompts, for every stage of the run that reads them all."""
    subject, (probes, shards) = bench.subject, bench.probes()
    prompts = len(subject.prompts)
    bench.list_pass("measuring", prompts)
    advance = bench.counter("measuring", prompts).advance
    batches = subject.batches(bench.config.batch)
    bench.sharing_ends()
    with bench.timed("measuring"):
        pieces = tap_pass(subject.model, batches, probes, shards=shards, advance=advance)
    return bench.once(_PIECES, lambda: pieces)


def shared_pieces(bench: AuditBench) -> dict[str, list[Piece]]:
    """Return what the pass over all prompts left of every probe, a piece per batch."""
    pieces: dict[str, list[Piece]] = bench.shared(_PIECES)
    return pieces


def random_weights(bench: AuditBench) -> Measured | Unavailable:
    """Read the random-weights twin on the few prompts of the controls."""
    loaded = bench.subject.loaded
    if not bench.config.controls:
        return Unavailable("controls are switched off")
    name = "random weights"
    with bench.timed(name):
        twin = fresh_twin(loaded.model, bench.config.seed)
    if isinstance(twin, Unavailable):
        return twin
    few = bench.subject.few
    bench.list_pass(name, len(few))
    # The null is asked of the model itself, not of its control.
    reading = DepthReading(_sampling(bench, null=False))
    batches = batches_of(replace(loaded, model=twin), few, bench.config.batch)
    advance = bench.counter(name, len(few)).advance
    with bench.timed(name):
        pieces = tap_pass(twin, batches, {_DEPTH: reading}, advance=advance)[_DEPTH]
    return measured(pieces)


def no_passing_segment() -> str:
    """Return the reason of a stage that has no segment of layers to work on."""
    return f"no segment of layers passed {verdict_label(VARIATION.name, VARIATION.title)}"


def paths_of(bench: AuditBench) -> Paths | Unavailable:
    """Return the paths of a few tokens of every prompt, or why there are none."""
    depth = depth_of(bench)
    reason = ""
    if depth.reading.space != "output":
        reason = depth.reading.because
    elif bench.config.flow_positions == 0:
        reason = "the measurement is switched off (flow_positions is 0)"
    elif bench.subject.prompts.images:
        reason = "the model pools its positions before the output: tokens have no path"
    elif not depth.passing:
        reason = no_passing_segment()
    if reason:
        return Unavailable(reason)
    reading: PathReading = bench.shared("path reading")
    return bench.once("paths", reading.paths)
