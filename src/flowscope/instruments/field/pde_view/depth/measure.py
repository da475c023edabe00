"""Read the states of every network along depth, trained and with random weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

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
_PASS = 256  # examples of a pass
_OVER = ["over", "units"]
Values = NDArray[np.float64]
Key = tuple[str, str, str]
Gains = tuple[Values, Values]
Reads = dict[Key, list[Gains]]


def depth(bench: PdeBench) -> None:
    """Write the tables ``depth``, ``information`` and ``changes``."""
    config = settings_of(bench)
    states: dict[Key, list[Values]] = {}
    gains: dict[str, Reads] = {what: {} for what in _READ}
    every = [(place, weights) for place in places(config) for weights in ("trained", "random")]
    counter = bench.counter("states", len(every))
    for place, weights in every:
        name, arm, seed = place
        mark = bench.subject.tasks[name].mark[:8]
        shard = bench.shard(
            f"depth-{name}-{mark}-{arm}-{seed}-{weights}",
            partial(_shard, bench, place, weights),
        )
        key = name, arm, weights
        states.setdefault(key, []).append(shard["values"])
        for what in (what for what in _READ if what in shard):
            gains[what].setdefault(key, []).append((shard[what], shard[f"{what}_shuffled"]))
        counter.advance()
    bench.put("depth", _table(states, list(MEASURES)))
    bench.put("information", _information(gains))
    bench.put("changes", _changes(states, gains))


def _shard(bench: PdeBench, place: Place, weights: str) -> Mapping[str, Values]:
    made = trained(bench, place) if weights == "trained" else random_network(bench, place)
    arrays = {"values": readings(bench, place, made)}
    if place[1] in (TRANSFORMER, SIMULATOR):
        for name, read in (("token", _token_gains), ("label", _label_gains)):
            arrays[name], arrays[f"{name}_shuffled"] = read(bench, place, made)
    return arrays


def _token_gains(bench: PdeBench, place: Place, made: Network) -> Gains:
    """What a probe reads of the input token in every layer, and with permuted tokens."""
    config, (name, _, seed) = settings_of(bench), place
    task = bench.subject.tasks[name]
    chosen = read_examples(bench, name, seed, config.informed)
    path, tokens = states_of(made, task.test_inputs[chosen]).cpu(), task.test_inputs[chosen].cpu()
    draw = seeded_generator(bench.config.seed, seed, 2)
    at = torch.rand(tokens.shape, generator=draw).argsort(-1)[:, : config.places]
    seen = tokens.gather(1, at)
    kept = torch.isin(seen, torch.bincount(tokens.flatten()).argsort(descending=True)[:_TYPES])
    owners = torch.arange(len(tokens))[:, None].expand_as(seen)[kept]
    places_of = at[..., None].expand(-1, -1, path.shape[-1])
    rows = [states.gather(1, places_of)[kept] for states in path]
    return _gains(rows, seen[kept], owners, len(tokens))


def _label_gains(bench: PdeBench, place: Place, made: Network) -> Gains:
    """What a probe reads of the class from the mean state of every layer."""
    config, (name, _, seed) = settings_of(bench), place
    task = bench.subject.tasks[name]
    count = min(config.labelled or config.tested, config.tested)
    chosen = read_examples(bench, name, seed, count)
    parts = [
        states_of(made, part).mean(-2).cpu()
        for part in torch.split(task.test_inputs[chosen], _PASS)
    ]
    rows = list(torch.cat(parts, 1))
    return _gains(rows, task.test_labels[chosen].cpu(), torch.arange(count), count)


def _gains(rows: Sequence[Tensor], labels: Tensor, owners: Tensor, count: int) -> Gains:
    """Gains ``[layers, examples]`` and means with permuted labels; NaN where nothing is read."""
    gains, shuffled = np.full((len(rows), count), np.nan), np.full(len(rows), np.nan)
    for layer, states in enumerate(rows):
        if states.isfinite().all():
            read = decodable_information(states, labels, owners)
            gains[layer, read.groups], shuffled[layer] = read.group_gains, read.shuffled
    return gains, shuffled


def _table(states: Mapping[Key, list[Values]], names: list[str]) -> pd.DataFrame:
    parts = []
    for key, several in states.items():
        values = np.stack(several).transpose(0, 2, 1, 3)  # [seeds, prompts, layers, measures]
        layers = np.arange(values.shape[2])
        keys = pd.DataFrame([key] * len(layers), columns=["task", "arm", "weights"])
        parts.append(summarised(keys.assign(layer=layers), names, values))
    return pd.concat(parts, ignore_index=True)


def _information(gains: Mapping[str, Reads]) -> pd.DataFrame:
    """Both reads of every network, side by side; the units are those of the input token."""
    tables = []
    for what, reads in gains.items():
        values = {key: [read[..., None] for read, _ in pairs] for key, pairs in reads.items()}
        table = _table(values, [what])
        shuffled = [np.mean([means for _, means in pairs], 0) for pairs in reads.values()]
        table.insert(list(table).index(f"{what}_high") + 1, f"{what}_shuffled",
                     np.concatenate(shuffled))  # fmt: skip
        tables.append(table)
    tokens, labels = tables
    own = [name for name in map(str, labels) if name.startswith("label")]
    return pd.concat([tokens.drop(columns=_OVER), labels[own], tokens[_OVER]], axis=1)


def _changes(states: Mapping[Key, list[Values]], gains: Mapping[str, Reads]) -> pd.DataFrame:
    """Changes of trained networks between layers, paired within prompts."""
    parts = []
    for (name, arm, weights), several in states.items():
        if weights == "random":
            continue
        high = np.stack(several)[..., MEASURES.index("high_frequency")]
        changes = {"high_frequency, 0 to last": high[:, -1] - high[:, 0]}
        for what, reads in gains.items():
            if (name, arm, weights) in reads:
                changes |= _read_changes(what, np.stack([r for r, _ in reads[name, arm, weights]]))
        for quantity, change in changes.items():
            keys = pd.DataFrame([{"task": name, "arm": arm, "quantity": quantity}])
            parts.append(summarised(keys, ["change"], change[..., None, None]))
    return pd.concat(parts, ignore_index=True)


def _read_changes(what: str, read: Values) -> dict[str, Values]:
    """Changes of what a probe reads, ``[seeds, layers, examples]``, between layers."""
    first, half, before, last = read[:, 0], read[:, read.shape[1] // 2], read[:, -2], read[:, -1]
    return {
        f"{what}, 0 to half": half - first,
        f"{what}, 0 to last but one": before - first,
        f"{what}, last block": last - before,
        f"{what}, last block less all before": last - 2 * before + first,
    }
