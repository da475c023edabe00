"""Fit a flow on some prompts and forecast the layers of others."""

from __future__ import annotations

from flowscope.instruments.audit.adequacy import tables
from flowscope.instruments.audit.adequacy.cross_forecasts import cross_forecasts, skill_table
from flowscope.instruments.audit.adequacy.forecasts import Adequacy
from flowscope.instruments.audit.paths import Paths, read_tokens
from flowscope.instruments.audit.reading import depth_of, path_probes, paths_of, prompt_counts
from flowscope.instruments.audit.subject import AuditBench
from flowscope.lab.claim import Abstention
from flowscope.records import Unavailable

__all__ = ["measure", "probes"]

probes = path_probes


def measure(bench: AuditBench) -> None:
    """Write the forecasts of a fitted flow on every segment that passed the gate."""
    paths = paths_of(bench)
    if isinstance(paths, Unavailable):
        raise Abstention(paths.reason)
    forecasts = _forecasts(bench, paths)
    seed, counts = bench.config.seed, prompt_counts(bench)
    bench.put("adequacy", tables.adequacy_table(forecasts, counts))
    bench.put("adequacy_skill", skill_table(forecasts))
    bench.put("adequacy_clouds", tables.cloud_table(forecasts, seed))
    bench.put("drifts", tables.fit_table(forecasts))
    bench.put("overlay", tables.overlay_table(forecasts, counts))
    moving = [part for part in forecasts if not part.stopped]
    if not moving:
        return  # the judge says where the flow stopped
    bench.note(tables.skill_of(moving, "one layer", counts, seed))
    budget = tables.budget_reading(moving, seed)
    if not isinstance(budget, Unavailable):
        bench.put("budget", budget.table)
        bench.note(budget.correlation)


def _forecasts(bench: AuditBench, paths: Paths) -> list[Adequacy]:
    config, passing = bench.config, depth_of(bench).passing
    counter = bench.counter("flow", 2 * len(passing))
    prompts = bench.subject.prompts
    tokens = None if prompts.images else read_tokens(paths, prompts)
    forecasts, reasons = [], []
    for segment in passing:
        part = cross_forecasts(
            paths,
            segment,
            rank=config.flow_rank,
            tokens=tokens,
            rich=config.drift_features == "rich",
            seed=config.seed,
            advance=counter.advance,
        )
        if isinstance(part, Unavailable):
            reasons.append(f"{segment.layers}: {part.reason}")
        else:
            forecasts.append(part)
    counter.finish()
    if not forecasts:
        raise Abstention("; ".join(dict.fromkeys(reasons)))
    return forecasts
