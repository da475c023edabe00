r"""Squared steps of the logits without the logits, when the output is linear.

.. math:: \|U_c \Delta x\|^2 = \Delta x^\top G\, \Delta x, \qquad G = U_c^\top U_c, \qquad
          U_c = U - \mathbf 1 \bar u^\top,

x being the state that the output matrix U multiplies (after the final norm) and U_c that matrix
with its mean over the vocabulary taken out, which is the centring of the logits. G is formed once;
each step then costs d² instead of V·d. A bias of the output drops out of a step; a soft-cap does
not, and needs the logits. The principal axes of centred logits are found the same way: they lie in
the span of U_c, so a problem of d coordinates gives them.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import as_reals, refuse, within_range

__all__ = ["PrincipalAxes", "centred_gram", "principal_axes", "quadratic_variation_gram"]

# So many numbers of the matrix are widened to float64 at a time.
_WIDENED = 2**23


def centred_gram(output: Float[Tensor, "V d"]) -> Float64[Tensor, "d d"]:
    r"""Gram matrix of an output matrix, centred over the vocabulary.

    .. math:: G = \sum_{v=1}^V (u_v - \bar u)(u_v - \bar u)^\top

    Parameters
    ----------
    output : U, one row u_v per outcome.

    Raises
    ------
    InvalidInputError
        If U is not a matrix or not finite.

    Notes
    -----
    O(V d²), in float64 whatever comes in: a quadratic form in float32 loses a factor of the
    condition number of G, which is 1e4 and more for trained output matrices.

    Examples
    --------
    >>> centred_gram(torch.tensor([[1.0], [3.0]]))
    tensor([[2.]], dtype=torch.float64)
    """
    U = as_reals(output, "output")
    if U.ndim != 2:
        raise InvalidInputError(
            f"output must have shape [V, d] (outcomes, hidden); found {tuple(U.shape)}."
        )
    mean = U.mean(0, dtype=torch.float64)
    refuse(~mean.isfinite(), mean, "output must have finite columns", "Look for broken weights.")
    G = torch.zeros(U.shape[1], U.shape[1], dtype=torch.float64, device=U.device)
    for rows in torch.split(U, max(1, _WIDENED // U.shape[1])):
        centred = rows.double() - mean
        G.addmm_(centred.mT, centred)
    return G


def quadratic_variation_gram(
    step: Float[Tensor, "*batch d"], gram: Float64[Tensor, "d d"]
) -> Float64[Tensor, "*batch"]:
    r"""Squared norm of the centred logit step that a step of the state makes.

    .. math:: \|U_c \Delta x\|^2 = \Delta x^\top G\, \Delta x

    Parameters
    ----------
    step : Δx, difference of two states as U multiplies them: after the final norm.
    gram : G, from :func:`centred_gram`.

    Raises
    ------
    InvalidInputError
        If the widths differ.

    Notes
    -----
    Exact, O(d²) per step in float64. The summands of the quadratic variation of source 000 §5.1.

    Examples
    --------
    >>> quadratic_variation_gram(torch.tensor([[2.0]]), centred_gram(torch.tensor([[1.0], [3.0]])))
    tensor([8.], dtype=torch.float64)
    """
    moved = as_reals(step, "step").double()
    if gram.ndim != 2 or gram.shape != (moved.shape[-1], moved.shape[-1]):
        raise InvalidInputError(
            f"step has {moved.shape[-1]} coordinates and gram acts on {gram.shape[-1]}; they must "
            "be the same. Pass the state that the output matrix multiplies."
        )
    found: Tensor = torch.linalg.vecdot(moved @ gram.to(moved), moved)
    return within_range(found, "The quadratic variation", infinite=True)


class PrincipalAxes(NamedTuple):
    """Principal axes of centred logits, as they act on the states that make them.

    ``reduction`` R gives coordinates y = Rᵀx, ``combination`` M the axes B = U_c M,
    ``shares`` how much of the variance of the logits each axis holds.
    """

    reduction: Float64[Tensor, "d r"]
    combination: Float64[Tensor, "d r"]
    shares: Float64[Tensor, "r"]


def principal_axes(
    covariance: Float[Tensor, "d d"], gram: Float64[Tensor, "d d"], rank: int
) -> PrincipalAxes:
    r"""Leading principal axes of the centred logits of a linear output, without a logit.

    .. math:: \operatorname{Cov}(z)\,B = B\Lambda, \quad B = U_c M, \quad B^\top B = 1, \quad
              y = B^\top U_c x = M^\top G x

    Parameters
    ----------
    covariance : of the states x.
    gram : G, from :func:`centred_gram`.
    rank : r, how many axes; fewer come back when the logits vary along fewer.

    Raises
    ------
    InvalidInputError
        If the shapes differ, the rank is not positive, or the logits do not vary.

    Notes
    -----
    With G = L² the axes are those of L Cov(x) L, O(d³) in float64. Directions that hold less than
    1e-12 of the variance are not axes but rounding.

    Examples
    --------
    >>> U = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> axes = principal_axes(torch.diag(torch.tensor([3.0, 1.0])), centred_gram(U), 1)
    >>> axes.shares
    tensor([0.7500], dtype=torch.float64)
    """
    C = as_reals(covariance, "covariance").double()
    if C.ndim != 2 or C.shape != gram.shape or rank < 1:
        raise InvalidInputError(
            f"covariance and gram must be of one shape [d, d] and rank at least 1; found "
            f"{tuple(C.shape)}, {tuple(gram.shape)} and {rank}."
        )
    for x, name in ((C, "covariance"), (gram, "gram")):
        refuse(~x.isfinite(), x, f"{name} must be finite", "Look for the overflow upstream.")
    values, vectors = torch.linalg.eigh(gram.to(C))
    kept = values > 1e-12 * values[-1]
    root = vectors[:, kept] * values[kept].sqrt()
    spread, turned = torch.linalg.eigh(root.mT @ C @ root)
    total = spread.sum()
    if not bool(total > 0):
        raise InvalidInputError(
            f"the logits must vary to have principal axes; found total variance {float(total):.3g}."
            " Give more than one state."
        )
    few = int(min(rank, int((spread > 1e-12 * total).sum())))
    leading = turned[:, -few:].flip(-1)
    combination = (vectors[:, kept] / values[kept].sqrt()) @ leading
    shares = spread[-few:].flip(-1) / total
    return PrincipalAxes(root @ leading, combination, shares)
