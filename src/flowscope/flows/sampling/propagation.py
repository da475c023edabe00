r"""One step of a linear stochastic equation, exactly.

For dX = (A X + f) dt + σ dW with A, f and a = σσᵀ frozen over a step h,

.. math:: X_{t+h} = E X_t + \Phi f + \xi, \quad E = e^{Ah}, \quad
          \Phi = \int_0^h e^{As} ds, \quad
          \xi \sim N(0, Q),\; Q = \int_0^h e^{As} a\, e^{A^\top s} ds .
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Propagation", "diagonal_propagation", "matrix_propagation"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Propagation:
    """E, Φ and Q of one step: all diagonals (or numbers), or all matrices."""

    transition: Tensor
    integral: Tensor
    covariance: Tensor


def diagonal_propagation(
    linear: Float[Tensor, "*d"], diffusion: Float[Tensor, "*d"], step: float
) -> Propagation:
    """E, Φ and Q entry by entry: e^{ah}, (e^{ah} − 1)/a and a·(e^{2ah} − 1)/2a."""
    return Propagation(
        transition=(linear * step).exp(),
        integral=_grown(linear, step),
        covariance=diffusion * _grown(2 * linear, step),
    )


def _grown(rate: Tensor, step: float) -> Tensor:
    """∫₀ʰ e^{rs} ds, without cancellation for small r."""
    still = rate == 0
    return torch.where(still, step, (rate * step).expm1() / rate.where(~still, 1.0))


def matrix_propagation(
    linear: Float[Tensor, "d d"], diffusion: Float[Tensor, "d d"], step: float
) -> Propagation:
    """E, Φ and Q of matrices, by Van Loan's block exponential over a short step and doubling.

    Over the whole step the block e^{−Ah} of a stiff A overflows. Over h/2ⁿ with ‖A‖h/2ⁿ ≤ ½ it
    does not, and Q(2h) = Q + E Q Eᵀ, Φ(2h) = Φ + E Φ, E(2h) = E² add what is not negative. In
    float64; O(n d³). Van Loan, IEEE Trans. Autom. Control 23 (1978), pp. 395–404.
    """
    A, a = linear.double(), diffusion.double()
    size = float(torch.linalg.matrix_norm(A, ord=1)) * step
    doublings = max(0, math.ceil(math.log2(2 * size))) if size > 0 else 0
    E, Phi, Q = _short(A, a, step / 2**doublings)
    for _ in range(doublings):
        E, Phi, Q = E @ E, Phi + E @ Phi, Q + E @ Q @ E.mT
    return Propagation(
        transition=E.to(linear), integral=Phi.to(linear), covariance=(0.5 * (Q + Q.mT)).to(linear)
    )


def _short(A: Tensor, a: Tensor, h: float) -> tuple[Tensor, Tensor, Tensor]:
    d = len(A)
    zero, one = torch.zeros_like(A), torch.eye(d, dtype=A.dtype, device=A.device)
    noise = torch.linalg.matrix_exp(
        h * torch.cat([torch.cat([-A, a], 1), torch.cat([zero, A.mT], 1)])
    )
    drift = torch.linalg.matrix_exp(
        h * torch.cat([torch.cat([A, one], 1), torch.cat([zero, zero], 1)])
    )
    E = noise[d:, d:].mT
    return E, drift[:d, d:], E @ noise[:d, d:]
