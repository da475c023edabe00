r"""How far a logit step can move a law, and how far it does to first order.

.. math:: \mathrm{TV}(p, q) \le \eta + (1 - \eta)\tanh\!\big(\tfrac14 \operatorname{osc}_S \Delta z
          \big), \qquad p(S), q(S) \ge 1 - \eta ,

for q ∝ p e^{Δz}. On a whole vocabulary some token always moves far and the bound is 1; on the few
that hold the mass it says something. With p = a p_S + (1−a) p′ and q = b q_S + (1−b) q′, b ≤ a,
TV ≤ b·TV(p_S, q_S) + (1 − b), and TV(p_S, q_S) ≤ tanh(osc_S/4): hence the bound, which never
exceeds one.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex import apply_mobility
from flowscope.simplex.blocks import row_blocks
from flowscope.simplex.probability import ArrayLike, aligned, as_probabilities, as_vectors

__all__ = ["first_order", "restricted_bound"]


def restricted_bound(
    p: Float[Tensor, "*batch V"] | ArrayLike,
    q: Float[Tensor, "*batch V"] | ArrayLike,
    dz: Float[Tensor, "*batch V"] | ArrayLike,
    *,
    eta: float = 0.01,
) -> Float[Tensor, "*batch"]:
    r"""Bound on the total variation of a step, over the outcomes that hold the mass.

    .. math:: \eta + (1 - \eta)\tanh\!\big(\tfrac14 (\max_S \Delta z - \min_S \Delta z)\big)

    Parameters
    ----------
    p, q : laws before and after the step, q ∝ p e^{Δz}.
    dz : Δz, the logit step, up to a constant; leading axes of all three are the same.
    eta : η; S is the shortest run of outcomes in the order of max(p, q) that holds 1 − η of both.

    Raises
    ------
    InvalidInputError
        If p or q is not a family of probability vectors, Δz is not finite, the shapes differ, or η
        is not in [0, 1).

    Notes
    -----
    One sort per row, O(V log V), in blocks of rows. Where Δz is not the step from p to q, it is a
    number and no bound. Replaces source 000 eq 19, which is vacuous on a vocabulary.

    Examples
    --------
    >>> step = torch.tensor([1.0, -1.0, 30.0]).double()
    >>> p = torch.tensor([0.5, 0.5, 1e-30]).double()
    >>> restricted_bound(p, torch.softmax(p.log() + step, -1), step)
    tensor(0.4675, dtype=torch.float64)
    """
    if not 0 <= eta < 1:
        raise InvalidInputError(f"eta must lie in [0, 1); found {eta}. It is the mass left out.")
    before, after = as_probabilities(p, "p"), as_probabilities(q, "q")
    step = as_vectors(dz, "dz", before.device)
    if not before.shape == after.shape == step.shape:
        raise InvalidInputError(
            "p, q and dz must have the same shape; found "
            f"{tuple(before.shape)}, {tuple(after.shape)} and {tuple(step.shape)}."
        )
    blocks = zip(*(row_blocks(x) for x in (before, after, step)), strict=True)
    spread = torch.cat([_restricted_oscillation(a, b, c, eta) for a, b, c in blocks])
    return eta + (1 - eta) * torch.tanh(spread.reshape(step.shape[:-1]) / 4)


def first_order(
    p: Float[Tensor, "*batch V"] | ArrayLike, dz: Float[Tensor, "*batch V"] | ArrayLike
) -> Float[Tensor, "*batch"]:
    r"""Total variation of a logit step to first order in the step.

    .. math:: \tfrac12 \|J \Delta z\|_1
              = \tfrac12 \sum_j p_j |\Delta z_j - \langle p, \Delta z\rangle|

    Parameters
    ----------
    p : law before the step.
    dz : Δz, the logit step.

    Raises
    ------
    InvalidInputError
        As :func:`flowscope.simplex.apply_mobility`.

    Notes
    -----
    O(V). The same number as :attr:`flowscope.flows.StepStatistics.first_order`, from a law instead
    of logits.

    Examples
    --------
    >>> first_order([0.5, 0.5], [1.0, 0.0])
    tensor(0.2500, dtype=torch.float64)
    """
    return 0.5 * apply_mobility(p, dz).abs().sum(-1)


def _restricted_oscillation(
    p: Tensor, q: Tensor, step: Tensor, eta: float
) -> Float[Tensor, "rows"]:
    p, q = aligned(p, q, ("p", "q"))
    order = torch.maximum(p, q).argsort(-1, descending=True)
    # What is left out, summed from the small end: 1 − cumsum has lost it.
    left = torch.stack([x.gather(-1, order).double() for x in (p, q)]).flip(-1).cumsum(-1).flip(-1)
    beyond = torch.cat([left[..., 1:], torch.zeros_like(left[..., :1])], -1).amax(0)
    size = (beyond > eta).sum(-1, keepdim=True)  # the last place that is still needed
    within = torch.arange(p.shape[-1], device=p.device) <= size
    moved = step.gather(-1, order)
    high = moved.where(within, -torch.inf).amax(-1)
    return high - moved.where(within, torch.inf).amin(-1)
