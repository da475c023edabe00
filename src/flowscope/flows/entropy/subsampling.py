r"""Intervals by halves of the groups, drawn without replacement.

A bootstrap repeats points, and a repeated point is its own neighbour: the entropy goes to
$-\infty$. Half of the G groups drawn without replacement has the variance

$$
\operatorname{Var}(\hat\theta_m) \approx \sigma^2\Bigl(\tfrac1m-\tfrac1G\Bigr), \qquad
\frac{\sigma^2}{G} \approx \frac{m}{G-m}\operatorname{Var}(\hat\theta_m),
$$

a delete-half jackknife (Shao and Wu 1989). The spread is taken around the mean of the halves, so
that the bias of the smaller sample is not counted as spread. Groups are the unit. Student's
quantile has $1/(1/(G-1)+1/(B-1))$ degrees of freedom for B halves, which estimate the spread too.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64
from scipy.special import stdtrit
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import refuse

__all__ = [
    "LEAST_GROUPS",
    "Ends",
    "half_samples",
    "subsampled_ends",
    "subsampled_interval",
]

LEAST_GROUPS = 8
"""Groups below which halves say nothing about the spread."""


class Ends(NamedTuple):
    """An interval."""

    low: float
    high: float


def half_samples(
    groups: Tensor, draws: int = 48, generator: torch.Generator | None = None
) -> Bool[Tensor, "draws N"]:
    """Which points belong to each of ``draws`` random halves of the groups.

    Raises
    ------
    InvalidInputError
        For fewer than 8 groups or fewer than 8 draws.

    Examples
    --------
    >>> groups = torch.arange(20) // 2
    >>> halves = half_samples(groups, 8, torch.Generator().manual_seed(0))
    >>> halves.sum(1).tolist(), bool((halves[:, ::2] == halves[:, 1::2]).all())
    ([10, 10, 10, 10, 10, 10, 10, 10], True)
    """
    names, place = torch.unique(groups, return_inverse=True)
    if len(names) < LEAST_GROUPS:
        raise InvalidInputError(
            f"An interval needs at least {LEAST_GROUPS} groups of points; found {len(names)}. "
            "Give more texts."
        )
    if draws < 8:
        raise InvalidInputError(f"draws must be at least 8; got {draws}.")
    halves = []
    for _ in range(draws):
        member = torch.zeros(len(names), dtype=torch.bool)
        member[torch.randperm(len(names), generator=generator)[: len(names) // 2]] = True
        halves.append(member[place])
    return torch.stack(halves)


def subsampled_ends(value: float, halves: Tensor, groups: int, *, level: float = 0.95) -> Ends:
    """Interval around a value from the same statistic on halves of the groups.

    Parameters
    ----------
    value
        Statistic of all points.
    halves
        The same of each half.
    groups
        Number of groups of which the halves are halves.
    level
        Of the interval.

    Raises
    ------
    InvalidInputError
        If a statistic is not finite, there are fewer than two halves or groups, or the level lies
        outside (0, 1).

    Examples
    --------
    >>> ends = subsampled_ends(1.0, torch.tensor([0.5, 1.5] * 24), groups=20)
    >>> round(ends.low, 3), round(ends.high, 3)
    (-0.087, 2.087)
    """
    if halves.ndim != 1 or len(halves) < 2 or groups < 2 or not 0 < level < 1:
        raise InvalidInputError(
            "An interval needs two halves of two groups or more and a level between 0 and 1; found "
            f"shape {tuple(halves.shape)}, {groups} groups and level {level}."
        )
    known = torch.cat([halves.double().cpu(), torch.tensor([float(value)], dtype=torch.float64)])
    refuse(
        ~known.isfinite(),
        known,
        "a statistic and its values on halves (the last entry is the statistic) must be finite",
        "Leave out groups on which it is not defined.",
    )
    reach = float(stdtrit(_degrees(groups, len(halves)), 0.5 + 0.5 * level))
    half = reach * float(_spreads(halves[:, None], groups)[0])
    return Ends(value - half, value + half)


def _spreads(halves: Float64[Tensor, "draws columns"], groups: int) -> Float64[Tensor, "columns"]:
    """Standard error of each column."""
    m = groups // 2
    spreads: Tensor = math.sqrt(m / (groups - m)) * halves.double().std(0)
    return spreads


def _degrees(groups: int, draws: int) -> float:
    """Degrees of freedom of a spread over groups that is itself estimated from draws."""
    return 1 / (1 / (groups - 1) + 1 / (draws - 1))


def subsampled_interval(
    statistic: Callable[[Bool[Tensor, "N"]], Tensor | float],
    groups: Tensor,
    *,
    draws: int = 48,
    level: float = 0.95,
    generator: torch.Generator | None = None,
) -> Ends:
    """Interval of a statistic over groups of points, drawn without replacement.

    Parameters
    ----------
    statistic
        Number of a subset of the points, which is given as a mask.
    groups
        Group of each point.
    draws, level
        Halves that are drawn, and the level of the interval.
    generator
        Random numbers of the draws.

    Raises
    ------
    InvalidInputError
        For fewer than 8 groups, or a statistic that is not finite.

    Examples
    --------
    >>> x = torch.arange(40.0)
    >>> ends = subsampled_interval(lambda chosen: x[chosen].mean(), torch.arange(40) % 20,
    ...                            generator=torch.Generator().manual_seed(0))
    >>> ends.low < x.mean() < ends.high
    tensor(True)
    """
    halves = half_samples(groups, draws, generator)
    values = torch.tensor([float(statistic(half)) for half in halves], dtype=torch.float64)
    value = float(statistic(torch.ones(len(groups), dtype=torch.bool)))
    return subsampled_ends(value, values, len(torch.unique(groups)), level=level)
