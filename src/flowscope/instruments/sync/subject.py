"""What ``flowscope sync`` measures: a denoiser, and what compares its images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowscope.errors import InvalidInputError
from flowscope.instruments.sync.config import SyncConfig
from flowscope.lab.bench import Bench, Subject
from flowscope.models.diffusion.denoiser import Denoiser, denoiser_of, image_shape
from flowscope.models.diffusion.loading import loaded_denoiser
from flowscope.models.diffusion.marks import denoiser_marks
from flowscope.models.diffusion.repeats import refuse_noisy_denoiser
from flowscope.models.images.encoders import Encoder, encoder_mark, encoder_of
from flowscope.models.marks import model_facts
from flowscope.models.twin import refuse_broken_weights
from flowscope.nets import bundled_path
from flowscope.records import Unavailable

__all__ = ["SyncBench", "SyncSubject", "prepare"]

_WIDEST_BAND = 8  # modes of a band that is not asked for


@dataclass(frozen=True, kw_only=True, eq=False)
class SyncSubject(Subject):
    """A diffusion model whose replicas are coupled, and the encoder of their images."""

    denoiser: Denoiser
    encoder: Encoder | Unavailable


def prepare(config: SyncConfig, given: Mapping[str, Any]) -> tuple[SyncConfig, SyncSubject]:
    """Load the model and its encoder, and refuse settings that do not fit.

    Raises
    ------
    InvalidInputError
        For a setting or a schedule that does not fit.
    UnsupportedModelError
        For a model that is no class-conditional or unconditional denoiser.
    """
    if not config.band:
        config = config.model_copy(update={"band": min(_WIDEST_BAND, config.pairs // 4)})
    _refuse(config)
    source = given.get("source", config.model)
    source = bundled_path("image") if source is None else source
    denoiser = denoiser_of(
        source,
        loaded_denoiser(source, config),
        scheduler=given.get("scheduler", config.scheduler),
        classes=given.get("classes", ()),
        revision=config.revision,
    )
    _refuse_labels(config, denoiser)
    shape, classes, loaded = image_shape(denoiser), denoiser.classes, denoiser.loaded
    encoder, name = encoder_of(
        given.get("encoder", config.encoder), shape=shape, device=denoiser.device
    )
    refuse_broken_weights(loaded.model)
    repeats = refuse_noisy_denoiser(denoiser)
    return config, SyncSubject(
        denoiser=denoiser,
        encoder=encoder,
        source=loaded.source,
        device=str(next(loaded.model.parameters()).device),
        weight_hash=loaded.weight_hash,
        marks={
            **denoiser_marks(denoiser),
            "encoder": encoder_mark(encoder, shape, denoiser.device),
        },
        facts={
            "pairs": config.pairs,
            "steps": config.steps,
            "classes": [classes[label] if classes else "all" for label in config.labels],
            "encoder": name,
            **model_facts(loaded, repeats),
        },
    )


def _refuse(config: SyncConfig) -> None:
    wrong = [g for g in config.couplings if not 0 <= g <= 1 or math.isnan(g)]
    if wrong:
        raise InvalidInputError(f"couplings must lie in [0, 1]; got {wrong[0]}.")
    for name, values in (("couplings", config.couplings), ("labels", config.labels)):
        if len({f"{value:g}" for value in values}) < len(values):  # shards are named by six digits
            raise InvalidInputError(
                f"{name} must differ from each other within six digits; got {list(values)}."
            )
    if config.pairs // 2 < 2 * config.band:
        raise InvalidInputError(
            f"Bands of {config.band} leading and {config.band} trailing modes need "
            f"{4 * config.band} pairs, because half of them make the modes; got {config.pairs}. "
            "Take more pairs or a smaller band."
        )
    if config.interventions > config.steps + 1:
        raise InvalidInputError(
            f"{config.interventions} interventions do not fit into {config.steps} steps; there are "
            f"{config.steps + 1} places for them."
        )


def _refuse_labels(config: SyncConfig, denoiser: Denoiser) -> None:
    known = len(denoiser.classes)
    if not known and config.labels != (0,):
        raise InvalidInputError("This model takes no class labels; leave labels out.")
    wrong = [label for label in config.labels if known and not 0 <= label < known]
    if wrong:
        raise InvalidInputError(
            f"labels must lie between 0 and {known - 1} ({denoiser.classes[0]} … "
            f"{denoiser.classes[-1]}); got {wrong[0]}."
        )


SyncBench = Bench[SyncSubject, SyncConfig]
