"""What Track T measures beyond an audit."""

from __future__ import annotations

import pandas as pd

from flowscope.evidence import resampled_counts
from flowscope.instruments.audit.exits.measure import NAMING
from flowscope.instruments.audit.paths import Paths, sampled_paths, target_tokens
from flowscope.instruments.audit.reading import depth_of
from flowscope.instruments.audit.subject import AuditBench
from flowscope.instruments.audit.track_t import TrackT
from flowscope.instruments.audit.track_t.bridge_reading import (
    bridge_control,
    bridge_reading,
    central,
)
from flowscope.instruments.audit.track_t.calibration import calibration
from flowscope.instruments.audit.track_t.identification import identification_table
from flowscope.models.prompts import batches_of
from flowscope.records import Unavailable

__all__ = ["bridge", "identification", "output_temperature"]


def identification(bench: AuditBench) -> None:
    """Run the same weights with finer steps, on the longest segment that passed the gate."""
    study, subject, longest = _study(bench), bench.subject, _longest(bench)
    if longest is None or subject.prompts.images:
        return
    few = subject.prompts.first(study.refined_prompts)
    for n in study.refinements:
        bench.list_pass(f"refined: n = {n}", len(few))
    table = identification_table(
        subject.model,
        lambda: batches_of(subject.loaded, few, bench.config.batch),
        study.refinements,
        first=longest[0],
        last=longest[1],
        positions=study.refined_positions,
        rank=study.refined_rank,
        advance=lambda done, total: bench.progress("refining", done, total),
    )
    if not isinstance(table, Unavailable):
        bench.put("identification", table)


def bridge(bench: AuditBench) -> None:
    """Read the residual of the bridge equation over the central layers, and its control."""
    longest, config, paths = _longest(bench), bench.config, _paths(bench)
    if longest is None or isinstance(paths, Unavailable):
        return
    counter = bench.counter("bridge", 2)
    layers = central(
        paths, longest[0], longest[1], config.rotation_layers, config.rotation_rank, config.seed
    )
    if isinstance(layers, Unavailable):
        return
    control = bridge_control(layers, 1 / paths.layers, config.seed)
    parts = []
    for name, one in {"model": layers, "bridge": control}.items():
        table = bridge_reading(one, config.seed)
        counter.advance()
        if not isinstance(table, Unavailable):
            parts.append(table.assign(data=name))
    if len(parts) == 2:
        bench.put("bridge", pd.concat(parts, ignore_index=True))


def output_temperature(bench: AuditBench) -> None:
    """Sweep the temperature of the output: mobility and calibration."""
    kind, config, paths = bench.subject.loaded.kind, bench.config, _paths(bench)
    if kind not in NAMING or isinstance(paths, Unavailable):
        return
    prompts, counter = bench.subject.prompts, bench.counter("calibration")
    reading = calibration(
        paths,
        target_tokens(paths, prompts),
        _study(bench).output_temperatures,
        resampled_counts(len(prompts), resamples=config.resamples, seed=config.seed),
        seed=config.seed,
    )
    bench.put("output_temperature", reading.table)
    bench.note(reading.gain)
    counter.finish()


def _study(bench: AuditBench) -> TrackT:
    assert isinstance(bench.study, TrackT)
    return bench.study


def _longest(bench: AuditBench) -> tuple[int, int] | None:
    """First and last layer of the longest segment that passed the gate on variation."""
    if bench.subject.prompts.images or not depth_of(bench).passing:
        return None
    table = bench.records.read_table("segments")
    passing = table[table["decision"] == "holds"]
    lengths = (passing["last_layer"] - passing["first_layer"]).to_numpy()
    row = passing.iloc[int(lengths.argmax())]
    return int(row["first_layer"]), int(row["last_layer"])


def _paths(bench: AuditBench) -> Paths | Unavailable:
    """Paths of the audit's tokens, read again with one whole distribution per prompt."""
    prompts = bench.subject.prompts
    if prompts.images:
        return Unavailable("the model pools its positions before the output")

    def make() -> Paths | Unavailable:
        bench.list_pass("paths of the study", len(prompts))
        return sampled_paths(
            bench.subject.model,
            bench.subject.batches(bench.config.batch),
            prompts=len(prompts),
            positions=bench.config.flow_positions,
            close=1,
        )

    return bench.once("paths of the study", make)
