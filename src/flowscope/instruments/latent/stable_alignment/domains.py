"""The texts of the study: two kinds with a part to tune on, and the prompts of the run."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, replace

import numpy as np

from flowscope.errors import InvalidInputError
from flowscope.instruments.latent.stable_alignment import StableAlignment
from flowscope.instruments.latent.stable_alignment.generated import GENERATORS
from flowscope.instruments.latent.subject import LatentBench
from flowscope.lab.claim import Abstention
from flowscope.models.preparation import feeding_of
from flowscope.models.prompts import Prompts, prompts_of
from flowscope.models.texts import Texts, read_texts
from flowscope.records import Unavailable

__all__ = ["Domain", "domains_of", "settings_of", "taken"]

_KEY = 71  # of random numbers
FEWEST = 2
"""Texts of a kind that are needed: one to tune on, one to measure on."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Domain:
    """Texts of one kind.

    Attributes
    ----------
    name
        Its short name.
    source
        What the texts are.
    tuned, tested
        Tokens to tune on (None for the prompts of the run) and tokens to measure on.
    """

    name: str
    source: str
    tuned: Prompts | None
    tested: Prompts

    @property
    def mark(self) -> str:
        """Hash of the tokens, for the names of shards."""
        tuned = self.tuned.data_hash[:8] if self.tuned else ""
        return f"{self.name}-{tuned}{self.tested.data_hash[:8]}"


def settings_of(bench: LatentBench) -> StableAlignment:
    """Settings of the study that a bench runs."""
    assert isinstance(bench.study, StableAlignment)
    return bench.study


def domains_of(bench: LatentBench) -> list[Domain]:
    """The three kinds of text.

    Raises
    ------
    Abstention
        For a model that predicts no next token, or has no tokenizer.
    """
    subject, study = bench.subject, settings_of(bench)
    if subject.loaded.kind != "causal_lm" or isinstance(subject.loaded.tokenizer, Unavailable):
        raise Abstention(
            f"models in consensus are compared by the loss of the next token, and {subject.source} "
            f"is read as {subject.loaded.kind} without one. Give a language model"
        )
    general = subject.material.prompts
    assert isinstance(general, Prompts)
    kinds = [_kind(bench, name, getattr(study, name)) for name in GENERATORS]
    return [
        *kinds,
        Domain(
            name="general", source=general.source, tuned=None, tested=general.first(study.tested)
        ),
    ]


def _kind(bench: LatentBench, name: str, file: str | None) -> Domain:
    config, study = bench.config, settings_of(bench)
    count = study.examples + study.tested
    if file is None:
        draw = random.Random(1000 * config.seed + _KEY + list(GENERATORS).index(name))
        made = GENERATORS[name]
        texts, source = (
            Texts(texts=[made(draw) for _ in range(count)], running=False),
            made.__name__,
        )
    else:
        texts, source = read_texts(file), file
    prompts = prompts_of(
        bench.subject.loaded, texts, count=count, length=config.tokens, source=source,
        feeding=feeding_of(config),
    )  # fmt: skip
    if len(prompts) < FEWEST:
        raise InvalidInputError(
            f"{name} must hold at least {FEWEST} texts, one to tune on and one to measure on; "
            f"{source} gives {len(prompts)} of {config.tokens} tokens."
        )
    tested = min(study.tested, len(prompts) // 2)
    return Domain(
        name=name,
        source=source,
        tuned=taken(prompts, np.arange(len(prompts) - tested)),
        tested=taken(prompts, np.arange(len(prompts) - tested, len(prompts))),
    )


def taken(prompts: Prompts, numbers: np.ndarray) -> Prompts:
    """Some of the prompts, in the given order."""
    items = tuple(prompts.items[k] for k in numbers)
    positions = tuple(prompts.positions[k] for k in numbers) if prompts.positions else ()
    content = np.concatenate([item.reshape(-1) for item in items]).tobytes()
    return replace(
        prompts, items=items, positions=positions, data_hash=hashlib.sha256(content).hexdigest()
    )
