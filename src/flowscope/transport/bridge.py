r"""The Schrödinger bridge between two point clouds: the likeliest diffusion with these end laws.

The reference is √ε dB, started from the first law. Its static problem is the entropic coupling of
cost ½|x−y|², :math:`\Pi_{ij} = a_i b_j e^{(f_i+g_j-\frac12|x_i-y_j|^2)/\varepsilon}`; between its
ends the process is a Brownian bridge. Both facts together make every law at a time between the
product of two sums, so that nothing of n × m numbers is needed:

.. math:: \rho_t(z) \propto \hat h_t(z)\,h_t(z), \qquad
          h_t(z) = \sum_j b_j e^{g_j/\varepsilon} e^{-|y_j-z|^2/2(1-t)\varepsilon}, \quad
          \hat h_t(z) = \sum_i a_i e^{f_i/\varepsilon} e^{-|z-x_i|^2/2t\varepsilon}

With ȳ and x̄ the means of the y_j and x_i under the terms of these sums,

.. math:: \text{drift } \varepsilon\nabla\log h_t = \frac{\bar y - z}{1-t}, \qquad
          \text{score } \nabla\log\rho_t = \frac{\bar y-z}{(1-t)\varepsilon}
          + \frac{\bar x-z}{t\varepsilon}, \qquad
          \text{velocity } = \text{drift} - \tfrac{\varepsilon}{2}\,\text{score} .

End laws are atoms: at t = 0 and 1 there is no density, at t = 1 no drift. All in float64. For
Gaussian ends see ``gaussian_bridge``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log, pi
from typing import Literal, TypeAlias, Unpack, cast

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_reals
from flowscope.transport.cloud import PointCloud
from flowscope.transport.coupling import Coupling
from flowscope.transport.entropic import sinkhorn
from flowscope.transport.masses import log_mass
from flowscope.transport.nystrom import NystromCoupling, nystrom_coupling
from flowscope.transport.options import Options, Potentials

__all__ = ["Bridge", "ForwardOperator", "bridge_path", "schroedinger_bridge"]

KernelAsked: TypeAlias = Literal["exact", "nystrom"]
Points: TypeAlias = Tensor | ArrayLike

_TILE = 2**20  # numbers of a tile: a few megabytes stay in cache


@dataclass(frozen=True, kw_only=True, eq=False)
class ForwardOperator:
    r"""Doob transform of the reference kernel: where the bridge goes from each start.

    .. math:: \tilde P_{ij} = \frac{K_{ij}h_j}{\sum_k K_{ik}h_k}, \qquad
              K_{ij} = e^{-|x_i-y_j|^2/2\varepsilon}, \quad h_j = b_j e^{g_j/\varepsilon}

    It is Π with each row divided by its sum, and defined for starts without mass too; its rows sum
    to one, converged or not, and ``push(a)`` is b to the coupling's marginal error.

    Attributes
    ----------
    cloud, log_h, epsilon
        Starts x and ends y, log h of each end, and ε.
    """

    cloud: PointCloud
    log_h: Float[Tensor, " m"]
    epsilon: Float[Tensor, ""]

    def _log_rows(self) -> Float[Tensor, " n"]:
        return -self.cloud.soft_rows(self.log_h, self.epsilon)

    @property
    def matrix(self) -> Float[Tensor, "n m"]:
        """P̃ itself: n × m numbers, made when asked for."""
        return torch.softmax(self.log_h - self.cloud.dense() / self.epsilon, -1)

    def apply(self, v: Float[Tensor, "m *k"]) -> Float[Tensor, "n *k"]:
        """Mean of v at the end from each start, P̃v; O(nm(d+k)) by tiles."""
        w = self._columns(v, self.cloud.m, "ends")
        out = self.cloud.product(self._log_rows(), self.log_h, self.epsilon, w)
        return out[:, 0] if v.ndim == 1 else out

    def push(self, w: Float[Tensor, "n *k"]) -> Float[Tensor, "m *k"]:
        """Masses at the end when w are those of the starts, P̃'w; O(nm(d+k)) by tiles."""
        u = self._columns(w, self.cloud.n, "starts")
        out = self.cloud.transposed().product(self.log_h, self._log_rows(), self.epsilon, u)
        return out[:, 0] if w.ndim == 1 else out

    def _columns(self, v: Tensor, size: int, side: str) -> Tensor:
        if v.ndim not in (1, 2) or len(v) != size:
            found = f"found shape {tuple(v.shape)}. apply reads the ends, push the starts."
            raise InvalidInputError(f"expected one row for each of the {size} {side}; {found}")
        return (v[:, None] if v.ndim == 1 else v).to(self.log_h.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Bridge:
    r"""A Schrödinger bridge between two clouds, with how right it is.

    .. math:: dX = \varepsilon\nabla\log h_t(X)\,dt + \sqrt\varepsilon\,dB, \qquad
              (X_0, X_1) \sim \Pi

    Attributes
    ----------
    coupling
        Π with its potentials, marginal error, sweeps and status.
    approximation
        What the low-rank kernel was worth, where one was asked for.

    Raises
    ------
    InvalidInputError
        If the coupling is not that of one problem between points at the cost ½|x−y|². By methods:
        if a time is out of [0, 1], or at an atom, or points are not of shape (p, d).
    """

    coupling: Coupling
    approximation: NystromCoupling | None = None

    def __post_init__(self) -> None:
        cloud = self.coupling.geometry
        if not isinstance(cloud, PointCloud) or cloud.exponent != 2 or cloud.batch:
            raise InvalidInputError(
                "a bridge needs the coupling of one problem between points at the cost ½|x−y|²; "
                f"found a {type(cloud).__name__} of batch {cloud.batch}. Use schroedinger_bridge."
            )

    @property
    def kernel(self) -> str:
        """Which kernel the potentials come from, and why when it is not the one asked for."""
        return "exact" if self.approximation is None else self.approximation.kernel

    @property
    def epsilon(self) -> float:
        """ε, noise of the reference over unit time."""
        return float(self.coupling.epsilon)

    @property
    def potentials(self) -> Potentials:
        """(f, g), to start a neighbouring problem from with ``initial=``."""
        return self.coupling.f.detach(), self.coupling.g.detach()

    @property
    def _cloud(self) -> PointCloud:
        return cast(PointCloud, self.coupling.geometry).to(torch.float64)

    def _log_h(self) -> tuple[Float[Tensor, " n"], Float[Tensor, " m"]]:
        """Logarithms of the weights of ĥ and of h."""
        c, e = self.coupling, self.coupling.epsilon.double()
        a, b = log_mass(c.a.double()), log_mass(c.b.double())
        return a + c.f.double() / e, b + c.g.double() / e

    def reversed(self) -> "Bridge":
        """The same bridge with time running backwards."""
        return Bridge(coupling=self.coupling.transposed(), approximation=self.approximation)

    def forward(self) -> ForwardOperator:
        """Doob forward operator P̃; that of :meth:`reversed` is the backward one."""
        return ForwardOperator(
            cloud=self._cloud, log_h=self._log_h()[1], epsilon=self.coupling.epsilon.double()
        )

    def mean_covariance(self, time: float) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
        r"""Exact mean and covariance of the law at a time.

        .. math:: \Sigma_t = (1-t)^2\,\mathrm{Cov}\,x + t^2\,\mathrm{Cov}\,y
                  + t(1-t)(C + C^\top + \varepsilon I)

        C is the cross-covariance of Π, from one product with y: O(nmd) by tiles.
        """
        t = _as_time(time)
        x, y, forward = self._cloud.x, self._cloud.y, self.forward()
        rows = torch.nn.functional.normalize(self.coupling.rows.double(), p=1, dim=-1)
        columns = forward.push(rows)
        first, second = rows @ x, columns @ y
        x, y = x - first, y - second
        C = (rows[:, None] * x).mT @ forward.apply(y)
        noise = self.epsilon * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
        ends = (1 - t) ** 2 * x.mT @ (rows[:, None] * x) + t**2 * y.mT @ (columns[:, None] * y)
        return (1 - t) * first + t * second, ends + t * (1 - t) * (C + C.mT + noise)

    def sample(self, time: float, count: int, generator: torch.Generator) -> Float[Tensor, "p d"]:
        r"""Independent draws from the law at a time.

        .. math:: (1-t)x_i + t y_j + \sqrt{t(1-t)\varepsilon}\,\xi, \qquad (i, j) \sim \Pi

        Starts from the row masses, then each end from its row of P̃: O(pmd) by tiles.
        """
        t = _as_time(time)
        if count < 1:
            raise InvalidInputError(f"count must be at least 1; found {count}.")
        cloud, log_h, e = self._cloud, self._log_h()[1], self.epsilon
        rows = self.coupling.rows.double()
        starts = torch.multinomial(rows, count, replacement=True, generator=generator)
        laws = _weights(cloud.x[starts], cloud.y, log_h, e)
        ends = [torch.multinomial(P, 1, generator=generator)[:, 0] for P in laws]
        middle = (1 - t) * cloud.x[starts] + t * cloud.y[torch.cat(ends)]
        noise = torch.empty_like(middle).normal_(generator=generator)
        return torch.add(middle, (t * (1 - t) * e) ** 0.5 * noise)

    def log_density(self, time: float, points: Points) -> Float[Tensor, " p"]:
        r"""Logarithm of the density of the law at a time.

        .. math:: \log\rho_t(z) = \log\hat h_t(z) + \log h_t(z)
                  - \tfrac d2\log 2\pi t(1-t)\varepsilon

        The mixture of n·m Gaussians as a product of two sums (module head): O((n+m)pd) by tiles.
        """
        t, z = _as_time(time, start=False, end=False), self._points(points)
        behind, ahead = self._log_h()
        x, y = self._cloud.x, self._cloud.y
        level = _sums(z, x, behind, t * self.epsilon) + _sums(z, y, ahead, (1 - t) * self.epsilon)
        mass = self.coupling.rows.double().sum().log()
        return level - mass - z.shape[-1] / 2 * log(2 * pi * t * (1 - t) * self.epsilon)

    def drift(self, time: float, points: Points) -> Float[Tensor, "p d"]:
        r"""Forward drift of the bridge.

        .. math:: \varepsilon\nabla\log h_t(z) = \frac{1}{1-t}\Bigl(\sum_j w_j(z)\,y_j - z\Bigr)

        w is a softmax over the ends: O(mpd) by tiles.
        """
        t, z = _as_time(time, end=False), self._points(points)
        return _pull(z, self._cloud.y, self._log_h()[1], (1 - t) * self.epsilon) / (1 - t)

    def score(self, time: float, points: Points) -> Float[Tensor, "p d"]:
        """Score ∇log ρ_t, from ĥ and h (module head); as :meth:`log_density`, O((n+m)pd)."""
        t, z = _as_time(time, start=False, end=False), self._points(points)
        ahead, behind = self._pulls(t, z)
        return (ahead / (1 - t) + behind / t) / self.epsilon

    def velocity(self, time: float, points: Points) -> Float[Tensor, "p d"]:
        r"""Velocity that carries the laws, drift − ½ε·score: ∂_tρ + ∇·(ρu) = 0.

        .. math:: u_t(z) = \frac12\Bigl(\frac{\bar y - z}{1-t} - \frac{\bar x - z}{t}\Bigr)

        O((n+m)pd) by tiles.
        """
        t, z = _as_time(time, start=False, end=False), self._points(points)
        ahead, behind = self._pulls(t, z)
        return (ahead / (1 - t) - behind / t) / 2

    def _pulls(self, t: float, z: Tensor) -> tuple[Tensor, Tensor]:
        behind, ahead = self._log_h()
        x, y, e = self._cloud.x, self._cloud.y, self.epsilon
        return _pull(z, y, ahead, (1 - t) * e), _pull(z, x, behind, t * e)

    def _points(self, points: Tensor | ArrayLike) -> Float[Tensor, "p d"]:
        z = as_reals(points, "points", self._cloud.device).double()
        d = self._cloud.x.shape[-1]
        if z.ndim != 2 or z.shape[-1] != d:
            raise InvalidInputError(
                f"points must have shape (p, {d}), as those of the bridge; found "
                f"{tuple(z.shape)}. Numbers on a line are (p, 1)."
            )
        return z


def schroedinger_bridge(
    x: Tensor | ArrayLike,
    y: Tensor | ArrayLike,
    a: Tensor | ArrayLike | None = None,
    b: Tensor | ArrayLike | None = None,
    *,
    kernel: KernelAsked = "exact",
    rank: int | None = None,
    **options: Unpack[Options],
) -> Bridge:
    r"""Schrödinger bridge between two weighted clouds, reference √ε dB.

    .. math:: \min_{\Pi 1 = a,\,\Pi^\top 1 = b} \sum_{ij}\Pi_{ij}\tfrac12|x_i-y_j|^2
              + \varepsilon\,\mathrm{KL}(\Pi\Vert a\otimes b)

    Parameters
    ----------
    x, y
        Points at time 0, (n, d), and at time 1, (m, d).
    a, b
        Their masses, with equal totals; uniform of total one when not given.
    kernel
        ``"exact"`` by tiles, or ``"nystrom"``: low rank where that holds, the exact one where not.
    rank
        Landmarks of the Nyström kernel.
    **options
        :class:`~flowscope.transport.options.Options`: one of ``epsilon``, ``relative_epsilon``,
        then ``tolerance`` and so on; ``initial=other.potentials`` starts from a neighbour.

    Raises
    ------
    InvalidInputError
        On a batch, an unknown kernel, a rank for the exact one, and as for ``sinkhorn``.
    ConvergenceError
        If the tolerance was not reached; ``error.partial`` is the coupling that was.

    Notes
    -----
    Log-domain IPF, annealed, accelerated; O(nmd) a sweep without n × m numbers. Source: 000 §7,
    M.3, without the condition test and rise of ε of Alg. 2 (errata E31).

    Examples
    --------
    >>> bridge = schroedinger_bridge([[-1.0], [1.0]], [[-1.0], [1.0]], epsilon=1.0, tolerance=1e-9)
    >>> bridge.forward().matrix
    tensor([[0.8808, 0.1192],
            [0.1192, 0.8808]], dtype=torch.float64)
    >>> bridge.drift(0.0, [[1.0]])
    tensor([[-0.2384]], dtype=torch.float64)
    """
    cloud = PointCloud(x, y)
    if cloud.batch:
        raise InvalidInputError(
            f"x and y must be one cloud each; found leading axes {cloud.batch}."
        )
    if kernel not in ("exact", "nystrom") or (kernel == "exact" and rank is not None):
        wrong = f"found {kernel!r} and {rank}."
        raise InvalidInputError(f"kernel must be 'exact' or, with a rank, 'nystrom'; {wrong}")
    if kernel == "exact":
        return Bridge(coupling=sinkhorn(cloud, a, b, **options))
    found = nystrom_coupling(cloud, a, b, rank=rank, **options)
    return Bridge(coupling=found.coupling, approximation=found)


def bridge_path(
    clouds: Sequence[Tensor | ArrayLike],
    a: Tensor | ArrayLike | None = None,
    *,
    kernel: KernelAsked = "exact",
    rank: int | None = None,
    **options: Unpack[Options],
) -> tuple[Bridge, ...]:
    r"""Bridges from each cloud to the next, each started from the potentials of the one before.

    .. math:: g^{(\ell+1)}_j \leftarrow g^{(\ell)}_j + \tfrac12|x^{\ell+2}_j - x^{\ell+1}_j|^2

    Parameters
    ----------
    clouds
        Two clouds at least, of the same points in the same order: tokens over layers.
    a
        Their masses, the same in every cloud; uniform when not given.
    kernel, rank, **options
        As for :func:`schroedinger_bridge`; ``initial`` is for the first bridge.

    Raises
    ------
    InvalidInputError
        If there are fewer than two clouds or their sizes differ, and as for one bridge.
    ConvergenceError
        If one of them did not converge.

    Notes
    -----
    The start is exact to second order where points keep their velocity (∇g is the displacement).
    Not annealed, it saves sweeps at loose tolerances; at tight ones the slowest mode decides.
    Source: 000 Track D ("reuse duals across layers").

    Examples
    --------
    >>> steps = [[[0.0], [1.0]], [[0.1], [1.2]], [[0.2], [1.4]]]
    >>> [bridge.coupling.status for bridge in bridge_path(steps, epsilon=0.5)]
    ['converged', 'converged']
    """
    points = [as_reals(cloud, "clouds") for cloud in clouds]
    sizes = [tuple(x.shape) for x in points]
    if len(sizes) < 2 or len(set(sizes)) > 1:
        todo = "Call schroedinger_bridge for unrelated clouds."
        raise InvalidInputError(f"clouds must be two or more, alike; found shapes {sizes}. {todo}")
    bridges: list[Bridge] = []
    for x, y in pairwise(points):
        if bridges:
            f, g = bridges[-1].potentials
            options["initial"] = f, g + (y - x).detach().square().sum(-1) / 2
        bridges.append(schroedinger_bridge(x, y, a, a, kernel=kernel, rank=rank, **options))
    return tuple(bridges)


def _as_time(time: float, *, start: bool = True, end: bool = True) -> float:
    """Refuse a time out of range; start and end say whether 0 and 1 are in it."""
    if not 0 <= time <= 1 or (time == 0 and not start) or (time == 1 and not end):
        interval = f"{'[' if start else '('}0, 1{']' if end else ')'}"
        found = f"found {time:.6g}. Rescale the clock; the laws at its ends are atoms."
        raise InvalidInputError(f"time must lie in {interval}; {found}")
    return float(time)


def _sums(z: Tensor, points: Tensor, log_weights: Tensor, spread: float) -> Float[Tensor, " p"]:
    """Logarithm of Σ_j w_j exp(−|z − y_j|²/2s)."""
    return PointCloud(z, points).soft_rows(log_weights, z.new_tensor(spread))


def _weights(z: Tensor, points: Tensor, log_weights: Tensor, spread: float) -> Iterator[Tensor]:
    """The terms of that sum over their total, w_j(z), by blocks of z."""
    for block in torch.split(z, max(1, _TILE // len(points))):
        yield torch.softmax(log_weights - PointCloud(block, points).dense() / spread, -1)


def _pull(z: Tensor, points: Tensor, log_weights: Tensor, spread: float) -> Float[Tensor, "p d"]:
    """ȳ − z, with ȳ the mean of the points under these weights."""
    return torch.cat([w @ points for w in _weights(z, points, log_weights, spread)]) - z
