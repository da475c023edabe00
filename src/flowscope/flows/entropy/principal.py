r"""Principal coordinates of a cloud: a few axes that hold most of its variance.

$$
y_i = B^\top(x_i-\bar x), \qquad \hat\Sigma B = B\,\mathrm{diag}(\lambda_1\ge\dots\ge\lambda_r).
$$

The *effective rank* is the exponential of the entropy of the shares $\lambda_j/\sum\lambda$ over
all axes: 1 where the points lie on a line, the width where they fill all directions alike.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.entropy.neighbours import read_points
from flowscope.simplex.probability import ArrayLike, as_reals, refuse, within_range

__all__ = ["PrincipalCoordinates", "effective_rank", "principal_coordinates"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PrincipalCoordinates:
    """Coordinates of points along leading axes of their covariance.

    Attributes
    ----------
    coordinates
        One row per point, the widest axis first.
    axes
        Unit vectors, one a column.
    variances
        Variance along every axis that points span, largest first; also those that are not kept.
    """

    coordinates: Float64[Tensor, "N r"]
    axes: Float64[Tensor, "d r"]
    variances: Float64[Tensor, "m"]


def principal_coordinates(x: Tensor | ArrayLike, count: int | None = None) -> PrincipalCoordinates:
    """Coordinates of points along the ``count`` widest axes of their cloud.

    Parameters
    ----------
    x
        Points, one a row.
    count
        Axes that are kept; all that the points span by default.

    Raises
    ------
    InvalidInputError
        If points are not finite, or lie in fewer dimensions than ``count``.

    Notes
    -----
    One eigenvalue problem of the smaller of the two Gram matrices, O(N d min(N, d)).

    Examples
    --------
    >>> found = principal_coordinates([[0.0, 1.0], [0.0, -1.0], [2.0, 0.0], [-2.0, 0.0]], 1)
    >>> found.coordinates[:, 0].abs().tolist(), found.variances.tolist()
    ([0.0, 0.0, 2.0, 2.0], [2.6666666666666665, 0.6666666666666666])
    """
    points = read_points(x)
    centred = points - points.mean(0)
    n, d = centred.shape
    tall = n >= d
    gram = centred.mT @ centred if tall else centred @ centred.mT
    values, vectors = torch.linalg.eigh(gram)
    values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
    largest = float(points.square().sum(1).max())
    floor = max(n, d) * torch.finfo(torch.float64).eps * max(float(values[0]), largest)
    rank = int((values > floor).sum())
    count = rank if count is None else count
    if rank == 0:
        raise InvalidInputError(f"{n} points are equal, and have no principal coordinates.")
    if not 1 <= count <= rank:
        raise InvalidInputError(
            f"{count} principal coordinates were asked for; {n} points of {d} coordinates lie in "
            f"{rank} dimensions. Ask for at most {rank}."
        )
    kept = vectors[:, :count]
    axes = kept if tall else centred.mT @ (kept / values[:count].sqrt())
    return PrincipalCoordinates(
        coordinates=centred @ axes, axes=axes, variances=values[:rank] / max(n - 1, 1)
    )


def effective_rank(variances: Tensor | ArrayLike) -> float:
    """Exponential of the entropy of the shares of variance.

    Raises
    ------
    InvalidInputError
        If a variance is negative or not finite, or all are 0.

    Examples
    --------
    >>> round(effective_rank([1.0, 1.0, 0.0]), 9)
    2.0
    """
    values = variances if isinstance(variances, Tensor) else as_reals(variances, "variances")
    values = values.double()
    refuse(~values.isfinite(), values, "variances must be finite", "Find where they overflowed.")
    total = float(values.sum())
    if not total > 0 or bool((values < 0).any()):
        raise InvalidInputError(
            "variances must be 0 or more and not all 0: points that are equal have no rank."
        )
    total = float(within_range(values.sum(), "the sum of variances", infinite=True))
    return float(torch.special.entr(values / total).sum().exp())
