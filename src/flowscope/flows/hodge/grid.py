r"""Rotation on a grid: finite volumes with no flux through the boundary, for three axes at most.

.. math:: \sum_e \sum_{\sigma} m_{e\sigma}\, \langle D_{e\sigma}\psi, a D_{e\sigma}\theta\rangle
          = \sum_e \sum_\sigma m_{e\sigma}\, \langle D_{e\sigma}\psi, \bar v_{e\sigma}\rangle
          \quad \text{for all } \psi .

Densities μ and velocities v = u − b_R sit at nodes. A box e has 2^d corners e + σ; its corner
carries m = μ_{e+σ}·|e|/2^d, and D_{eσ} are the differences along the edges that meet there. The
component of v̄ along an edge is the mean over its two ends: a difference is a slope in the middle of
an edge, and a field taken at its end would turn by O(h) against it (a linear gradient is then read
as h²/4 of rotation; with the mean, as none). On a box grid this is the five-point scheme for a
diagonal a and takes off-diagonal entries as they come; boxes with a corner outside the mask are
left out, which is the no-flux boundary. Second order.

The matrix A has the constants in its kernel. It is solved with γκM added, M the masses of the nodes
and κ = tr a / tr Cov_μ (the scale of the slowest mode, so γ is relative), and the solution is
refined, θ ← θ + (A + γκM)⁻¹(b − Aθ), until γ has no part in it. γ starts at 1e-5 and grows tenfold
until the condition number λ_max(M^{-1/2}AM^{-1/2})/γκ + 1 is at most 1e8.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh

from flowscope.errors import ConvergenceError, InvalidInputError

__all__ = ["Field", "Mesh", "mesh", "projected"]

Array: TypeAlias = NDArray[np.float64]
Field: TypeAlias = Array

_GAMMA, _CONDITION = 1e-5, 1e8
# Pieces of the support with less than this share of the mass are left out; more is not one flow.
_ISLANDS = 0.01
_RESIDUAL = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class Mesh:
    """Matrices of the weighted problem on the nodes that belong to a box.

    Attributes
    ----------
    nodes
        Which cells of the grid are nodes, as flat indices.
    mass
        m of each node; they sum to one.
    stiffness, load
        A, and the matrix that takes a field (nodes by directions, flat) to b.
    metric
        Form ∫⟨v̄, a⁻¹v̄⟩dμ of fields, flat.
    corners
        For each corner σ: the node, its mass, and the matrices along the axes of differences and
        of means.
    a, inverse
        a and a⁻¹.
    dropped
        Share of the mass that is not on the mesh.
    gamma, shift, condition
        γ, γκ and the condition number.
    solver
        Multigrid for A + γκM.
    """

    nodes: NDArray[np.int64]
    mass: Array
    stiffness: Any
    load: Any
    metric: Any
    corners: tuple[tuple[NDArray[np.int64], Array, tuple[Any, ...], tuple[Any, ...]], ...]
    a: Array
    inverse: Array
    dropped: float
    gamma: float
    shift: float
    condition: float
    solver: Any

    def inner(self, v: Field, w: Field) -> float:
        """∫⟨v, a⁻¹w⟩dμ of two fields at the nodes."""
        return float(np.einsum("n,ni,ij,nj->", self.mass, v, self.inverse, w))

    def rotational(self, v: Field, w: Field, eta: Array) -> float:
        """∫⟨v − a∇θ, a⁻¹(w − a∇η)⟩dμ, θ and η the potentials of v and of w."""
        product = v.ravel() @ (self.metric @ w.ravel()) - (self.load @ v.ravel()) @ eta
        return float(product)

    def local(self, v: Field, w: Field, theta: Array, eta: Array) -> Array:
        """⟨v − a∇θ, a⁻¹(w − a∇η)⟩ at each node, the mean over the corners that meet there."""
        found = np.zeros(len(self.mass))
        for node, mass, differences, means in self.corners:
            left, right = (
                np.stack([M @ x[:, k] for k, M in enumerate(means)], 1)
                - np.stack([D @ y for D in differences], 1) @ self.a
                for x, y in ((v, theta), (w, eta))
            )
            np.add.at(found, node, mass * np.einsum("ni,ij,nj->n", left, self.inverse, right))
        return np.asarray(found / self.mass)


def mesh(density: Array, spacing: Array, a: Array, mask: NDArray[np.bool_]) -> Mesh:
    r"""Matrices of the weighted Poisson problem on a grid.

    .. math:: A = \sum_{e\sigma} m_{e\sigma} D_{e\sigma}^\top a D_{e\sigma}

    Parameters
    ----------
    density : μ at the nodes, up to a factor.
    spacing : h along each axis.
    a : diffusion.
    mask : nodes that belong to the support.

    Raises
    ------
    InvalidInputError
        If no box has all its corners in the support, or pieces of it that no box joins carry more
        than 1 % of the mass.

    Notes
    -----
    O(4^d·n) to assemble; pieces with less mass are left out and counted in ``dropped``.

    Examples
    --------
    >>> flat = mesh(np.ones((5, 5)), np.ones(2), np.eye(2), np.ones((5, 5), bool))
    >>> float(abs(flat.stiffness @ np.ones(25)).max()), round(float(flat.mass.sum()), 12)
    (0.0, 1.0)
    """
    kept = _largest_piece(density, mask)
    boxes = _boxes(kept)
    flat = np.arange(density.size).reshape(density.shape)
    lower = flat[tuple(slice(0, -1) for _ in spacing)][boxes]
    step = np.array([np.prod(density.shape[k + 1 :], dtype=np.int64) for k in range(len(spacing))])
    nodes = np.unique(np.concatenate([lower + np.dot(s, step) for s in _corners(len(spacing))]))
    place = np.full(density.size, -1)
    place[nodes] = np.arange(len(nodes))
    weight = density.ravel() / 2.0 ** len(spacing)
    total = sum(float(weight[lower + np.dot(s, step)].sum()) for s in _corners(len(spacing)))
    corners = tuple(
        (
            place[lower + np.dot(s, step)],
            weight[lower + np.dot(s, step)] / total,
            *_along_edges(lower, s, step, spacing, place, len(nodes)),
        )
        for s in _corners(len(spacing))
    )
    everything = float(density[mask].sum())
    return _assembled(
        nodes, corners, a, dropped=1 - float(density.ravel()[nodes].sum()) / everything,
        spread=_spread(nodes, density, spacing),
    )  # fmt: skip


def projected(on: Mesh, field: Field) -> Array:
    r"""Potential of the gradient part of a field at the nodes.

    .. math:: A\theta = b(v), \qquad \textstyle\sum m\theta = 0

    Parameters
    ----------
    on : the mesh.
    field : v at its nodes.

    Raises
    ------
    ConvergenceError
        If the residual stays above 1e-9 of b.

    Notes
    -----
    Conjugate gradients with smoothed aggregation, a few refinements to take γ out.

    Examples
    --------
    >>> flat = mesh(np.ones((5, 5)), np.ones(2), np.eye(2), np.ones((5, 5), bool))
    >>> x = np.stack(np.unravel_index(flat.nodes, (5, 5)), 1).astype(float)
    >>> bool(np.allclose(projected(flat, np.ones_like(x)), x.sum(1) - 4))
    True
    """
    b = on.load @ field.ravel()
    size = np.linalg.norm(b)
    theta: Array = np.zeros(len(on.mass))
    if size == 0:
        return theta
    for _ in range(50):
        left = b - on.stiffness @ theta
        if np.linalg.norm(left) <= _RESIDUAL * size:
            return theta - float(on.mass @ theta)
        theta = theta + on.solver.solve(left, tol=1e-8, accel="cg", maxiter=200)
    raise ConvergenceError(
        f"The grid problem stopped at a residual of {np.linalg.norm(left) / size:.3g} of the load; "
        f"at most {_RESIDUAL:g} was asked for. Use a coarser grid or mask cells of tiny density.",
        theta,
    )


def _assembled(
    nodes: NDArray[np.int64], corners: Any, a: Array, *, dropped: float, spread: float
) -> Mesh:
    n, d = len(nodes), len(a)
    inverse = np.asarray(np.linalg.inv(a), np.float64)
    A, load, mass = sp.csr_matrix((n, n)), sp.csr_matrix((n, n * d)), np.zeros(n)
    metric = sp.csr_matrix((n * d, n * d))
    for node, m, differences, means in corners:
        np.add.at(mass, node, m)
        M = sp.diags(m)
        wide = [sp.kron(mean, _unit(k, d), format="csr") for k, mean in enumerate(means)]
        for k in range(d):
            A = A + differences[k].T @ M @ sum(a[k, j] * differences[j] for j in range(d))
            load = load + differences[k].T @ M @ wide[k]
            metric = metric + wide[k].T @ M @ sum(inverse[k, j] * wide[j] for j in range(d))
    A = sp.csr_matrix(0.5 * (A + A.T))
    half = sp.diags(1 / np.sqrt(mass))
    top = float(eigsh(half @ A @ half, k=1, tol=1e-2, return_eigenvectors=False)[0])
    gamma, scale = _GAMMA, float(np.trace(a)) / spread
    while top / (gamma * scale) + 1 > _CONDITION:
        gamma *= 10
    return Mesh(
        nodes=nodes,
        mass=mass,
        stiffness=A,
        load=load,
        metric=sp.csr_matrix(metric),
        corners=corners,
        a=a,
        inverse=inverse,
        dropped=dropped,
        gamma=gamma,
        shift=gamma * scale,
        condition=top / (gamma * scale) + 1,
        solver=_multigrid(A + gamma * scale * sp.diags(mass)),
    )


def _multigrid(A: sp.spmatrix) -> Any:
    import pyamg  # slow to import, and only grids need it

    return pyamg.smoothed_aggregation_solver(sp.csr_matrix(A))


def _spread(nodes: NDArray[np.int64], density: Array, spacing: Array) -> float:
    """Trace of the covariance of μ on the nodes."""
    x = np.stack(np.unravel_index(nodes, density.shape), 1) * spacing
    p = density.ravel()[nodes] / density.ravel()[nodes].sum()
    return float((p @ (x - p @ x) ** 2).sum())


def _corners(d: int) -> list[tuple[int, ...]]:
    return list(product((0, 1), repeat=d))


def _along_edges(
    lower: NDArray[np.int64], corner: tuple[int, ...], step: NDArray[np.int64], spacing: Array,
    place: NDArray[np.int64], n: int,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:  # fmt: skip
    """Differences and means along the edges that meet in a corner of each box."""
    rows, ones = np.arange(len(lower)), np.ones(len(lower))
    differences, means = [], []
    for k in range(len(step)):
        start = lower + np.dot(corner, step) - corner[k] * step[k]
        ends = [
            sp.csr_matrix((ones, (rows, place[node])), shape=(len(rows), n))
            for node in (start, start + step[k])
        ]
        differences.append((ends[1] - ends[0]) / spacing[k])
        means.append(0.5 * (ends[0] + ends[1]))
    return tuple(differences), tuple(means)


def _unit(k: int, d: int) -> Any:
    return sp.csr_matrix(np.eye(d)[k : k + 1])


def _boxes(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Boxes, by their lowest corner, all of whose corners are in the mask."""
    found = np.ones([s - 1 for s in mask.shape], bool)
    for corner in _corners(mask.ndim):
        found &= mask[tuple(slice(c, s - 1 + c) for c, s in zip(corner, mask.shape, strict=True))]
    return found


