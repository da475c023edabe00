"""Sample the same images by the ODE and twice by the SDE, and both with twice the steps."""

from __future__ import annotations

from flowscope.instruments.image.parity.budget_table import budget_table
from flowscope.instruments.image.parity.tables import parity_of, parity_table, path_tables
from flowscope.instruments.image.runs import paths_of
from flowscope.instruments.image.subject import ImageBench

__all__ = ["paths"]


def paths(bench: ImageBench) -> None:
    """Sample the same images by the flow and by the SDE; compare their histograms.

    The SDE runs a second time with other noise, and both run with twice the steps where the
    schedule has enough times.
    """
    config, model, runs = bench.config, bench.subject.model, paths_of(bench)
    bench.put("parity", parity_table(parity_of(runs, config), runs, model, config))
    bench.put("step_budget", budget_table(runs, model, config))
    smoothness, whole = path_tables(runs, model, config)
    bench.put("smoothness", smoothness)
    bench.put("paths", whole)
    bench.put_arrays("samples", {"images": runs.shown})
