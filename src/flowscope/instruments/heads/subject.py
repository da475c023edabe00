"""What ``flowscope heads`` measures: a model on its material."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowscope.instruments.heads.config import HeadsConfig
from flowscope.lab.bench import Bench, Subject
from flowscope.models.loading import Loaded
from flowscope.models.marks import model_facts, model_marks
from flowscope.models.material import Material, material_of
from flowscope.models.preparation import loaded_model
from flowscope.models.reading.repeats import refuse_noise
from flowscope.models.twin import refuse_broken_weights

__all__ = ["HeadsBench", "HeadsSubject", "prepare"]


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadsSubject(Subject):
    """A model and the texts, images or inputs that it is read on."""

    loaded: Loaded
    material: Material


def prepare(config: HeadsConfig, given: Mapping[str, Any]) -> tuple[HeadsConfig, HeadsSubject]:
    """Load the model and its material.

    Raises
    ------
    InvalidInputError
        For material that the model cannot read, or damaged weights.
    """
    loaded = loaded_model(given.get("source", config.model), config, given.get("tokenizer"))
    material = material_of(loaded, config, given.get("texts"), given.get("inputs"))
    refuse_broken_weights(loaded.model)
    inputs = next(material.batches(1)).inputs
    repeats = refuse_noise(loaded.model, lambda: loaded.model(**inputs))
    return config, HeadsSubject(
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


HeadsBench = Bench[HeadsSubject, HeadsConfig]
