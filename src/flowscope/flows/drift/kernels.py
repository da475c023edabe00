r"""Kernels that compare two points, for distances between clouds of them.

.. math:: k(x, y) = e^{-\|x - y\|^2/2h^2} \quad\text{or}\quad k(x, y) = -\|x - y\| ,

the first for the maximum mean discrepancy at the scale h, the second for the energy distance.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import refuse, within_range

__all__ = ["Kernel", "distance_kernel", "gaussian_kernel", "median_distance"]

Kernel: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# Rows whose distances give the median.
_MEDIAN_ROWS = 1000


def gaussian_kernel(bandwidth: float) -> Kernel:
    r"""Gaussian kernel of a bandwidth.

    .. math:: k(x, y) = \exp\!\big(-\|x - y\|^2 / 2h^2\big)

    Examples
    --------
    >>> gaussian_kernel(1.0)(torch.zeros(1, 1), torch.ones(1, 1))
    tensor([[0.6065]])
    """
    if not 0 < bandwidth < float("inf"):
        raise InvalidInputError(
            f"bandwidth must be a positive number; found {bandwidth}. All points may coincide."
        )
    return lambda x, y: torch.exp(-torch.cdist(x, y).square() / (2 * bandwidth**2))


def distance_kernel(x: Float[Tensor, "n r"], y: Float[Tensor, "m r"]) -> Float[Tensor, "n m"]:
    r"""Kernel of the energy distance.

    .. math:: k(x, y) = -\|x - y\|

    Examples
    --------
    >>> distance_kernel(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]))
    tensor([[-5.]])
    """
    return within_range(-torch.cdist(x, y), "The distance of points", infinite=True)


def median_distance(x: Float[Tensor, "n r"], y: Float[Tensor, "m r"]) -> float:
    r"""Median distance of points of two clouds, the customary bandwidth.

    .. math:: h = \operatorname{med}\{\|a - b\| : a \ne b \in x \cup y\}

    Notes
    -----
    Over at most 1,000 points, spread evenly over the rows.

    Examples
    --------
    >>> median_distance(torch.zeros(2, 1), torch.full((1, 1), 3.0))
    3.0
    """
    both = torch.cat([x, y]).double()
    refuse(~both.isfinite(), both, "points must be finite", "Leave out points that are not.")
    if len(both) > _MEDIAN_ROWS:
        both = both[torch.linspace(0, len(both) - 1, _MEDIAN_ROWS).round().long()]
    return torch.pdist(both).median().item()
