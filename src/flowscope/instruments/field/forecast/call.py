"""Forecast changes that a user names, on the model and the texts of a finished run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from flowscope.errors import InvalidInputError
from flowscope.instruments.field.config import FieldConfig
from flowscope.instruments.field.forecast.measure import (
    Candidates,
    forecast_arrays,
    joined_costs,
    measured_costs,
)
from flowscope.instruments.field.forecast.summary import cost_rows
from flowscope.instruments.field.subject import prepare
from flowscope.models.reading.subject import ReadingSubject
from flowscope.probes import model_anatomy
from flowscope.records import Run, Unavailable
from flowscope.tap import Chain

__all__ = ["forecast_of_run"]

_AT_RANDOM = 3


def forecast_of_run(
    run: Run,
    settings: Mapping[str, Any],
    changes: Iterable[tuple[int, Any]],
    model: Any = None,
    *,
    texts: Any = None,
    tokenizer: Any = None,
    draws: int | None = None,
) -> pd.DataFrame:
    """Cost of the named changes: forecast for all, measured for the largest and three others.

    Parameters
    ----------
    run, settings
        The run folder, and its resolved settings.
    changes, model, texts, tokenizer, draws
        See `Field.forecast`.

    Raises
    ------
    InvalidInputError
        For no change, a block that is not there, a model whose weights are not those of the run,
        or a model or texts that were in memory alone and are not given now.
    """
    wanted = _wanted(changes)
    subject, config = _subject(run, settings, model, texts, tokenizer)
    batches = list(subject.material.batches(None))
    network = subject.loaded.model
    chain = model_anatomy(network, batches[0].inputs).depth
    if isinstance(chain, Unavailable):
        raise InvalidInputError(f"there is no block to change: {chain.reason}.")
    drawn = config.draws if draws is None else draws
    halves = (batches[::2], batches[1::2] or batches)
    pieces: list[Mapping[str, Any]] = [
        forecast_arrays(network, batch, chain, wanted, draws=max(drawn, 2), seed=config.seed)
        for batch in halves[0]
    ]
    cost = np.concatenate([p["predicted"] for p in pieces], 1).mean((1, 2))
    chosen = _measured_places(cost, config.seed)
    pieces += [
        {"measured": _measured(network, batch, chain, wanted, chosen)} for batch in halves[1]
    ]
    costs = joined_costs(network, chain, wanted, pieces)
    return cost_rows(costs, resamples=config.resamples, seed=config.seed)


def _wanted(changes: Iterable[tuple[int, Any]]) -> Candidates:
    """Changes with the index of their block, from 0; the table counts from 1."""
    wanted: Candidates = []
    for change in changes:
        if not isinstance(change, tuple) or len(change) != 2 or not hasattr(change[1], "state"):
            raise InvalidInputError(
                "changes must be pairs (layer, change), layers from 1 as in the table, such as "
                f"(3, Quantise(bits=4)); got {change!r}."
            )
        if isinstance(change[0], bool) or not isinstance(change[0], int) or change[0] < 1:
            raise InvalidInputError(f"a layer must be a whole number from 1; got {change[0]!r}.")
        wanted.append((change[0] - 1, change[1]))
    if not wanted:
        raise InvalidInputError("a forecast needs at least one change; got none.")
    return wanted


def _subject(
    run: Run, settings: Mapping[str, Any], model: Any, texts: Any, tokenizer: Any
) -> tuple[ReadingSubject, FieldConfig]:
    known = {name: value for name, value in settings.items() if name in FieldConfig.model_fields}
    config = FieldConfig.model_validate(known)
    if model is None and not Path(str(config.model)).exists():
        raise InvalidInputError(
            f"the run was made on {config.model!r}, which cannot be opened from here; pass the "
            "model: result.forecast(changes, model)."
        )
    objects = {"source": model, "texts": texts, "tokenizer": tokenizer}
    given = {name: value for name, value in objects.items() if value is not None}
    config, subject = prepare(config, given)
    manifest = run.read_manifest()
    if _differs(manifest.weight_hashes, "model", subject.weight_hash):
        raise InvalidInputError(
            "the weights of this model are not those of the run; run `flowscope field` on it."
        )
    if texts is None and _differs(manifest.data_hashes, "texts", subject.hashes.get("texts", "")):
        raise InvalidInputError(
            "the run was made on texts that were given in Python; pass them again: "
            "result.forecast(changes, texts=...)."
        )
    return subject, config


def _differs(hashes: Mapping[str, str] | Unavailable, name: str, now: str | Unavailable) -> bool:
    """Whether the run knows another hash; what has none cannot be compared."""
    if isinstance(hashes, Unavailable) or isinstance(now, Unavailable):
        return False
    return hashes.get(name, now) != now


def _measured_places(cost: np.ndarray[Any, Any], seed: int) -> list[int]:
    """The candidate with the largest forecast and three others at random."""
    largest = int(np.argmax(cost))
    others = [place for place in range(len(cost)) if place != largest]
    generator = np.random.default_rng(seed)
    chosen = generator.permutation(others)[:_AT_RANDOM]
    return sorted([largest, *(int(place) for place in chosen)])


def _measured(
    model: nn.Module, batch: Any, chain: Chain, wanted: Candidates, chosen: list[int]
) -> np.ndarray[Any, Any]:
    rows = np.full((len(wanted), len(batch.prompts)), np.nan)
    rows[chosen] = measured_costs(model, batch, chain, [wanted[place] for place in chosen])
    return rows
