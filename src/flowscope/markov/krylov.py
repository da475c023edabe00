r"""Law and second eigenvalue of many chains at once, from one Krylov space each.

For a row vector $v$ the sum of $vP$ is that of $v$, so vectors of sum zero stay among themselves.
On them $I - P$ is invertible when the stationary law $\pi$ is unique, and with the uniform law
$\rho$

$$
\pi = \rho + u, \qquad u\,(I - P) = \rho P - \rho =: r, \qquad \textstyle\sum u = 0,
$$

while $\lambda_2$ is the largest eigenvalue of $P$ there. Both are read from the Krylov space of $r$
(Arnoldi): $u$ by Galerkin projection, $\lambda_2$ as the largest Ritz value. Where $\rho$ is
stationary already ($r = 0$ but for rounding) the space starts from another vector of sum zero.

What is handed out says how far it can be trusted: the residual of the law is measured, not
estimated, and a Ritz value carries the residual of its vector. Chains that mix slowly need a larger
space than is formed; they are for the elimination of `flowscope.markov.stationary`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["LeadingPair", "leading_pair"]

_REORTHOGONALISED = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class LeadingPair:
    """What a Krylov space says of a chain.

    Attributes
    ----------
    law
        π, without negative entries, in the dtype of the kernel.
    modulus
        |λ₂|.
    law_error
        ‖πP − π‖₁ / (1 − |λ₂|): how far the law may be off, in total variation, to first order.
    modulus_error
        Residual of the Ritz vector: backward error of λ₂.
    """

    law: Float[Tensor, "batch n"]
    modulus: Float[Tensor, "batch"]
    law_error: Float[Tensor, "batch"]
    modulus_error: Float[Tensor, "batch"]

    def settled(self, *, law: float, modulus: float) -> Bool[Tensor, "batch"]:
        """Where both are within these errors."""
        return (self.law_error <= law) & (self.modulus_error <= modulus)


def leading_pair(kernel: Float[Tensor, "batch n n"], dimension: int = 24) -> LeadingPair:
    """Stationary law and modulus of the second eigenvalue of each chain.

    Parameters
    ----------
    kernel
        Kernels P, rows summing to one; not checked.
    dimension
        Size of the Krylov space; fewer where there are fewer tokens.

    Notes
    -----
    ``dimension`` products with the kernels, in their dtype.

    Examples
    --------
    >>> found = leading_pair(torch.tensor([[[0.9, 0.1], [0.3, 0.7]]], dtype=torch.float64))
    >>> found.law, found.modulus
    (tensor([[0.7500, 0.2500]], dtype=torch.float64), tensor([0.6000], dtype=torch.float64))
    """
    batch, n = kernel.shape[:2]
    uniform = kernel.new_full((batch, n), 1 / n)
    start = kernel.mean(-2) - 1 / n
    size = start.norm(dim=-1)
    still = size <= 64 * torch.finfo(kernel.dtype).eps * n**0.5 / n
    begun = torch.where(still[:, None], _other(start), start)
    basis, H, last = _arnoldi(kernel, begun, min(dimension, n - 1))
    m = H.shape[-1]
    values, vectors = torch.linalg.eig(H)
    place = values.abs().argmax(-1)
    modulus = values.abs().gather(-1, place[:, None])[:, 0]
    end = vectors[:, m - 1].gather(-1, place[:, None])[:, 0].abs()
    first = torch.zeros(batch, m, 1, dtype=H.dtype, device=H.device)
    first[:, 0, 0] = torch.where(still, 0.0, size.double())
    identity = torch.eye(m, dtype=H.dtype, device=H.device)
    weights, _ = torch.linalg.solve_ex(identity - H, first)
    u = (basis[:, :m].mT @ weights.to(kernel.dtype))[..., 0]
    law = (uniform + torch.nan_to_num(u)).clamp_min(0.0)
    law = law / law.sum(-1, keepdim=True)
    moved = (torch.matmul(law[:, None], kernel)[:, 0] - law).abs().sum(-1).double()
    return LeadingPair(
        law=law,
        modulus=modulus.clamp_max(1.0),
        law_error=moved / (1 - modulus).clamp_min(torch.finfo(torch.float64).eps),
        modulus_error=end * last,
    )


def _other(start: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
    """A vector of sum zero that no symmetry of a kernel is likely to share."""
    n = start.shape[-1]
    wave = torch.arange(1, n + 1, dtype=torch.float64, device=start.device).mul(2.3999632297).sin()
    return (wave - wave.mean()).to(start.dtype).expand_as(start)


def _arnoldi(
    P: Float[Tensor, "batch n n"], start: Float[Tensor, "batch n"], m: int
) -> tuple[Float[Tensor, "batch k n"], Float[Tensor, "batch m m"], Float[Tensor, "batch"]]:
    """Orthonormal basis of the Krylov space, P on it (float64), and what it leaves out."""
    batch, n = start.shape
    unit = torch.finfo(P.dtype).eps
    basis = P.new_zeros(batch, m + 1, n)
    H = torch.zeros(batch, m + 1, m, dtype=torch.float64, device=P.device)
    basis[:, 0] = start / start.norm(dim=-1, keepdim=True)
    for j in range(m):
        w = torch.matmul(basis[:, j : j + 1], P)
        w = w - w.mean(-1, keepdim=True)
        known = basis[:, : j + 1]
        for _ in range(_REORTHOGONALISED):
            h = torch.matmul(w, known.mT)
            w = w - torch.matmul(h, known)
            H[:, : j + 1, j] += h[:, 0].double()
        length = w.norm(dim=-1)[:, 0]
        # A space that is whole at j < m: what follows is zero and changes nothing.
        grown = length > 8 * unit
        H[:, j + 1, j] = torch.where(grown, length, 0.0).double()
        basis[:, j + 1] = torch.where(grown[:, None], w[:, 0] / length.clamp_min(unit)[:, None], 0)
    return basis, H[:, :m].mT.contiguous().mT, H[:, m, m - 1]
