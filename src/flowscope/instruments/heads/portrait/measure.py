"""Read every head on one sentence."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch

from flowscope.instruments.heads.subject import HeadsBench
from flowscope.lab.claim import Abstention
from flowscope.models.prompts import token_text
from flowscope.probes.heads.portrait import portrait
from flowscope.records import Unavailable

__all__ = ["sentence_portrait"]


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
    return inputs, [token_text(tokenizer, i) for i in shown]
