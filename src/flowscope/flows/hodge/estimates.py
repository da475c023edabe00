r"""Ratios of energies with intervals over blocks of groups, by the influence of each block.

.. math:: q = \frac AB, \qquad q_b = q + \frac{A_b - q\,B_b}{B}, \qquad
          q \pm t_{b-1}\,\sqrt{\frac{\mathrm{Var}_b(q_b)}{b}}

A_b and B_b are b times what counting block b once more adds to A and B; q_b are pseudo-values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from scipy.special import stdtrit
from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = ["Estimate", "averaged_estimate", "estimate", "ratio"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """A value, its interval over groups, and a pseudo-value of each block of groups.

    Readings that share their blocks are averaged by averaging their pseudo-values.
    """

    value: float
    low: float
    high: float
    level: float
    pseudo_values: Float64[Tensor, "b"]


def estimate(
    value: float, pseudo_values: Float64[Tensor, "b"], level: float, extra: float = 0.0
) -> Estimate:
    r"""Value with a t interval from its pseudo-values.

    .. math:: q \pm t_{b-1}\sqrt{\mathrm{Var}_b(q_b)/b + \text{extra}}

    Parameters
    ----------
    value : q.
    pseudo_values : q_b.
    level : coverage aimed at.
    extra : variance from other sources, such as controls that were drawn.

    Examples
    --------
    >>> found = estimate(2.0, torch.tensor([1.0, 2.0, 3.0]).double(), 0.95)
    >>> round(found.low, 2), round(found.high, 2)
    (-0.48, 4.48)
    """
    b = len(pseudo_values)
    if b < 2:
        raise InvalidInputError(f"An interval needs at least two blocks of groups; found {b}.")
    reach = float(stdtrit(b - 1, 0.5 + level / 2))
    half = reach * math.sqrt(float(pseudo_values.var()) / b + extra)
    return Estimate(
        value=value, low=value - half, high=value + half, level=level, pseudo_values=pseudo_values
    )


def ratio(
    above: tuple[float, Float64[Tensor, "b"]],
    below: tuple[float, Float64[Tensor, "b"]],
    level: float,
) -> Estimate:
    """A/B from (A, A_b) and (B, B_b); NaN where B is not positive."""
    A, A_b = above
    B, B_b = below
    if not B > 0:
        nan = math.nan
        lost = torch.full_like(A_b, nan)
        return Estimate(value=nan, low=nan, high=nan, level=level, pseudo_values=lost)
    q = A / B
    return estimate(q, q + (A_b - q * B_b) / B, level)


def averaged_estimate(of: Sequence[Estimate], extra: float = 0.0) -> Estimate:
    """Mean of several estimates over the same blocks.

    Examples
    --------
    >>> one = estimate(0.0, torch.tensor([-1.0, 1.0]).double(), 0.95)
    >>> two = estimate(2.0, torch.tensor([3.0, 1.0]).double(), 0.95)
    >>> averaged_estimate([one, two]).value, averaged_estimate([one, two]).low
    (1.0, 1.0)
    """
    sizes = {len(one.pseudo_values) for one in of}
    if len(sizes) != 1:
        raise InvalidInputError(
            f"Estimates to average must share their blocks; found {sorted(sizes)} blocks. Read "
            "them with the same groups and the same seed."
        )
    value = math.fsum(one.value for one in of) / len(of)
    mean = torch.stack([one.pseudo_values for one in of]).mean(0)
    return estimate(value, mean, of[0].level, extra)
