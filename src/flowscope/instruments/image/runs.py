"""The sampled images that several diagnostics read; each set is made once per run."""

from __future__ import annotations

from flowscope.instruments.image.models import LearnedModel
from flowscope.instruments.image.parity.paths import (
    PathRuns,
    path_passes,
    path_runs,
    principal_axes_of,
)
from flowscope.instruments.image.stage import ImageStage
from flowscope.instruments.image.step_sizes.family import FamilyRuns, family_passes, family_runs
from flowscope.instruments.image.subject import ImageBench
from flowscope.lab.running.progress import Counter

__all__ = ["family_of", "paths_of", "stage_of"]


def family_of(bench: ImageBench) -> FamilyRuns:
    """Images of every member of the family at every number of steps."""

    def make() -> FamilyRuns:
        counter = bench.counter("step sizes", family_passes(bench.config))
        runs = family_runs(stage_of(bench, counter))
        counter.finish()
        return runs

    return bench.once("family", make)


def paths_of(bench: ImageBench) -> PathRuns:
    """Images along the paths of the ODE and of two runs of the SDE."""

    def make() -> PathRuns:
        passes = path_passes(bench.subject.model, bench.config)
        counter = bench.counter("paths", passes)
        axes = principal_axes_of(family_of(bench).finals, bench.config.rank)
        runs = path_runs(stage_of(bench, counter), axes)
        counter.finish()
        return runs

    return bench.once("paths", make)


def stage_of(bench: ImageBench, counter: Counter) -> ImageStage:
    """Model, settings and shards of a run, with the bar that counts its images."""
    return ImageStage(
        model=bench.subject.model,
        reader=bench.subject.reader,
        config=bench.config,
        shards=bench.shards,
        advance=counter.advance,
        asked=isinstance(bench.subject.model, LearnedModel),
    )
