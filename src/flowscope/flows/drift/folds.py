r"""Folds that keep every prompt whole, and errors that count prompts.

Tokens of one prompt share a context and their errors are dependent, so a prompt is either trained
on or tested on, and a standard error is that of a ratio of sums over prompts,

.. math:: \hat\rho = \frac{\sum_g e_g}{\sum_g n_g}, \qquad
          \mathrm{se}^2 = \frac{G}{G-1}\,\frac{\sum_g (e_g - \hat\rho\, n_g)^2}{(\sum_g n_g)^2} .
"""

import math

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = ["group_folds", "ratio_of_groups"]


def group_folds(
    groups: Int64[Tensor, "N"], folds: int, generator: torch.Generator | None = None
) -> Int64[Tensor, "N"]:
    r"""Fold of every row, whole prompts together and folds of nearly equal size.

    .. math:: \max_k N_k - \min_k N_k \le \max_g n_g

    Parameters
    ----------
    groups : prompt g of each row; n_g rows are of prompt g, and N_k end in fold k.
    folds : how many folds.
    generator : shuffles prompts of equal size; without one they go in their order.

    Raises
    ------
    InvalidInputError
        If there are fewer than two folds, or fewer prompts than folds.

    Notes
    -----
    The largest prompt first, each to the fold that is emptiest. O(N log N + G·folds). Source 000
    asks for 5 folds; grouping them by prompt is ours.

    Examples
    --------
    >>> group_folds(torch.tensor([4, 4, 4, 9, 9, 2]), 2)
    tensor([0, 0, 0, 1, 1, 1])
    """
    _, place, counts = torch.unique(groups, return_inverse=True, return_counts=True)
    G = len(counts)
    if folds < 2 or folds > G:
        raise InvalidInputError(
            f"folds must be at least 2 and at most the number of prompts; found {folds} folds for "
            f"{G} prompts. Use fewer folds or more prompts: a prompt is never split."
        )
    shuffled = torch.arange(G) if generator is None else torch.randperm(G, generator=generator)
    order = shuffled[counts.cpu()[shuffled].argsort(descending=True, stable=True)].tolist()
    filled, fold_of = [0] * folds, torch.zeros(G, dtype=torch.int64)
    for g in order:
        emptiest = min(range(folds), key=filled.__getitem__)
        fold_of[g] = emptiest
        filled[emptiest] += int(counts[g])
    return fold_of.to(groups.device)[place]


def ratio_of_groups(
    above: Float64[Tensor, "N"], below: Float64[Tensor, "N"], groups: Int64[Tensor, "N"]
) -> tuple[float, float]:
    r"""Ratio of two sums with its standard error over prompts.

    .. math:: \hat\rho = \frac{\sum_i e_i}{\sum_i n_i}, \qquad \mathrm{se}^2 = \frac{G}{G-1}
              \frac{\sum_g (\sum_{i \in g} e_i - \hat\rho\, n_i)^2}{(\sum_i n_i)^2}

    Parameters
    ----------
    above, below : e and n of each row; n of ones makes ρ̂ a mean.
    groups : prompt of each row.

    Returns
    -------
    ρ̂ and its standard error, NaN for a single prompt.

    Raises
    ------
    InvalidInputError
        If the denominators sum to zero.

    Notes
    -----
    The linearised (cluster) variance of a ratio estimator. O(N).

    Examples
    --------
    >>> one = torch.ones(4, dtype=torch.float64)
    >>> ratio_of_groups(torch.tensor([1.0, 1, 3, 3]).double(), one, torch.tensor([0, 0, 1, 1]))
    (2.0, 1.0)
    """
    total = below.sum().item()
    if total == 0:
        raise InvalidInputError(
            "A ratio needs a denominator; the sum is 0. All velocities are zero: persistence is "
            "exact."
        )
    rho = above.sum().item() / total
    _, place = torch.unique(groups, return_inverse=True)
    G = int(place.max()) + 1
    if G < 2:
        return rho, math.nan
    off = torch.zeros(G, dtype=torch.float64, device=above.device)
    off.index_add_(0, place, above.double() - rho * below.double())
    return rho, math.sqrt(G / (G - 1) * off.square().sum().item()) / abs(total)
