"""What ``flowscope audit`` measures: a model on prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from flowscope.errors import InvalidInputError
from flowscope.instruments.audit.config import AuditConfig
from flowscope.lab.bench import Bench, Subject
from flowscope.models.batches import (
    images_in,
    is_loader,
    listed_inputs,
    loaded_items,
    refuse_failing,
    refuse_texts,
)
from flowscope.models.images.pictures import image_batches, pictures_of
from flowscope.models.loading import Loaded
from flowscope.models.marks import model_facts, model_marks
from flowscope.models.positions import refuse_long_prompts
from flowscope.models.preparation import chosen_texts, feeding_of, loaded_model
from flowscope.models.prompts import Batch, Prompts, prompts_of, token_text
from flowscope.models.reading.repeats import refuse_noise
from flowscope.models.twin import refuse_broken_weights
from flowscope.records import Unavailable

__all__ = ["AuditBench", "AuditSubject", "prepare"]

_LOGITS_HELD = 2**26
# On a GPU the logits of a batch may take one part in so many of its memory: twice they are held.
_GPU_SHARE = 24


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditSubject(Subject):
    """A model, its prompts, and the first few of them that controls are read on."""

    loaded: Loaded
    prompts: Prompts
    few: Prompts

    @property
    def model(self) -> nn.Module:
        """The module that is measured."""
        return self.loaded.model

    def word(self, outcome: int) -> str:
        """An outcome of the model as text."""
        labels: Any = getattr(getattr(self.model, "config", None), "id2label", None)
        if self.prompts.images and labels:
            return str(labels.get(outcome, outcome))
        if isinstance(self.loaded.tokenizer, Unavailable):
            return str(outcome)
        return token_text(self.loaded.tokenizer, outcome)

    def batches(self, batch: int) -> Iterator[Batch]:
        """All prompts, anew at every call."""
        return image_batches(self.loaded, self.prompts, batch)

    def few_batches(self, batch: int) -> Iterator[Batch]:
        """The few prompts of the controls, anew at every call."""
        return image_batches(self.loaded, self.few, batch)


AuditBench = Bench[AuditSubject, AuditConfig]


def prepare(config: AuditConfig, given: Mapping[str, Any]) -> tuple[AuditConfig, AuditSubject]:
    """Load the model and tokenise the prompts.

    The batch is made small enough for its logits to fit into the buffer of the depth meter.

    Raises
    ------
    InvalidInputError
        For texts that the model cannot read, or damaged weights.
    """
    loaded = loaded_model(
        given.get("source", config.model), config, given.get("tokenizer", config.tokenizer)
    )
    texts, where = _material(loaded, config, given)
    prompts = prompts_of(
        loaded,
        texts,
        count=config.prompts,
        length=config.tokens,
        source=where,
        feeding=feeding_of(config),
        skip=config.skip,
    )
    if not prompts.images:
        refuse_long_prompts(loaded.model, max(len(item) for item in prompts.items))
    refuse_broken_weights(loaded.model)
    inputs = next(image_batches(loaded, prompts.first(1), 1)).inputs
    refuse_failing(loaded.model, inputs)
    repeats = refuse_noise(loaded.model, lambda: loaded.model(**inputs))
    return _fitted(config, loaded.model, prompts), AuditSubject(
        loaded=loaded,
        prompts=prompts,
        few=prompts.first(config.control_prompts),
        source=loaded.source,
        device=str(next(loaded.model.parameters()).device),
        weight_hash=loaded.weight_hash,
        marks={**model_marks(loaded), "data": prompts.data_hash},
        facts={**prompts.facts, **model_facts(loaded, repeats)},
        hashes={"tokens": prompts.data_hash, "texts": prompts.text_hash},
    )


def _material(loaded: Loaded, config: AuditConfig, given: Mapping[str, Any]) -> tuple[Any, str]:
    """Texts or images to read, and where they come from.

    Raises
    ------
    InvalidInputError
        Texts and inputs are both given; or nothing, for a model that reads no texts.
    """
    texts, inputs = given.get("texts"), given.get("inputs")
    if texts is not None and inputs is not None:
        raise InvalidInputError("Give texts or inputs, not both.")
    if inputs is not None:
        texts = images_in(listed_inputs(inputs, loaded.model), loaded)
    if is_loader(texts):
        texts = loaded_items(texts)
    if texts is not None:
        images = pictures_of(texts, loaded)
        if images is None:
            refuse_texts(loaded)
        return (texts if images is None else images), "given"
    if loaded.kind in ("vision", "torch"):
        raise InvalidInputError(
            f"{loaded.source} is a {loaded.kind} model: only you have what it reads. Give images: "
            "flowscope.audit(model, images), a tensor [n, channels, height, width]."
        )
    if loaded.kind in ("audio", "diffusion"):
        raise InvalidInputError(
            f"{loaded.source} is of the kind {loaded.kind}; an audit reads models of texts and "
            "images. Its heads can be read: flowscope heads."
        )
    return chosen_texts(config)


def _fitted(config: AuditConfig, model: nn.Module, prompts: Prompts) -> AuditConfig:
    outcomes = getattr(getattr(model, "config", None), "vocab_size", None) or 1
    longest = 1 if prompts.images else max(len(item) for item in prompts.items)
    held = _logits_held(next(model.parameters()).device)
    batch = max(min(config.batch, held // (longest * int(outcomes))), 1)
    return config.model_copy(update={"batch": batch})


def _logits_held(device: torch.device) -> int:
    """Numbers of one batch of logits; a GPU's memory as a whole decides, so that runs resume."""
    if device.type != "cuda":
        return _LOGITS_HELD
    memory = torch.cuda.get_device_properties(device).total_memory
    return max(memory // (_GPU_SHARE * torch.float32.itemsize), _LOGITS_HELD)
