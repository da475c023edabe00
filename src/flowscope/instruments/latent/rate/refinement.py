r"""The diffusion of source 003 where blocks are cut into shorter steps.

003 reads $\hat\nu=\mathbb E\lVert\Delta x\rVert^2/(2d\,\Delta t)$. With every block replaced by n
steps of 1/n of its branch, a smooth flow has $\hat\nu\propto1/n$: the number says how long the
steps are, and nothing of a diffusion.
"""

from __future__ import annotations

from functools import partial
from inspect import signature

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.latent.config import LatentConfig
from flowscope.instruments.latent.subject import LatentBench
from flowscope.levers import refined
from flowscope.models.prompts import Batch
from flowscope.probes import model_anatomy
from flowscope.probes.field.cloud import first_tokens, massive_tokens, widened
from flowscope.records import Unavailable
from flowscope.tap import Chain

__all__ = ["refinement_table", "squared_steps"]

Values = NDArray[np.float64]


def squared_steps(bench: LatentBench) -> tuple[Values, Values]:
    """Sums over tokens of ν̂ and numbers of tokens, ``[prompts, refinements]``, of control prompts.

    Raises
    ------
    InvalidInputError
        Where a block has no residual branch.
    """
    config, material = bench.config, bench.subject.material
    batches = list(material.batches(min(config.control_prompts, material.size)))
    chain = model_anatomy(bench.subject.loaded.model, batches[0].inputs).depth
    if isinstance(chain, Unavailable):
        raise InvalidInputError(chain.reason)
    counter = bench.counter("shorter steps", len(config.refinements))
    makers = {
        f"refined-{n}": partial(_refined, bench, chain, batches, n) for n in config.refinements
    }
    bench.spread(makers)
    sums, sizes = [], []
    for name, make in makers.items():
        found = bench.shard(name, make)
        sums.append(found["sums"])
        sizes.append(found["sizes"])
        counter.advance(1)
    return np.stack(sums, 1), np.stack(sizes, 1)


def refinement_table(config: LatentConfig, total: Values, size: Values) -> pd.DataFrame:
    """Diffusivity by squared steps for each number of steps."""
    counts = resampled_counts(len(total), resamples=config.resamples, seed=config.seed)
    points, interval = mean_over_prompts(total, size, counts)
    low, high = bounds_of(interval, len(points))
    name, steps = "diffusivity", np.array(config.refinements)
    return pd.DataFrame({
        "steps": steps, name: points, f"{name}_low": low, f"{name}_high": high,
        "smooth": points[0] * steps[0] / steps,
    })  # fmt: skip


def _refined(bench: LatentBench, chain: Chain, batches: list[Batch], n: int) -> dict[str, Values]:
    rows = [_squared_steps(bench, chain, batch, n) for batch in batches]
    return {
        "sums": np.concatenate([row[0] for row in rows]),
        "sizes": np.concatenate([row[1] for row in rows]),
    }


@torch.no_grad()
def _squared_steps(bench: LatentBench, chain: Chain, batch: Batch, n: int) -> tuple[Values, Values]:
    """Sum over tokens of ν̂, mean over steps, and the number of tokens, for each prompt."""
    states: list[Tensor] = []
    model = bench.subject.loaded.model
    # a cache of keys would be written n times
    caches = "use_cache" in signature(model.forward).parameters
    inputs = {**batch.inputs, **({"use_cache": False} if caches else {})}
    with refined(model, chain, n, lambda hidden: states.append(widened(hidden).cpu())):
        model(**inputs)
    mask = batch.mask.cpu().bool()
    if mask.shape != states[0].shape[:2]:
        mask = torch.ones(states[0].shape[:2], dtype=torch.bool)
    chosen = mask & ~first_tokens(mask) & ~massive_tokens(mask, *states)
    squares = torch.zeros(mask.shape, dtype=torch.float64)
    previous = _unit(states[0])
    for state in states[1:]:
        following = _unit(state)
        squares += (following - previous).square().sum(-1)
        previous = following
    steps, width = len(states) - 1, states[0].shape[-1]
    # the mean over steps of |Δx|²/(2 d Δt), where Δt = 1/steps
    values = torch.where(chosen, squares / (2 * width), 0.0)
    assert steps == n * len(chain)
    return values.sum(1).numpy(), chosen.sum(1).double().numpy()


def _unit(state: Tensor) -> Tensor:
    wide = state.double()
    lengths = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    unit: Tensor = wide / lengths.clamp_min(torch.finfo(wide.dtype).tiny)
    return unit
