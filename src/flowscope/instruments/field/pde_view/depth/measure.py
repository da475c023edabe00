"""Read the states of every network along depth, trained and with random weights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from flowscope.instruments.field.pde_view.names import SIMULATOR, TRANSFORMER
from flowscope.instruments.field.pde_view.networks import Network
from flowscope.instruments.field.pde_view.subject import PdeBench, settings_of
from flowscope.instruments.field.pde_view.summaries import summarised
from flowscope.instruments.field.pde_view.trained import (
    MEASURES,
    Place,
    places,
    random_network,
    read_examples,
    readings,
    states_of,
    trained,
)
from flowscope.lab.bench import seeded_generator
from flowscope.pde import decodable_information

__all__ = ["depth"]

_TYPES = 50  # commonest input tokens that a probe tells apart
_READ = ("token", "label")
Values = NDArray[np.float64]


def depth(bench: PdeBench) -> None:
    """Write the tables ``depth``, ``information`` and ``changes``."""
    config = settings_of(bench)
    states: dict[tuple[str, str, str], list[Values]] = {}
    gains: dict[tuple[str, str, str], list[tuple[Values, Values]]] = {}
    every = [(place, weights) for place in places(config) for weights in ("trained", "random")]
    counter = bench.counter("states", len(every))
    for place, weights in every:
        name, arm, seed = place
        mark = bench.subject.tasks[name].mark[:8]
        shard = bench.shard(
            f"depth-{name}-{mark}-{arm}-{seed}-{weights}",
            partial(_shard, bench, place, weights),
        )
        states.setdefault((name, arm, weights), []).append(shard["values"])
        if "gains" in shard:
            pair = shard["gains"], shard["shuffled"]
            gains.setdefault((name, arm, weights), []).append(pair)
        counter.advance()
    bench.put("depth", _table(states, list(MEASURES)))
    bench.put("information", _information(gains))
    bench.put("changes", _changes(states, gains, config.blocks))


def _shard(bench: PdeBench, place: Place, weights: str) -> Mapping[str, Values]:
    made = trained(bench, place) if weights == "trained" else random_network(bench, place)
    arrays = {"values": readings(bench, place, made)}
    if place[1] in (TRANSFORMER, SIMULATOR):
        arrays["gains"], arrays["shuffled"] = _informed(bench, place, made)
    return arrays


def _informed(bench: PdeBench, place: Place, made: Network) -> tuple[Values, Values]:
    """Gains ``[blocks + 1, examples, 2]`` and shuffled means ``[blocks + 1, 2]``."""
    config, (name, _, seed) = settings_of(bench), place
    task = bench.subject.tasks[name]
    chosen = read_examples(bench, name, seed, config.informed)
    path = states_of(made, task.test_inputs[chosen]).cpu()
    tokens, labels = task.test_inputs[chosen].cpu(), task.test_labels[chosen].cpu()
    draw = seeded_generator(bench.config.seed, seed, 2)
    at = torch.rand(tokens.shape, generator=draw).argsort(-1)[:, : config.places]
    types = torch.bincount(tokens.flatten()).argsort(descending=True)[:_TYPES]
    seen = tokens.gather(1, at)
    kept = torch.isin(seen, types)
    groups = torch.arange(len(tokens))
    gains, shuffled = np.full((len(path), len(tokens), 2), np.nan), np.full((len(path), 2), np.nan)
    for layer, states in enumerate(path):
        if not states.isfinite().all():
            continue
        rows = states.gather(1, at[..., None].expand(-1, -1, states.shape[-1]))[kept]
        owners = groups[:, None].expand_as(seen)[kept]
        read = (
            decodable_information(rows, seen[kept], owners),
            decodable_information(states.mean(1), labels, groups),
        )
        for k, one in enumerate(read):
            gains[layer, one.groups, k], shuffled[layer, k] = one.group_gains, one.shuffled
    return gains, shuffled


def _table(states: Mapping[tuple[str, str, str], list[Values]], names: list[str]) -> pd.DataFrame:
    parts = []
    for key, several in states.items():
        values = np.stack(several).transpose(0, 2, 1, 3)  # [seeds, prompts, layers, measures]
        layers = np.arange(values.shape[2])
        keys = pd.DataFrame([key] * len(layers), columns=["task", "arm", "weights"])
        parts.append(summarised(keys.assign(layer=layers), names, values))
    return pd.concat(parts, ignore_index=True)


def _information(
    gains: Mapping[tuple[str, str, str], list[tuple[Values, Values]]],
) -> pd.DataFrame:
    table = _table({key: [read for read, _ in pairs] for key, pairs in gains.items()}, list(_READ))
    shuffled = np.concatenate([np.mean([s for _, s in pairs], 0) for pairs in gains.values()])
    for k, name in enumerate(_READ):
        at = list(table.columns).index(f"{name}_high") + 1
        table.insert(at, f"{name}_shuffled", shuffled[:, k])
    return table


def _changes(
    states: Mapping[tuple[str, str, str], list[Values]],
    gains: Mapping[tuple[str, str, str], list[tuple[Values, Values]]],
    blocks: int,
) -> pd.DataFrame:
    """Changes of trained networks between layers, paired within prompts."""
    parts = []
    for (name, arm, weights), several in states.items():
        if weights == "random":
            continue
        values = np.stack(several)  # [seeds, layers, prompts, measures]
        high = values[..., MEASURES.index("high_frequency")]
        changes = {"high_frequency, 0 to last": high[:, -1] - high[:, 0]}
        if (name, arm, weights) in gains:
            read = np.stack([each for each, _ in gains[name, arm, weights]])
            half = blocks // 2
            for k, what in enumerate(_READ):
                part = read[..., k]
                changes |= {
                    f"{what}, 0 to half": part[:, half] - part[:, 0],
                    f"{what}, 0 to last but one": part[:, -2] - part[:, 0],
                    f"{what}, last block": part[:, -1] - part[:, -2],
                    f"{what}, last block less all before": part[:, -1]
                    - 2 * part[:, -2]
                    + part[:, 0],
                }
        for quantity, change in changes.items():
            keys = pd.DataFrame([{"task": name, "arm": arm, "quantity": quantity}])
            parts.append(summarised(keys, ["change"], change[..., None, None]))
    return pd.concat(parts, ignore_index=True)
