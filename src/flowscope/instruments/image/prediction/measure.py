"""Refuse a schedule that names another prediction type than the model's."""

from __future__ import annotations

import numpy as np
import torch

from flowscope.instruments.image.models import LearnedModel, refuse_other_prediction
from flowscope.instruments.image.prediction import PREDICTION
from flowscope.instruments.image.subject import ImageBench
from flowscope.records import Measurement

__all__ = ["prediction"]


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
