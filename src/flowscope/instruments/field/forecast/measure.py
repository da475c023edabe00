"""Forecast what changes of single blocks cost, and measure them on other prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.instruments.field.forecast.summary import Costs, cost_rows, kind_rows
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

__all__ = ["Candidates", "forecast", "forecast_arrays", "joined_costs", "measured_costs"]

Candidates = list[tuple[int, Change]]
"""Index of a block, and what is done to it."""

_SCALE = 0.9


def forecast(bench: FieldBench) -> None:
    """Write the tables ``forecast``, ``forecast_kinds`` and ``forecast_prompts``.

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
            f"{material.size} prompts are in one batch of at most {config.batch}. Give more "
            f"prompts, or set batch to {max(material.size // 2, 1)}"
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
    pieces: list[Mapping[str, NDArray[np.float64]]] = []
    for batch, (name, make) in zip(batches, makers.items(), strict=True):
        try:
            pieces.append(bench.shard(name, make))
        except InvalidInputError as error:
            raise Abstention(f"this model cannot be forecast: {error}") from error
        counter.advance(len(batch.prompts))
    bench.put(
        "forecast_prompts",
        pd.concat(
            [
                _long(changes, batch.prompts, arrays)
                for batch, arrays in zip(batches, pieces, strict=True)
            ],
            ignore_index=True,
        ),
    )
    costs = joined_costs(model, chain, changes, pieces)
    rows = cost_rows(costs, resamples=config.resamples, seed=config.seed)
    bench.put("forecast", rows)
    sigma = np.full(len(chain), np.nan)
    if "jacobians" in bench.records.tables():
        sigma = bench.records.read_table("jacobians")["sigma_max"].to_numpy(float)
    bench.put(
        "forecast_kinds",
        kind_rows(rows, costs, sigma, resamples=config.resamples, seed=config.seed),
    )


def joined_costs(
    model: nn.Module,
    chain: Chain,
    changes: Candidates,
    pieces: Sequence[Mapping[str, NDArray[np.float64]]],
) -> Costs:
    """Costs of all batches: some were forecast, others measured."""

    def joined(name: str) -> NDArray[np.float64]:
        return np.concatenate([piece[name] for piece in pieces if name in piece], 1)

    return Costs(
        kinds=[change.kind for _, change in changes],
        layers=[index + 1 for index, _ in changes],
        bits=[change.amount if change.kind == "quantise" else np.nan for _, change in changes],
        predicted=joined("predicted"),
        measured=joined("measured"),
        relative_error=joined("relative_error"),
        turn=joined("turn"),
        weight_error=_weight_errors(model, chain, changes),
    )


def _candidates(blocks: int, bits: int) -> Candidates:
    kinds: tuple[Callable[[], Change], ...] = (
        Skip,
        lambda: Scale(amount=_SCALE),
        lambda: Quantise(bits=bits),
    )
    return [(index, kind()) for kind in kinds for index in range(blocks)]


def logits_of(output: Any) -> Tensor:
    """Logits [batch, places, outcomes] of what a model returns; a classifier has one place."""
    logits = getattr(output, "logits", None)
    if not isinstance(logits, Tensor):
        raise InvalidInputError(
            "a forecast needs logits [batch, tokens, outcomes]; the model returns none."
        )
    return logits[:, None] if logits.ndim == 2 else logits


def mask_of(batch: Any) -> Tensor | None:
    """Which tokens of a batch count; None where its rows are no texts and all do."""
    rows = next((x.shape[:2] for x in batch.inputs.values() if _is_ids(x)), None)
    return batch.named if rows is not None and batch.named.shape == rows else None


def _is_ids(x: Any) -> bool:
    return isinstance(x, Tensor) and x.ndim == 2 and not x.is_floating_point()


def _forecast(
    bench: FieldBench, batch: Any, chain: Chain, changes: Candidates
) -> Mapping[str, NDArray[np.float64]]:
    config = bench.config
    return forecast_arrays(
        bench.subject.loaded.model, batch, chain, changes, draws=config.draws, seed=config.seed
    )


def forecast_arrays(
    model: nn.Module, batch: Any, chain: Chain, changes: Candidates, *, draws: int, seed: int
) -> Mapping[str, NDArray[np.float64]]:
    """Forecast cost by candidate, prompt and draw, and what peers see; draws of its own a batch."""
    first = np.random.SeedSequence([seed, int(batch.prompts[0])]).generate_state(1)[0]
    reading = forecast_changes(
        model, batch.inputs, chain, changes, mask=mask_of(batch), draws=draws, seed=int(first),
        logits=logits_of,
    )  # fmt: skip
    return {
        "predicted": reading.draws,
        "relative_error": reading.relative_error,
        "turn": reading.turn,
    }


def _measured(
    bench: FieldBench, batch: Any, chain: Chain, changes: Candidates
) -> Mapping[str, NDArray[np.float64]]:
    return {"measured": measured_costs(bench.subject.loaded.model, batch, chain, changes)}


@torch.no_grad()
def measured_costs(
    model: nn.Module, batch: Any, chain: Chain, changes: Candidates
) -> NDArray[np.float64]:
    """Measured cost by candidate and prompt; the model as it is runs once for all of them."""
    plain = logits_of(model(**batch.inputs))
    rows = [
        measured_divergence(
            model, batch.inputs, chain, change, mask=mask_of(batch), logits=logits_of, plain=plain
        )
        for change in changes
    ]
    return np.stack(rows)


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
        values = arrays.get(name, np.full((len(changes), size), np.nan))
        columns[name] = (values.mean(-1) if values.ndim == 3 else values).ravel()
    return pd.DataFrame(columns)


def _weight_errors(model: nn.Module, chain: Chain, changes: Candidates) -> list[float]:
    errors = []
    for index, change in changes:
        if not isinstance(change, Quantise):
            errors.append(float("nan"))
            continue
        root: nn.Module = getattr(model, "_orig_mod", model)
        module = root.get_submodule(chain.blocks[index].path)
        errors.append(weight_error(module, rounded_weights(module, change.bits, change.group)))
    return errors
