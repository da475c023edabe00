"""The stages of ``flowscope heads``: what each measures and which tables it writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import torch

from flowscope.evidence import resampled_counts
from flowscope.evidence.bootstrap import Counts
from flowscope.instruments.heads.config import HeadsConfig
from flowscope.instruments.heads.dials import Dial, dial_table
from flowscope.instruments.heads.irreversibility_rule import Reference
from flowscope.instruments.heads.reading import HeadReading, read_heads
from flowscope.instruments.heads.subject import HeadsSubject
from flowscope.instruments.heads.tables import (
    geometry_table,
    production_arrays,
    reference_table,
    with_weight_ratios,
)
from flowscope.lab.bench import Bench
from flowscope.lab.claim import Abstention
from flowscope.models.loading import Loaded
from flowscope.models.twin import fresh_twin
from flowscope.probes.portrait import portrait
from flowscope.probes.weights import weight_ratios
from flowscope.records import Shards, Unavailable

__all__ = ["geometry", "sentence_portrait", "turned_dials"]

HeadsBench = Bench[HeadsSubject, HeadsConfig]


def geometry(bench: HeadsBench) -> None:
    """Read every head of the model and of its references."""
    config = bench.config
    reading = _read(bench, bench.subject.loaded, None, "heads", bench.shards)
    if reading.crossed:
        bench.abstain("cross-attention", _crossed(reading.crossed))
    references = _references(bench)
    counts = _counts(bench, bench.subject.material.size)
    table = geometry_table(reading, references, counts, chain=config.chain, level=config.level)
    first = next(bench.subject.material.batches(1))
    table = with_weight_ratios(table, weight_ratios(bench.subject.loaded.model, first.inputs))
    bench.put("geometry", table)
    bench.put("references", reference_table(references))
    bench.put_arrays("production", production_arrays(reading, references))


def sentence_portrait(bench: HeadsBench) -> None:
    """Show what every head does on one sentence."""
    config, counter = bench.config, bench.counter("portrait")
    inputs, tokens = _sentence(bench)
    arrays = portrait(
        bench.subject.loaded.model,
        inputs,
        chain=config.chain,
        damping=config.damping,
        charge=config.charge,
    )
    counter.finish()
    if isinstance(arrays, Unavailable):
        raise Abstention(arrays.reason)
    bench.put_arrays("portrait", arrays)
    n = arrays["law"].shape[-1]
    words = tokens if len(tokens) == n else [str(k) for k in range(n)]
    bench.put("sentence", pd.DataFrame({"position": range(n), "token": words}))


def turned_dials(bench: HeadsBench) -> None:
    """Change parts of the logits of the running model and measure the loss."""
    config, prompts = bench.config, bench.subject.material.prompts
    if not config.dials:
        return
    if isinstance(prompts, Unavailable):
        raise Abstention(prompts.reason)
    few, dials = prompts.first(_few(bench)), _dials(config)
    bench.list_pass("dials", len(few))
    counter = bench.counter("dials", len(few) * (1 + (1 + config.draws) * len(dials)))
    table = dial_table(
        bench.subject.loaded,
        few,
        dials,
        _counts(bench, _few(bench)),
        batch=config.batch,
        layers=[layer - 1 for layer in config.dial_layers] or None,
        heads=list(config.dial_heads) or None,
        seed=config.seed,
        draws=config.draws,
        advance=counter.advance,
    )
    if isinstance(table, Unavailable):
        raise Abstention(table.reason)
    bench.put("dials", table)


def _few(bench: HeadsBench) -> int:
    return min(bench.config.control_prompts, bench.subject.material.size)


def _counts(bench: HeadsBench, size: int) -> Counts:
    return resampled_counts(size, resamples=bench.config.resamples, seed=bench.config.seed)


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
    config, loaded, few = bench.config, bench.subject.loaded, _few(bench)
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


def _sentence(bench: HeadsBench) -> tuple[dict[str, Any], list[str]]:
    """One short sequence for the portrait: the inputs of a pass, and its tokens as text."""
    loaded, material = bench.subject.loaded, bench.subject.material
    prompts, tokenizer = material.prompts, loaded.tokenizer
    first = next(material.batches(1))
    if isinstance(prompts, Unavailable) or prompts.images or isinstance(tokenizer, Unavailable):
        return first.inputs, []
    ids = prompts.items[0]
    if bench.config.sentence is not None:
        special = loaded.kind not in ("causal_lm", "seq2seq")
        ids = tokenizer(bench.config.sentence, add_special_tokens=special)["input_ids"]
    shown = [int(i) for i in ids[: bench.config.shown_tokens]]
    row = torch.tensor([shown], device=next(iter(first.inputs.values())).device)
    inputs = {"input_ids": row}
    if loaded.kind == "seq2seq":
        inputs["decoder_input_ids"] = row
    return inputs, [str(tokenizer.decode([i])) for i in shown]


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


def _dials(config: HeadsConfig) -> list[Dial]:
    named = {
        "metric": config.metric,
        "exact": config.exact,
        "flux": config.flux,
        "alpha": config.alpha,
        "temperature": config.temperatures,
        "square": config.squares,
    }
    return [Dial(kind=kind, value=value) for kind, values in named.items() for value in values]  # type: ignore[arg-type]
