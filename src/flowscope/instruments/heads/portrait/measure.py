"""Read every head on one sentence."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch

from flowscope.instruments.heads.subject import HeadsBench
from flowscope.lab.claim import Abstention
from flowscope.models.preparation import feeding_of
from flowscope.models.prompts import token_text
from flowscope.models.reading.targets import shifted_ids
from flowscope.models.reading.tokens import Window, shortened, windows_of
from flowscope.probes.heads.portrait import portrait
from flowscope.records import Unavailable

__all__ = ["sentence_portrait"]

_WHOLE = 2**20  # tokens: a sentence is cut after its special tokens are known


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
    most, sentence = bench.config.shown_tokens, bench.config.sentence
    if sentence is None:
        window = shortened(Window(ids=prompts.at(0).shown, text=prompts.at(0).text), most)
    else:
        feeding = feeding_of(bench.config)
        whole = next(windows_of(tokenizer, sentence, feeding, length=_WHOLE, running=False))
        window = shortened(whole, most)
    row = torch.from_numpy(window.ids)[None].to(next(iter(first.inputs.values())).device)
    inputs = {"input_ids": row}
    if loaded.kind == "seq2seq":
        row = row if sentence is None else shifted_ids(loaded.model, row)
        inputs = {"input_ids": torch.from_numpy(prompts.items[0])[None].to(row.device)}
        inputs["decoder_input_ids"] = row
    return inputs, [token_text(tokenizer, int(token)) for token in row[0]]
