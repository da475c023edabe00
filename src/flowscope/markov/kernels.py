r"""Kernels that scores make, and what is done to a kernel.

$$
P^\rightarrow = \operatorname{softmax}_j(-\beta d^\rightarrow_{ij})
    = \operatorname{softmax}_j(\beta W_{ij}), \qquad
P^\leftarrow = \operatorname{softmax}_j(-\beta d^\leftarrow_{ij}), \qquad
\frac{P^\rightarrow_{ij} P^\leftarrow_{ij}}{\sum_k P^\rightarrow_{ik} P^\leftarrow_{ik}}
    = \operatorname{softmax}_j(-\beta D_{ij}) .
$$

Attention is the forward expert, the diffusion map the product of both. With equal queries and keys
it is that of Coifman and Lafon, and their $\alpha$-normalisation is a Doob transform,

$$
P^h_{ij} = \frac{P_{ij} h_j}{(Ph)_i}, \qquad h_j = g_j^{-\alpha}, \quad
g_i = \textstyle\sum_j e^{-\beta D_{ij}} .
$$

All is done in logarithms, batched over leading axes, and differentiable. Source 002.
"""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.markov.bidivergence import Bidivergence
from flowscope.markov.scores import as_kernel, as_law, as_scores, as_share, as_strength
from flowscope.simplex.probability import ArrayLike, as_probabilities, as_reals, refuse
from flowscope.transport import sinkhorn_attention
from flowscope.transport.masses import log_mass

__all__ = [
    "as_rows",
    "attention_kernel",
    "damped_kernel",
    "diffusion_kernel",
    "doob_transform",
    "product_of_experts",
    "sinkhorn_kernel",
    "tilted",
    "time_reversal",
]

Direction = Literal["forward", "backward"]


def attention_kernel(
    scores: Tensor | ArrayLike, beta: Tensor | float = 1.0, *, direction: Direction = "forward"
) -> Float[Tensor, "*batch N M"]:
    r"""Attention as a kernel: who is asked (forward), or who asks (backward).

    .. math:: P^\rightarrow_{ij} \propto e^{\beta W_{ij}}, \qquad
              P^\leftarrow_{ij} \propto e^{\beta (W_{ji} - W_{jj})}

    Parameters
    ----------
    scores
        W, with any mask (−∞): one side of a pair is enough here. Forward, queries and keys may be
        of different numbers (cross-attention).
    beta
        β > 0, one number or one for each matrix.
    direction
        ``"backward"`` needs a square W with its diagonal.

    Raises
    ------
    InvalidInputError
        For NaN or +∞, a row masked whole, fewer than two keys, β that is not positive.

    Examples
    --------
    >>> attention_kernel([[0.0, 1.0], [0.0, -float("inf")]])
    tensor([[0.2689, 0.7311],
            [1.0000, 0.0000]], dtype=torch.float64)
    """
    W = _as_one_sided(scores)
    b = as_strength(beta, W)
    if direction == "forward":
        return torch.softmax(_strengthened(W, b), -1)
    if direction != "backward":
        raise InvalidInputError(
            f"direction must be 'forward' or 'backward'; got {direction!r}. Forward is attention."
        )
    if W.shape[-1] != W.shape[-2]:
        raise InvalidInputError(
            "scores must be square for the backward direction, which reads W_jj; found shape "
            f"{tuple(W.shape)}. Cross-attention has the forward one only."
        )
    w = W.diagonal(dim1=-2, dim2=-1)
    refuse(w.isneginf(), w, "the diagonal of scores must not be masked", "d← is made of W_jj.")
    apart = W.mT - w[..., None, :]
    refuse(
        apart.isposinf(),
        apart,
        f"scores must lie within the range of {W.dtype} and so must their differences",
        "Divide them by a constant, or pass float64.",
    )
    return torch.softmax(_strengthened(apart, b), -1)


def _strengthened(z: Float[Tensor, "*batch N M"], b: Tensor) -> Float[Tensor, "*batch N M"]:
    """βz up to a constant in each row, the largest entry never beyond the range of the dtype."""
    strong = b * z
    if bool((strong.isfinite() | z.isneginf()).all()):
        return strong
    return b * (z - z.amax(-1, keepdim=True))


def diffusion_kernel(
    scores: Tensor | ArrayLike, beta: Tensor | float = 1.0, alpha: float = 0.0
) -> Float[Tensor, "*batch N N"]:
    r"""The diffusion map of scores, reversible whatever they are.

    .. math:: P_{ij} \propto \frac{K_{ij}}{g_i^\alpha g_j^\alpha}, \qquad
              K_{ij} = e^{-\beta D_{ij}}, \quad g = K 1

    Parameters
    ----------
    scores
        W, square; masked on both sides of a pair or on none.
    beta
        β > 0; attention that is its forward expert has the same β.
    alpha
        α in [0, 1]: 0 is the product of the experts, 1 takes the density of tokens out.

    Raises
    ------
    InvalidInputError
        As for `Bidivergence`; for β not positive, α outside [0, 1].

    Notes
    -----
    D may be negative (`Bidivergence.signature`): then K is no kernel of a distance, and P has
    negative eigenvalues.

    Examples
    --------
    >>> diffusion_kernel([[1.0, 0.0], [0.0, 1.0]], 0.5)
    tensor([[0.7311, 0.2689],
            [0.2689, 0.7311]], dtype=torch.float64)
    """
    W = as_scores(scores)
    share = as_share(alpha, "alpha")
    log_K = -as_strength(beta, W) * Bidivergence(scores=W).symmetric
    log_g = torch.logsumexp(log_K, -1)
    return torch.softmax(log_K - share * log_g[..., None, :], -1)  # g_i leaves with the row


