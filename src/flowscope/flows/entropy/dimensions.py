r"""Intrinsic dimension from ratios of distances to nearest neighbours.

Where the density hardly changes over the neighbourhood, $\log(r_{i,k}/r_{i,j})$ for $j<k$ are the
order statistics of $k-1$ exponential variables of rate D, so that

$$
\hat D = \frac{N(k-1)-1}{\sum_i\sum_{j<k}\log(r_{i,k}/r_{i,j})}
$$

is unbiased for independent neighbourhoods. ``two_nn`` is $k=2$ (Facco et al. 2017, by maximum
likelihood), ``mle`` is $k=10$ (Levina and Bickel 2004, averaged as by MacKay and Ghahramani). A
dimension belongs to a *scale*, the median distance to the last neighbour that is read: noise fills
all dimensions below its size.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.entropy.neighbours import neighbour_lists
from flowscope.simplex.probability import ArrayLike

__all__ = ["ESTIMATORS", "IntrinsicDimension", "dimension_of_distances", "intrinsic_dimension"]

ESTIMATORS = {"two_nn": 2, "mle": 10}
"""Neighbours that each estimator reads."""


@dataclass(frozen=True, kw_only=True)
class IntrinsicDimension:
    """A dimension and the distance at which it was read."""

    value: float
    scale: float
    n: int
    estimator: str


def dimension_of_distances(distances: Tensor) -> float:
    """Dimension from distances to the first k neighbours.

    NaN where a distance is infinite, as `neighbour_lists` has it for points with fewer neighbours;
    infinite where the neighbours of every point are equally far.

    Parameters
    ----------
    distances
        Distances from a point to its neighbours, nearest first, one point a row.

    Raises
    ------
    InvalidInputError
        If distances are not positive or do not rise, or there are fewer than two ratios of them.

    Examples
    --------
    >>> import torch
    >>> round(dimension_of_distances(torch.tensor([[1.0, 2.0], [1.0, 4.0]])), 6)  # 1 / log 8
    0.480898
    """
    if distances.ndim != 2 or len(distances) * (distances.shape[1] - 1) < 2:
        raise InvalidInputError(
            "A dimension needs at least two ratios of distances, one point a row and its nearest "
            f"neighbour first; found shape {tuple(distances.shape)}."
        )
    wide = distances.double()
    rising = (wide[:, :1] > 0) & (wide[:, 1:] >= wide[:, :-1]).all(1, keepdim=True)
    if not bool(rising.all()):
        row = int((~rising).nonzero()[0, 0])
        raise InvalidInputError(
            f"Distances must be positive and rise in every row; found {wide[row].tolist()} in row "
            f"{row}. Leave repeated points out."
        )
    if bool(wide.isinf().any()):
        return math.nan
    logs = (wide[:, -1:] / wide[:, :-1]).log()
    return float((logs.numel() - 1) / logs.sum())


def intrinsic_dimension(
    x: Tensor | ArrayLike, *, estimator: str = "two_nn", groups: Tensor | None = None
) -> IntrinsicDimension:
    """Dimension of the set near which the points lie, at the scale of their neighbours.

    Parameters
    ----------
    x
        Points, one a row.
    estimator
        ``"two_nn"`` or ``"mle"``.
    groups
        Group of each point; neighbours come from other groups only.

    Raises
    ------
    InvalidInputError
        For an unknown estimator, repeated points, or fewer candidates than neighbours.

    Examples
    --------
    >>> import torch
    >>> x = torch.rand(1000, 2, generator=torch.Generator().manual_seed(0))
    >>> abs(intrinsic_dimension(x).value - 2) < 0.2
    True
    """
    if estimator not in ESTIMATORS:
        raise InvalidInputError(
            f"estimator must be one of {', '.join(ESTIMATORS)}; got {estimator!r}."
        )
    k = ESTIMATORS[estimator]
    lists = neighbour_lists(x, groups=groups, count=k)
    if int(lists.candidates.min()) < k:
        raise InvalidInputError(
            f"{estimator} reads {k} neighbours from other groups; a point has "
            f"{int(lists.candidates.min())} candidates. Give more points."
        )
    repeated = int((lists.distances[:, 0] == 0).sum())
    if repeated:
        raise InvalidInputError(
            f"Points must differ from each other; {repeated} of {len(lists.distances)} points "
            "equal another. Leave repeated points out."
        )
    return IntrinsicDimension(
        value=dimension_of_distances(lists.distances),
        scale=float(lists.distances[:, -1].median()),
        n=len(lists.distances),
        estimator=estimator,
    )
