"""A model and the material it is read on, as several instruments prepare them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from flowscope.lab.bench import Subject
from flowscope.lab.config import ReadingConfig
from flowscope.models.batches import (
    is_loader,
    listed_inputs,
    loaded_items,
    refuse_failing,
    refuse_texts,
)
from flowscope.models.images.pictures import image_argument, pictures_of
from flowscope.models.loading import Loaded
from flowscope.models.marks import model_facts, model_marks
from flowscope.models.material import Material, material_of
from flowscope.models.positions import refuse_long_prompts
from flowscope.models.preparation import loaded_model
from flowscope.models.prompts import Prompts
from flowscope.models.reading.repeats import refuse_noise
from flowscope.models.twin import refuse_broken_weights

__all__ = ["ReadingSubject", "reading_subject"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadingSubject(Subject):
    """A model and the texts, images or inputs that it is read on."""

    loaded: Loaded
    material: Material


def reading_subject(
    config: ReadingConfig, given: Mapping[str, Any], *, hides: bool = False
) -> ReadingSubject:
    """Load the model and its material.

    Parameters
    ----------
    config
        Names what is not given.
    given
        Any of ``source``, ``texts``, ``inputs`` and ``tokenizer``.
    hides
        Whether tokens of a masked model are hidden, because its output is read.

    Raises
    ------
    InvalidInputError
        For material that the model cannot read, or damaged weights.
    """
    loaded = loaded_model(
        given.get("source", config.model), config, given.get("tokenizer", config.tokenizer)
    )
    material = _material(loaded, config, given, hides)
    if isinstance(material.prompts, Prompts) and not material.prompts.images:
        refuse_long_prompts(loaded.model, max(len(item) for item in material.prompts.items))
    refuse_broken_weights(loaded.model)
    inputs = next(material.batches(1)).inputs
    refuse_failing(loaded.model, inputs)
    repeats = refuse_noise(loaded.model, lambda: loaded.model(**inputs))
    return ReadingSubject(
        loaded=loaded,
        material=material,
        source=loaded.source,
        device=str(next(loaded.model.parameters()).device),
        weight_hash=loaded.weight_hash,
        marks={**model_marks(loaded), "data": material.data_hash},
        facts={
            "prompts": material.size,
            "tokens_measured": material.tokens,
            "material": material.source,
            **({"fed": material.fed} if material.fed else {}),
            **model_facts(loaded, repeats),
        },
        hashes={"tokens": material.data_hash, "texts": material.text_hash},
    )


def _material(
    loaded: Loaded, config: ReadingConfig, given: Mapping[str, Any], hides: bool
) -> Material:
    """What a model is read on: texts, images or batches that were given, or the usual ones."""
    texts, inputs = given.get("texts"), given.get("inputs")
    if inputs is not None:
        return material_of(loaded, config, texts, listed_inputs(inputs, loaded.model))
    if is_loader(texts):
        texts = loaded_items(texts)
    images = None if texts is None else pictures_of(texts, loaded)
    if images is None:
        if texts is not None:
            refuse_texts(loaded)
        return material_of(loaded, config, texts, hides=hides)
    if loaded.kind == "vision":
        return material_of(loaded, config, images)
    name = image_argument(loaded.model)
    parts = [{name: part} for part in torch.split(images[: config.prompts], config.batch)]
    return material_of(loaded, config, None, listed_inputs(parts, loaded.model))
