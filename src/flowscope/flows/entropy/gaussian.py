r"""Entropy of the Gaussian with the covariance of the points, and points drawn from it.

$$
H = \tfrac D2\log 2\pi e + \tfrac12\log\det\hat\Sigma
  - \tfrac12\sum_{i=1}^{D}\Bigl[\psi\bigl(\tfrac{N-i}2\bigr)-\log\tfrac{N-1}2\Bigr],
$$

the last sum removing the bias of the log determinant exactly for Gaussian points.
"""

import math

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.entropy.neighbours import read_points
from flowscope.simplex.probability import ArrayLike

__all__ = ["gaussian_entropy", "gaussian_surrogate"]


def gaussian_entropy(x: Tensor | ArrayLike) -> float:
    """Entropy in nats of the Gaussian whose covariance the points have, without bias.

    Raises
    ------
    InvalidInputError
        If there are no more points than columns, or the points lie in a plane.

    Examples
    --------
    >>> x = torch.randn(5000, 1, generator=torch.Generator().manual_seed(0))
    >>> abs(gaussian_entropy(x) - 1.4189) < 0.03
    True
    """
    points = read_points(x)
    n, d = points.shape
    values = torch.linalg.eigvalsh(_covariance(points))
    half = 0.5 * (n - torch.arange(1, d + 1, dtype=torch.float64))
    bias = 0.5 * float((torch.digamma(half) - math.log(0.5 * (n - 1))).sum())
    return 0.5 * d * math.log(2 * math.pi * math.e) + 0.5 * float(values.log().sum()) - bias


def _covariance(points: Float64[Tensor, "N d"]) -> Float64[Tensor, "d d"]:
    n, d = points.shape
    if n <= d:
        raise InvalidInputError(
            f"A covariance of {d} coordinates needs more than {d} points; found {n}."
        )
    covariance = torch.cov(points.mT).reshape(d, d)
    values = torch.linalg.eigvalsh(covariance)
    rank = int((values > d * torch.finfo(torch.float64).eps * values[-1]).sum())
    if rank < d or float(values[-1]) <= 0:
        raise InvalidInputError(
            f"{n} points of {d} coordinates lie in {rank} dimensions: their entropy is minus "
            "infinity. Take principal coordinates first."
        )
    return covariance


def gaussian_surrogate(
    x: Tensor | ArrayLike,
    generator: torch.Generator | None = None,
    *,
    groups: Tensor | None = None,
) -> Float64[Tensor, "N d"]:
    """Gaussian points with exactly the mean and the covariance of x, as many as x has.

    Parameters
    ----------
    x
        Points, one a row.
    generator
        Random numbers.
    groups
        Group of each point. Points of one group then share as much of their variance, along each
        axis, as those of x do: points of one text are alike, and so are their surrogates.

    Raises
    ------
    InvalidInputError
        As `gaussian_entropy`, or if groups do not fit.

    Examples
    --------
    >>> x = torch.rand(50, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> drawn = gaussian_surrogate(x, torch.Generator().manual_seed(1))
    >>> torch.allclose(drawn.mean(0), x.mean(0)), torch.allclose(drawn.T.cov(), x.T.cov())
    (True, True)
    """
    points = read_points(x)
    factor = torch.linalg.cholesky(_covariance(points))
    draws = torch.randn(points.shape, generator=generator, dtype=torch.float64)
    if groups is not None:
        place, shares, axes = _shared(points, factor, groups)
        if bool(shares.any()):
            common = torch.randn(
                int(place.max()) + 1, points.shape[1], generator=generator, dtype=torch.float64
            )
            draws = (1 - shares).sqrt() * draws + shares.sqrt() * common[place]
            draws = draws @ axes.mT
    draws = draws - draws.mean(0)
    white = torch.linalg.solve_triangular(
        torch.linalg.cholesky(_covariance(draws)), draws.mT, upper=False
    )
    coloured: Tensor = points.mean(0) + (factor @ white).mT
    return coloured


def _shared(
    points: Float64[Tensor, "N d"], factor: Float64[Tensor, "d d"], groups: Tensor
) -> tuple[Int64[Tensor, "N"], Float64[Tensor, "d"], Float64[Tensor, "d d"]]:
    """Group of each point, and the share of variance that groups have in common, by axis.

    Variance components of an analysis of variance. In coordinates in which the covariance of the
    points is the identity, the sums of squares within and between groups have the same axes,
    because they add up to the identity.
    """
    n, d = points.shape
    names, place = torch.unique(torch.as_tensor(groups).cpu(), return_inverse=True)
    if place.shape != (n,):
        raise InvalidInputError(
            f"groups must name a group for each of {n} points; found shape {tuple(place.shape)}."
        )
    nothing = torch.zeros(d, dtype=torch.float64)
    if not 1 < len(names) < n:
        return place, nothing, torch.eye(d, dtype=torch.float64)
    white = torch.linalg.solve_triangular(factor, (points - points.mean(0)).mT, upper=False).mT
    sizes = torch.bincount(place).double()
    sums = torch.zeros(len(names), d, dtype=torch.float64).index_add_(0, place, white)
    between, axes = torch.linalg.eigh((sums / sizes[:, None]).mT @ sums)
    within = (n - 1 - between).clamp_min(0) / (n - len(names))
    between = between / (len(names) - 1)
    each = float((n - sizes.square().sum() / n) / (len(names) - 1))
    component = ((between - within) / each).clamp_min(0)
    shares: Tensor = component / (component + within).clamp_min(torch.finfo(torch.float64).tiny)
    return place, shares, axes
