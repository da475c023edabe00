"""One reading of a diffusion model's samplers on its way: samples, tables, judgements."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from flowscope.evidence import judge_gradient, judge_order, judge_parity, not_measured
from flowscope.instruments.image.claims import GRADIENT, ORDER, PARITY
from flowscope.instruments.image.names import DECIDING, PREDICTION
from flowscope.lab.progress import Counter, Progress
from flowscope.probes import Arrays
from flowscope.records import Measurement, Run, Unavailable, Verdict, library_versions
from flowscope.records.files import remove_file
from flowscope.runs.config import ImageConfig
from flowscope.runs.denoiser_marks import denoiser_marks
from flowscope.runs.image_classes import (
    information_of,
    information_passes,
    turn_passes,
    turns_of,
)
from flowscope.runs.image_family import FamilyRuns, family_passes, family_runs
from flowscope.runs.image_models import (
    ImageModel,
    LearnedModel,
    MixtureModel,
    refuse_other_prediction,
)
from flowscope.runs.image_paths import (
    PathRuns,
    path_passes,
    path_runs,
    principal_axes_of,
    rotation_windows,
)
from flowscope.runs.image_readers import Reader, reader_mark
from flowscope.runs.image_rotation import rotation_table
from flowscope.runs.image_stage import ImageStage
from flowscope.runs.image_tables import (
    family_table,
    information_table,
    parity_of,
    parity_table,
    path_tables,
    uturn_table,
    weak_error_tables,
)
from flowscope.runs.twin import refuse_broken_weights
from flowscope.runs.writing import Origin, RunWriter, manifest_of, own_folder

__all__ = ["DECIDING", "PREDICTION", "Imager"]

_GUIDED = "a guided field is the score of no law, so that flow and SDE need not agree, nor it turn"
_AFTERWARDS = ("resamples", "draws", "rotation_degree", "out", "device")


class Imager:
    """Reads the samplers of one model into one run folder."""

    def __init__(
        self,
        model: ImageModel,
        reader: Reader | Unavailable,
        reader_name: str,
        config: ImageConfig,
        folder: Path | None,
        progress: Progress | None,
    ) -> None:
        self._model, self._config = model, config
        self._progress = progress or (lambda stage, done, total: None)
        fingerprint = _content_hash(model, reader, config)
        loaded = (
            model.denoiser.loaded
            if isinstance(model, LearnedModel)
            else Origin(source="mixture", weight_hash=fingerprint, device="cpu")
        )
        if folder is None:
            folder = own_folder(config.out, "image", loaded, fingerprint)
        manifest = manifest_of(
            loaded,
            config,
            hashes={},
            measured={
                "images": config.images,
                "steps": config.steps,
                "classes": list(model.classes),
                "encoder": reader_name,
                "space": model.space,
                "coordinates": f"{config.rank} principal axes of the images",
            },
            seed=config.seed,
            command="image",
        )
        self._writer = RunWriter(folder, manifest)
        self._stage = ImageStage(
            model=model,
            reader=reader,
            config=config,
            run=self._writer.run,
            fingerprint=fingerprint,
            advance=lambda more: None,
            asked=isinstance(model, LearnedModel),
        )

    def run(self) -> Run:
        """Measure, judge, write."""
        self._prediction()
        family, order = self._family()
        paths, parity = self._paths(family)
        gradient = self._rotation(paths)
        self._classes(paths)
        return self._writer.finish([parity, order, gradient])

    def _prediction(self) -> None:
        model = self._model
        if not isinstance(model, LearnedModel):
            return
        refuse_broken_weights(model.denoiser.loaded.model)
        alike = refuse_other_prediction(model, torch.Generator().manual_seed(self._config.seed))
        if model.denoiser.schedule["prediction_type"] != "epsilon":
            return
        self._writer.note(
            Measurement(
                name=PREDICTION,
                values=np.asarray(alike),
                unit="1",
                n=8,
                estimator="correlation; nearly 1 for a trained predictor of noise",
                dtype="float32",
                seed=self._config.seed,
            )
        )

    def _counted(self, name: str, total: int) -> tuple[ImageStage, Counter]:
        counter = Counter(self._progress, name, max(1, total))
        return replace(self._stage, advance=counter.advance), counter

    def _family(self) -> tuple[FamilyRuns, Verdict]:
        config, put = self._config, self._writer.put
        stage, counter = self._counted("step sizes", family_passes(config))
        runs = family_runs(stage)
        counter.finish()
        points, slopes = weak_error_tables(runs, config)
        put("weak_error", points)
        put("weak_error_slope", slopes)
        put("family", family_table(runs, config))
        if isinstance(stage.reader, Unavailable):
            self._writer.note(Measurement.abstained("accuracy", stage.reader.reason))
        return runs, judge_order(slopes, claim=ORDER, observable=DECIDING, seed=config.seed)

    def _paths(self, family: FamilyRuns) -> tuple[PathRuns, Verdict]:
        config, model = self._config, self._model
        stage, counter = self._counted("paths", path_passes(config))
        paths = path_runs(stage, principal_axes_of(family.finals, config.rank))
        counter.finish()
        found = parity_of(paths, config)
        table = parity_table(found, paths, model, config)
        self._writer.put("parity", table)
        smoothness, whole = path_tables(paths, model, config)
        self._writer.put("smoothness", smoothness)
        self._writer.put("paths", whole)
        self._writer.run.write_arrays("samples", {"images": paths.shown})
        if config.guidance != 1:
            return paths, not_measured(PARITY, _GUIDED)
        return paths, judge_parity(table, found.tv_p_overall, claim=PARITY, seed=config.seed)

    def _rotation(self, paths: PathRuns) -> Verdict:
        config = self._config
        counter = Counter(self._progress, "rotation", max(1, len(rotation_windows(config))))
        table, interval = rotation_table(paths, self._model, config, counter.advance)
        counter.finish()
        if len(table):
            self._writer.put("rotation", table)
        else:
            self._writer.note(Measurement.abstained("rotation", "it was switched off"))
        if config.guidance != 1:
            return not_measured(GRADIENT, _GUIDED)
        return judge_gradient(
            table, interval, claim=GRADIENT, degree=config.rotation_degree, seed=config.seed
        )

    def _classes(self, paths: PathRuns) -> None:
        config, model = self._config, self._model
        stage, counter = self._counted("information", information_passes(config))
        read = information_of(stage, paths.finals)
        counter.finish()
        if isinstance(read, Unavailable):
            self._writer.note(Measurement.abstained("information", read.reason))
        else:
            table, excess = information_table(read, model, config)
            self._writer.put("information", table)
            for name, value in excess.items():
                self._writer.note(_excess(name, value, len(read.gaps), config))
        stage, counter = self._counted("u-turns", turn_passes(self._stage))
        turns = turns_of(stage, paths.finals)
        counter.finish()
        if isinstance(turns, Unavailable):
            self._writer.note(Measurement.abstained("uturn", turns.reason))
            remove_file(self._writer.run.folder / "arrays" / "uturn_strip.safetensors")
            return
        self._writer.put("uturn", uturn_table(turns, model))
        times = [0, *turns.times]
        strip: Arrays = {
            "images": turns.shown,
            "time": np.asarray(times),
            "log_snr": np.asarray([_finite_snr(model, time) for time in times]),
        }
        self._writer.run.write_arrays("uturn_strip", strip)


def _finite_snr(model: ImageModel, time: int) -> float:
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


def _content_hash(model: ImageModel, reader: Reader | Unavailable, config: ImageConfig) -> str:
    """What decides the content of a shard, as one fingerprint."""
    if isinstance(model, LearnedModel):
        from flowscope.runs.denoiser import image_shape

        marks = denoiser_marks(model.denoiser)
        marks["reader"] = reader_mark(reader, image_shape(model.denoiser), model.device)
    else:
        assert isinstance(model, MixtureModel)
        drawing = torch.Generator().manual_seed(0)
        told = model.predicted(model.start(4, drawing), len(model.levels) // 2, None).noise
        marks = {"mixture": [model.mu, model.s2, model.side, model.times]}
        marks["predicts"] = [f"{float(x):.8g}" for x in told.flatten()]  # subclasses may differ
        marks["versions"] = {k: str(v) for k, v in library_versions().items()}
    marks["settings"] = config.model_dump(mode="json", exclude=set(_AFTERWARDS))
    return hashlib.sha256(json.dumps(marks, sort_keys=True).encode()).hexdigest()