def _largest_piece(density: Array, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    support = mask & (density > 0)
    boxes = _boxes(support)
    if not boxes.any():
        raise InvalidInputError(
            f"The support must hold at least one box of 2^{mask.ndim} neighbouring cells; found "
            f"{int(support.sum())} cells of positive density inside the mask and no such box. "
            "Widen the mask, or use coarser cells."
        )
    flat = np.arange(density.size).reshape(density.shape)
    lower = flat[tuple(slice(0, -1) for _ in mask.shape)][boxes]
    step = [int(np.prod(mask.shape[k + 1 :], dtype=np.int64)) for k in range(mask.ndim)]
    links = [lower + np.dot(c, step) for c in _corners(mask.ndim)]
    joined = sp.coo_matrix(
        (np.ones(len(lower) * len(links)), (np.tile(lower, len(links)), np.concatenate(links))),
        shape=(density.size, density.size),
    )
    labels = connected_components(joined, directed=False)[1].reshape(mask.shape)
    used = np.zeros(density.size, bool)
    used[np.concatenate(links)] = True
    inside = used.reshape(mask.shape)
    masses = np.bincount(labels[inside], weights=density[inside])
    largest = int(masses.argmax())
    if masses[largest] < (1 - _ISLANDS) * masses.sum():
        raise InvalidInputError(
            f"The support must be one piece; its largest has {masses[largest] / masses.sum():.1%} "
            f"of the mass, of {int((masses > 0).sum())} pieces that no box joins. Decompose each "
            "on its own mask: a potential on one says nothing about the next."
        )
    return np.asarray(inside & (labels == largest))
