r"""Entropy of the Gaussian with the covariance of the points, and points drawn from it.

$$
H = \tfrac D2\log 2\pi e + \tfrac12\log\det\hat\Sigma
  - \tfrac12\sum_{i=1}^{D}\Bigl[\psi\bigl(\tfrac{N-i}2\bigr)-\log\tfrac{N-1}2\Bigr],
$$

the last sum removing the bias of the log determinant exactly for Gaussian points.
"""

import math

import torch
from jaxtyping import Float64
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
    x: Tensor | ArrayLike, generator: torch.Generator | None = None
) -> Float64[Tensor, "N d"]:
    """Gaussian points with exactly the mean and the covariance of x, as many as x has.

    Raises
    ------
    InvalidInputError
        As `gaussian_entropy`.

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
    draws = draws - draws.mean(0)
    white = torch.linalg.solve_triangular(
        torch.linalg.cholesky(_covariance(draws)), draws.mT, upper=False
    )
    coloured: Tensor = points.mean(0) + (factor @ white).mT
    return coloured
