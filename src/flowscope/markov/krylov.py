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
estimated, and so is that of the Ritz vector $y$, in the norm $\sum_j|y_j|^2/\pi_j$, in which no
kernel lengthens a vector. (In the plain norm a walk that drifts along the text has vectors with
residuals of rounding size and values that are off by a third; so has a space of nearly all
dimensions in any norm, hence ask for at most half of them.) Chains that mix slowly need a larger
space than is formed; they are for the elimination of `flowscope.markov.stationary`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["KrylovSpace", "LeadingPair", "leading_pair"]

_ROUNDING = 1e3  # units of rounding, squared: tokens visited more rarely count as visited so often


@dataclass(frozen=True, kw_only=True, eq=False)
class LeadingPair:
    r"""What a Krylov space says of a chain.

    Attributes
    ----------
    law
        π, without negative entries, in the dtype of the kernel.
    modulus
        |λ₂|.
    law_error
        ‖πP − π‖₁ / (1 − |λ₂|): how far the law may be off, in total variation, to first order.
    modulus_error
        Residual of the Ritz vector in the norm $\sum_j |y_j|^2/\pi_j$: backward error of λ₂ there.
    """

    law: Float[Tensor, "batch n"]
    modulus: Float[Tensor, "batch"]
    law_error: Float[Tensor, "batch"]
    modulus_error: Float[Tensor, "batch"]

    def settled(self, *, law: float, modulus: float) -> Bool[Tensor, "batch"]:
        """Where both are within these errors."""
        return (self.law_error <= law) & (self.modulus_error <= modulus)


@dataclass(frozen=True, kw_only=True, eq=False)
class KrylovSpace:
    """An orthonormal basis of the Krylov space of each chain, and P on it.

    Attributes
    ----------
    kernel
        Kernels P.
    size
        Length of r = ρP − ρ, zero where the space starts from another vector.
    basis
        Rows of the space, and one more where P leads out of it.
    matrix
        P on the space (Hessenberg, float64), with the row that leads out.
    """

    kernel: Float[Tensor, "batch n n"]
    size: Float[Tensor, "batch"]
    basis: Float[Tensor, "batch k n"]
    matrix: Float[Tensor, "batch k m"]

    @classmethod
    def of(cls, kernel: Float[Tensor, "batch n n"]) -> "KrylovSpace":
        """The space of dimension zero: its first vector alone. The kernels are not checked."""
        n = kernel.shape[-1]
        start = kernel.mean(-2) - 1 / n
        size = start.norm(dim=-1)
        still = size <= 64 * torch.finfo(kernel.dtype).eps * n**0.5 / n
        begun = torch.where(still[:, None], _other(start), start)
        return cls(
            kernel=kernel,
            size=torch.where(still, 0.0, size),
            basis=(begun / begun.norm(dim=-1, keepdim=True))[:, None],
            matrix=torch.zeros(len(kernel), 1, 0, dtype=torch.float64, device=kernel.device),
        )

    def some(self, chains: Tensor) -> "KrylovSpace":
        """The spaces of some chains."""
        parts = (x[chains] for x in (self.kernel, self.size, self.basis, self.matrix))
        kernel, size, basis, matrix = parts
        return KrylovSpace(kernel=kernel, size=size, basis=basis, matrix=matrix)

    def grown(self, dimension: int) -> "KrylovSpace":
        """The spaces with that many dimensions, at most n − 1."""
        P, done = self.kernel, self.matrix.shape[-1]
        batch, n = P.shape[:2]
        m = max(min(dimension, n - 1), done)
        unit = torch.finfo(P.dtype).eps
        basis = P.new_zeros(batch, m + 1, n)
        basis[:, : done + 1] = self.basis
        H = torch.zeros(batch, m + 1, m, dtype=torch.float64, device=P.device)
        H[:, : done + 1, :done] = self.matrix
        for j in range(done, m):
            w = torch.matmul(basis[:, j : j + 1], P)
            w = w - w.mean(-1, keepdim=True)
            known = basis[:, : j + 1]
            first = torch.matmul(w, known.mT)
            w = w - torch.matmul(first, known)
            second = torch.matmul(w, known.mT)  # once more: rounding leaves a part behind
            w = (w - torch.matmul(second, known))[:, 0]
            H[:, : j + 1, j] = (first + second)[:, 0]
            length = w.norm(dim=-1, keepdim=True)
            # A space that is whole already: what follows is zero and changes nothing.
            length = torch.where(length > 8 * unit, length, 0.0)
            H[:, j + 1, j] = length[:, 0]
            basis[:, j + 1] = torch.where(length > 0, w / length.clamp_min(unit), 0.0)
        return KrylovSpace(kernel=P, size=self.size, basis=basis, matrix=H)

    def leading(self) -> LeadingPair:
        """What the space says of law and second eigenvalue."""
        m, P = self.matrix.shape[-1], self.kernel
        H = self.matrix[:, :m]
        values, vectors = torch.linalg.eig(H)
        place = values.abs().argmax(-1)[:, None]
        second = values.gather(-1, place)
        ritz = vectors.gather(-1, place[:, None].expand(-1, m, 1)).mT
        modulus = second[:, 0].abs()
        right = torch.zeros(len(H), m, 1, dtype=H.dtype, device=H.device)
        right[:, 0, 0] = self.size
        identity = torch.eye(m, dtype=H.dtype, device=H.device)
        weights, _ = torch.linalg.solve_ex(identity - H, right)
        u = torch.matmul(weights.to(P.dtype).mT, self.basis[:, :m])[:, 0]
        law = (torch.nan_to_num(u) + 1 / P.shape[-1]).clamp_min(0.0)
        law = law / law.sum(-1, keepdim=True)
        moved = (torch.matmul(law[:, None], P)[:, 0] - law).abs().sum(-1).double()
        return LeadingPair(
            law=law,
            modulus=modulus.clamp_max(1.0),
            law_error=moved / (1 - modulus).clamp_min(torch.finfo(torch.float64).eps),
            modulus_error=self._residual(second, ritz, law),
        )

    def _residual(self, second: Tensor, ritz: Tensor, law: Tensor) -> Float[Tensor, "batch"]:
        """‖yP − λy‖ / ‖y‖ of the Ritz vectors y, in the norm Σ|y_j|²/π_j."""
        m, P = self.matrix.shape[-1], self.kernel
        parts = torch.cat([ritz.real, ritz.imag], 1).to(P.dtype)
        y = torch.matmul(parts, self.basis[:, :m])
        step = torch.matmul(y, P)
        a, b = (x.to(P.dtype) for x in (second.real, second.imag))
        left = torch.stack(
            [step[:, 0] - a * y[:, 0] + b * y[:, 1], step[:, 1] - a * y[:, 1] - b * y[:, 0]], 1
        )
        floor = (_ROUNDING * torch.finfo(P.dtype).eps) ** 2
        root = law.clamp_min(floor).sqrt()[:, None]
        size, off = ((x / root).double().square().sum((-2, -1)).sqrt() for x in (y, left))
        return off / size


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
    return KrylovSpace.of(kernel).grown(dimension).leading()


def _other(start: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
    """A vector of sum zero that no symmetry of a kernel is likely to share."""
    n = start.shape[-1]
    wave = torch.arange(1, n + 1, dtype=torch.float64, device=start.device).mul(2.3999632297).sin()
    return (wave - wave.mean()).to(start.dtype).expand_as(start)
