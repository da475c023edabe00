r"""What this package is given, checked once: score matrices, kernels, laws, their parameters.

*Scores* $W$ are raw query–key products (`AttentionCall.scores`), square with the diagonal that the
bidivergence needs, batched over leading axes (heads). An entry $-\infty$ says that there is no such
pair; it must be missing on both sides, since every symmetric object of this package needs $W_{ij}$
and $W_{ji}$ together. A causal mask hides one side of *every* pair and is refused here: read the
scores unmasked.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_probabilities, as_reals, refuse

__all__ = ["as_kernel", "as_law", "as_scores", "as_share", "as_strength"]


def as_scores(scores: Tensor | ArrayLike, name: str = "scores") -> Float[Tensor, "*batch N N"]:
    """Read square scores of at least two tokens, in float32 or float64.

    Raises
    ------
    InvalidInputError
        For scores that are not square, NaN or +∞, one token, a diagonal that is masked, a row that
        is masked whole, or a pair that is masked on one side.
    """
    W = as_reals(scores, name)
    _refuse_shape(W, name, "a diagonal W_ii is needed, and cross-attention has none")
    refuse(W.isnan(), W, f"{name} must not be NaN", "Look for the overflow upstream.")
    refuse(W.isposinf(), W, f"{name} must be below +∞", "Look for the overflow upstream.")
    masked = W.isneginf()
    largest = torch.finfo(W.dtype).max / 8
    refuse(
        (W.abs() > largest) & ~masked,
        W,
        f"{name} must lie within ±{largest:.2g}, so that sums of four stay in {W.dtype}",
        "Divide them by a constant, or pass float64.",
    )
    if not bool(masked.any()):
        return W
    whole = masked.all(-1)
    if bool(whole.any()):
        raise InvalidInputError(
            f"{name} has a row that is masked whole, at {tuple(whole.nonzero()[0].tolist())}: that "
            "token sees nothing. Leave padding out."
        )
    diagonal = masked.diagonal(dim1=-2, dim2=-1)
    if bool(diagonal.any()):
        raise InvalidInputError(
            f"{name} must have its diagonal: W_ii stands in every divergence. It is masked at "
            f"{tuple(diagonal.nonzero()[0].tolist())}; pass scores before the mask."
        )
    if bool((masked != masked.mT).any()):
        raise InvalidInputError(
            f"{name} hides one side of some pairs (a causal mask does so for all): symmetric and "
            "magnetic objects need W_ij and W_ji together. Pass scores without the mask."
        )
    return W


def as_kernel(kernel: Tensor | ArrayLike, name: str = "kernel") -> Float[Tensor, "*batch N N"]:
    """Read a square matrix whose rows are probability vectors, in float32 or float64."""
    P = as_reals(kernel, name)
    _refuse_shape(P, name, "a chain walks on the tokens it started from")
    return as_probabilities(kernel, name)


def as_law(
    law: Tensor | ArrayLike | None, kernel: Float[Tensor, "*batch N N"], name: str = "law"
) -> Float[Tensor, "*batch N"]:
    """Read a probability vector over the tokens of a kernel, in its own dtype; None is uniform."""
    tokens = kernel.shape[-1]
    if law is None:
        return kernel.new_full((*kernel.shape[:-2], tokens), 1 / tokens)
    rho = as_probabilities(law, name)
    if rho.shape[-1] != tokens:
        raise InvalidInputError(
            f"{name} must give one probability to each of {tokens} tokens; found shape "
            f"{tuple(rho.shape)}. Pass the law of this kernel."
        )
    try:
        return rho.to(kernel.device).expand(*kernel.shape[:-2], tokens)
    except RuntimeError as error:
        raise InvalidInputError(
            f"{name} must be one law, or one for each kernel of the batch "
            f"{tuple(kernel.shape[:-2])}; found shape {tuple(rho.shape)}."
        ) from error


def as_strength(
    beta: Tensor | float, like: Float[Tensor, "*batch N N"], name: str = "beta"
) -> Float[Tensor, "*batch 1 1"]:
    """Read one positive finite number, or one for each matrix of the batch."""
    b = torch.as_tensor(beta, dtype=like.dtype, device=like.device)
    bad = ~(b.isfinite() & (b > 0))
    refuse(bad, b, f"{name} must be positive and finite", "Attention has 1/√d; a limit is no β.")
    if b.ndim and b.shape != like.shape[:-2]:
        raise InvalidInputError(
            f"{name} must be one number or one for each matrix of the batch "
            f"{tuple(like.shape[:-2])}; found shape {tuple(b.shape)}."
        )
    return b[..., None, None]


def as_share(value: float, name: str, *, below_one: bool = False) -> float:
    """Read a number in [0, 1], or in [0, 1)."""
    found = float(value)
    inside = 0 <= found < 1 if below_one else 0 <= found <= 1
    if not (math.isfinite(found) and inside):
        raise InvalidInputError(
            f"{name} must lie in [0, 1{')' if below_one else ']'}; got {value!r}."
        )
    return found


def _refuse_shape(x: Tensor, name: str, why: str) -> None:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise InvalidInputError(
            f"{name} must be square, tokens by tokens: {why}; found shape {tuple(x.shape)}."
        )
    if x.shape[-1] < 2:
        raise InvalidInputError(
            f"{name} must have at least two tokens: a chain on one goes nowhere; found shape "
            f"{tuple(x.shape)}."
        )
