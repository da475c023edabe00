"""Forecast what changes of single blocks cost, and measure them on other prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.field.subject import FieldBench
from flowscope.lab.claim import Abstention
from flowscope.probes import model_anatomy
from flowscope.probes.field.changes import (
    Change,
    Quantise,
    Scale,
    Skip,
    rounded_weights,
    weight_error,
)
from flowscope.probes.field.forecast import forecast_changes, measured_divergence
from flowscope.records import Unavailable
from flowscope.tap import Chain

__all__ = ["forecast"]

Candidates = list[tuple[int, Change]]
_SCALE = 0.9


def forecast(bench: FieldBench) -> None:
    """Write the tables ``forecast`` and ``forecast_prompts``.

    Raises
    ------
    Abstention
        Where the forecast is switched off, there is one batch only, or the model has no logits for
        every token.
    """
    config, material = bench.config, bench.subject.material
    if config.draws < 2:
        raise Abstention("the forecast is switched off (draws below 2)")
    batches = list(material.batches(None))
    if len(batches) < 2:
        raise Abstention(
            "a forecast is tested on prompts it has not seen and needs two batches; all "
            f"{material.size} prompts are in one batch of at most {config.batch}"
        )
    model = bench.subject.loaded.model
    chain = model_anatomy(model, batches[0].inputs).depth
    if isinstance(chain, Unavailable):
        raise Abstention(chain.reason)
    changes = _candidates(len(chain), config.bits)
    bench.list_pass("forecast", material.size)
    counter = bench.counter("forecast", material.size)
    makers = {
        f"forecast-{number:05d}": partial(
            _forecast if number % 2 == 0 else _measured, bench, batch, chain, changes
        )
        for number, batch in enumerate(batches)
    }
    bench.spread(makers)
    frames = []
    for batch, (name, make) in zip(batches, makers.items(), strict=True):
        try:
            arrays = bench.shard(name, make)
        except InvalidInputError as error:
            raise Abstention(f"this model cannot be forecast: {error}") from error
        frames.append(_long(changes, batch.prompts, arrays))
        counter.advance(len(batch.prompts))
    prompts = pd.concat(frames, ignore_index=True)
    bench.put("forecast_prompts", prompts)
    bench.put("forecast", _summary(bench, chain, changes, prompts))


def _candidates(blocks: int, bits: int) -> Candidates:
    kinds: tuple[Callable[[], Change], ...] = (
        Skip,
        lambda: Scale(amount=_SCALE),
        lambda: Quantise(bits=bits),
    )
    return [(index, kind()) for kind in kinds for index in range(blocks)]


def _logits(output: Any) -> Tensor:
    logits = getattr(output, "logits", None)
    if not isinstance(logits, Tensor):
        raise InvalidInputError(
            "a forecast needs logits [batch, tokens, outcomes]; the model returns none."
        )
    return logits


def _forecast(
    bench: FieldBench, batch: Any, chain: Chain, changes: Candidates
) -> Mapping[str, NDArray[np.float64]]:
    config = bench.config
    reading = forecast_changes(
        bench.subject.loaded.model, batch.inputs, chain, changes, mask=batch.named,
        draws=config.draws, seed=config.seed, logits=_logits,
    )  # fmt: skip
    return {
        "predicted": reading.divergence,
        "relative_error": reading.relative_error,
        "turn": reading.turn,
    }


def _measured(
    bench: FieldBench, batch: Any, chain: Chain, changes: Candidates
) -> Mapping[str, NDArray[np.float64]]:
    model = bench.subject.loaded.model
    rows = [
        measured_divergence(model, batch.inputs, chain, change, mask=batch.named, logits=_logits)
        for change in changes
    ]
    return {"measured": np.stack(rows)}


def _long(
    changes: Candidates, prompts: NDArray[np.int64], arrays: Mapping[str, NDArray[np.float64]]
) -> pd.DataFrame:
    """One row per candidate and prompt."""
    size = len(prompts)
    columns: dict[str, Any] = {
        "kind": np.repeat([change.kind for _, change in changes], size),
        "layer": np.repeat([index + 1 for index, _ in changes], size),
        "prompt": np.tile(prompts, len(changes)),
    }
    for name in ("predicted", "relative_error", "turn", "measured"):
        columns[name] = (
            arrays[name].ravel() if name in arrays else np.full(len(changes) * size, np.nan)
        )
    return pd.DataFrame(columns)


def _summary(
    bench: FieldBench, chain: Chain, changes: Candidates, prompts: pd.DataFrame
) -> pd.DataFrame:
    """One row per candidate: means over prompts with intervals."""
    config = bench.config
    labels = [(change.kind, index + 1) for index, change in changes]
    table: dict[str, Any] = {
        "kind": [kind for kind, _ in labels],
        "layer": [layer for _, layer in labels],
        "bits": [change.amount if change.kind == "quantise" else np.nan for _, change in changes],
    }
    for name in ("predicted", "measured"):
        column = _wide(prompts, name, labels)
        counts = resampled_counts(len(column), resamples=config.resamples, seed=config.seed)
        point, interval = mean_over_prompts(column, np.ones_like(column), counts)
        low, high = bounds_of(interval, len(point))
        ends = ("low", "high") if name == "predicted" else (f"{name}_low", f"{name}_high")
        table |= {name: point, ends[0]: low, ends[1]: high}
    for name in ("relative_error", "turn"):
        table[name] = _wide(prompts, name, labels).mean(0)
    table["weight_error"] = _weight_errors(bench, chain, changes)
    frame = pd.DataFrame(table)
    ratio = (frame["measured"] / frame["predicted"]).groupby(frame["kind"]).transform("median")
    frame["trust"] = np.where(ratio.between(0.5, 2.0), "size and rank", "rank only")
    return frame


def _wide(
    prompts: pd.DataFrame, name: str, labels: Sequence[tuple[str, int]]
) -> NDArray[np.float64]:
    """Values of a column by prompt and candidate, of the prompts that have them."""
    there = prompts.dropna(subset=[name])
    pivot = there.pivot(index="prompt", columns=["kind", "layer"], values=name)
    return np.asarray(pivot[list(labels)].to_numpy(float))


def _weight_errors(bench: FieldBench, chain: Chain, changes: Candidates) -> list[float]:
    errors = []
    for index, change in changes:
        if not isinstance(change, Quantise):
            errors.append(float("nan"))
            continue
        module = bench.subject.loaded.model.get_submodule(chain.blocks[index].path)
        errors.append(weight_error(module, rounded_weights(module, change.bits, change.group)))
    return errors