def product_of_experts(*kernels: Tensor | ArrayLike) -> Float[Tensor, "*batch N M"]:
    """Where all of several kernels would go: their entrywise product, each row divided by its sum.

    Parameters
    ----------
    *kernels
        One or more, of one shape up to leading axes.

    Raises
    ------
    InvalidInputError
        For shapes that differ, and for a row where the kernels have nothing in common.

    Examples
    --------
    >>> product_of_experts([[0.5, 0.5], [0.9, 0.1]], [[0.8, 0.2], [0.5, 0.5]])
    tensor([[0.8000, 0.2000],
            [0.9000, 0.1000]], dtype=torch.float64)
    """
    if not kernels:
        raise InvalidInputError("product_of_experts needs at least one kernel; got none.")
    experts = [as_rows(kernel, "kernel") for kernel in kernels]
    shapes = [tuple(P.shape) for P in experts]
    try:
        np.broadcast_shapes(*(shape[:-2] for shape in shapes))
        fits = len({shape[-2:] for shape in shapes}) == 1
    except ValueError:
        fits = False
    if not fits:
        raise InvalidInputError(
            f"kernels must have equal shapes up to leading axes; found {shapes}. Multiply kernels "
            "over the same tokens."
        )
    logs = sum((log_mass(P) for P in experts[1:]), log_mass(experts[0]))
    empty = logs.isneginf().all(-1)
    if bool(empty.any()):
        raise InvalidInputError(
            f"the kernels have nothing in common at row {tuple(empty.nonzero()[0].tolist())}: each "
            "token there is ruled out by one of them. Damp one kernel first."
        )
    return torch.softmax(logs, -1)


def doob_transform(
    kernel: Tensor | ArrayLike, h: Tensor | ArrayLike
) -> Float[Tensor, "*batch N M"]:
    r"""A kernel drawn to where h is large.

    .. math:: P^h_{ij} = \frac{P_{ij} h_j}{\sum_k P_{ik} h_k}

    Parameters
    ----------
    kernel
        P, square or not.
    h
        Weights of the columns, not negative; their scale is of no matter.

    Raises
    ------
    InvalidInputError
        For an h that is negative, not finite or of another length, and for a row that sees h = 0
        only.

    Examples
    --------
    >>> doob_transform([[0.5, 0.5], [0.2, 0.8]], [1.0, 4.0])
    tensor([[0.2000, 0.8000],
            [0.0588, 0.9412]], dtype=torch.float64)
    """
    P = as_rows(kernel, "kernel")
    weights = as_reals(h, "h", P.device)
    if weights.ndim == 0 or weights.shape[-1] != P.shape[-1]:
        raise InvalidInputError(
            f"h must give one number for each of {P.shape[-1]} tokens on its last axis; found "
            f"shape {tuple(weights.shape)}."
        )
    refuse(~weights.isfinite(), weights, "h must be finite", "Divide h by its maximum.")
    refuse(weights < 0, weights, "h must not be negative", "A tilt is a positive weight.")
    try:
        np.broadcast_shapes(P.shape[:-2], weights.shape[:-1])
    except ValueError as error:
        raise InvalidInputError(
            "kernel and h must have leading shapes that broadcast; found "
            f"{tuple(P.shape[:-2])} and {tuple(weights.shape[:-1])}. Align the leading axes."
        ) from error
    bent = tilted(P, log_mass(weights))
    lost = bent.isnan().any(-1)
    if bool(lost.any()):
        raise InvalidInputError(
            f"row {tuple(lost.nonzero()[0].tolist())} sees only tokens where h is zero: it has "
            "nowhere to go. Leave the token out, or give h some mass there."
        )
    return bent


