r"""What pairs cost, apart from how a coupling is found.

A geometry answers four questions about a cost :math:`C` between n and m points, for a batch of
problems at once: its size and median, minima of :math:`C/\varepsilon` minus a potential, and the
kernel

.. math:: K_{ij} = \exp(\varphi_i + \psi_j - C_{ij}/\varepsilon)

around given log-scalings. A :class:`CostMatrix` stores C; a :class:`PointCloud` walks tiles of it
and never holds n × m numbers. An entry +∞ is a mask: the pair carries no mass.
"""

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_reals, refuse

__all__ = ["CostMatrix", "Geometry", "Kernel", "as_geometry", "log_sum"]


class Kernel(Protocol):
    """A matrix of positive weights known by its products."""

    def rows(self, w: Float[Tensor, "B m"]) -> Float[Tensor, "B n"]:
        """Sums over columns, Σ_j K_ij w_j."""

    def columns(self, w: Float[Tensor, "B n"]) -> Float[Tensor, "B m"]:
        """Sums over rows, Σ_i K_ij w_i."""


class Geometry(ABC):
    """A batch of costs between n and m points."""

    tiled = False  # whether products recompute the costs
    batch: tuple[int, ...]
    n: int
    m: int
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def flat(self) -> "Geometry":
        """The same costs with one batch axis and no gradient."""

    @abstractmethod
    def take(self, problems: Tensor | slice) -> "Geometry":
        """Some problems of a flat batch."""

    @abstractmethod
    def to(self, dtype: torch.dtype) -> "Geometry":
        """The same costs in another dtype."""

    @abstractmethod
    def expand(self, batch: tuple[int, ...]) -> "Geometry":
        """The same costs for a larger batch, without copies."""

    @abstractmethod
    def median(self) -> Float[Tensor, "*batch"]:
        """Median of the finite costs of each problem."""

    @abstractmethod
    def typical(self) -> Float[Tensor, "*batch"]:
        """A cheap guess at the size of a cost, for schedules only."""

    @abstractmethod
    def largest(self) -> Float[Tensor, "*batch"]:
        """Largest finite cost of each problem, or a bound on it."""

    @abstractmethod
    def row_minimum(
        self, psi: Float[Tensor, "B m"], epsilon: Float[Tensor, "B"]
    ) -> Float[Tensor, "B n"]:
        """Least C_ij/ε − ψ_j of each row; +∞ where a row is masked everywhere."""

    def column_minimum(
        self, phi: Float[Tensor, "B n"], epsilon: Float[Tensor, "B"]
    ) -> Float[Tensor, "B m"]:
        """Least C_ij/ε − φ_i of each column."""
        return self.transposed().row_minimum(phi, epsilon)

    @abstractmethod
    def kernel(
        self,
        phi: Float[Tensor, "B n"],
        psi: Float[Tensor, "B m"],
        epsilon: Float[Tensor, "B"],
    ) -> Kernel:
        """Weights exp(φ_i + ψ_j − C_ij/ε) of a flat batch."""

    @abstractmethod
    def soft_rows(
        self, psi: Float[Tensor, "*batch m"], epsilon: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch n"]:
        """Logarithm of Σ_j exp(ψ_j − C_ij/ε), differentiable; −∞ where there is nothing."""

    @abstractmethod
    def product(
        self,
        phi: Float[Tensor, "*batch n"],
        psi: Float[Tensor, "*batch m"],
        epsilon: Float[Tensor, "*batch"],
        v: Float[Tensor, "*batch m k"],
    ) -> Float[Tensor, "*batch n k"]:
        """Σ_j exp(φ_i + ψ_j − C_ij/ε) v_j, differentiable."""

    @abstractmethod
    def expected(
        self,
        phi: Float[Tensor, "*batch n"],
        psi: Float[Tensor, "*batch m"],
        epsilon: Float[Tensor, "*batch"],
    ) -> Float[Tensor, "*batch n"]:
        """Σ_j C_ij exp(φ_i + ψ_j − C_ij/ε) of each row, differentiable."""

    def masses(
        self,
        phi: Float[Tensor, "*batch n"],
        psi: Float[Tensor, "*batch m"],
        epsilon: Float[Tensor, "*batch"],
    ) -> Float[Tensor, "*batch n m"]:
        """exp(φ_i + ψ_j − C_ij/ε) as a matrix, differentiable."""
        C, rate = self.dense(), (-1 / epsilon)[..., None, None]
        if torch.is_grad_enabled() and any(z.requires_grad for z in (C, phi, psi)):
            return torch.exp(C * rate + phi[..., None] + psi[..., None, :])
        return (C * rate).add_(phi[..., None]).add_(psi[..., None, :]).exp_()

    @abstractmethod
    def dense(self) -> Float[Tensor, "*batch n m"]:
        """The cost as a matrix; this is n × m numbers."""

    @abstractmethod
    def transposed(self) -> "Geometry":
        """The same costs with rows and columns exchanged."""

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient with respect to the costs is asked for."""
        return False

    def mask(self) -> Bool[Tensor, "*batch n m"] | None:
        """Pairs that may carry mass, or None when all may."""
        return None


class CostMatrix(Geometry):
    r"""Costs given as a matrix, one for each problem of a batch.

    Parameters
    ----------
    cost
        :math:`C_{ij} \ge 0`, with +∞ for pairs that may carry no mass.

    Raises
    ------
    InvalidInputError
        If there are fewer than two axes, an empty one, or an entry that is negative or NaN.

    Examples
    --------
    >>> CostMatrix([[0.0, 1.0], [1.0, 0.0]]).median()
    tensor(0., dtype=torch.float64)
    """

    def __init__(self, cost: Tensor | ArrayLike) -> None:
        C = as_reals(cost, "cost")
        if C.ndim < 2 or 0 in C.shape[-2:]:
            raise InvalidInputError(
                f"cost must have a row and a column axis, both not empty; found shape "
                f"{tuple(C.shape)}. Pass (…, n, m), or a PointCloud."
            )
        low, high = torch.aminmax(C.detach()) if C.numel() else (C.new_zeros(()),) * 2
        if not bool(low >= 0):  # also when it is not a number
            refuse(C.isnan(), C, "cost must not be NaN", "Look for the overflow upstream.")
            refuse(
                C < 0,
                C,
                "cost must not be negative",
                "Subtract its minimum first: a constant changes no coupling.",
            )
        self._set(C, bool(high.isinf()))

    def _set(self, C: Tensor, masked: bool) -> None:
        self._masked = masked
        self._scaled: tuple[Tensor, Tensor] | None = None
        self._scratch: Tensor | None = None  # fresh memory costs more than what is written to it
        self.cost, self.batch, self.n, self.m = C, tuple(C.shape[:-2]), C.shape[-2], C.shape[-1]
        self.dtype, self.device = C.dtype, C.device

    def _like(self, C: Tensor) -> "CostMatrix":
        new = CostMatrix.__new__(CostMatrix)
        new._set(C, self._masked)
        return new

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient with respect to the costs is asked for."""
        return self.cost.requires_grad

    def flat(self) -> "CostMatrix":
        """The same costs with one batch axis and no gradient."""
        return self._like(self.cost.detach().reshape(-1, self.n, self.m))

    def take(self, problems: Tensor | slice) -> "CostMatrix":
        """Some problems of a flat batch."""
        return self._like(self.cost[problems])

    def to(self, dtype: torch.dtype) -> "CostMatrix":
        """The same costs in another dtype."""
        return self._like(self.cost.to(dtype))

    def expand(self, batch: tuple[int, ...]) -> "CostMatrix":
        """The same costs for a larger batch, without copies."""
        return self._like(self.cost.expand(*batch, self.n, self.m))

    def transposed(self) -> "CostMatrix":
        """The same costs with rows and columns exchanged."""
        return self._like(self.cost.mT)

    def dense(self) -> Float[Tensor, "*batch n m"]:
        """The cost itself."""
        return self.cost

    def mask(self) -> Bool[Tensor, "*batch n m"] | None:
        """Pairs that may carry mass, or None when all may."""
        return self.cost.detach().isfinite() if self._masked else None

    def median(self) -> Float[Tensor, "*batch"]:
        """Median of the finite costs of each problem."""
        C = self.cost.detach().flatten(-2)
        if self.mask() is None:
            return C.median(-1).values
        return C.masked_fill(C.isinf(), torch.nan).nanmedian(-1).values

    def typical(self) -> Float[Tensor, "*batch"]:
        """Mean of the finite costs of each problem."""
        C = self.cost.detach().flatten(-2)
        if self.mask() is None:
            mean = C.mean(-1)
        else:
            mean = C.masked_fill(C.isinf(), torch.nan).nanmean(-1)
        return torch.where(mean.isfinite(), mean, self.largest())  # the sum overflowed

    def largest(self) -> Float[Tensor, "*batch"]:
        """Largest finite cost of each problem."""
        C = self.cost.detach().flatten(-2)
        return (C if self.mask() is None else C.masked_fill(C.isinf(), 0.0)).amax(-1)

    def row_minimum(
        self, psi: Float[Tensor, "B m"], epsilon: Float[Tensor, "B"]
    ) -> Float[Tensor, "B n"]:
        """Least C_ij/ε − ψ_j of each row."""
        return -self._shifted(psi[:, None, :], epsilon).amax(-1)

    def column_minimum(
        self, phi: Float[Tensor, "B n"], epsilon: Float[Tensor, "B"]
    ) -> Float[Tensor, "B m"]:
        """Least C_ij/ε − φ_i of each column."""
        return -self._shifted(phi[..., None], epsilon).amax(-2)

    def _shifted(self, potential: Tensor, epsilon: Tensor) -> Tensor:
        """−C/ε plus a potential, in memory that the next call uses again."""
        exponents = self._exponents(epsilon)
        if self._scratch is None:
            self._scratch = torch.empty_like(exponents)
        return torch.add(exponents, potential, out=self._scratch)

    def _exponents(self, epsilon: Float[Tensor, "B"]) -> Float[Tensor, "B n m"]:
        """−C/ε of a flat batch, kept while ε stays the same."""
        if self._scaled is None or self._scaled[0] is not epsilon:
            self._scaled = epsilon, self.cost * (-1 / epsilon)[:, None, None]
        return self._scaled[1]

    def kernel(
        self,
        phi: Float[Tensor, "B n"],
        psi: Float[Tensor, "B m"],
        epsilon: Float[Tensor, "B"],
    ) -> "StoredKernel":
        """Weights exp(φ_i + ψ_j − C_ij/ε) of a flat batch."""
        K = self._exponents(epsilon) + phi[..., None]
        return StoredKernel(K.add_(psi[:, None, :]).exp_())

    def _exponent(self, phi: Tensor | None, psi: Tensor, epsilon: Tensor) -> Tensor:
        E = psi[..., None, :] - self.cost / epsilon[..., None, None]
        return E if phi is None else E + phi[..., None]

    def soft_rows(
        self, psi: Float[Tensor, "*batch m"], epsilon: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch n"]:
        """Logarithm of Σ_j exp(ψ_j − C_ij/ε)."""
        return log_sum(self._exponent(None, psi, epsilon))

    def product(
        self,
        phi: Float[Tensor, "*batch n"],
        psi: Float[Tensor, "*batch m"],
        epsilon: Float[Tensor, "*batch"],
        v: Float[Tensor, "*batch m k"],
    ) -> Float[Tensor, "*batch n k"]:
        """Σ_j exp(φ_i + ψ_j − C_ij/ε) v_j."""
        return self._exponent(phi, psi, epsilon).exp() @ v

    def expected(
        self,
        phi: Float[Tensor, "*batch n"],
        psi: Float[Tensor, "*batch m"],
        epsilon: Float[Tensor, "*batch"],
    ) -> Float[Tensor, "*batch n"]:
        """Σ_j C_ij exp(φ_i + ψ_j − C_ij/ε) of each row."""
        C = self.cost
        if (mask := self.mask()) is not None:
            C = C.masked_fill(~mask, 0.0)  # no mass there, and ∞ · 0 is not a number
        return (C * self._exponent(phi, psi, epsilon).exp()).sum(-1)


class StoredKernel:
    """A kernel held twice, so that both products read it along its rows.

    In torch's batched product on a CPU a row vector times a matrix is much faster than the matrix
    times a column.
    """

    def __init__(self, K: Float[Tensor, "B n m"]) -> None:
        self._K, self._KT = K, K.mT.contiguous()

    def rows(self, w: Float[Tensor, "B m"]) -> Float[Tensor, "B n"]:
        """Sums over columns, Σ_j K_ij w_j."""
        return torch.bmm(w[:, None, :], self._KT)[:, 0]

    def columns(self, w: Float[Tensor, "B n"]) -> Float[Tensor, "B m"]:
        """Sums over rows, Σ_i K_ij w_i."""
        return torch.bmm(w[:, None, :], self._K)[:, 0]


def log_sum(x: Float[Tensor, "*batch n m"]) -> Float[Tensor, "*batch n"]:
    """Logarithm of the sum of exponentials of each row; −∞, and no slope, of nothing."""
    empty = x.detach().amax(-1, keepdim=True) == -torch.inf
    if not bool(empty.any()):
        return torch.logsumexp(x, -1)
    # where the whole row is −∞ the slope of logsumexp is not a number
    total = torch.logsumexp(x.masked_fill(empty, 0.0), -1)
    return total.masked_fill(empty[..., 0], -torch.inf)


def as_geometry(cost: Geometry | Tensor | ArrayLike) -> Geometry:
    """Read a cost as a geometry: geometries pass, anything else is a matrix."""
    return cost if isinstance(cost, Geometry) else CostMatrix(cost)
