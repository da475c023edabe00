r"""Leading eigenpairs of a Hermitian operator that is known by its products with blocks.

Block Davidson without preconditioner, which spans a block Krylov space: from a basis $V$ with
images $AV$, Ritz pairs $V^*AV\,y = \theta y$, and the basis grows by the residuals

$$
r_k = AVy_k - \theta_k V y_k
$$

of the leading ones, made orthogonal to it; when it is full, it starts again from its best Ritz
vectors. One product serves all vectors of the block. In double precision the early products are
taken in single precision, which costs half, until residuals no longer fall; a few products in
double precision then carry the Ritz vectors to the tolerance, and the residuals that are reported
are of those.

For a Hermitian $A$ each $\theta_k$ lies within $\Vert r_k\Vert$ of an eigenvalue, and within
$\Vert r_k\Vert^2$ over the gap of its own. That none is passed over is certain up to a start
orthogonal to it; the start is random with a fixed seed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from flowscope.errors import ConvergenceError

__all__ = ["Eigenpairs", "leading_eigenpairs"]

_GUARD, _DEPTH, _KEPT = 8, 12, 4  # vectors beyond those wanted; blocks of a full basis, and kept
_LANES = 8  # blocks are multiples of it: other widths are slower
_SINGLE = 3e-6  # what single precision is asked for
_PATIENCE = 4  # products without a better residual, after which it has nothing more to give
_SEED = 20_011

_LOWER = {torch.float64: torch.float32, torch.complex128: torch.complex64}

Vectors = Float[Tensor, "N m"] | Complex[Tensor, "N m"]
Apply = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Eigenpairs:
    """Largest eigenvalues first, with what they cost.

    Attributes
    ----------
    values, vectors
        Eigenvalues in falling order and orthonormal eigenvectors as columns.
    residuals
        $‖Av − λv‖$ of each.
    least
        Lowest Ritz value met: an upper bound of the lowest eigenvalue.
    products
        Products with a block, in single and in double precision.
    """

    values: Float[Tensor, "r"]
    vectors: Vectors
    residuals: Float[Tensor, "r"]
    least: float
    products: tuple[int, int]


class _Basis:
    """An orthonormal basis with its images; vectors are rows in memory, so it fills as it grows."""

    def __init__(self, apply: Apply, start: Tensor, room: int) -> None:
        self._apply = apply
        self._V = start.new_empty(room, start.shape[0])
        self._AV = start.new_empty(room, start.shape[0])
        self._H = start.new_zeros(room, room)
        self.size = self.products = 0
        self.append(start)

    @property
    def room(self) -> int:
        return len(self._V) - self.size

    def append(self, directions: Tensor) -> bool:
        """Add directions, made orthonormal; False when there is nothing new among them."""
        V, W = self._V[: self.size].mT, directions / directions.norm(dim=0)
        for _ in range(2):
            W, R = torch.linalg.qr(W - V @ (V.mH @ W))
        # What the second round still shortens lay in the basis up to rounding.
        W = W[:, R.diagonal().abs() > 0.5][:, : self.room]
        if not W.shape[-1]:
            return False
        old, new = self.size, self.size + W.shape[-1]
        AW = self._apply(W)
        self._V[old:new], self._AV[old:new] = W.mT, AW.mT
        self._H[:new, old:new] = self._V[:new].mT.mH @ AW
        self._H[old:new, :old] = self._H[:old, old:new].mH
        self.size, self.products = new, self.products + 1
        return True

    def ritz(self) -> tuple[Tensor, Tensor]:
        """Ritz values in falling order, and their coefficients."""
        H = self._H[: self.size, : self.size]
        theta, Y = torch.linalg.eigh(0.5 * (H + H.mH))
        return theta.flip(-1), Y.flip(-1)

    def vectors(self, Y: Tensor) -> Tensor:
        vectors: Tensor = self._V[: self.size].mT @ Y
        return vectors

    def residuals(self, theta: Tensor, Y: Tensor) -> Tensor:
        images: Tensor = self._AV[: self.size].mT @ Y
        return images.sub_(self.vectors(Y * theta))

    def restart(self, theta: Tensor, Y: Tensor) -> None:
        """Keep the Ritz vectors Y only."""
        count = Y.shape[-1]
        for store in (self._V, self._AV):
            store[:count] = Y.mT @ store[: self.size]
        self._H[:count, :count] = torch.diag(theta).to(self._H.dtype)
        self.size = count


@dataclass
class _Reached:
    values: Tensor
    vectors: Tensor
    residuals: Tensor
    least: float
    products: int


def leading_eigenpairs(
    apply: Apply,
    size: int,
    count: int,
    *,
    dtype: torch.dtype = torch.float64,
    without: Float[Tensor, "N"] | None = None,
    device: torch.device | None = None,
    tolerance: float = 1e-9,
    limit: int = 300,
) -> Eigenpairs:
    r"""Largest eigenvalues of a Hermitian operator and their eigenvectors.

    Parameters
    ----------
    apply
        The product with a block of columns. For a double-precision ``dtype`` it is called with
        single precision first.
    size, count
        Dimension, and number of eigenpairs wanted.
    dtype
        Real or complex, single or double.
    without
        A known eigenvector of unit length to leave out.
    tolerance
        Largest residual allowed, absolute; the operator should have a norm near one.
    limit
        Products in each precision.

    Raises
    ------
    ConvergenceError
        When a residual stays above the tolerance; ``partial`` holds the pairs reached.

    Examples
    --------
    >>> diagonal = torch.linspace(0, 1, 101, dtype=torch.float64)
    >>> found = leading_eigenpairs(lambda x: diagonal.to(x.dtype)[:, None] * x, 101, 2)
    >>> found.values
    tensor([1.0000, 0.9900], dtype=torch.float64)
    """
    block = min(-(-(count + _GUARD) // _LANES) * _LANES, size)
    seeded = torch.Generator().manual_seed(_SEED)
    start = torch.randn(size, block, generator=seeded, dtype=torch.float64).to(device)
    cheap, single, least = 0, _LOWER.get(dtype), float("inf")

    def image(x: Tensor) -> Tensor:
        return _projected(apply(x), without)

    start = _projected(start, without)
    if single is not None:
        rough = _climbed(image, start.to(single), count, block, (_SINGLE, limit, _PATIENCE))
        start, cheap, least = rough.vectors, rough.products, rough.least
    found = _climbed(image, start.to(dtype), count, block, (tolerance, limit, limit))
    pairs = Eigenpairs(
        values=found.values,
        vectors=found.vectors[:, :count],
        residuals=found.residuals,
        least=min(least, found.least),
        products=(cheap, found.products) if single is not None else (found.products, 0),
    )
    worst = float(found.residuals.max())
    if not worst <= tolerance:
        short = int((found.residuals > tolerance).sum())
        raise ConvergenceError(
            f"{short} of {count} eigenpairs have residuals above {tolerance:.1e} after "
            f"{sum(pairs.products)} products, the largest {worst:.1e}. Ask for another number of "
            "coordinates (a cluster of eigenvalues may be cut), loosen the tolerance, or take the "
            "dense route.",
            pairs,
        )
    return pairs


def _projected(x: Tensor, without: Tensor | None) -> Tensor:
    if without is None:
        return x
    v = without.to(x)[:, None]
    return x - v @ (v.mH @ x)


def _climbed(
    apply: Apply, start: Tensor, count: int, block: int, stop: tuple[float, int, int]
) -> _Reached:
    """Ritz pairs once they are within tolerance, or no longer get better, or the limit is met."""
    tolerance, limit, patience = stop
    basis = _Basis(apply, start, min(_DEPTH * block, start.shape[0]))
    best, waited, least, grown = float("inf"), 0, float("inf"), True
    while True:
        theta, Y = basis.ritz()
        least = min(least, float(theta[-1]))
        leading = Y[:, :block]
        R = basis.residuals(theta[:block], leading)
        lengths = R.norm(dim=0)
        worst = float(lengths[:count].max())
        waited = 0 if worst < 0.8 * best else waited + 1
        best = min(best, worst)
        done = worst <= tolerance or basis.products >= limit or waited >= patience
        if done or not grown:
            kept = basis.vectors(Y[:, : _KEPT * block])
            return _Reached(theta[:count], kept, lengths[:count], least, basis.products)
        if basis.room < block and basis.size > _KEPT * block:
            basis.restart(theta[: _KEPT * block], Y[:, : _KEPT * block])
        # Guards keep the space a Krylov space; once pairs are done their residuals are noise.
        grown = basis.append(R[:, lengths > 0.1 * tolerance])
