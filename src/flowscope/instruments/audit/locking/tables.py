"""From scalars per token to the locking curve."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import spearmanr

from flowscope.evidence import Counts, mean_over_prompts
from flowscope.evidence.intervals import single
from flowscope.instruments.audit.variation.judge import SegmentEvidence
from flowscope.probes import Arrays
from flowscope.records import Measurement
from flowscope.simplex import locking_bound

__all__ = ["Locking", "locking_of"]


_EDGES = np.concatenate([[0.0], np.logspace(-6, 0, 13)])


@dataclass(frozen=True, kw_only=True, eq=False)
class Locking:
    """How movement depends on tail mass, over the steps of passing segments."""

    table: pd.DataFrame
    correlation: Measurement
    null: Measurement
    exceeded: int
    steps: int
    informative: float


def locking_of(
    depth: Arrays, segments: Sequence[SegmentEvidence], counts: Counts, seed: int
) -> Locking:
    """The locking curve of these segments, with the exact bound beside it."""
    steps = [step for part in segments for step in range(part.first - 1, part.last)]
    tail = depth["tail_mass"][:, steps].astype(np.float64)
    moved = depth["total_variation"][:, steps].astype(np.float64)
    bound = _bound(tail, depth["oscillation"][:, steps].astype(np.float64))
    rng = np.random.default_rng(seed)
    found = _correlations(tail, moved, depth["prompt"], len(counts[0]))
    shuffled = _correlations(tail, moved, depth["prompt"], len(counts[0]), rng)
    return Locking(
        table=_locking_table(tail.ravel(), moved.ravel(), bound.ravel()),
        correlation=_mean_correlation("rank correlation of tail mass and TV", found, counts, seed),
        null=_mean_correlation("the same, shuffled within prompts", shuffled, counts, seed),
        exceeded=int((moved > bound + 1e-5).sum()),
        steps=int(moved.size),
        informative=float((bound < 0.99).mean()),
    )


def _bound(tail: NDArray[np.float64], oscillation: NDArray[np.float64]) -> NDArray[np.float64]:
    """The exact bound; it knows p through its tail mass only, and from a half on not even that."""
    half = np.minimum(tail, 0.5)
    return np.asarray(locking_bound(np.stack([1 - half, half], -1), oscillation))


def _correlations(
    tail: NDArray[np.float64],
    moved: NDArray[np.float64],
    prompt: NDArray[np.generic],
    prompts: int,
    rng: np.random.Generator | None = None,
) -> NDArray[np.float64]:
    """Spearman correlation within each prompt; NaN where a prompt has no spread."""
    found = np.full(prompts, np.nan)
    for number in range(prompts):
        x, y = tail[prompt == number].ravel(), moved[prompt == number].ravel()
        if len(x) > 2 and np.ptp(x) > 0 and np.ptp(y) > 0:
            found[number] = spearmanr(x, y if rng is None else rng.permutation(y)).statistic
    return found


def _mean_correlation(
    name: str, each: NDArray[np.float64], counts: Counts, seed: int
) -> Measurement:
    known = ~np.isnan(each)
    if not known.any():
        return Measurement.abstained(name, "no prompt has spread in tail mass and movement")
    sums = np.where(known, each, 0.0)[:, None]
    points, interval = mean_over_prompts(sums, known[:, None].astype(float), counts)
    return Measurement(
        name=name,
        values=np.asarray(points[0]),
        unit="1",
        n=int(known.sum()),
        estimator="mean over prompts of the Spearman correlation within a prompt",
        dtype="float64",
        seed=seed,
        interval=single(interval),
    )


def _locking_table(
    tail: NDArray[np.float64], moved: NDArray[np.float64], bound: NDArray[np.float64]
) -> pd.DataFrame:
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
