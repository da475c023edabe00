r"""Intervals from the same statistic on halves of the prompts, drawn without replacement.

For statistics of a cloud (an entropy, a dimension) a bootstrap fails, because a repeated point is
its own neighbour. Half of the n prompts, drawn without replacement, has
$\operatorname{Var}\approx\sigma^2(1/m-1/n)$, so that $m/(n-m)$ of the variance over halves is that
of the statistic: a delete-half jackknife (Shao and Wu 1989). Student's quantile has
$1/(1/(n-1)+1/(B-1))$ degrees of freedom for B halves, because they estimate the spread, too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import stdtrit

__all__ = ["HalfEnds", "half_ends", "joint_half_ends"]

Array = NDArray[np.float64]

_MAXIMA = 4000  # simulated maxima behind joint intervals


class HalfEnds(NamedTuple):
    """Both ends of an interval of each column."""

    low: Array
    high: Array


def half_ends(
    values: Float[NDArray[np.float64], "columns"],
    halves: Float[NDArray[np.float64], "draws columns"],
    prompts: int,
    *,
    level: float = 0.95,
) -> HalfEnds:
    """Ends of an interval of each column by itself.

    Parameters
    ----------
    values
        Statistics on all prompts.
    halves
        The same on halves of the prompts.
    prompts, level
        Number of prompts, and level of each interval.

    Examples
    --------
    >>> low, high = half_ends(np.zeros(1), np.array([[-1.0], [1.0]] * 10), 20)
    >>> low.round(2), high.round(2)
    (array([-2.3]), array([2.3]))
    """
    reach = float(stdtrit(_degrees(prompts, len(halves)), (1 + level) / 2))
    spread = reach * _spreads(halves, prompts)
    return HalfEnds(values - spread, values + spread)


def joint_half_ends(
    values: Float[NDArray[np.float64], "columns"],
    halves: Float[NDArray[np.float64], "draws columns"],
    prompts: int,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> HalfEnds:
    r"""Ends of intervals that cover all columns together; the halves are the same for all.

    The reach is the quantile of $\max_j|T_j|$, where $T$ has the correlation of the halves and
    Student's distribution.

    Parameters
    ----------
    values, halves, prompts, level
        As `half_ends`.
    seed
        Of the simulated maxima.

    Examples
    --------
    >>> halves = np.random.default_rng(0).standard_normal((48, 3))
    >>> joint, alone = (ends(np.zeros(3), halves, 20) for ends in (joint_half_ends, half_ends))
    >>> bool((joint.high > alone.high).all())
    True
    """
    spreads, degrees = _spreads(halves, prompts), _degrees(prompts, len(halves))
    deviations = halves - halves.mean(0)
    scale = halves.std(0, ddof=1)
    moved = deviations / np.where(scale > 0, scale, 1.0)
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((_MAXIMA, len(halves))) / math.sqrt(len(halves) - 1)
    chi = np.sqrt(rng.chisquare(degrees, (_MAXIMA, 1)) / degrees)
    largest = np.abs(normal @ moved / chi).max(1)
    reach = max(float(np.quantile(largest, level)), float(stdtrit(degrees, (1 + level) / 2)))
    return HalfEnds(values - reach * spreads, values + reach * spreads)


def _spreads(halves: Array, prompts: int) -> Array:
    """Standard error of each column."""
    m = prompts // 2
    return np.asarray(math.sqrt(m / (prompts - m)) * halves.std(0, ddof=1))


def _degrees(prompts: int, draws: int) -> float:
    return 1 / (1 / (prompts - 1) + 1 / (draws - 1))
