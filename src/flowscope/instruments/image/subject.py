"""What ``flowscope image`` measures: a denoiser with its schedule, or a mixture known exactly."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from flowscope.errors import InvalidInputError
from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.models import ImageModel, LearnedModel, MixtureModel
from flowscope.lab.bench import Bench, Subject
from flowscope.models.diffusion.denoiser import denoiser_of, image_shape
from flowscope.models.diffusion.loading import loaded_denoiser
from flowscope.models.diffusion.marks import denoiser_marks
from flowscope.models.diffusion.repeats import refuse_noisy_denoiser
from flowscope.models.images.readers import Reader, reader_mark, reader_of
from flowscope.models.marks import model_facts
from flowscope.models.twin import refuse_broken_weights
from flowscope.nets import bundled_path
from flowscope.records import Unavailable, library_versions

__all__ = ["ImageBench", "ImageSubject", "prepare"]


_VALUES_PER_BIN = 10


_MIXTURE = {
    "images": 4096,
    "family_images": 2048,
    "information_images": 2048,
    "uturn_images": 4096,
    "steps": 200,
    "doubling": (200, 400, 800, 1600),
    "batch": 2048,
    "integrator": "euler",  # its order shows at these numbers of steps, that of DDIM does not
}


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSubject(Subject):
    """A model of images and what reads their classes."""

    model: LearnedModel | MixtureModel
    reader: Reader | Unavailable


def prepare(config: ImageConfig, given: Mapping[str, Any]) -> tuple[ImageConfig, ImageSubject]:
    """Load the model and its reader, and refuse settings that do not fit.

    Raises
    ------
    InvalidInputError
        For a setting or a schedule that does not fit, or too few images for the bins.
    UnsupportedModelError
        For a model that is no class-conditional or unconditional denoiser.
    """
    _refuse(config)
    scheduler = given.get("scheduler", config.scheduler)
    reader = given.get("reader", config.reader)
    model = _model(given.get("source", config.model), config, scheduler, given.get("classes", ()))
    if isinstance(model, MixtureModel):
        if scheduler is not None or reader is not None:
            raise InvalidInputError(
                "A mixture brings its schedule and knows its classes; leave scheduler and "
                "reader out."
            )
        config = _for_mixture(config)
        _refuse_sizes(config, model)
        return config, _mixture(model, config)
    _refuse_sizes(config, model)
    shape = image_shape(model.denoiser)
    chosen, name = reader_of(reader, classes=model.classes, shape=shape, device=model.device)
    refuse_broken_weights(model.denoiser.loaded.model)
    repeats = refuse_noisy_denoiser(model.denoiser)
    marks = denoiser_marks(model.denoiser)
    marks["reader"] = reader_mark(chosen, shape, model.device)
    loaded = model.denoiser.loaded
    return config, ImageSubject(
        model=model,
        reader=chosen,
        source=loaded.source,
        device=str(next(loaded.model.parameters()).device),
        weight_hash=loaded.weight_hash,
        marks=marks,
        facts={**_facts(model, name, config), **model_facts(loaded, repeats)},
    )


def _mixture(model: MixtureModel, config: ImageConfig) -> ImageSubject:
    drawing = torch.Generator().manual_seed(0)
    noise = model.predicted(model.start(4, drawing), len(model.levels) // 2, None).noise
    marks = {
        "mixture": [model.mu, model.s2, model.side, model.times],
        "predicts": [f"{float(x):.8g}" for x in noise.flatten()],  # subclasses may differ
        "versions": {name: str(version) for name, version in library_versions().items()},
    }
    return ImageSubject(
        model=model,
        reader=model.read,
        source="mixture",
        device="cpu",
        weight_hash=hashlib.sha256(json.dumps(marks, sort_keys=True).encode()).hexdigest(),
        marks=marks,
        facts=_facts(model, "the side of the middle", config),
    )


def _facts(model: ImageModel, reader: str, config: ImageConfig) -> dict[str, Any]:
    return {
        "images": config.images,
        "steps": config.steps,
        "classes": list(model.classes),
        "encoder": reader,
        "space": model.space,
        "coordinates": f"{config.rank} principal axes of the images",
    }


def _model(
    source: Any, config: ImageConfig, scheduler: Any, classes: Any
) -> LearnedModel | MixtureModel:
    if isinstance(source, MixtureModel):
        return source
    if source == "mixture" and not Path("mixture").exists():
        return MixtureModel()
    source = bundled_path("image") if source is None else source
    denoiser = denoiser_of(
        source,
        loaded_denoiser(source, config),
        scheduler=scheduler,
        classes=classes,
        revision=config.revision,
    )
    return LearnedModel(denoiser=denoiser, guidance=config.guidance)


def _for_mixture(config: ImageConfig) -> ImageConfig:
    """Settings for states of a few values, which cost next to nothing, where none were given."""
    given = {name: getattr(config, name) for name in config.model_fields_set}
    return ImageConfig.model_validate({**_MIXTURE, **given})


def _refuse(config: ImageConfig) -> None:
    wrong = [lam for lam in config.lams if not 0 <= lam <= 1]
    if wrong:
        raise InvalidInputError(f"lams must lie in [0, 1]; got {wrong[0]}.")
    doubled = all(second == 2 * first for first, second in pairwise(config.doubling))
    if min(config.doubling) < 1 or not doubled:
        raise InvalidInputError(
            "doubling must hold numbers of steps, of which each is twice the one before; got "
            f"{list(config.doubling)}. Take for instance 4, 8, 16."
        )


def _refuse_sizes(config: ImageConfig, model: ImageModel) -> None:
    _, height, width = model.shape
    for name, images in (("images", config.images), ("family_images", config.family_images)):
        values = images * height * width
        if values < _VALUES_PER_BIN * config.bins:
            raise InvalidInputError(
                f"{config.bins} bins need at least {_VALUES_PER_BIN * config.bins} values of each "
                f"channel; {images} images of {height} × {width} ({name}) have {values}. Take more "
                "images or fewer bins."
            )
    last = len(model.levels) - 1
    for name, steps in (("steps", config.steps), ("doubling", 2 * max(config.doubling))):
        if steps > last:
            raise InvalidInputError(
                f"{name} takes up to {steps} steps; the schedule has {last + 1} times, so that "
                f"{last} steps are the most."
            )


ImageBench = Bench[ImageSubject, ImageConfig]
