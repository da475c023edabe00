"""Fit a flow on some prompts and forecast the layers of others."""

from __future__ import annotations

from collections.abc import Sequence

from flowscope.instruments.audit.adequacy import ADEQUACY, tables
from flowscope.instruments.audit.adequacy.forecasts import Adequacy, forecasts_of
from flowscope.instruments.audit.adequacy.judge import judge_adequacy
from flowscope.instruments.audit.paths import Paths
from flowscope.instruments.audit.reading import depth_of, path_probes, paths_of, prompt_counts
from flowscope.instruments.audit.subject import AuditBench
from flowscope.lab.claim import Abstention
from flowscope.records import Unavailable, Verdict

__all__ = ["measure", "probes"]

probes = path_probes


def measure(bench: AuditBench) -> None:
    """Write the forecasts of a fitted flow on every segment that passed the gate."""
    paths = paths_of(bench)
    if isinstance(paths, Unavailable):
        raise Abstention(paths.reason)
    forecasts = _forecasts(bench, paths)
    counts = prompt_counts(bench)
    bench.put("adequacy", tables.adequacy_table(forecasts, counts))
    bench.put("adequacy_clouds", tables.cloud_table(forecasts, bench.config.seed))
    bench.put("drifts", tables.fit_table(forecasts))
    bench.put("overlay", tables.overlay_table(forecasts, counts))
    moving = [part for part in forecasts if not part.stopped]
    if not moving:
        why = "; ".join(f"{part.segment.layers}: {part.stopped}" for part in forecasts)
        raise Abstention(f"the fitted flow cannot be integrated: {why}")
    bench.decide(_judged(bench, moving))


def _forecasts(bench: AuditBench, paths: Paths) -> list[Adequacy]:
    config, passing = bench.config, depth_of(bench).passing
    counter = bench.counter("flow", 2 * len(passing))
    forecasts, reasons = [], []
    for segment in passing:
        part = forecasts_of(
            paths,
            segment,
            rank=config.flow_rank,
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
        raise Abstention("; ".join(reasons))
    return forecasts


def _judged(bench: AuditBench, forecasts: Sequence[Adequacy]) -> Verdict:
    seed, counts = bench.config.seed, prompt_counts(bench)
    budget = tables.budget_reading(forecasts, seed)
    words = ""
    if not isinstance(budget, Unavailable):
        bench.put("budget", budget.table)
        bench.note(budget.correlation)
        words = budget.words
    onward = tables.skill_of(forecasts, "onward", counts, seed)
    near = tables.skill_of(forecasts, "one layer", counts, seed)
    bench.note(near)
    return judge_adequacy(
        onward,
        claim=ADEQUACY,
        one_step=near,
        best=tables.best_skill(forecasts, counts),
        segments={part.segment.layers: "/".join(dict.fromkeys(part.chosen)) for part in forecasts},
        budget=words,
    )
