"""The stages of ``flowscope image``: what each measures and which tables it writes."""

from __future__ import annotations

import numpy as np
import torch

from flowscope.instruments.image.classes import (
    information_of,
    information_passes,
    turn_passes,
    turns_of,
)
from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.family import FamilyRuns, family_passes, family_runs
from flowscope.instruments.image.models import ImageModel, LearnedModel, refuse_other_prediction
from flowscope.instruments.image.names import PREDICTION
from flowscope.instruments.image.paths import (
    PathRuns,
    path_passes,
    path_runs,
    principal_axes_of,
    rotation_windows,
)
from flowscope.instruments.image.rotation import rotation_table
from flowscope.instruments.image.stage import ImageStage
from flowscope.instruments.image.subject import ImageSubject
from flowscope.instruments.image.tables import (
    family_table,
    information_table,
    parity_of,
    parity_table,
    path_tables,
    uturn_table,
    weak_error_tables,
)
from flowscope.lab.bench import Bench
from flowscope.lab.claim import Abstention
from flowscope.lab.progress import Counter
from flowscope.records import Measurement, Unavailable

__all__ = ["family", "information", "paths", "prediction", "rotation", "uturn"]

ImageBench = Bench[ImageSubject, ImageConfig]


def prediction(bench: ImageBench) -> None:
    """Refuse a schedule that names another prediction type than the model's."""
    model, seed = bench.subject.model, bench.config.seed
    if not isinstance(model, LearnedModel):
        return
    alike = refuse_other_prediction(model, torch.Generator().manual_seed(seed))
    if model.denoiser.schedule["prediction_type"] != "epsilon":
        return
    bench.note(
        Measurement(
            name=PREDICTION,
            values=np.asarray(alike),
            unit="1",
            n=8,
            estimator="correlation; nearly 1 for a trained predictor of noise",
            dtype="float32",
            seed=seed,
        )
    )


def family(bench: ImageBench) -> None:
    """Sample every member of the family at every number of steps."""
    config, runs = bench.config, _family(bench)
    points, slopes = weak_error_tables(runs, config)
    bench.put("weak_error", points)
    bench.put("weak_error_slope", slopes)
    bench.put("family", family_table(runs, config))
    if isinstance(bench.subject.reader, Unavailable):
        bench.abstain("accuracy", bench.subject.reader.reason)


def paths(bench: ImageBench) -> None:
    """Sample the same images by the flow and twice by the SDE; compare their histograms."""
    config, model, runs = bench.config, bench.subject.model, _paths(bench)
    bench.put("parity", parity_table(parity_of(runs, config), runs, model, config))
    smoothness, whole = path_tables(runs, model, config)
    bench.put("smoothness", smoothness)
    bench.put("paths", whole)
    bench.put_arrays("samples", {"images": runs.shown})


def rotation(bench: ImageBench) -> None:
    """Measure how much of the learned score turns, in windows of steps."""
    config = bench.config
    counter = bench.counter("rotation", len(rotation_windows(config)))
    table = rotation_table(_paths(bench), bench.subject.model, config, counter.advance)
    counter.finish()
    if not len(table):
        raise Abstention("the measurement is switched off")
    bench.put("rotation", table)


def information(bench: ImageBench) -> None:
    """Measure what a state knows of its class at each time."""
    config, model = bench.config, bench.subject.model
    counter = bench.counter("information", information_passes(config))
    reading = information_of(_stage(bench, counter), _paths(bench).finals)
    counter.finish()
    if isinstance(reading, Unavailable):
        raise Abstention(reading.reason)
    table, excess = information_table(reading, model, config)
    bench.put("information", table)
    for name, value in excess.items():
        bench.note(_excess(name, value, len(reading.gaps), config))


def uturn(bench: ImageBench) -> None:
    """Noise finished images to a time, denoise them again, and compare the two."""
    model = bench.subject.model
    counter = bench.counter("u-turns")
    stage = _stage(bench, counter)
    counter.total = max(1, turn_passes(stage))
    turns = turns_of(stage, _paths(bench).finals)
    counter.finish()
    if isinstance(turns, Unavailable):
        raise Abstention(turns.reason)
    bench.put("uturn", uturn_table(turns, model))
    times = [0, *turns.times]
    strip = {
        "images": turns.shown,
        "time": np.asarray(times),
        "log_snr": np.asarray([_log_snr(model, time) for time in times]),
    }
    bench.put_arrays("uturn_strip", strip)


def _family(bench: ImageBench) -> FamilyRuns:
    def make() -> FamilyRuns:
        counter = bench.counter("step sizes", family_passes(bench.config))
        runs = family_runs(_stage(bench, counter))
        counter.finish()
        return runs

    return bench.once("family", make)


def _paths(bench: ImageBench) -> PathRuns:
    def make() -> PathRuns:
        counter = bench.counter("paths", path_passes(bench.config))
        axes = principal_axes_of(_family(bench).finals, bench.config.rank)
        runs = path_runs(_stage(bench, counter), axes)
        counter.finish()
        return runs

    return bench.once("paths", make)


def _stage(bench: ImageBench, counter: Counter) -> ImageStage:
    return ImageStage(
        model=bench.subject.model,
        reader=bench.subject.reader,
        config=bench.config,
        shards=bench.shards,
        advance=counter.advance,
        asked=isinstance(bench.subject.model, LearnedModel),
    )


def _log_snr(model: ImageModel, time: int) -> float:
    level = model.levels[time]
    return float(np.log(level) - np.log1p(-level))


def _excess(name: str, excess: float, n: int, config: ImageConfig) -> Measurement:
    return Measurement(
        name=f"information beyond the entropy of the classes, by {name}",
        values=np.asarray(excess),
        unit="nat",
        n=n,
        estimator="integral of the rate over log snr, less log of the number of classes",
        dtype="float64",
        seed=config.seed,
    )
