r"""Distances between rows of a kernel, and whether the kernel brings its points closer.

Rows $P_i$, $P_{i'}$ are probability vectors over the points of one metric space $(X, d)$. Exactly,

$$
W_r(P_i, P_{i'})^r = \min_{\Pi \in \Gamma(P_i, P_{i'})} \sum_{jk} \Pi_{jk}\, d(j,k)^r,
\qquad
\kappa(i,i') = 1 - \frac{W_1(\hat P_i, \hat P_{i'})}{d(i,i')},
$$

with $\hat P$ the row restricted to the support both rows have in common *and renormalised* (rows of
different mass have no coupling). $\kappa$ is the coarse Ricci curvature of Ollivier: 1 when the
rows are equal, 0 when each point stays where it is, negative when rows are further apart than the
points they belong to. $W_r$ is a distance, so nothing is halved here; the transport *cost* of the
package is $\tfrac12 d^2$.

One metric serves queries and keys: with two, the sign of $\kappa$ is a choice of unit (000 eq 21
divides by another metric; see the errata).
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import ConvergenceError, InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_probabilities, as_reals, refuse

__all__ = [
    "CommonSupport",
    "Curvature",
    "common_support",
    "curvature",
    "excess_distances",
    "row_wasserstein",
]

Vectors = Tensor | ArrayLike
Support = Bool[Tensor, "*batch n"] | ArrayLike
# Differences of masses below this are rounding of the masses themselves.
_ROUNDING = 1e-15
_PIVOTS = 1_000_000


def row_wasserstein(
    p: Vectors, q: Vectors, metric: Vectors, *, order: int = 1
) -> Float[Tensor, "*batch"]:
    r"""Exact Wasserstein distance between rows on a common support.

    Parameters
    ----------
    p, q
        Probability vectors $p, q$ over the same n points; leading axes are a batch.
    metric
        Distances $d(j,k)$, ``[..., n, n]``, broadcast against the batch. It must be a metric; the
        triangle inequality is not checked, and $W_1$ relies on it.
    order
        $r$: 1 or 2.

    Raises
    ------
    InvalidInputError
        When a row is no probability vector, the metric is not symmetric with zero diagonal and
        non-negative entries, or the shapes do not fit.
    ConvergenceError
        When the network simplex stops short of the optimum.

    Notes
    -----
    One network simplex (POT) per pair, in float64, on the atoms that carry mass. $W_1$ depends on
    $p - q$ alone: mass that both rows have stays where it is, so only the excess of each is moved.
    That does not hold for $W_2$. The cost grows a little faster than n². POT keeps the interpreter
    locked, so threads do not help.

    Examples
    --------
    >>> line = (torch.arange(3.0)[:, None] - torch.arange(3.0)).abs()
    >>> row_wasserstein([0.5, 0.5, 0.0], [0.0, 0.5, 0.5], line)
    tensor(1., dtype=torch.float64)
    """
    if order not in (1, 2):
        raise InvalidInputError(f"order must be 1 or 2; found {order!r}.")
    a, b, d = _rows(p, "p"), _rows(q, "q"), _metric(metric)
    if not a.shape[-1] == b.shape[-1] == d.shape[-1]:
        raise InvalidInputError(
            f"p, q and metric must be over the same points; found {a.shape[-1]}, {b.shape[-1]} and "
            f"{d.shape[-1]}. Restrict all three to the common support first."
        )
    try:
        batch = np.broadcast_shapes(a.shape[:-1], b.shape[:-1], d.shape[:-2])
    except ValueError as error:
        raise InvalidInputError(
            f"leading shapes must broadcast; found {a.shape[:-1]}, {b.shape[:-1]} and "
            f"{d.shape[:-2]}."
        ) from error
    n = a.shape[-1]
    a, b = (np.broadcast_to(x, (*batch, n)) for x in (a, b))
    d = np.broadcast_to(d, (*batch, n, n))
    found = np.empty(batch)
    solve = _excess_distance if order == 1 else _quadratic_distance
    for place in np.ndindex(batch):
        found[place] = solve(a[place], b[place], d[place])
    return torch.from_numpy(found)


def excess_distances(
    p: NDArray[np.float64], q: NDArray[np.float64], d: NDArray[np.float64]
) -> NDArray[np.float64]:
    """$W_1$ of rows ``[rows, n]`` over one metric ``[n, n]`` of this package; nothing is checked.

    Examples
    --------
    >>> excess_distances(np.array([[0.5, 0.5]]), np.array([[0.0, 1.0]]), 1 - np.eye(2))
    array([0.5])
    """
    return np.array([_excess_distance(one, other, d) for one, other in zip(p, q, strict=True)])


class CommonSupport(NamedTuple):
    """Two families of rows on the support they share.

    ``p`` and ``q`` are zero outside ``support`` and sum to one on it; they are NaN where a row has
    no mass there. ``kept_p`` and ``kept_q`` are the masses the rows had on it.
    """

    p: Float[Tensor, "*batch n"]
    q: Float[Tensor, "*batch n"]
    support: Bool[Tensor, "*batch n"]
    kept_p: Float[Tensor, "*batch"]
    kept_q: Float[Tensor, "*batch"]


def common_support(p: Vectors, q: Vectors, support: Support | None = None) -> CommonSupport:
    r"""Restrict two rows to the support they share, and renormalise.

    $\hat p_j = p_j \mathbf 1_S(j) / \sum_{k \in S} p_k$, and the same for $q$.

    Parameters
    ----------
    p, q
        Probability vectors over the same n points; leading axes are a batch.
    support
        $S$: the points that both rows may reach (for causal rows $i < i'$, the keys up to $i$).
        Without it, the points where both have mass, which in float32 depends on underflow.

    Examples
    --------
    >>> shared = common_support([0.5, 0.25, 0.25], [0.2, 0.8, 0.0], [True, True, False])
    >>> shared.p, shared.kept_p
    (tensor([0.6667, 0.3333, 0.0000], dtype=torch.float64), tensor(0.7500, dtype=torch.float64))
    """
    a, b = (torch.from_numpy(x) for x in np.broadcast_arrays(_rows(p, "p"), _rows(q, "q")))
    if support is None:
        shared = (a > 0) & (b > 0)
    else:
        shared = torch.as_tensor(support, dtype=torch.bool).expand(a.shape)
    rows, kept = [], []
    for x in (a, b):
        inside = torch.where(shared, x, 0.0)
        total = inside.sum(-1)
        rows.append(torch.where(total[..., None] > 0, inside / total[..., None], torch.nan))
        kept.append(total)
    return CommonSupport(rows[0], rows[1], shared, kept[0], kept[1])


class Curvature(NamedTuple):
    """Curvature of pairs of rows; NaN for a pair that says nothing.

    ``kappa`` has the batch shape and a last axis of pairs; ``wasserstein`` is W₁ of the restricted
    rows, ``distance`` that of their points, ``kept`` the smaller of the two masses kept.
    """

    kappa: Float[Tensor, "*batch pairs"]
    wasserstein: Float[Tensor, "*batch pairs"]
    distance: Float[Tensor, "*batch pairs"]
    kept: Float[Tensor, "*batch pairs"]


def curvature(
    rows: Vectors,
    distances: Vectors,
    pairs: Int[Tensor, "pairs 2"] | ArrayLike,
    *,
    support: Bool[Tensor, "*batch n n"] | ArrayLike | None = None,
    floor: float = 1e-3,
) -> Curvature:
    r"""Coarse curvature $\kappa(i,i') = 1 - W_1(\hat P_i, \hat P_{i'}) / d(i,i')$ of pairs of rows.

    Parameters
    ----------
    rows
        $P$, ``[..., n, n]``: row i is the law that point i sends its mass by.
    distances
        $d$, ``[n, n]``: one metric for all points.
    pairs
        The pairs $(i, i')$ wanted.
    support
        Which points each row may reach; by default those where it has mass.
    floor
        A pair of which either row keeps less mass than this on the common support gives NaN, as
        does a pair of points at distance zero, or of fewer than two common points: there every
        row is the same.

    Examples
    --------
    >>> d = 1 - torch.eye(3)
    >>> curvature(torch.full((3, 3), 1 / 3), d, [[0, 1]]).kappa
    tensor([1.], dtype=torch.float64)
    >>> curvature(torch.eye(3), d, [[0, 2]], support=torch.ones(3, 3)).kappa
    tensor([0.], dtype=torch.float64)
    """
    P, d = torch.from_numpy(_rows(rows, "rows")), torch.from_numpy(_metric(distances))
    i, j = torch.as_tensor(pairs, dtype=torch.long).unbind(-1)
    if P.ndim < 2 or P.shape[-2:] != d.shape or d.ndim != 2:
        raise InvalidInputError(
            f"rows must be [..., n, n] and distances [n, n]; found {tuple(P.shape)} and "
            f"{tuple(d.shape)}."
        )
    reach = P > 0 if support is None else torch.as_tensor(support, dtype=torch.bool).expand(P.shape)
    shared = common_support(P[..., i, :], P[..., j, :], support=reach[..., i, :] & reach[..., j, :])
    kept = torch.minimum(shared.kept_p, shared.kept_q)
    apart = d[i, j].expand(kept.shape)
    told = (kept >= floor) & (apart > 0) & (shared.support.sum(-1) >= 2)
    moved = torch.full_like(kept, torch.nan)
    moved[told] = row_wasserstein(shared.p[told], shared.q[told], d)
    return Curvature(1 - moved / apart, moved, apart, kept)


def _excess_distance(
    p: NDArray[np.float64], q: NDArray[np.float64], d: NDArray[np.float64]
) -> float:
    excess = p - q
    source, sink = np.flatnonzero(excess > _ROUNDING), np.flatnonzero(excess < -_ROUNDING)
    if not len(source) or not len(sink):
        return 0.0
    return _moved(excess[source], -excess[sink], d[source[:, None], sink])


def _quadratic_distance(
    p: NDArray[np.float64], q: NDArray[np.float64], d: NDArray[np.float64]
) -> float:
    source, sink = np.flatnonzero(p > _ROUNDING), np.flatnonzero(q > _ROUNDING)
    return float(np.sqrt(max(_moved(p[source], q[sink], d[source[:, None], sink] ** 2), 0.0)))


def _moved(a: NDArray[np.float64], b: NDArray[np.float64], cost: NDArray[np.float64]) -> float:
    """Least cost of moving masses a to masses b, whose totals differ by rounding only."""
    total = a.sum()
    b = b * (total / b.sum())
    if 1 in cost.shape:
        return float(a @ cost @ b / total)
    # `ot.emd` checks and converts its arguments for longer than it solves a small problem.
    solve, said = _network_simplex()
    _, least, _, _, code = solve(a, b * total / b.sum(), cost, _PIVOTS, 1)
    warning = said(code)
    if warning is not None:
        raise ConvergenceError(
            f"The network simplex stopped on {len(a)} by {len(b)} atoms: {warning}. "
            "Scale the metric nearer to one, or restrict the rows to fewer points.",
            float(least),
        )
    return float(least)


@cache
def _network_simplex() -> tuple[Callable[..., Any], Callable[[int], str | None]]:
    """The solver of POT, and what its code says; a second to import, and only needed here."""
    from ot.lp import emd_wrap

    return emd_wrap.emd_c, emd_wrap.check_result


def _rows(p: Vectors, name: str) -> NDArray[np.float64]:
    """Probability vectors in float64, divided by their sum there."""
    x = as_probabilities(p, name).detach().cpu().double()
    found: NDArray[np.float64] = (x / x.sum(-1, keepdim=True)).numpy()
    return found


def _metric(metric: Vectors) -> NDArray[np.float64]:
    x = as_reals(metric, "metric").detach().cpu().double()
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise InvalidInputError(
            f"metric must hold the distances of n points, [..., n, n]; found {tuple(x.shape)}."
        )
    mistake = "A metric is finite, non-negative, symmetric and zero on its diagonal."
    refuse(~x.isfinite() | (x < 0), x, "metric must be finite and non-negative", mistake)
    off = (x - x.mT).abs()
    off.diagonal(dim1=-2, dim2=-1).copy_(x.diagonal(dim1=-2, dim2=-1))
    bound = 1e-6 * float(x.max()) if x.numel() else 0.0
    refuse(off > bound, off, "metric must be symmetric with zero diagonal", mistake)
    found: NDArray[np.float64] = x.numpy()
    return found
