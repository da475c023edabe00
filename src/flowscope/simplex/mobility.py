r"""The mobility of the simplex: the Jacobian of softmax, without its matrix.

.. math:: J(p) = \operatorname{diag} p - p\,p^\top, \qquad J v = p \odot (v - \langle p, v\rangle)

At p = softmax(z/τ), ∂p/∂z = J/τ. J is symmetric, J 1 = 0, and it vanishes at the vertices, where
its entries are carried by the tail t (p without its peak p₁): every sum below runs over the tail
and has no cancelling terms, so the values keep their relative accuracy at any tail mass.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import (
    ArrayLike,
    aligned,
    as_probabilities,
    as_reals,
    as_vectors,
    refuse,
    split_peak,
    within_range,
)

__all__ = ["apply_mobility", "effective_mobility", "mobility_frobenius", "mobility_trace"]


def apply_mobility(
    p: Float[Tensor, "*batch V"] | ArrayLike, v: Float[Tensor, "*batch V"] | ArrayLike
) -> Float[Tensor, "*batch V"]:
    r"""Product of the mobility of p with a vector.

    .. math:: J v = p \odot (v - \langle p, v \rangle)

    Parameters
    ----------
    p : probability vectors.
    v : finite vectors over the same outcomes; leading axes broadcast against those of p.

    Raises
    ------
    InvalidInputError
        If p is not a family of probability vectors, v is not finite, or their shapes do not match.

    Notes
    -----
    v is first shifted to zero at p's peak, which changes nothing (J 1 = 0) and keeps the peak's
    entry exact near a vertex. O(V). Source 000 §2.

    Examples
    --------
    >>> apply_mobility([0.5, 0.25, 0.25], [1.0, 0.0, 0.0])
    tensor([ 0.2500, -0.1250, -0.1250], dtype=torch.float64)
    """
    x = as_probabilities(p, "p")
    product = _product(*aligned(x, as_vectors(v, "v", x.device), ("p", "v")))
    return within_range(product, "The product with the mobility", infinite=True)


def _product(p: Tensor, v: Tensor) -> Tensor:
    shifted = v - v.gather(-1, p.detach().argmax(-1, keepdim=True))
    return p * (shifted - (p * shifted).sum(-1, keepdim=True))


def mobility_trace(p: Float[Tensor, "*batch V"] | ArrayLike) -> Float[Tensor, "*batch"]:
    r"""Trace of the mobility: the total variance of a one-hot draw.

    .. math:: \operatorname{tr} J = 1 - \sum_j p_j^2 = \sum_{\text{tail}} t\,(1 + p_1 - t)

    Parameters
    ----------
    p : probability vectors; p₁ is the largest entry and t the others.

    Raises
    ------
    InvalidInputError
        If p is not a family of probability vectors.

    Notes
    -----
    The second form, which does not cancel. O(V).

    Examples
    --------
    >>> mobility_trace([0.5, 0.25, 0.25])
    tensor(0.6250, dtype=torch.float64)
    """
    peak, tail = split_peak(as_probabilities(p, "p"))
    return (tail * (1 + peak[..., None] - tail)).sum(-1)


def mobility_frobenius(p: Float[Tensor, "*batch V"] | ArrayLike) -> Float[Tensor, "*batch"]:
    r"""Frobenius norm of the mobility, accurate however peaked p is.

    .. math:: \|J\|_F^2 = p_1^2 T_1^2 + \sum_{\text{tail}} t^2 (1-t)^2 + 2 p_1^2 T_2 + T_2^2 - T_4,
              \qquad T_k = \sum_{\text{tail}} t^k

    Parameters
    ----------
    p : probability vectors; p₁ is the largest entry and t the others.

    Raises
    ------
    InvalidInputError
        If p is not a family of probability vectors.

    Notes
    -----
    T₁ is taken out of the root, so nothing underflows before the result does. O(V). Source 000
    App. H writes Σp² + (Σp²)² − 2Σp³, which is the same number but cancels to 0 in float32 for a
    tail mass below 1e-4, just where early exit reads it.

    Examples
    --------
    >>> mobility_frobenius([0.9, 0.1])
    tensor(0.1800, dtype=torch.float64)
    >>> mobility_frobenius(torch.tensor([1.0, 1e-9]))
    tensor(2.0000e-09)
    """
    peak, tail = split_peak(as_probabilities(p, "p"))
    mass = tail.sum(-1)
    share = (tail / mass.where(mass > 0, 1.0)[..., None]).square()
    own = (share * ((1 - tail).square() + 2 * peak.square()[..., None])).sum(-1)
    cross = share.sum(-1).square() - share.square().sum(-1)
    return mass * (peak.square() + own + mass.square() * cross).sqrt()


def effective_mobility(
    p: Float[Tensor, "*batch V"] | ArrayLike,
    weight: Float[Tensor, "d V"] | ArrayLike,
    diffusion: Float[Tensor, "d d"] | Float[Tensor, " d"] | ArrayLike | float,
) -> Callable[[Tensor], Tensor]:
    r"""Operator v ↦ M v of the mobility that a diffusion of hidden states induces on the simplex.

    .. math:: M(p) = J\, W^\top a\, W\, J, \qquad p = \operatorname{softmax}(W^\top h), \quad
              \operatorname{Cov}[dh] = a\,dt \;\Rightarrow\; \operatorname{Cov}[dp] = M\,dt

    Parameters
    ----------
    p : probability vectors.
    weight : W, the output matrix, with the hidden axis first.
    diffusion : a, a symmetric positive semidefinite matrix, its diagonal, or one number for a·I.

    Returns
    -------
    A function of v, ``Float[Tensor, "*batch V"]`` whose leading axes broadcast against those of p.

    Raises
    ------
    InvalidInputError
        If p is not a family of probability vectors, the shapes do not match, an entry is not
        finite, or a is not symmetric or has a negative diagonal entry. That a is positive
        semidefinite beyond this is assumed, not checked.

    Notes
    -----
    Two products with W per call, O(dV + d²); no V × V matrix. Source 000 Prop. 6.5.

    Examples
    --------
    >>> step = effective_mobility([0.5, 0.5], [[1.0, -1.0]], 2.0)
    >>> step(torch.tensor([1.0, 0.0]))
    tensor([ 0.5000, -0.5000], dtype=torch.float64)
    """
    x = as_probabilities(p, "p")
    W = _as_weight(weight, x)
    a = _as_diffusion(diffusion, W)
    dtype = torch.promote_types(W.dtype, x.dtype)
    W, a, x = W.to(dtype), a.to(dtype), x.to(dtype)

    def operator(v: Tensor) -> Tensor:
        y, u = aligned(x, as_vectors(v, "v", x.device), ("p", "v"))
        hidden = _product(y, u) @ W.to(y.dtype).mT
        hidden = hidden @ a.to(y.dtype) if a.ndim == 2 else hidden * a.to(y.dtype)
        return within_range(_product(y, hidden @ W.to(y.dtype)), "The product", infinite=True)

    return operator


def _as_weight(weight: Tensor | ArrayLike, p: Tensor) -> Tensor:
    W = as_reals(weight, "weight", p.device)
    if W.ndim != 2:
        raise InvalidInputError(
            f"weight must have shape [d, V] (hidden, outcomes); found {tuple(W.shape)}. "
            "Transpose an output layer's [V, d] matrix first."
        )
    if W.shape[1] != p.shape[-1]:
        raise InvalidInputError(
            f"p has {p.shape[-1]} outcomes and weight has {W.shape[1]} columns; they must be the "
            "same. Transpose an output layer's [V, d] matrix first."
        )
    refuse(~W.isfinite(), W, "weight must be finite", "Look for the broken weights.")
    return W


def _as_diffusion(diffusion: Tensor | ArrayLike | float, W: Tensor) -> Tensor:
    a = as_reals(diffusion, "diffusion", W.device)
    a = a.to(W.dtype) if isinstance(diffusion, int | float) else a
    d = W.shape[0]
    if tuple(a.shape) not in {(d, d), (d,), ()}:
        raise InvalidInputError(
            f"diffusion must have shape [{d}, {d}], [{d}] or [] to act on the {d} hidden "
            f"coordinates of weight; found {tuple(a.shape)}. Take the block that belongs to them."
        )
    refuse(~a.isfinite(), a, "diffusion must be finite", "Look for the overflow upstream.")
    diagonal = a.diagonal() if a.ndim == 2 else a
    todo = "A covariance has none; check its sign."
    refuse(diagonal < 0, diagonal, "diffusion must have a non-negative diagonal", todo)
    skew = (a - a.mT).abs().amax().item() if a.ndim == 2 else 0.0
    if skew > math.sqrt(d) * torch.finfo(a.dtype).eps * a.abs().amax().item():
        raise InvalidInputError(
            f"diffusion must be symmetric; found entries that differ by {skew:.6g} from their "
            "mirror image. Pass σσᵀ, or symmetrise it on purpose."
        )
    return a
