r"""Two generations coupled inside attention, and the gates that the coupling puts on a difference.

Replicas $A$ and $B$ have their own queries, keys and values. Each query reads its own replica and
the other one, each with its own row softmax (004 eqs 18–19):

$$
\mathrm{Attn}_g^A = \frac{1}{1+g}\bigl(A_{AA}V_A + g\,A_{AB}V_B\bigr), \qquad
A_{ij} = \operatorname{softmax}\bigl(\beta\,Q_iK_j^\top\bigr), \qquad g \in [0, 1] .
$$

At $g = 0$ the replicas know nothing of each other. To first order in their difference the mixture
acts through two factors (004 eq 27),

$$
\rho(g) = \frac{1-g}{1+g}, \qquad \xi(g) = \frac{1}{1+g},
$$

$\rho$ on what is read from values and keys; what comes from queries is not suppressed (E81).
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = [
    "coupled_attention",
    "coupling_weights",
    "pattern_factor",
    "routing_factor",
    "row_softmax",
]


def coupling_weights(g: float) -> tuple[float, float]:
    r"""Weights $1/(1+g)$ of a replica's own attention and $g/(1+g)$ of the other's.

    Raises
    ------
    InvalidInputError
        If g is not a number between 0 and 1.

    Examples
    --------
    >>> coupling_weights(0.25)
    (0.8, 0.2)
    """
    strength = _strength(g)
    return 1 / (1 + strength), strength / (1 + strength)


def routing_factor(g: float) -> float:
    r"""Gate $\rho(g) = (1-g)/(1+g)$ of what values and keys carry; from 1 to 0.

    Raises
    ------
    InvalidInputError
        If g is not a number between 0 and 1.

    Examples
    --------
    >>> routing_factor(0.0), routing_factor(1.0)
    (1.0, 0.0)
    """
    strength = _strength(g)
    return (1 - strength) / (1 + strength)


def pattern_factor(g: float) -> float:
    r"""Factor $\xi(g) = 1/(1+g)$ in front of $\delta A^+ + g\,\delta A^-$; from 1 to ½.

    Raises
    ------
    InvalidInputError
        If g is not a number between 0 and 1.

    Examples
    --------
    >>> pattern_factor(1.0)
    0.5
    """
    return coupling_weights(g)[0]


def coupled_attention(
    q: Float[Tensor, "pairs2 *heads N d"],
    k: Float[Tensor, "pairs2 *heads N d"],
    v: Float[Tensor, "pairs2 *heads N dv"],
    g: float,
    *,
    scale: float,
    mask: Float[Tensor, "..."] | Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "pairs2 *heads N dv"]:
    r"""Attention of paired replicas, written out plainly.

    .. math:: \mathrm{Attn}_g^A = \frac{1}{1+g}\bigl(A_{AA}V_A + g\,A_{AB}V_B\bigr)

    Parameters
    ----------
    q, k, v
        Queries, keys and values; along the first axis the first half is A, the second half B, in
        the same order.
    g
        Coupling strength in [0, 1].
    scale
        β, the factor on the raw scores.
    mask
        Boolean (True: may attend) or additive, broadcast against the logits. It goes with the keys:
        where the halves differ, a query that reads the other replica uses the other's mask.

    Raises
    ------
    InvalidInputError
        If g is out of range, the batch is odd, or shapes do not fit.

    Notes
    -----
    Twice the attention of the batch in time, memory for all logits of two blocks. Half precision is
    widened inside. The reference for faster forms. Source 004 eq 19.

    Examples
    --------
    >>> q = k = torch.zeros(2, 1, 1)
    >>> coupled_attention(q, k, torch.tensor([[[1.0]], [[0.0]]]), 0.25, scale=1.0).flatten()
    tensor([0.8000, 0.2000])
    """
    own, other = coupling_weights(g)
    _refuse_misfits(q, k, v, mask)
    wide = torch.promote_types(v.dtype, torch.float32)
    Q, K, V = (x.to(wide) for x in (q, k, v))
    intra = row_softmax(Q, K, scale, mask) @ V
    if other == 0:
        return intra.to(v.dtype)
    # A mask with fewer axes, or one row, is that of every replica.
    theirs = mask
    if mask is not None and mask.ndim == q.ndim and len(mask) > 1:
        theirs = _exchanged(mask)
    inter = row_softmax(Q, _exchanged(K), scale, theirs) @ _exchanged(V)
    return (own * intra + other * inter).to(v.dtype)


def row_softmax(
    q: Float[Tensor, "*batch N d"],
    k: Float[Tensor, "*batch M d"],
    scale: float,
    mask: Float[Tensor, "..."] | Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch N M"]:
    r"""Kernel $\operatorname{softmax}(\beta QK^\top + m)$, rows over keys.

    Parameters
    ----------
    q, k, scale
        Queries, keys and β.
    mask
        Boolean (True: may attend) or additive.

    Examples
    --------
    >>> row_softmax(torch.zeros(1, 2), torch.ones(4, 2), 1.0)
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    logits = scale * (q @ k.mT)
    if mask is not None and mask.dtype == torch.bool:
        logits = logits.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        logits = logits + mask
    return torch.softmax(logits, -1)


def _strength(g: float) -> float:
    if not 0 <= g <= 1:
        raise InvalidInputError(
            f"the coupling strength g must lie between 0 and 1; got {g!r}. Zero leaves the "
            "replicas alone, one lets each read the other as much as itself."
        )
    return float(g)


def _exchanged(x: Tensor) -> Tensor:
    """The rows of the other replica."""
    return x.roll(len(x) // 2, 0)


def _refuse_misfits(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> None:
    if q.ndim < 3 or k.shape != q.shape or v.shape[:-1] != q.shape[:-1]:
        raise InvalidInputError(
            "queries, keys and values of both replicas must have the same heads and tokens, "
            f"[pairs·2, heads, N, d]; got {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}. "
            "Repeat shared key heads, and leave cross-attention alone."
        )
    if len(q) % 2:
        raise InvalidInputError(
            f"the first half of a batch is replica A, the second half B, so it must be even; got "
            f"{len(q)} rows."
        )
    if mask is not None:
        _refuse_mask(mask, (*q.shape[:-1], k.shape[-2]))


def _refuse_mask(mask: Tensor, logits: tuple[int, ...]) -> None:
    pairs = zip(reversed(mask.shape), reversed(logits), strict=False)
    if mask.ndim > len(logits) or any(own not in (1, full) for own, full in pairs):
        raise InvalidInputError(
            f"the mask must broadcast against the logits {logits}; got {tuple(mask.shape)}."
        )
