"""Entropy of the output that the model would give from each layer.

This, and not the cloud of hidden states, is what source 003's reference for "rises, then falls"
measured (errata E108).
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from flowscope.errors import FlowscopeError
from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.latent.clouds import Clouds
from flowscope.instruments.latent.subject import LatentBench
from flowscope.records import Unavailable

__all__ = ["output_table"]

_KEY = 4  # of random numbers


@torch.no_grad()
def output_table(bench: LatentBench, clouds: Clouds) -> pd.DataFrame | None:
    """One row for each layer; None where no output can be read from a layer."""
    tail = clouds.tail
    if isinstance(tail, Unavailable):
        return _absent(bench, tail.reason)
    if not tail.positionwise:
        return _absent(bench, "the output of this model mixes tokens (it pools them)")
    sample = clouds.samples["all"]
    count = min(bench.config.output_tokens, len(sample.places))
    order = torch.randperm(len(sample.places), generator=bench.generator(_KEY))[:count]
    places = sample.places[order.sort().values]
    prompts = sample.prompt[order.sort().values].numpy()
    parameter = next(bench.subject.loaded.model.parameters())

    def values() -> dict[str, np.ndarray]:
        wide = tail.widened()
        found = []
        for depth in range(clouds.layers + 1):
            state = clouds.directions[places, depth] * clouds.lengths[places, depth, None]
            logits = wide.rows(state.to(parameter.device))
            log_p = torch.log_softmax(logits.float(), -1)
            found.append(torch.special.entr(log_p.exp()).sum(-1).double().cpu().numpy())
        return {"entropy": np.stack(found, 1)}

    try:
        entropies = bench.shard("output", values)["entropy"]
    except FlowscopeError as error:
        return _absent(bench, f"the output could not be read from a hidden state: {error}")
    names, place = np.unique(prompts, return_inverse=True)
    sums = np.zeros((len(names), entropies.shape[1]))
    np.add.at(sums, place, entropies)
    sizes = np.repeat(np.bincount(place)[:, None], entropies.shape[1], 1)
    counts = resampled_counts(len(names), resamples=bench.config.resamples, seed=bench.config.seed)
    points, interval = mean_over_prompts(sums, sizes, counts)
    low, high = bounds_of(interval, len(points))
    name = "output_entropy"
    return pd.DataFrame(
        {"layer": np.arange(len(points)), name: points, f"{name}_low": low, f"{name}_high": high}
    )


def _absent(bench: LatentBench, reason: str) -> None:
    bench.abstain("output_entropy", reason)
