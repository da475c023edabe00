"""What ``flowscope audit`` measures: a model on prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from flowscope.instruments.audit.config import AuditConfig
from flowscope.lab.bench import Bench, Subject
from flowscope.models.loading import Loaded
from flowscope.models.marks import model_facts, model_marks
from flowscope.models.preparation import chosen_texts, feeding_of, loaded_model
from flowscope.models.prompts import Batch, Prompts, batches_of, prompts_of, token_text
from flowscope.models.reading.repeats import refuse_noise
from flowscope.models.twin import refuse_broken_weights
from flowscope.records import Unavailable

__all__ = ["AuditBench", "AuditSubject", "prepare"]

_LOGITS_HELD = 2**26


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
        labels: Any = getattr(self.model.config, "id2label", None)
        if self.prompts.images and labels:
            return str(labels.get(outcome, outcome))
        if isinstance(self.loaded.tokenizer, Unavailable):
            return str(outcome)
        return token_text(self.loaded.tokenizer, outcome)

    def batches(self, batch: int) -> Iterator[Batch]:
        """All prompts, anew at every call."""
        return batches_of(self.loaded, self.prompts, batch)

    def few_batches(self, batch: int) -> Iterator[Batch]:
        """The few prompts of the controls, anew at every call."""
        return batches_of(self.loaded, self.few, batch)


AuditBench = Bench[AuditSubject, AuditConfig]


def prepare(config: AuditConfig, given: Mapping[str, Any]) -> tuple[AuditConfig, AuditSubject]:
    """Load the model and tokenise the prompts.

    The batch is made small enough for its logits to fit into the buffer of the depth meter.

    Raises
    ------
    InvalidInputError
        For texts that the model cannot read, or damaged weights.
    """
    loaded = loaded_model(given.get("source", config.model), config, given.get("tokenizer"))
    texts, where = given.get("texts"), "given"
    if texts is None:
        texts, where = chosen_texts(config)
    prompts = prompts_of(
        loaded,
        texts,
        count=config.prompts,
        length=config.tokens,
        source=where,
        feeding=feeding_of(config),
    )
    refuse_broken_weights(loaded.model)
    inputs = next(batches_of(loaded, prompts.first(1), 1)).inputs
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


def _fitted(config: AuditConfig, model: nn.Module, prompts: Prompts) -> AuditConfig:
    outcomes = getattr(getattr(model, "config", None), "vocab_size", None) or 1
    longest = 1 if prompts.images else max(len(item) for item in prompts.items)
    batch = max(min(config.batch, _LOGITS_HELD // (longest * int(outcomes))), 1)
    return config.model_copy(update={"batch": batch})
