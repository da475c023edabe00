"""The contraction stage of an audit: curvature, its sweeps and the output path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
from torch import nn

from flowscope.evidence import Counts, resampled_counts
from flowscope.flows import Segment
from flowscope.instruments.audit.config import AuditConfig
from flowscope.instruments.audit.contraction.head_entropy import head_table
from flowscope.instruments.audit.contraction.sweeps import evolution, responses
from flowscope.instruments.audit.contraction.tables import (
    curvature_table,
    evi_share,
    evi_table,
    prompt_arrays,
    response_table,
)
from flowscope.instruments.audit.reading import Depth, depth_of, prompt_counts
from flowscope.instruments.audit.subject import AuditBench
from flowscope.instruments.audit.variation.judge import SegmentEvidence
from flowscope.lab.claim import Abstention
from flowscope.models.prompts import Batch
from flowscope.probes import Arrays, Setting
from flowscope.records import Measurement, Unavailable

__all__ = ["ContractionStage", "measure"]


def measure(bench: AuditBench) -> None:
    """Write the curvature of attention, its answer to sweeps, and the output path."""
    depth = depth_of(bench)
    _write_heads(bench, depth)
    stage = _stage(bench)
    if depth.reading.space == "output":
        stage.output_path(depth.evidence, depth.segments)
    else:
        stage.no_output_path(depth.reading.because)
    curved, control = depth.reading.curvature, depth.control
    if isinstance(curved, Unavailable):
        raise Abstention(curved.reason)
    bench.put_arrays("contraction", prompt_arrays(curved, len(bench.subject.prompts)))
    stage.curvature(curved, control if isinstance(control, Unavailable) else control.curvature)


def _write_heads(bench: AuditBench, depth: Depth) -> None:
    if depth.reading.heads:
        fresh = {} if isinstance(depth.control, Unavailable) else depth.control.heads
        seed, resamples = bench.config.seed, bench.config.resamples
        bench.put("heads", head_table(depth.reading.heads, fresh, resamples=resamples, seed=seed))


def _stage(bench: AuditBench) -> ContractionStage:
    config, subject = bench.config, bench.subject
    few = resampled_counts(len(subject.few), resamples=config.resamples, seed=config.seed)
    return ContractionStage(
        model=subject.model,
        config=config,
        counts=prompt_counts(bench),
        few_counts=few,
        few_batches=lambda: subject.few_batches(config.batch),
        list_pass=bench.list_pass,
        put=bench.put,
        note=bench.note,
        progress=bench.progress,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ContractionStage:
    """What the measurement of contraction needs of an audit on its way.

    Attributes
    ----------
    model, config
        What is audited, and how.
    counts, few_counts
        Resampled prompts: all of them, and the few that sweeps and output path are read on.
    few_batches
        Those few, anew at every call.
    list_pass
        Takes the name of a pass and its number of prompts.
    put, note, progress
        Takes a table by its name; takes a measurement; is told (stage, done, total).
    """

    model: nn.Module
    config: AuditConfig
    counts: Counts
    few_counts: Counts
    few_batches: Callable[[], Iterable[Batch]]
    list_pass: Callable[[str, int], None]
    put: Callable[[str, pd.DataFrame], None]
    note: Callable[[Measurement], None]
    progress: Callable[[str, int, int], None]

    def curvature(self, curved: Arrays, fresh: Arrays | Unavailable) -> None:
        """Write the curvature of every head, and how it answers to the sweeps.

        Parameters
        ----------
        curved, fresh
            Arrays of the model and of its random-weights twin.
        """
        table = curvature_table(curved, fresh, self.counts, seed=self.config.seed)
        self.put("curvature", table)
        if (table["status"] == "ok").any():
            self._sweep(curved, table)

    def _sweep(self, curved: Arrays, heads: pd.DataFrame) -> None:
        config = self.config
        settings = [Setting(kind="temperature", value=v) for v in config.temperatures if v != 1]
        settings += [Setting(kind="key_norm", value=v) for v in config.key_norms if v != 1]
        for setting in settings:
            name = f"sweep: {setting.kind} {setting.value:g}"
            self.list_pass(name, self.few_counts.shape[1])
        found = responses(
            self.model,
            self.few_batches,
            settings,
            pairs=config.curvature_pairs,
            advance=lambda done, total: self.progress("sweeps", done, total),
        )
        if settings and not isinstance(found, Unavailable):
            few = curved["curvature_prompt"] < self.few_counts.shape[1]
            base = {name: values[few] for name, values in curved.items()}
            swept = dict(zip(settings, found, strict=True))
            self.put("curvature_response", response_table(base, swept, heads, self.few_counts))

    def output_path(self, evidence: Sequence[SegmentEvidence], segments: Sequence[Segment]) -> None:
        """Write the inequality along the output path."""
        config = self.config
        if config.evi_positions:
            self.list_pass("output path", self.few_counts.shape[1])
        self.progress("output path", 0, 1)
        found = evolution(
            self.model,
            self.few_batches(),
            segments,
            positions=config.evi_positions,
            top=config.evi_top,
            operands=config.readout,
        )
        self.progress("output path", 1, 1)
        if isinstance(found, Unavailable):
            self.no_output_path(found.reason)
            return
        table = evi_table(found, evidence, self.few_counts)
        self.put("evi", table)
        share, null = evi_share(found, table, self.few_counts, config.seed)
        self.note(share)
        self.note(null)

    def no_output_path(self, reason: str) -> None:
        """Record that there is no output path to read, and why."""
        self.note(Measurement.abstained("EVI", reason))
