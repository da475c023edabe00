r"""Points in space: a cost that is recomputed where it is needed.

.. math:: C_{ij} = \tfrac1p\,|x_i - y_j|^p

No n × m matrix is ever held. The exponent of the kernel is one product of the points with two
columns appended, so that a tile costs a matrix product, an exponential and a sum. In float32 the
product :math:`\langle x, y\rangle/\varepsilon` is rounded at :math:`|x|^2/\varepsilon` times 6e-8;
clouds are centred first, and where that is more than the accuracy asked for, pass float64.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_reals, refuse
from flowscope.transport.geometry import Geometry, log_sum

__all__ = ["PointCloud"]

_TILE = 2**20  # numbers of a tile: a few megabytes stay in cache,
_ACCELERATOR_TILE = 2**26  # and an accelerator wants few large ones
_SAMPLE = 512  # points a side that the median is read from


class PointCloud(Geometry):
    r"""Costs |x − y|^p / p between two batches of points, recomputed tile by tile.

    Parameters
    ----------
    x, y
        Points :math:`x_i` and :math:`y_j`; leading axes are a batch. y defaults to x.
    exponent
        p, at least 1: 2 gives ½|x−y|², 1 gives the distance itself.

    Raises
    ------
    InvalidInputError
        If shapes disagree, points are not finite, or the exponent is below one.

    Notes
    -----
    The median is exact up to 512 points a side, and beyond that the median over 512 points of each
    side at even spacing in the order given.

    Examples
    --------
    >>> PointCloud([[0.0], [2.0]], [[0.0], [1.0]]).dense()
    tensor([[0.0000, 0.5000],
            [2.0000, 0.5000]], dtype=torch.float64)
    """

    tiled = True

    def __init__(
        self, x: Tensor | ArrayLike, y: Tensor | ArrayLike | None = None, *, exponent: float = 2.0
    ) -> None:
        X = as_reals(x, "x")
        Y = X if y is None else as_reals(y, "y", X.device)
        if (
            X.ndim < 2
            or Y.ndim < 2
            or X.shape[-1] != Y.shape[-1]
            or 0 in (*X.shape[-2:], *Y.shape[-2:])
        ):
            raise InvalidInputError(
                "x and y must be points (…, n, d) and (…, m, d) of one dimension, none empty; "
                f"found shapes {tuple(X.shape)} and {tuple(Y.shape)}. Numbers on a line are (n, 1)."
            )
        if not exponent >= 1:
            raise InvalidInputError(
                f"exponent must be at least 1; found {exponent}. A power below one is no metric "
                "cost: pass a CostMatrix if you mean it."
            )
        for name, points in (("x", X), ("y", Y)):
            refuse(~points.isfinite(), points, f"{name} must be finite", "Drop such points first.")
        dtype = torch.promote_types(X.dtype, Y.dtype)
        try:
            batch = np.broadcast_shapes(X.shape[:-2], Y.shape[:-2])
        except ValueError as error:
            raise InvalidInputError(
                "x and y must have leading axes that broadcast; found "
                f"{tuple(X.shape[:-2])} and {tuple(Y.shape[:-2])}. Align them."
            ) from error
        self._set(
            X.to(dtype).expand(*batch, *X.shape[-2:]),
            Y.to(dtype).expand(*batch, *Y.shape[-2:]),
            exponent,
        )
        refuse(
            ~self.largest().isfinite(),
            self.largest(),
            f"costs between the points must be finite in {dtype}",
            "Pass float64, or points in smaller units.",
        )

    def _set(self, x: Tensor, y: Tensor, exponent: float) -> None:
        self.x, self.y, self.exponent = x, y, exponent
        self.batch, self.n, self.m = tuple(x.shape[:-2]), x.shape[-2], y.shape[-2]
        self.dtype, self.device = x.dtype, x.device

    @classmethod
    def _of(cls, x: Tensor, y: Tensor, exponent: float) -> "PointCloud":
        new = cls.__new__(cls)
        new._set(x, y, exponent)
        return new

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient with respect to the points is asked for."""
        return self.x.requires_grad or self.y.requires_grad

    def flat(self) -> "PointCloud":
        """The same costs with one batch axis and no gradient."""
        x, y = (z.detach().reshape(-1, *z.shape[-2:]) for z in (self.x, self.y))
        return self._of(x, y, self.exponent)

    def take(self, problems: Tensor | slice) -> "PointCloud":
        """Some problems of a flat batch."""
        return self._of(self.x[problems], self.y[problems], self.exponent)

    def to(self, dtype: torch.dtype) -> "PointCloud":
        """The same points in another dtype."""
        return self._of(self.x.to(dtype), self.y.to(dtype), self.exponent)

    def expand(self, batch: tuple[int, ...]) -> "PointCloud":
        """The same points for a larger batch, without copies."""
        x, y = (z.expand(*batch, *z.shape[-2:]) for z in (self.x, self.y))
        return self._of(x, y, self.exponent)

    def transposed(self) -> "PointCloud":
        """The same costs with rows and columns exchanged."""
        return self._of(self.y, self.x, self.exponent)

    def _tile(self) -> int:
        return _TILE if self.device.type == "cpu" else _ACCELERATOR_TILE

    def _cost(self, x: Tensor, y: Tensor) -> Tensor:
        distance = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
        return distance.pow(self.exponent) / self.exponent

    def dense(self) -> Float[Tensor, "*batch n m"]:
        """The cost as a matrix; this is n × m numbers."""
        return self._cost(self.x, self.y)

    def median(self) -> Float[Tensor, "*batch"]:
        """Median cost of each problem, over at most 512 points a side."""
        x, y = (z.detach()[..., :: -(-z.shape[-2] // _SAMPLE), :] for z in (self.x, self.y))
        return self._of(x, y, self.exponent).dense().flatten(-2).median(-1).values

    def typical(self) -> Float[Tensor, "*batch"]:
        """Median over few points."""
        return self.median()

    def largest(self) -> Float[Tensor, "*batch"]:
        """Bound on the largest cost: the one between the farthest points from a common centre."""
        x, y = self.x.detach(), self.y.detach()
        centre = x.mean(-2, keepdim=True)
        reach = sum((z - centre).norm(dim=-1).amax(-1) for z in (x, y))
        return torch.as_tensor(reach).pow(self.exponent) / self.exponent

    def row_minimum(
        self, psi: Float[Tensor, "B m"], epsilon: Float[Tensor, "B"]
    ) -> Float[Tensor, "B n"]:
        """Least C_ij/ε − ψ_j of each row."""
        tiles = self._tiles(torch.zeros_like(self.x[..., 0]), psi, epsilon)
        least = torch.full_like(self.x[..., 0], torch.inf)
        for rows, _, E in tiles:
            least[:, rows] = torch.minimum(least[:, rows], -E.amax(-1))
        return least

    def kernel(
        self,
        phi: Float[Tensor, "B n"],
        psi: Float[Tensor, "B m"],
        epsilon: Float[Tensor, "B"],
    ) -> "_TiledKernel":
        """Weights exp(φ_i + ψ_j − C_ij/ε) of a flat batch, recomputed at each product."""
        return _TiledKernel(self, phi, psi, epsilon)

    def _tiles(
        self, phi: Tensor, psi: Tensor, epsilon: Tensor
    ) -> Iterator[tuple[slice, slice, Tensor]]:
        """Exponents φ_i + ψ_j − C_ij/ε of a flat batch by tiles; each lives until the next."""
        B, columns = len(psi), min(self.m, 4096 * max(1, self._tile() // _TILE))
        rows = max(1, min(self.n, self._tile() // (B * columns)))
        ends = [
            [slice(at, min(at + step, size)) for at in range(0, size, step)]
            for size, step in ((self.n, rows), (self.m, columns))
        ]
        if self.exponent != 2:
            for i in ends[0]:
                for j in ends[1]:
                    C = self._cost(self.x[:, i], self.y[:, j])
                    yield i, j, phi[:, i, None] + psi[:, None, j] - C / epsilon[:, None, None]
            return
        left, right = _factors(self.x, self.y, phi, psi, epsilon)
        memory = left.new_empty(B * rows * columns)
        for i in ends[0]:
            for j in ends[1]:
                p, q = i.stop - i.start, j.stop - j.start
                tile = memory[: B * p * q].view(B, p, q)
                yield i, j, torch.bmm(left[:, i], right[:, :, j], out=tile)

    def _by_rows(self, function: Callable[..., Tensor], *of_rows: Tensor, gradient: bool) -> Tensor:
        """Concatenate a function of blocks of rows; in backward each block is computed anew."""
        B = max(1, self.x[..., 0, 0].numel())
        size = max(1, self._tile() // (B * self.m))
        axis = len(self.batch)
        splits = [torch.split(tensor, size, axis) for tensor in (self.x, *of_rows)]
        blocks = list(zip(*splits, strict=True))
        if gradient:
            parts = [checkpoint(function, *block, use_reentrant=False) for block in blocks]
            return torch.cat(parts, axis)
        # one result, allocated first: small pieces kept between large temporaries make holes that
        # no later temporary fits into
        first = function(*blocks[0])
        out = first.new_empty(*first.shape[:axis], self.n, *first.shape[axis + 1 :])
        at = 0
        for block in blocks:
            part = first if at == 0 else function(*block)
            out.narrow(axis, at, part.shape[axis]).copy_(part)
            at += part.shape[axis]
        return out

    def soft_rows(
        self, psi: Float[Tensor, "*batch m"], epsilon: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch n"]:
        """Logarithm of Σ_j exp(ψ_j − C_ij/ε)."""

        def block(x: Tensor) -> Tensor:
            E = psi[..., None, :] - self._cost(x, self.y) / epsilon[..., None, None]
            return log_sum(E)

        return self._by_rows(block, gradient=_any_gradient(self.x, self.y, psi))

    def product(
        self,
        phi: Float[Tensor, "*batch n"],
        psi: Float[Tensor, "*batch m"],
        epsilon: Float[Tensor, "*batch"],
        v: Float[Tensor, "*batch m k"],
    ) -> Float[Tensor, "*batch n k"]:
        """Σ_j exp(φ_i + ψ_j − C_ij/ε) v_j."""
        if not _any_gradient(self.x, self.y, phi, psi, v):
            flat = self.flat()
            p, q, w = (z.reshape(len(flat.x), *z.shape[len(self.batch) :]) for z in (phi, psi, v))
            return _product(flat, p, q, epsilon.reshape(-1), w).reshape(*phi.shape, v.shape[-1])

        def block(x: Tensor, p: Tensor) -> Tensor:
            C = self._cost(x, self.y) / epsilon[..., None, None]
            return (p[..., None] + psi[..., None, :] - C).exp() @ v

        return self._by_rows(block, phi, gradient=True)

    def expected(
        self,
        phi: Float[Tensor, "*batch n"],
        psi: Float[Tensor, "*batch m"],
        epsilon: Float[Tensor, "*batch"],
    ) -> Float[Tensor, "*batch n"]:
        """Σ_j C_ij exp(φ_i + ψ_j − C_ij/ε) of each row."""

        def block(x: Tensor, p: Tensor) -> Tensor:
            C = self._cost(x, self.y)
            E = p[..., None] + psi[..., None, :] - C / epsilon[..., None, None]
            return (C * E.exp()).sum(-1)

        return self._by_rows(block, phi, gradient=_any_gradient(self.x, self.y, phi, psi))


def _factors(
    x: Tensor, y: Tensor, phi: Tensor, psi: Tensor, epsilon: Tensor
) -> tuple[Tensor, Tensor]:
    """Two matrices whose product is φ_i + ψ_j − |x_i − y_j|²/2ε."""
    centre = x.mean(-2, keepdim=True)
    x, y, e = x - centre, y - centre, epsilon[:, None, None]
    one = x.new_ones(())
    left = torch.cat(
        [
            x / e,
            phi[..., None] - x.square().sum(-1, keepdim=True) / (2 * e),
            one.expand_as(x[..., :1]),
        ],
        -1,
    )
    right = torch.cat(
        [y, one.expand_as(y[..., :1]), psi[..., None] - y.square().sum(-1, keepdim=True) / (2 * e)],
        -1,
    )
    return left, right.mT.contiguous()


class _TiledKernel:
    def __init__(self, cloud: PointCloud, phi: Tensor, psi: Tensor, epsilon: Tensor) -> None:
        self._cloud, self._phi, self._psi, self._epsilon = cloud, phi, psi, epsilon

    def rows(self, w: Float[Tensor, "B m"]) -> Float[Tensor, "B n"]:
        """Sums over columns, Σ_j K_ij w_j."""
        return _product(self._cloud, self._phi, self._psi, self._epsilon, w[..., None])[..., 0]

    def columns(self, w: Float[Tensor, "B n"]) -> Float[Tensor, "B m"]:
        """Sums over rows, Σ_i K_ij w_i."""
        cloud = self._cloud.transposed()
        return _product(cloud, self._psi, self._phi, self._epsilon, w[..., None])[..., 0]


def _product(
    cloud: PointCloud, phi: Tensor, psi: Tensor, epsilon: Tensor, w: Float[Tensor, "B m k"]
) -> Float[Tensor, "B n k"]:
    total = phi.new_zeros(*phi.shape, w.shape[-1])
    for rows, columns, E in cloud._tiles(phi, psi, epsilon):
        total[:, rows] += torch.bmm(E.exp_(), w[:, columns])
    return total


def _any_gradient(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
