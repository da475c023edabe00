"""From scalars per token to the locking curve, the slopes by layer and the part of every prompt."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.evidence.intervals import bounds_of
from flowscope.flows import Slope, SlopeSums, common_slope, log_response, slope_sums
from flowscope.instruments.audit.locking.judge import MIXED
from flowscope.probes import Arrays
from flowscope.simplex import locking_bound

__all__ = ["locking_table", "slope_tables", "with_bound"]

Numbers = NDArray[np.float64]

_EDGES = np.concatenate([[0.0], np.logspace(-6, 0, 13)])
_ROUNDING = 1e-5  # by which a float32 reading may exceed the bound


def locking_table(depth: Arrays) -> pd.DataFrame:
    """How far the steps of all tokens and layers move the output, in bins of tail mass."""
    tail, moved = (depth[name].astype(np.float64) for name in ("tail_mass", "total_variation"))
    tail, moved = tail[:, : moved.shape[1]].ravel(), moved.ravel()
    bound = _bound(depth).ravel()
    place = np.clip(np.searchsorted(_EDGES, tail, side="right") - 1, 0, len(_EDGES) - 2)
    rows = []
    for number in range(len(_EDGES) - 1):
        here = place == number
        if here.any():
            q25, q50, q75 = np.quantile(moved[here], [0.25, 0.5, 0.75])
            rows.append(
                {
                    "tail_mass_low": _EDGES[number],
                    "tail_mass_high": _EDGES[number + 1],
                    "n": int(here.sum()),
                    "tv_median": q50,
                    "tv_q25": q25,
                    "tv_q75": q75,
                    "bound_median": float(np.median(bound[here])),
                    "informative_share": float((bound[here] < 0.99).mean()),
                }
            )
    return pd.DataFrame(rows)


def with_bound(slopes: pd.DataFrame, depth: Arrays) -> pd.DataFrame:
    """Table of slopes with the steps of each layer that exceed the exact bound."""
    exceeded = depth["total_variation"].astype(np.float64) > _bound(depth) + _ROUNDING
    return slopes.assign(steps=len(exceeded), exceeded=exceeded.sum(0))


def _bound(depth: Arrays) -> Numbers:
    """The exact bound; it knows p through its tail mass only, and from a half on not even that."""
    oscillation = depth["oscillation"].astype(np.float64)
    tail = depth["tail_mass"][:, : oscillation.shape[1]].astype(np.float64)
    half = np.minimum(tail, 0.5)
    return np.asarray(locking_bound(np.stack([1 - half, half], -1), oscillation))


def slope_tables(transplants: Arrays, *, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Slopes by layer, and the part of every prompt in the common slope of the mixed layers.

    Parameters
    ----------
    transplants
        As `TransplantProbe` leaves them: ``prompt``, ``tail_mass``, ``total_variation``,
        ``transplanted`` and ``half_oscillation`` of every token.
    seed
        Of the resampled prompts behind the intervals of the layers.
    """
    prompt, tail = transplants["prompt"], transplants["tail_mass"]
    response = log_response(transplants["total_variation"], transplants["transplanted"])
    size = _log(transplants["half_oscillation"])
    sums, sizes = slope_sums(prompt, tail, response), slope_sums(prompt, tail, size)
    decided = (tail < 0.5).mean(0)
    mixed = (decided >= MIXED[0]) & (decided <= MIXED[1])
    layers = _layer_table(sums, sizes, mixed, seed).assign(decided=decided, mixed=mixed)
    order = ["layer", "slope", "slope_low", "slope_high", "size_slope", "contribution", "tokens",
             "decided", "log_tail_sd", "mixed"]  # fmt: skip
    return layers[order], _prompt_table(sums, sizes, np.flatnonzero(mixed), prompt)


def _log(values: NDArray[np.floating]) -> Numbers:
    """Logarithm; NaN where there is none."""
    sizes = values.astype(np.float64)
    logs: Numbers = np.log(sizes, out=np.full_like(sizes, np.nan), where=sizes > 0)
    return logs


def _layer_table(
    sums: SlopeSums, sizes: SlopeSums, mixed: NDArray[np.bool_], seed: int
) -> pd.DataFrame:
    depth, prompts = sums.count.shape[1], len(sums.prompt)
    slopes = [common_slope(sums, [layer]) for layer in range(depth)]
    pseudo = np.stack([_spread_out(sums, s, [k]) for k, s in enumerate(slopes)], 1)
    present = np.isfinite(pseudo)
    counts = resampled_counts(prompts, resamples=999, seed=seed)
    interval = mean_over_prompts(np.where(present, pseudo, 0.0), present.astype(float), counts)[1]
    low, high = bounds_of(interval, depth)
    squares = sums.xx[:, mixed].sum()
    share = np.where(mixed, sums.xy.sum(0), np.nan) / (squares if squares > 0 else np.nan)
    return pd.DataFrame(
        {
            "layer": np.arange(1, depth + 1),
            "slope": [slope.value for slope in slopes],
            "slope_low": low,
            "slope_high": high,
            "size_slope": [common_slope(sizes, [layer]).value for layer in range(depth)],
            "contribution": share,
            "tokens": sums.count.sum(0).astype(int),
            "log_tail_sd": [sums.spread([layer]) for layer in range(depth)],
        }
    )


def _prompt_table(
    sums: SlopeSums, sizes: SlopeSums, layers: NDArray[np.int64], prompt: NDArray[np.int64]
) -> pd.DataFrame:
    here = layers.tolist()
    count = sums.count[:, here]
    return pd.DataFrame(
        {
            "prompt": sums.prompt,
            "tokens": [int((prompt == number).sum()) for number in sums.prompt],
            "steps": count.sum(1).astype(int),
            "freedom": np.maximum(count - 1, 0).sum(1).astype(int),
            "squares": sums.xx[:, here].sum(1),
            "products": sums.xy[:, here].sum(1),
            "size_products": sizes.xy[:, here].sum(1),
            "pseudo_value": _spread_out(sums, common_slope(sums, here), here),
        }
    )


def _spread_out(sums: SlopeSums, slope: Slope, layers: Sequence[int]) -> Numbers:
    """Pseudo-value of every prompt; NaN where it has no spread."""
    pseudo = np.full(len(sums.prompt), np.nan)
    if len(slope.pseudo_values):
        pseudo[sums.xx[:, list(layers)].sum(1) > 0] = slope.pseudo_values
    return pseudo
