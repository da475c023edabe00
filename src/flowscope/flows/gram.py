r"""Squared steps of the logits without the logits, when the output is linear.

.. math:: \|U_c \Delta x\|^2 = \Delta x^\top G\, \Delta x, \qquad G = U_c^\top U_c, \qquad
          U_c = U - \mathbf 1 \bar u^\top,

x being the state that the output matrix U multiplies (after the final norm) and U_c that matrix
with its mean over the vocabulary taken out, which is the centring of the logits. G is formed once;
each step then costs d² instead of V·d. A bias of the output drops out of a step; a soft-cap does
not, and needs the logits.
"""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import as_reals, refuse

__all__ = ["centred_gram", "quadratic_variation_gram"]

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
    return found
