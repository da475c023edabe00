r"""How spread out a probability vector is, and how far two of them lie apart.

Entropies are in nats and 0 log 0 = 0. Near a vertex the three statistics are carried by the tail,
so each is written without one minus the peak: the peak's logarithm is log1p of minus the tail
mass, the peak's difference is minus the difference of the tails, and the divergence is summed in
non-negative terms q φ(p/q), φ(x) = x log x − x + 1, which vanish to second order where p = q.

At p_j = 0 the one-sided slope of −p log p is infinite. The slope returned there is the one along
the face p_j = 0, so that a masked logit (−∞) receives zero and not NaN.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.simplex.probability import ArrayLike, aligned, as_probabilities, split_peak

__all__ = ["entropy", "kl_divergence", "total_variation"]


def entropy(p: Float[Tensor, "*batch V"] | ArrayLike) -> Float[Tensor, "*batch"]:
    r"""Shannon entropy of each row, in nats.

    .. math:: H(p) = -\sum_j p_j \log p_j

    Parameters
    ----------
    p : probability vectors, the outcomes on the last axis.

    Raises
    ------
    InvalidInputError
        If p is not a family of probability vectors.

    Notes
    -----
    One sum over peak and tail, O(V). Source 000 App. H.1 calls Σ p log p the Shannon entropy; that
    is −H.

    Examples
    --------
    >>> entropy([0.5, 0.25, 0.25]) / torch.tensor(2.0).log()
    tensor(1.5000, dtype=torch.float64)
    """
    peak, tail = split_peak(as_probabilities(p, "p"))
    mass = tail.sum(-1)
    small = mass < 0.5
    log_peak = torch.where(
        small, torch.log1p(-mass.where(small, 0.0)), torch.log(peak.where(~small, 1.0))
    )
    return -(peak * log_peak + (tail * tail.where(tail > 0, 1.0).log()).sum(-1))


def total_variation(
    p: Float[Tensor, "*batch V"] | ArrayLike, q: Float[Tensor, "*batch V"] | ArrayLike
) -> Float[Tensor, "*batch"]:
    r"""Total variation distance between the rows of p and of q.

    .. math:: \mathrm{TV}(p, q) = \tfrac12 \sum_j |p_j - q_j|

    Parameters
    ----------
    p, q : probability vectors over the same outcomes; leading axes broadcast.

    Raises
    ------
    InvalidInputError
        If p or q is not a family of probability vectors, or their shapes do not match.

    Notes
    -----
    The term of p's peak is minus the sum of the other differences, so a distance of 1e-9 between
    two peaked float32 rows keeps its digits. O(V).

    Examples
    --------
    >>> total_variation([0.55, 0.45], [0.49, 0.51])
    tensor(0.0600, dtype=torch.float64)
    """
    x, y = aligned(as_probabilities(p, "p"), as_probabilities(q, "q"), ("p", "q"))
    place = x.detach().argmax(-1, keepdim=True)
    gap = (x - y).scatter(-1, place, 0.0)
    return 0.5 * (gap.sum(-1).abs() + gap.abs().sum(-1))


def kl_divergence(
    p: Float[Tensor, "*batch V"] | ArrayLike, q: Float[Tensor, "*batch V"] | ArrayLike
) -> Float[Tensor, "*batch"]:
    r"""Kullback–Leibler divergence of the rows of p from those of q, in nats.

    .. math:: \mathrm{KL}(p \,\|\, q) = \sum_j p_j \log\frac{p_j}{q_j}
              = \sum_j \Big( p_j \log\frac{p_j}{q_j} - p_j + q_j \Big)

    Parameters
    ----------
    p, q : probability vectors over the same outcomes; leading axes broadcast.

    Returns
    -------
    The divergence; +∞ where some outcome has q_j = 0 < p_j. Outcomes with p_j = 0 count nothing.

    Raises
    ------
    InvalidInputError
        If p or q is not a family of probability vectors, or their shapes do not match.

    Notes
    -----
    Summed in the second, non-negative form, with log1p where p and q are close. O(V).

    Examples
    --------
    >>> kl_divergence([[0.5, 0.5], [0.5, 0.5]], [[0.9, 0.1], [1.0, 0.0]])
    tensor([0.5108,    inf], dtype=torch.float64)
    """
    x, y = aligned(as_probabilities(p, "p"), as_probabilities(q, "q"), ("p", "q"))
    gap = x - y
    close = gap.abs() <= 0.5 * y
    divisor = y.where(y > 0, 1.0)
    near = torch.log1p((gap / divisor).where(close, 0.0))
    far = x.where(x > 0, 1.0).log() - divisor.log()
    term = x * torch.where(close, near, far) - gap
    return term.masked_fill((y == 0) & (x > 0), torch.inf).sum(-1)
