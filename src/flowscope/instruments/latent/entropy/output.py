"""Entropy of the output that the model would give from each layer.

This, and not the cloud of hidden states, is what source 003's reference for "rises, then falls"
measured (errata E111).
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from flowscope.errors import FlowscopeError
from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.latent.clouds import Clouds
from flowscope.instruments.latent.config import LatentConfig
from flowscope.instruments.latent.subject import LatentBench
from flowscope.records import Unavailable

__all__ = ["output_entropies", "output_table"]

_KEY = 4  # of random numbers


@torch.no_grad()
def output_entropies(
    bench: LatentBench, clouds: Clouds
) -> tuple[NDArray[np.float64], NDArray[np.int64]] | None:
    """Entropies ``[tokens, layers]`` and the prompt of each token; None where there is no output.

    The tokens are drawn from the sample of all tokens.
    """
    tail = clouds.tail
    if isinstance(tail, Unavailable):
        bench.abstain("output_entropy", tail.reason)
        return None
    if not tail.positionwise:
        bench.abstain("output_entropy", "the output of this model mixes tokens (it pools them)")
        return None
    sample = clouds.samples["all"]
    count = min(bench.config.output_tokens, len(sample.places))
    order = torch.randperm(len(sample.places), generator=bench.generator(_KEY))[:count]
    chosen = order.sort().values
    places = sample.places[chosen]
    device = next(bench.subject.loaded.model.parameters()).device

    def values() -> dict[str, NDArray[np.float64]]:
        wide, found = tail.widened(), []
        for depth in range(clouds.layers + 1):
            state = clouds.directions[places, depth] * clouds.lengths[places, depth, None]
            log_p = torch.log_softmax(wide.rows(state.to(device)).float(), -1)
            found.append(torch.special.entr(log_p.exp()).sum(-1).double().cpu().numpy())
        return {"entropy": np.stack(found, 1)}

    try:
        entropies = bench.shard("output", values)["entropy"]
    except FlowscopeError as error:
        bench.abstain("output_entropy", f"no output could be read from a hidden state: {error}")
        return None
    return entropies, sample.prompt[chosen].numpy()


def output_table(
    config: LatentConfig, entropies: NDArray[np.float64], prompts: NDArray[np.int64]
) -> pd.DataFrame:
    """One row for each layer."""
    names, place = np.unique(prompts, return_inverse=True)
    sums = np.zeros((len(names), entropies.shape[1]))
    np.add.at(sums, place, entropies)
    sizes = np.repeat(np.bincount(place)[:, None].astype(float), entropies.shape[1], 1)
    counts = resampled_counts(len(names), resamples=config.resamples, seed=config.seed)
    points, interval = mean_over_prompts(sums, sizes, counts)
    low, high = bounds_of(interval, len(points))
    name = "output_entropy"
    return pd.DataFrame(
        {"layer": np.arange(len(points)), name: points, f"{name}_low": low, f"{name}_high": high}
    )
