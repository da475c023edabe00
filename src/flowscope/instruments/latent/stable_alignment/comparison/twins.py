"""The model in consensus with itself in other coordinates, with and without an alignment."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from flowscope.instruments.latent.stable_alignment.comparison.scoring import Arrays, scored
from flowscope.instruments.latent.stable_alignment.comparison.tables import means
from flowscope.instruments.latent.stable_alignment.domains import Domain
from flowscope.instruments.latent.stable_alignment.names import TWIN
from flowscope.instruments.latent.subject import LatentBench
from flowscope.levers import consensus
from flowscope.levers.agreement import TOKENS_PER_FEATURE, Align
from flowscope.records import Unavailable

__all__ = ["alignments", "twin_table"]


def twin_table(bench: LatentBench, domain: Domain) -> pd.DataFrame | None:
    """Table ``turned_twin``; None where states of the model cannot be turned."""
    twin = bench.shared("members")[TWIN]
    if isinstance(twin, Unavailable):
        bench.abstain(TWIN, twin.reason)
        return None
    rows = []
    for align in ("apart", "none", *alignments(bench)):
        arrays = bench.shard(
            f"{domain.mark}-twin-{align}", partial(_made, bench, domain, twin, align)
        )
        losses = np.asarray(arrays["losses"], float)
        columns = {"loss": losses[:2].mean(0), "excess": losses[:2].mean(0) - losses[2]}
        row = means(
            columns, np.asarray(arrays["tokens"], float), seed=bench.config.seed,
            resamples=bench.config.resamples,
        )  # fmt: skip
        rows.append(
            {
                "align": align, **row, "total_variation": float(arrays["variation"][0]),
                "fitted": int(arrays["fitted"][0]),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def _made(bench: LatentBench, domain: Domain, twin: nn.Module, align: str) -> Arrays:
    """Scores of both, the model alone as the third, and the largest distance of an output.

    In double precision: the twin is the model up to rounding, which is not what is measured.
    """
    loaded = bench.subject.loaded
    pair = [copy.deepcopy(model).double().eval() for model in (loaded.model, twin)]
    largest, fitted = [0.0], 0

    def watched(run: Any, inputs: dict[str, Tensor]) -> list[Any]:
        alone = pair[0](**inputs)
        outputs = list(run(**inputs))
        law = torch.softmax(alone.logits, -1)
        for output in outputs:
            gap = 0.5 * (torch.softmax(output.logits, -1) - law).abs().sum(-1)
            largest.append(float(gap.max()))
        return [*outputs, alone]

    if align == "apart":
        run = lambda **inputs: [model(**inputs) for model in pair]  # noqa: E731
        arrays = scored(loaded, domain.tested, bench.config.batch, partial(watched, run))
    else:
        chosen: Align = "procrustes" if align == "procrustes" else "none"
        with consensus(pair, align=chosen) as lever:
            if chosen == "procrustes":
                fitted = _fitted(bench, lever)
            arrays = scored(loaded, domain.tested, bench.config.batch, partial(watched, lever))
    return {**arrays, "variation": np.array([max(largest)]), "fitted": np.array([fitted])}


def alignments(bench: LatentBench) -> tuple[str, ...]:
    """Procrustes, where the prompts of the run have tokens enough for it."""
    width = _width(bench)
    tokens = bench.subject.material.tokens
    if tokens >= TOKENS_PER_FEATURE * width:
        return ("procrustes",)
    bench.abstain(
        "alignment",
        f"states with {width} features need {TOKENS_PER_FEATURE * width} tokens; the prompts of "
        f"the run have {tokens}",
    )
    return ()


def _width(bench: LatentBench) -> int:
    embedding: Any = bench.subject.loaded.model.get_input_embeddings()  # type: ignore[operator]
    return int(embedding.weight.shape[1])


def _fitted(bench: LatentBench, lever: Any) -> int:
    """Fit on the prompts of the run until there are enough tokens; returns how many."""
    tokens = 0
    for batch in bench.subject.material.batches(None):
        lever.fit(**batch.inputs, use_cache=False)
        tokens += int(batch.present.sum())
        if tokens >= TOKENS_PER_FEATURE * _width(bench):
            break
    return tokens
