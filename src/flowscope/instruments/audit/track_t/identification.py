"""Does depth settle? The same weights with finer steps: drift and states as the steps shrink.

000 assumes (5.1, item 4) that the drift estimated from layers converges. Here the residual branch
of each block of a segment is scaled by 1/n and run n times, n = 1, 2, 4, 8; the drift fitted to the
coordinates and the coordinates themselves are compared from one n to the next. Layers outside the
segment run as they are, so that all start from the same states.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.flows.drift import ridge_drift, settling
from flowscope.levers import refined
from flowscope.models.prompts import Batch
from flowscope.probes import LogitReadout, Rows, model_anatomy
from flowscope.probes.layers.paths import sampled_rows
from flowscope.records import Unavailable
from flowscope.tap import Chain, Tail

__all__ = ["identification_table"]


@torch.no_grad()
def identification_table(
    model: nn.Module,
    batches: Callable[[], Iterable[Batch]],
    refinements: Sequence[int],
    *,
    first: int,
    last: int,
    positions: int,
    rank: int,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame | Unavailable:
    """One row per refinement n, on the layers first to last: how far from the finest one.

    Distances of states are relative to how far the finest one moves over the segment; the orders
    are slopes of log distance to the next n against log n, −1 for Euler steps of a flow.

    Parameters
    ----------
    model, batches
        What, on what; the batches are asked for once per refinement.
    refinements
        n; at least three, each the same multiple of the one before.
    first, last
        The segment of layers that is compared.
    positions
        Tokens per prompt.
    rank
        Principal coordinates, found on the model itself (n = 1).
    advance
        Told how many refinements are done, of how many.
    """
    anatomy = _anatomy(model, next(iter(batches())))
    if isinstance(anatomy, Unavailable):
        return anatomy
    chain, readout = anatomy
    states, groups = {}, torch.zeros(0, dtype=torch.int64)
    for done, n in enumerate(refinements):
        advance(done, len(refinements))
        try:
            hidden, groups = _refined_paths(
                model, chain, batches(), n, positions, range(first - 1, last)
            )
        except InvalidInputError as error:
            return Unavailable(str(error))
        states[n] = hidden[:, first - 1 : first + (last - first + 1) * n]
    advance(len(refinements), len(refinements))
    axes = readout.coordinates(states[refinements[0]].flatten(0, 1), rank)
    paths = {n: axes.reduced(hidden).cpu() for n, hidden in states.items()}
    if any(not bool(y.isfinite().all()) for y in paths.values()):
        return Unavailable("a refined model leaves every bound: its states are not finite")
    times = torch.arange(first - 1, last + 1, dtype=torch.float64) / len(chain)
    found = settling(paths, times, groups, ridge_drift)
    finest = paths[max(paths)]
    moved = float((finest[:, -1] - finest[:, 0]).square().sum(-1).mean().sqrt())
    return pd.DataFrame(
        {
            "n": [row.substeps for row in found.refinements],
            "drift_distance": [row.drift_distance for row in found.refinements],
            "state_distance": [row.state_distance / moved for row in found.refinements],
            "state_to_next": [x / moved for x in found.state_differences] + [np.nan],
            "drift_to_next": [*found.drift_differences, np.nan],
            "state_order": found.state_order,
            "drift_order": found.drift_order,
            "tokens": len(groups),
        }
    )


def _anatomy(model: nn.Module, batch: Batch) -> tuple[Chain, LogitReadout] | Unavailable:
    anatomy = model_anatomy(model, batch.inputs)
    chain, tail = anatomy.depth, anatomy.tail
    if isinstance(chain, Unavailable):
        return chain
    if isinstance(tail, Unavailable):
        return tail
    if not isinstance(tail, Tail) or not tail.positionwise:
        return Unavailable("the model pools its positions before the output")
    return chain, LogitReadout(tail)


def _refined_paths(
    model: nn.Module,
    chain: Chain,
    batches: Iterable[Batch],
    n: int,
    positions: int,
    blocks: range,
) -> tuple[Tensor, Tensor]:
    """States of sampled tokens before and after every small step, and their prompts."""
    # a cache of keys would be written n times
    caches = hasattr(getattr(model, "config", None), "use_cache")
    extra = {"use_cache": False} if caches else {}
    kept, prompts = [], []
    for batch in batches:
        rows = Rows.of_mask(batch.prompts, batch.named)
        places = sampled_rows(rows, positions)
        along: list[Tensor] = []

        def watch(
            hidden: Tensor,
            into: list[Tensor] = along,
            chosen: Tensor = rows.chosen,
            at: np.ndarray = places,
        ) -> None:
            into.append(hidden[chosen.to(hidden.device)][torch.from_numpy(at)].float().cpu())

        with refined(model, chain, n, watch, blocks=blocks):
            model(**batch.inputs, **extra)
        kept.append(torch.stack(along, 1))
        prompts.append(torch.from_numpy(rows.prompt[places]))
    return torch.cat(kept), torch.cat(prompts)
