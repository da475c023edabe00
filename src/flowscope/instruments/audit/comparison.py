"""Two audits side by side: what moved, paired by prompt where the prompts are the same."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError
from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.lab.display.compare import Comparison
from flowscope.records import Interval, Run, Unavailable

__all__ = ["compared"]

_GRID = np.linspace(0.0, 1.0, 11)
_STATISTICS = (
    "relative_step",
    "total_variation",
    "entropy",
    "mobility_frobenius",
    "tail_mass",
    "oscillation",
)


def compared(first: Run, second: Run, *, resamples: int = 1000, seed: int = 0) -> Comparison:
    """Compare two audits at ten depths; depth is relative, so models of other length compare.

    Raises
    ------
    InvalidInputError
        When the runs share no statistic (one abstained from the output).
    """
    a, b = (run.read_arrays("prompts") for run in (first, second))
    shared = [name for name in _STATISTICS if name in a and name in b]
    if not shared:
        raise InvalidInputError(
            f"{first.folder} and {second.folder} have no statistic in common to compare."
        )
    paired = _texts(first) == _texts(second) and len(a[shared[0]]) == len(b[shared[0]])
    rows = [
        row
        for name in shared
        for row in _rows(
            name, _at_grid(name, a[name]), _at_grid(name, b[name]), paired, resamples, seed
        )
    ]
    decisions = [{v.name: v.decision for v in run.read_verdicts()} for run in (first, second)]
    verdicts = pd.DataFrame(
        [
            {"name": n, "first": d, "second": decisions[1].get(n, "")}
            for n, d in decisions[0].items()
        ]
    )
    return Comparison(table=pd.DataFrame(rows), paired=paired, verdicts=verdicts)


def _texts(run: Run) -> str | None:
    hashes = run.read_manifest().data_hashes
    return None if isinstance(hashes, Unavailable) else hashes.get("texts")


def _at_grid(name: str, values: NDArray[np.generic]) -> NDArray[np.float64]:
    """Values at eleven relative depths; step statistics belong to the layer they lead to."""
    steps = name in ("relative_step", "total_variation", "oscillation")
    layers = values.shape[1] + (1 if steps else 0)
    depth = np.arange(layers)[1 if steps else 0 :] / max(layers - 1, 1)
    return np.stack([np.interp(_GRID, depth, row) for row in values.astype(np.float64)])


def _rows(
    name: str,
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    paired: bool,
    resamples: int,
    seed: int,
) -> list[dict[str, object]]:
    if paired:
        counts = resampled_counts(len(a), resamples=resamples, seed=seed)
        difference, interval = mean_over_prompts(b - a, np.ones_like(a), counts)
    else:
        difference, interval = _unpaired(a, b, resamples, seed)
    low, high = (
        (np.asarray(interval.low), np.asarray(interval.high))
        if isinstance(interval, Interval)
        else (np.full(len(_GRID), np.nan),) * 2
    )
    return [
        {
            "statistic": name,
            "depth": float(depth),
            "first": float(a[:, i].mean()),
            "second": float(b[:, i].mean()),
            "difference": float(difference[i]),
            "low": float(low[i]),
            "high": float(high[i]),
            "changed": bool(low[i] > 0 or high[i] < 0),
        }
        for i, depth in enumerate(_GRID)
    ]


def _unpaired(
    a: NDArray[np.float64], b: NDArray[np.float64], resamples: int, seed: int
) -> tuple[NDArray[np.float64], Interval | Unavailable]:
    if min(len(a), len(b)) < 2:
        return b.mean(0) - a.mean(0), Unavailable("one prompt has no bootstrap interval")
    draws = [
        resampled_counts(len(x), resamples=resamples, seed=seed + i) @ x / len(x)
        for i, x in enumerate((a, b))
    ]
    low, high = np.quantile(draws[1] - draws[0], [0.025, 0.975], axis=0)
    method = f"percentile bootstrap over unpaired prompts, {resamples} resamples"
    return b.mean(0) - a.mean(0), Interval(low=low, high=high, level=0.95, method=method)