def time_reversal(
    kernel: Tensor | ArrayLike,
    law: Tensor | ArrayLike | None,
    *,
    tolerance: float = 1e-6,
) -> Float[Tensor, "*batch N N"]:
    r"""The chain seen backwards at its stationary law.

    .. math:: P^*_{ij} = \frac{\pi_j P_{ji}}{\pi_i}

    Parameters
    ----------
    kernel
        P, square.
    law
        π with πP = π and no zero; None is the uniform law, which is that of bistochastic kernels.
    tolerance
        Largest total variation of πP from π.

    Raises
    ------
    InvalidInputError
        For a law that is not stationary, or that gives some token no mass, as that of a causal
        chain does.

    Notes
    -----
    The division is by (πP)_i, which is π_i up to the tolerance, so that rows sum to one. A chain
    is reversible exactly when it is its own reversal.

    Examples
    --------
    >>> time_reversal([[0.0, 0.9, 0.1], [0.1, 0.0, 0.9], [0.9, 0.1, 0.0]], None)[0]
    tensor([0.0000, 0.1000, 0.9000], dtype=torch.float64)
    """
    P = as_kernel(kernel)
    pi = as_law(law, P)
    P = P.to(torch.promote_types(P.dtype, pi.dtype))
    pi = pi.to(P.dtype)
    refuse(pi <= 0, pi, "law gives no mass to token", "Reverse a damped kernel, or leave it out.")
    moved = (pi[..., None, :] @ P)[..., 0, :]
    off = (moved - pi).abs().sum(-1) / 2
    refuse(
        ~(off <= tolerance),
        off,
        f"law must be stationary within a total variation of {tolerance:.3g}",
        "Pass the stationary law of this kernel.",
    )
    return (pi[..., :, None] * P).mT / moved[..., :, None]


def damped_kernel(kernel: Tensor | ArrayLike, damping: float) -> Float[Tensor, "*batch N N"]:
    r"""A chain that starts anew at any token with probability δ: :math:`(1-\delta)P + \delta/N`.

    Parameters
    ----------
    kernel
        P, square.
    damping
        δ in [0, 1]. Every δ > 0 leaves one stationary law, positive everywhere.

    Examples
    --------
    >>> damped_kernel([[1.0, 0.0], [0.5, 0.5]], 0.2)
    tensor([[0.9000, 0.1000],
            [0.5000, 0.5000]], dtype=torch.float64)
    """
    P = as_kernel(kernel)
    share = as_share(damping, "damping")
    return (1 - share) * P + share / P.shape[-1]


def sinkhorn_kernel(
    scores: Tensor | ArrayLike, beta: Tensor | float = 1.0, *, iterations: int
) -> Float[Tensor, "*batch N N"]:
    r"""The bistochastic kernel of scores, or a fixed number of steps towards it.

    Rows are normalised first, then columns and rows in turn, ``iterations`` times: the last step is
    a row step. Rows sum to one always, columns in the limit.

    Parameters
    ----------
    scores
        W, square; masked on both sides of a pair or on none.
    beta
        β > 0.
    iterations
        Column and row steps k, 2k + 1 normalisations in all; 0 is attention.

    Raises
    ------
    InvalidInputError
        As for `Bidivergence`; for a mask under which no bistochastic kernel exists.

    Notes
    -----
    A constant is absorbed by the first normalisation over its own axis, and by no other before the
    limit. :math:`-\beta d^\rightarrow` differs from :math:`\beta W` by row constants, and rows come
    first: both give the same kernel at *every* count. :math:`-\beta d^\leftarrow` differs from
    :math:`\beta W^\top` by column constants: normalised with columns first, it gives the transpose
    of this kernel at every count; with rows first, as here, in the limit only. Source 002 calls the
    two unrelated (errata E53).

    Examples
    --------
    >>> sinkhorn_kernel([[2.0, 0.0], [1.0, 0.0]], iterations=50).sum(0)
    tensor([1., 1.], dtype=torch.float64)
    """
    W = as_scores(scores)
    return sinkhorn_attention(as_strength(beta, W) * W, iterations)


def as_rows(kernel: Tensor | ArrayLike, name: str) -> Float[Tensor, "*batch N M"]:
    """Read a kernel between any two families of tokens, in float32 or float64."""
    x = as_reals(kernel, name)
    if x.ndim < 2:
        raise InvalidInputError(
            f"{name} must have a row for each token it starts from, shape (…, N, M); found shape "
            f"{tuple(x.shape)}."
        )
    return as_probabilities(kernel, name)


def tilted(
    kernel: Float[Tensor, "*batch N M"], log_h: Float[Tensor, "*batch M"]
) -> Float[Tensor, "*batch N M"]:
    """P_ij h_j / (Ph)_i from log h; NaN in rows that see h = 0 only. Nothing is checked."""
    return torch.softmax(log_mass(kernel) + log_h[..., None, :], -1)


def _as_one_sided(scores: Tensor | ArrayLike) -> Float[Tensor, "*batch N M"]:
    """Read scores of which rows alone are asked: any mask that leaves each row something."""
    W = as_reals(scores, "scores")
    if W.ndim < 2:
        raise InvalidInputError(
            f"scores must be a matrix, queries by keys; found shape {tuple(W.shape)}."
        )
    if W.shape[-2] < 1 or W.shape[-1] < 2:
        raise InvalidInputError(
            "scores must have a query and at least two keys: with one there is nothing to choose; "
            f"found shape {tuple(W.shape)}."
        )
    refuse(W.isnan(), W, "scores must not be NaN", "Look for the overflow upstream.")
    refuse(W.isposinf(), W, "scores must be below +∞", "Look for the overflow upstream.")
    whole = W.isneginf().all(-1)
    if bool(whole.any()):
        raise InvalidInputError(
            f"scores has a row that is masked whole, at {tuple(whole.nonzero()[0].tolist())}: that "
            "token sees nothing. Leave padding out."
        )
    return W
