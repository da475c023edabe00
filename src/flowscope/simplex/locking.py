r"""Locking: how far one step of the logits can move a probability vector.

A step Δz acts on p only up to a constant, so its size is osc(Δz/τ) = max − min. For a set S of
mass s the step can bring the mass to σ(logit s + osc) and no further. The gain is largest at
s* = 1/(1 + e^{osc/2}), where it is tanh(osc/4); a vector whose whole tail δ is below s* has no set
that large outside its peak, and its best set is the tail itself.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.simplex.probability import (
    ArrayLike,
    as_batch,
    as_probabilities,
    as_vectors,
    refuse,
    split_peak,
)

__all__ = ["locking_bound", "oscillation"]


def oscillation(v: Float[Tensor, "*batch V"] | ArrayLike) -> Float[Tensor, "*batch"]:
    r"""Range of each vector: the size of a logit step that no gauge can change.

    .. math:: \operatorname{osc}(v) = \max_j v_j - \min_j v_j = 2 \min_c \|v - c\|_\infty

    Parameters
    ----------
    v : finite vectors over at least two outcomes.

    Raises
    ------
    InvalidInputError
        If an entry is not finite, or there are fewer than two.

    Notes
    -----
    Two passes, O(V).

    Examples
    --------
    >>> oscillation([1.0, -2.0, 4.0])
    tensor(6., dtype=torch.float64)
    """
    x = as_vectors(v, "v")
    return x.amax(-1) - x.amin(-1)


def locking_bound(
    p: Float[Tensor, "*batch V"] | ArrayLike,
    osc: Float[Tensor, "*batch"] | ArrayLike | float,
) -> Float[Tensor, "*batch"]:
    r"""Largest total variation by which a logit step of given oscillation can move p.

    .. math:: \mathrm{TV}\big(p, \operatorname{softmax}(\log p + \Delta z/\tau)\big) \le
              \begin{cases} \sigma(\operatorname{logit}\delta + o) - \delta
              & \delta \le 1/(1 + e^{o/2}) \\ \tanh(o/4) & \text{otherwise} \end{cases}

    Parameters
    ----------
    p : probability vectors; δ = 1 − max p is their tail mass.
    osc : o = osc(Δz/τ) ≥ 0, the :func:`oscillation` of the step over the temperature; broadcasts
        against the leading axes of p.

    Raises
    ------
    InvalidInputError
        If p is not a family of probability vectors, or osc is negative, not finite, or of a shape
        that does not broadcast.

    Notes
    -----
    The bound holds for every step size and is attained: by (1 − δ, δ) on the first branch, by a
    vector with a subset of mass 1/(1 + e^{o/2}) on the second. O(V). Source 000 eq. 20 has
    ‖Δp‖₁ ≤ min{1, 2δ}‖Δz‖_∞ to first order, which is too small by up to a factor two; the first
    order is 4δ(1 − δ) for δ ≤ ½.

    Examples
    --------
    >>> locking_bound([0.99, 0.01], 8.0)
    tensor(0.9579, dtype=torch.float64)
    """
    x = as_probabilities(p, "p")
    step = as_batch(osc, "osc", x, "p")
    refuse(step < 0, step, "osc must be ≥ 0", "Pass max − min of the step over the temperature.")
    dtype = torch.promote_types(x.dtype, step.dtype)
    peak, tail = split_peak(x)
    delta, peak, step = tail.sum(-1).double(), peak.double(), step.double()
    shrink = torch.exp(-step)
    divisor = peak * shrink + delta
    tail_moves = delta * peak * -torch.expm1(-step) / divisor.where(divisor > 0, 1.0)
    critical = torch.sigmoid(-step / 2)
    return torch.where(delta <= critical, tail_moves, torch.tanh(step / 4)).to(dtype)
