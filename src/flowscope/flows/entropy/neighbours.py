r"""Nearest neighbours from other groups, listed once and read by every estimator.

Points of one text are not independent of each other, so that the neighbours of point i are looked
for among the $M_i$ points of *other* groups. A list of a few dozen neighbours per point answers the
same question about every large subset of the points: the neighbours in the subset are those of the
list that belong to it. Subsamples therefore cost no new distances.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_reals, refuse

__all__ = ["LEAST_PER_DIMENSION", "NeighbourLists", "neighbour_lists", "read_points"]

LEAST_PER_DIMENSION = 10
"""Points for each dimension below which an entropy is a property of the estimator."""

_ROWS = 2**21  # distances formed at a time
_WIDE = 32  # coordinates above which a product of matrices is faster than differences
_SPARE = 8  # neighbours listed beyond those that are asked for
_SMALLEST, _LARGEST = 1e-75, 1e75  # between them fourth powers of float64 are numbers
_TRUSTED = 1e6  # roundings below which the square of a distance is not taken from a product


@dataclass(frozen=True, kw_only=True, eq=False)
class NeighbourLists:
    """For every point its nearest neighbours from other groups, nearest first.

    Attributes
    ----------
    distances, indices
        Distance and number of each neighbour; infinite where a point has fewer.
    candidates
        M_i, how many points of other groups there are.
    points, groups
        What was listed.
    """

    distances: Float64[Tensor, "N K"]
    indices: Int64[Tensor, "N K"]
    candidates: Int64[Tensor, "N"]
    points: Float64[Tensor, "N d"]
    groups: Int64[Tensor, "N"]

    def nearest(
        self, k: int, chosen: Bool[Tensor, "N"] | None = None
    ) -> tuple[Float64[Tensor, "n k"], Int64[Tensor, "n"]]:
        """Distances to the k nearest neighbours, and the number of candidates, in a subset."""
        if chosen is None:
            return self.distances[:, :k], self.candidates
        rows = self.distances[chosen]
        present = chosen[self.indices[chosen]] & rows.isfinite()
        order = present.cumsum(1)
        candidates = _candidates(self.groups[chosen])
        short = order[:, -1] < candidates.clamp_max(k)
        if bool(short.any()):  # the list ends before k members of the subset
            return _of_subset(self, k, chosen)
        picked = [
            torch.where(present & (order == j), rows, math.inf).amin(1) for j in range(1, k + 1)
        ]
        return torch.stack(picked, 1), candidates

    def entropy(
        self, k: int, dimension: float, chosen: Bool[Tensor, "N"] | None = None
    ) -> Float64[Tensor, ""]:
        """Kozachenko–Leonenko entropy of the points or of a subset, in nats."""
        distances, candidates = self.nearest(k, chosen)
        log_ball = 0.5 * dimension * math.log(math.pi) - math.lgamma(0.5 * dimension + 1)
        counts = torch.digamma(candidates.double() + 1).mean()
        shift = log_ball - float(torch.digamma(torch.tensor(float(k), dtype=torch.float64)))
        return counts + shift + dimension * distances[:, k - 1].log().mean()


def _of_subset(
    lists: NeighbourLists, k: int, chosen: Bool[Tensor, "N"]
) -> tuple[Float64[Tensor, "n k"], Int64[Tensor, "n"]]:
    smaller = neighbour_lists(lists.points[chosen], groups=lists.groups[chosen], count=k)
    return smaller.distances, smaller.candidates


def _candidates(groups: Int64[Tensor, "N"]) -> Int64[Tensor, "N"]:
    _, place, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
    others: Tensor = len(groups) - sizes[place]
    return others


def read_points(x: Tensor | ArrayLike, name: str = "x") -> Float64[Tensor, "N d"]:
    """Read x as finite points, one a row, in float64 on the CPU."""
    points = as_reals(x, name)
    if points.ndim != 2 or not points.shape[0] or not points.shape[1]:
        raise InvalidInputError(
            f"{name} must be a matrix with one point a row; found shape {tuple(points.shape)}."
        )
    refuse(~points.isfinite(), points, f"{name} must be finite", "Find where the model overflowed.")
    points = points.detach().cpu().double()
    largest = float(points.abs().max())
    if largest > 0 and not _SMALLEST <= largest <= _LARGEST:
        raise InvalidInputError(
            f"{name} must have a largest entry between {_SMALLEST:g} and {_LARGEST:g}, so that "
            f"products of distances are numbers; found {largest:.3g}. Divide it by a constant."
        )
    return points


def neighbour_lists(
    x: Tensor | ArrayLike, *, groups: Tensor | None = None, count: int = 3
) -> NeighbourLists:
    """Nearest neighbours of every point among the points of other groups.

    Parameters
    ----------
    x
        Points, one a row.
    groups
        Number of the group of each point; without it every point is a group of its own.
    count
        Neighbours listed for each point; where fewer exist, the distance is infinite.

    Raises
    ------
    InvalidInputError
        If points are not finite, groups do not fit, or all points are of one group.

    Notes
    -----
    All pairs, O(N² d) time and O(N · count) memory. Distances are those of differences. Above 32
    coordinates the neighbours are found through one product of matrices and their distances taken
    by differences; where rounding of the product could matter, all differences are formed.

    Examples
    --------
    >>> lists = neighbour_lists([[0.0], [1.0], [3.0]], groups=torch.tensor([0, 0, 1]), count=1)
    >>> lists.distances[:, 0].tolist(), lists.candidates.tolist()
    ([3.0, 2.0, 2.0], [1, 1, 2])
    """
    points = read_points(x)
    n = len(points)
    labels = torch.arange(n) if groups is None else torch.as_tensor(groups).long().cpu()
    if labels.shape != (n,):
        raise InvalidInputError(
            f"groups must name a group for each of {n} points; found shape {tuple(labels.shape)}."
        )
    candidates = _candidates(labels)
    if not int(candidates.min()):
        raise InvalidInputError(
            "neighbours are looked for in other groups, and all points are of one group. Give "
            "points of at least two texts."
        )
    if count < 1:
        raise InvalidInputError(f"count must be at least 1; got {count}.")
    taken = min(count, int(candidates.max()))
    found = [
        _nearest(points, labels, rows, taken)
        for rows in torch.split(torch.arange(n), max(1, _ROWS // n))
    ]
    distances, indices = zip(*found, strict=True)
    return NeighbourLists(
        distances=torch.cat(distances),
        indices=torch.cat(indices),
        candidates=candidates,
        points=points,
        groups=labels,
    )


def _nearest(
    points: Float64[Tensor, "N d"], labels: Int64[Tensor, "N"], rows: Tensor, count: int
) -> tuple[Float64[Tensor, "rows K"], Int64[Tensor, "rows K"]]:
    """Distances and numbers of the neighbours of some rows."""
    if points.shape[1] <= _WIDE:
        return _by_differences(points, labels, rows, count)
    centred = points - points.mean(0)
    squares = centred.square().sum(1)
    gaps = squares[rows, None] + squares - 2 * centred[rows] @ centred.mT
    gaps.masked_fill_(labels[rows, None] == labels[None], math.inf)
    listed = gaps.topk(min(count + _SPARE, len(points)), dim=1, largest=False)
    distances = torch.stack(
        [
            torch.linalg.vector_norm(points[places] - points[row], dim=-1)
            for row, places in zip(rows.tolist(), listed.indices, strict=True)
        ]
    ).masked_fill_(listed.values.isinf(), math.inf)
    order = distances.topk(count, dim=1, largest=False)
    indices = listed.indices.gather(1, order.indices)
    rounding = 8 * torch.finfo(torch.float64).eps * float(squares.max())
    unsure = order.values[:, -1].square() < _TRUSTED * rounding
    if bool(unsure.any()):
        again = _by_differences(points, labels, rows[unsure], count)
        order.values[unsure], indices[unsure] = again
    return order.values, indices


def _by_differences(
    points: Float64[Tensor, "N d"], labels: Int64[Tensor, "N"], rows: Tensor, count: int
) -> tuple[Float64[Tensor, "rows K"], Int64[Tensor, "rows K"]]:
    gaps = torch.cdist(
        points[rows], points, compute_mode="donot_use_mm_for_euclid_dist"
    ).masked_fill_(labels[rows, None] == labels[None], math.inf)
    nearest = gaps.topk(count, dim=1, largest=False)
    return nearest.values, nearest.indices
