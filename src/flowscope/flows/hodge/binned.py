r"""Rotation of a sampled velocity on a grid: cell averages of two halves, one mesh.

.. math:: \bar v_h(c) = \frac1{n_h(c)} \sum_{i \in c,\, i \in h} v_i, \qquad
          R = \frac1S\sum_s \Big(\int\langle \bar v_1, a^{-1}\bar v_2\rangle\,d\mu
          - b(\bar v_1)^\top A^{-1} b(\bar v_2)\Big)

μ is the histogram of all points. Averages of a half carry its noise, products of two halves do not.
Cells that a half has no point in are left out, and with them the tails: R is that of the rest, and
``because`` says how much mass that is. An average over a cell is off by O(h²), and so is R.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import diags
from scipy.sparse.linalg import splu
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge.grid import Mesh, mesh
from flowscope.flows.hodge.influence import Resampled
from flowscope.flows.hodge.judgement import chances, judged
from flowscope.flows.hodge.outcome import Rotation, Settings
from flowscope.flows.hodge.problem import Sample

__all__ = ["Binned", "binned", "binned_rotation"]

Array: TypeAlias = NDArray[np.float64]

_DIMENSIONS = 3
# Points that a cell should hold on average, and reach of the grid in standard deviations.
_POINTS, _REACH = 10, 4.0
# A mesh is made for each split; more than these say little more.
_SPLITS = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Binned:
    """Energies of all splits, with the last mesh and the share of points outside the meshes."""

    found: Resampled
    mesh: Mesh
    outside: float


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cells:
    """Sums over each cell and block: of points and of velocities; spacing of the grid."""

    count: Array  # [b, cells]
    velocity: Array  # [b, cells, d]
    shape: tuple[int, ...]
    spacing: Array


def binned(
    of: Sample, a: Array, *, cells: int | None, splits: Tensor, weights: Tensor, signs: Tensor
) -> Binned:
    r"""Cross-fitted energies on a grid, their resamples, leave-one-out values and null draws.

    .. math:: (R, E), \qquad (R^\star, E^\star)_{1\dots B}, \qquad (R_{-b}, E_{-b})_b, \qquad
              R^\pm_{1\dots B}

    Parameters
    ----------
    of : the sample.
    a : diffusion.
    cells : along each axis, eight standard deviations wide; None for 10 points a cell.
    splits : which blocks are in the first half.
    weights, signs : of resamples and of null draws.

    Raises
    ------
    InvalidInputError
        If there are more than three coordinates, or the halves share too few cells.

    Notes
    -----
    One sparse factorisation and 4b solves per split. Resamples are first order, as in
    :mod:`flowscope.flows.hodge.influence`; the mesh keeps the weights of the whole sample.

    Examples
    --------
    >>> from flowscope.flows.hodge.problem import blocks, sample
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.randn(4000, 2, generator=g).double()
    >>> each = lambda n: blocks(None, n, generator=g, at_most=20, least=4)
    >>> taken = sample(x, x, reference=None, blocks=each, times=None)
    >>> half, one = torch.arange(20)[None] < 10, torch.ones(1, 20).double()
    >>> found = binned(taken, np.eye(2), cells=None, splits=half, weights=one, signs=one).found
    >>> bool(abs(found.energies[0] / found.energies[1]) < 0.01)
    True
    """
    d = of.points.shape[1]
    if d > _DIMENSIONS:
        raise InvalidInputError(
            f"A grid holds at most {_DIMENSIONS} coordinates; found {d}. Use method='samples', or "
            "pass two or three leading coordinates."
        )
    held = _cells(of, cells or max(4, int((len(of.points) / _POINTS) ** (1 / d))))
    b = len(held.count)
    counts = np.concatenate([np.ones((1, b)), weights.cpu().numpy(), 1 - np.eye(b)])
    energies, null, outside = np.zeros((len(counts), 2)), np.zeros(len(signs)), 0.0
    for first in splits.cpu().numpy():
        on, moved, noise = _split(held, a, first, counts, signs.cpu().numpy())
        energies += moved / len(splits)
        null += noise / len(splits)
        outside += (1 - held.count[:, on.nodes].sum() / len(of.points)) / len(splits)
    as_tensor = [torch.from_numpy(x) for x in (energies[0], energies[1:-b], energies[-b:], null)]
    return Binned(
        found=Resampled(
            energies=as_tensor[0],
            draws=as_tensor[1],
            jackknife=as_tensor[2],
            null=as_tensor[3],
            correction=0.0,
        ),
        mesh=on,
        outside=outside,
    )


def binned_rotation(
    of: Sample, a: Tensor, settings: Settings, generator: torch.Generator
) -> Rotation:
    """Cross-fitted rotation on a grid, with its intervals and its null."""
    drawn = chances(of.blocks.count, settings, generator)
    made = binned(
        of,
        a.cpu().numpy(),
        cells=settings.cells,
        splits=drawn.splits[:_SPLITS],
        weights=drawn.weights,
        signs=drawn.signs,
    )
    answer = judged(of, made.found, settings)
    outside = f"{made.outside:.1%} of the points lie in cells that a half has no point in"
    return replace(
        answer,
        method="grid",
        because="; ".join(x for x in (answer.because, outside if made.outside > 1e-3 else "") if x),
        regressors=len(made.mesh.nodes),
        potentials=len(made.mesh.nodes),
        gamma=made.mesh.gamma,
        condition=made.mesh.condition,
    )


def _cells(of: Sample, cells: int) -> _Cells:
    x = of.points.cpu().numpy()
    centre, width = x.mean(0), 2 * _REACH * x.std(0) / cells
    at = np.floor((x - centre) / width + cells / 2).astype(np.int64)
    inside = ((at >= 0) & (at < cells)).all(1)
    shape = (cells,) * x.shape[1]
    flat = np.ravel_multi_index(tuple(at[inside].T), shape)
    size = cells ** x.shape[1]
    label = of.blocks.labels.cpu().numpy()[inside] * size + flat
    v = of.velocities.cpu().numpy()[inside]
    sums = [np.bincount(label, w, of.blocks.count * size) for w in (None, *v.T)]
    shaped = [s.reshape(of.blocks.count, size).astype(np.float64) for s in sums]
    return _Cells(
        count=shaped[0], velocity=np.stack(shaped[1:], 2), shape=shape, spacing=np.asarray(width)
    )


def _split(
    held: _Cells, a: Array, first: NDArray[np.bool_], counts: Array, signs: Array
) -> tuple[Mesh, Array, Array]:
    both = (held.count[first].sum(0) > 0) & (held.count[~first].sum(0) > 0)
    on = mesh(held.count.sum(0).reshape(held.shape), held.spacing, a, both.reshape(held.shape))
    solve = splu((on.stiffness + on.shift * diags(on.mass)).tocsc()).solve
    count, sums = held.count[:, on.nodes], held.velocity[:, on.nodes]
    sides = (first, ~first)
    means = [sums[side].sum(0) / count[side].sum(0)[:, None] for side in sides]
    moves, noises = [], []
    for side, own, other in zip(sides, means, means[::-1], strict=True):
        n = count[side].sum(0)[:, None]
        belongs = side[:, None, None]
        moves.append(belongs * (sums - count[..., None] * own) / n)
        noises.append(belongs * (sums - count[..., None] * other) / n)
    theta = [_potentials(on, solve, v[None])[0] for v in means]
    shifts = [_potentials(on, solve, v) for v in moves]
    weight = count @ on.local(means[0], means[1], theta[0], theta[1])
    plain = count @ np.einsum("ni,ij,nj->n", means[0], on.inverse, means[1])
    rotational = _energy(on, means, moves, (counts, weight, count.sum(1)), theta, shifts)
    flat = [np.zeros_like(t) for t in theta], [np.zeros_like(t) for t in shifts]
    total = _energy(on, means, moves, (counts, plain, count.sum(1)), *flat)
    form = _form(on, noises[0], noises[1], _potentials(on, solve, noises[1]))
    null = ((signs @ form) * signs).sum(1)
    return on, np.stack([rotational, total], 1), null


def _energy(
    on: Mesh,
    means: list[Array],
    moves: list[Array],
    measure: tuple[Array, Array, Array],
    theta: list[Array],
    shifts: list[Array],
) -> Array:
    """Measure term, terms linear in the moves of either half, and their product."""
    counts, local, points = measure
    ahead = _form(on, moves[0], means[1][None], theta[1][None])[:, 0]
    behind = _form(on, moves[1], means[0][None], theta[0][None])[:, 0]
    form = _form(on, moves[0], moves[1], shifts[1])
    found: Array = (
        (counts @ local) / (counts @ points)
        + counts @ (ahead + behind)
        + ((counts @ form) * counts).sum(1)
    )
    return found


def _form(on: Mesh, left: Array, right: Array, potentials: Array) -> Array:
    """⟨v, w⟩ − b(v)ᵀθ_w for all pairs of fields."""
    flat, other = left.reshape(len(left), -1), right.reshape(len(right), -1)
    found: Array = flat @ np.asarray(on.metric @ other.T)
    return found - np.asarray(on.load @ flat.T).T @ potentials.T


def _potentials(on: Mesh, solve: Callable[[Array], Array], fields: Array) -> Array:
    load = on.load @ fields.reshape(len(fields), -1).T
    theta = np.zeros_like(load)
    for _ in range(4):  # takes the Tikhonov term out again
        theta = theta + solve(load - on.stiffness @ theta)
    found: Array = theta.T
    return found
