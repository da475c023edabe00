"""Two audits side by side: what moved, paired by prompt where the prompts are the same.

Six statistics at eleven depths are 66 comparisons, and they depend on one another. A difference
counts as a change only if its *simultaneous* interval leaves zero out: two random halves of one run
are then called different in no more than 5 % of all cases, not in most of them.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError
from flowscope.evidence import (
    MINIMUM_UNITS,
    Simultaneous,
    simultaneous,
    simultaneous_difference,
)
from flowscope.evidence.intervals import bounds_of
from flowscope.lab.display.compare import Comparison
from flowscope.records import Interval, Run, Unavailable, Verdict

__all__ = ["compared", "prompts_at_depths"]

_GRID = np.linspace(0.0, 1.0, 11)
_STATISTICS = (
    "relative_step",
    "total_variation",
    "entropy",
    "mobility_frobenius",
    "tail_mass",
    "oscillation",
)


def compared(first: Run, second: Run, *, seed: int = 0) -> Comparison:
    """Compare two audits at eleven depths; depth is relative, so models of other length compare.

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
    columns = [prompts_at_depths({name: run[name] for name in shared}) for run in (a, b)]
    prompts = (len(columns[0]), len(columns[1]))
    unpaired = _unpaired(first, second, prompts)
    paired = not unpaired
    if paired:
        differences = simultaneous(columns[1] - columns[0], seed=seed)
    else:
        differences = simultaneous_difference(*columns, seed=seed)
    return Comparison(
        table=_table(shared, columns, differences, enough=min(prompts) >= MINIMUM_UNITS),
        paired=paired,
        unpaired=unpaired,
        verdicts=_verdicts(first, second),
        prompts=prompts,
        needed=MINIMUM_UNITS,
    )


def prompts_at_depths(statistics: dict[str, NDArray[np.generic]]) -> NDArray[np.float64]:
    """One row per prompt: every statistic at eleven relative depths, one after the other.

    Examples
    --------
    >>> prompts_at_depths({"entropy": np.array([[2.0, 1.0, 0.0]])})[0, [0, 5, 10]].tolist()
    [2.0, 1.0, 0.0]
    """
    return np.concatenate([_at_grid(name, values) for name, values in statistics.items()], 1)


def _unpaired(first: Run, second: Run, prompts: tuple[int, int]) -> str:
    """Why prompts cannot be paired; empty where both runs read the same tokens."""
    tokens, texts = ([_hash(run, name) for run in (first, second)] for name in ("tokens", "texts"))
    if None in tokens:
        return "a run does not say which tokens it read"
    if tokens[0] == tokens[1]:
        return "" if prompts[0] == prompts[1] else "the numbers of prompts differ"
    if None not in texts and texts[0] == texts[1]:
        return "the texts are the same, their tokens are not"
    return "the texts differ"


def _hash(run: Run, name: str) -> str | None:
    hashes = run.read_manifest().data_hashes
    return None if isinstance(hashes, Unavailable) else hashes.get(name)


def _at_grid(name: str, values: NDArray[np.generic]) -> NDArray[np.float64]:
    """Values at eleven relative depths; step statistics belong to the layer they lead to."""
    steps = name in ("relative_step", "total_variation", "oscillation")
    layers = values.shape[1] + (1 if steps else 0)
    depth = np.arange(layers)[1 if steps else 0 :] / max(layers - 1, 1)
    return np.stack([np.interp(_GRID, depth, row) for row in values.astype(np.float64)])


def _table(
    names: list[str],
    columns: list[NDArray[np.float64]],
    differences: Simultaneous,
    *,
    enough: bool,
) -> pd.DataFrame:
    """One row per statistic and depth; nothing is changed where there are too few prompts."""
    size = len(differences.points)
    low, high = bounds_of(differences.pointwise, size)
    joint_low, joint_high = bounds_of(differences.joint, size)
    return pd.DataFrame(
        {
            "statistic": np.repeat(names, len(_GRID)),
            "depth": np.tile(_GRID, len(names)),
            "first": _known_means(columns[0]),
            "second": _known_means(columns[1]),
            "difference": differences.points,
            "low": low,
            "high": high,
            "joint_low": joint_low,
            "joint_high": joint_high,
            "p": differences.p,
            "changed": enough & ((joint_low > 0) | (joint_high < 0)),
        }
    )


def _known_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    present = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(present, values, 0.0).sum(0) / present.sum(0), np.float64)


def _verdicts(first: Run, second: Run) -> pd.DataFrame:
    """Outcome, strength and effect of each verdict of the first run, beside those of the second."""
    verdicts = {verdict.name: verdict for verdict in second.read_verdicts()}
    return pd.DataFrame(
        [
            {"name": verdict.name}
            | _fields("first", verdict)
            | _fields("second", verdicts.get(verdict.name))
            for verdict in first.read_verdicts()
        ]
    )


def _fields(side: str, verdict: Verdict | None) -> dict[str, object]:
    effect = interval = None
    if verdict is not None:
        effect = None if isinstance(verdict.effect, Unavailable) else float(verdict.effect)
        interval = verdict.interval if isinstance(verdict.interval, Interval) else None
    return {
        side: verdict.outcome if verdict else "",
        f"{side}_strength": verdict.strength if verdict else "",
        f"{side}_effect": np.nan if effect is None else effect,
        f"{side}_low": np.nan if interval is None else float(interval.low),
        f"{side}_high": np.nan if interval is None else float(interval.high),
    }
