"""Read every head of the model and of its references."""

from __future__ import annotations

from dataclasses import replace

from flowscope.instruments.heads.geometry.production import Reference
from flowscope.instruments.heads.geometry.reading import HeadReading, read_heads
from flowscope.instruments.heads.geometry.tables import (
    geometry_table,
    production_arrays,
    reference_table,
    with_weight_ratios,
)
from flowscope.instruments.heads.resampling import control_size, prompt_counts
from flowscope.instruments.heads.subject import HeadsBench
from flowscope.models.loading import Loaded
from flowscope.models.twin import fresh_twin
from flowscope.probes.heads.weights import weight_ratios
from flowscope.records import Shards, Unavailable

__all__ = ["geometry"]


def geometry(bench: HeadsBench) -> None:
    """Read every head of the model and of its references."""
    config = bench.config
    reading = _read(bench, bench.subject.loaded, None, "heads", bench.shards)
    if reading.crossed:
        bench.abstain("cross-attention", _crossed(reading.crossed))
    references = _references(bench)
    counts = prompt_counts(bench, bench.subject.material.size)
    table = geometry_table(reading, references, counts, chain=config.chain, level=config.level)
    first = next(bench.subject.material.batches(1))
    table = with_weight_ratios(table, weight_ratios(bench.subject.loaded.model, first.inputs))
    bench.put("geometry", table)
    bench.put("references", reference_table(references))
    bench.put_arrays("production", production_arrays(reading, references))


def _read(
    bench: HeadsBench,
    loaded: Loaded,
    most: int | None,
    part: str,
    shards: Shards | None = None,
    permuted: bool = False,
) -> HeadReading:
    material = bench.subject.material
    total = material.size if most is None else min(most, material.size)
    bench.list_pass(part, total)
    return read_heads(
        loaded.model,
        material.batches(most),
        walk=bench.config.chain,
        damping=bench.config.damping,
        permuted=permuted,
        shards=shards,
        advance=bench.counter(part, total).advance,
    )


def _references(bench: HeadsBench) -> dict[Reference, HeadReading | Unavailable]:
    """What the heads are compared with, on the first few prompts."""
    config, loaded, few = bench.config, bench.subject.loaded, control_size(bench)
    if not config.controls:
        off = Unavailable("controls are switched off")
        return {"random weights": off, "keys permuted": off}
    twin = fresh_twin(loaded.model, config.seed)
    fresh: HeadReading | Unavailable
    if isinstance(twin, Unavailable):
        fresh = twin
    else:
        fresh = _read(bench, replace(loaded, model=twin), few, "random weights")
    if config.chain == "unmasked":
        permuted: HeadReading | Unavailable = _read(
            bench, loaded, few, "keys permuted", permuted=True
        )
    else:
        permuted = Unavailable("keys cannot be permuted, because the mask is part of this chain")
    return {"random weights": _first(fresh, few), "keys permuted": _first(permuted, few)}


def _crossed(layers: int) -> str:
    return (
        f"{layers} layers attend to another sequence too: its queries and keys are not the same "
        "tokens, so there is no diagonal and no chain; only a bridge "
        "(flowscope.markov.kernel_bridge) applies"
    )


def _first(reading: HeadReading | Unavailable, few: int) -> HeadReading | Unavailable:
    """A batch is read whole; what goes beyond the few prompts is left out of a comparison."""
    if isinstance(reading, Unavailable):
        return reading
    return replace(reading, arrays={name: v[:few] for name, v in reading.arrays.items()})
