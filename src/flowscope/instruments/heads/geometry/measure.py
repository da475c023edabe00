"""Read every head of the model and of its references."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flowscope.instruments.heads.geometry.ratios import Reference
from flowscope.instruments.heads.geometry.reading import HeadReading, read_heads, read_matched
from flowscope.instruments.heads.geometry.tables import (
    geometry_table,
    label_table,
    production_arrays,
    reference_table,
    with_ratios,
    with_weight_ratios,
)
from flowscope.instruments.heads.resampling import control_size, prompt_counts
from flowscope.instruments.heads.subject import HeadsBench
from flowscope.models.twin import fresh_twin
from flowscope.probes.heads.weights import weight_ratios
from flowscope.records import Unavailable

__all__ = ["geometry"]


def geometry(bench: HeadsBench) -> None:
    """Read every head of the model and of its references."""
    config = bench.config
    reading, permuted = _model(bench)
    if reading.crossed:
        bench.abstain("cross-attention", _crossed(reading.crossed))
    fresh, twins = _random_weights(bench), _twins(bench, reading)
    counts = prompt_counts(bench, bench.subject.material.size)
    table = geometry_table(
        reading, fresh, counts, chain=config.chain, level=config.level, seed=config.seed
    )
    first = next(bench.subject.material.batches(1))
    table = with_weight_ratios(table, weight_ratios(bench.subject.loaded.model, first.inputs))
    arrays = production_arrays(reading, fresh, permuted, twins)
    bench.put("geometry", with_ratios(table, arrays, seed=config.seed))
    bench.put("labels", label_table(table))
    readings: dict[Reference, list[HeadReading] | Unavailable] = {
        "random weights": fresh if isinstance(fresh, Unavailable) else [fresh],
        "random weights, as sharp": twins,
        "keys permuted": permuted if isinstance(permuted, Unavailable) else [permuted],
    }
    bench.put("references", reference_table(arrays, readings))
    bench.put_arrays("production", arrays)


def _model(bench: HeadsBench) -> tuple[HeadReading, HeadReading | Unavailable]:
    """The heads of the model, and the same with permuted keys from the same pass."""
    config, material = bench.config, bench.subject.material
    bench.list_pass("heads", material.size)
    unmasked = config.chain == "unmasked"
    reading, permuted = read_heads(
        bench.subject.loaded.model,
        material.batches(None),
        walk=config.chain,
        damping=config.damping,
        permutations=config.permutations if config.controls and unmasked else 0,
        shards=bench.shards,
        advance=bench.counter("heads", material.size).advance,
    )
    if not config.controls:
        return reading, _OFF
    if not unmasked:
        permuted = Unavailable("keys cannot be permuted, because the mask is part of this chain")
    return reading, permuted


_OFF = Unavailable("controls are switched off")


def _random_weights(bench: HeadsBench) -> HeadReading | Unavailable:
    """The same network with random weights, as it is, on the first few prompts."""
    config, few = bench.config, control_size(bench)
    if not config.controls:
        return _OFF
    twin = fresh_twin(bench.subject.loaded.model, config.seed)
    if isinstance(twin, Unavailable):
        return twin
    bench.list_pass("random weights", few)
    reading, _ = read_heads(
        twin,
        bench.subject.material.batches(few),
        walk=config.chain,
        damping=config.damping,
        advance=bench.counter("random weights", few).advance,
    )
    # A batch is read whole; what goes beyond the few prompts is left out of a comparison.
    return replace(reading, arrays={name: v[:few] for name, v in reading.arrays.items()})


def _twins(bench: HeadsBench, reading: HeadReading) -> list[HeadReading] | Unavailable:
    """Networks with random weights whose heads attend to as many keys as those of the model."""
    config, material = bench.config, bench.subject.material
    if not config.controls:
        return _OFF
    if config.chain == "quasi-stationary":
        return Unavailable("a quasi-stationary chain has no entropy production")
    keys = _keys_by_prompt(reading)
    counter = bench.counter("random twins", config.twins * material.size)
    readings = []
    for number in range(config.twins):
        twin = fresh_twin(bench.subject.loaded.model, config.seed + number)
        if isinstance(twin, Unavailable):
            return twin
        bench.list_pass(f"random twin {number + 1}", material.size)
        readings.append(
            read_matched(
                twin,
                material.batches(None),
                keys,
                walk=config.chain,
                damping=config.damping,
                permutation=number,
                advance=counter.advance,
            )
        )
    return readings


def _keys_by_prompt(reading: HeadReading) -> dict[int, NDArray[np.float64]]:
    numbers, keys = (reading.arrays[f"geometry_{n}"] for n in ("prompt", "effective_keys"))
    return {int(number): row for number, row in zip(numbers, keys, strict=True)}


def _crossed(layers: int) -> str:
    return (
        f"{layers} layers attend to another sequence too: its queries and keys are not the same "
        "tokens, so there is no diagonal and no chain; only a bridge "
        "(flowscope.markov.kernel_bridge) applies"
    )
