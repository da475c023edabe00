r"""Differential entropy from distances to nearest neighbours.

$$
\hat H = \frac1N\sum_i \psi(M_i+1) - \psi(k) + \log c_D + \frac DN\sum_i \log r_{i,k},
\qquad c_D = \frac{\pi^{D/2}}{\Gamma(D/2+1)},
$$

$r_{i,k}$ the distance from point i to its k-th neighbour among the $M_i$ points of other groups.
Without groups $M_i + 1 = N$, the estimator of Kozachenko and Leonenko. The dimension D is that of
the support: on a sphere of $\mathbb R^d$ it is $d-1$ (errata E75). The estimator is biased upwards
where N is small for D; `flowscope.flows.entropy.negentropy` measures that bias on surrogates.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.entropy.neighbours import (
    LEAST_PER_DIMENSION,
    NeighbourLists,
    neighbour_lists,
)
from flowscope.simplex.probability import ArrayLike

__all__ = ["NearestEntropy", "kozachenko_leonenko", "refuse_repeats", "refuse_sparse"]


@dataclass(frozen=True, kw_only=True)
class NearestEntropy:
    """An entropy in nats, and what it was estimated from."""

    value: float
    n: int
    k: int
    dimension: float


def kozachenko_leonenko(
    x: Tensor | ArrayLike,
    k: int = 3,
    *,
    dimension: float | None = None,
    groups: Tensor | None = None,
) -> NearestEntropy:
    """Differential entropy of the law that the points were drawn from, in nats.

    Parameters
    ----------
    x
        Points, one a row.
    k
        Which neighbour is measured; a larger one has less variance and more bias.
    dimension
        D of the support; the number of columns by default.
    groups
        Group of each point; neighbours come from other groups only.

    Raises
    ------
    InvalidInputError
        For repeated points (the estimate is −∞), fewer than 10 points for each dimension, points
        that are not finite, or a k that groups cannot give.

    Examples
    --------
    >>> import torch
    >>> x = torch.randn(2000, 2, generator=torch.Generator().manual_seed(0))
    >>> estimate = kozachenko_leonenko(x)
    >>> abs(estimate.value - 2.8379) < 0.1, estimate.n
    (True, 2000)
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InvalidInputError(f"k must be a whole number of at least 1; got {k!r}.")
    lists = neighbour_lists(x, groups=groups, count=k)
    n, width = lists.points.shape
    size = float(width if dimension is None else dimension)
    refuse_sparse(n, size)
    least = int(lists.candidates.min())
    if least < k:
        raise InvalidInputError(
            f"k = {k} neighbours from other groups are needed; a point has {least} candidates. "
            "Give more texts or a smaller k."
        )
    refuse_repeats(lists)
    return NearestEntropy(value=float(lists.entropy(k, size)), n=n, k=k, dimension=size)


def refuse_sparse(n: int, dimension: float) -> None:
    """Raise where there are fewer than 10 points for each dimension, or no dimension."""
    if not 0 < dimension < math.inf:
        raise InvalidInputError(f"dimension must be positive and finite; got {dimension!r}.")
    if n < LEAST_PER_DIMENSION * dimension:
        raise InvalidInputError(
            f"An entropy needs {LEAST_PER_DIMENSION} points for each dimension: "
            f"{math.ceil(LEAST_PER_DIMENSION * dimension)} for dimension {dimension:g}; found {n}. "
            "Give more points or fewer coordinates."
        )


def refuse_repeats(lists: NeighbourLists) -> None:
    """Raise where a point equals one of another group."""
    repeated = int((lists.distances[:, 0] == 0).sum())
    if repeated:
        raise InvalidInputError(
            f"Points must differ from each other: {repeated} of {len(lists.distances)} points "
            "equal another, and a law with repeated points has an entropy of minus infinity. "
            "Leave repeated points out, or repeated texts."
        )
