r"""Low-rank kernels for couplings of large, smooth problems, and the proof that they served.

With R landmarks r among the points of both clouds and :math:`k(x,y) = e^{-|x-y|^2/2\varepsilon}`,

.. math:: \tilde K = K_{xr} K_{rr}^{-1} K_{ry} = F_x F_y^\top, \qquad
          F_z = k(z, r)\,Q\Lambda^{-1/2}, \quad K_{rr} = Q\Lambda Q^\top ,

so that a sweep costs O((n+m)R). On both clouds together K̃ is positive semi-definite and below K,
hence the error of *every* pair has a bound that costs nothing:

.. math:: |K_{ij} - \tilde K_{ij}| \le \sqrt{e_i e_j} \le \max_i e_i, \qquad e_i = 1 - |F_i|^2 .

Positive semi-definite is not positive: an entry of K̃ may be negative, and scaling then divides by
a sum that means nothing (errata E33). Loss is looked for on a fixed sample of pairs (negative
weights of more than the tolerance, of all weights) and at every product, and ends in the exact
kernel. A small marginal error *within* K̃ says nothing either: the potentials are put on the exact
kernel, whose error is reported. ε is never raised (errata E31).
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias, Unpack, cast

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import ConvergenceError, FlowscopeError, InvalidInputError
from flowscope.simplex.probability import ArrayLike
from flowscope.transport.cloud import PointCloud
from flowscope.transport.coupling import Coupling
from flowscope.transport.entropic import sinkhorn
from flowscope.transport.geometry import Geometry
from flowscope.transport.options import Options
from flowscope.transport.problem import strength

__all__ = ["KernelUsed", "NystromCloud", "NystromCoupling", "nystrom_coupling"]

KernelUsed: TypeAlias = Literal["nystrom", "exact (positivity lost)", "exact (kernel error)"]

_MOST_LANDMARKS = 1000
_SAMPLE = 256  # points a side of the pairs that the kernel is compared on


class _PositivityLostError(FlowscopeError):
    """A sum over the low-rank kernel came out zero, negative or not finite."""


class NystromCloud(Geometry):
    r"""Costs ½|x − y|² between two clouds whose kernel is held in low rank.

    .. math:: K \approx K_{xr} K_{rr}^{-1} K_{ry}

    Parameters
    ----------
    cloud
        The points; exponent 2. Everything inside is float64.
    rank
        R, the number of landmarks; min(1000, M/10) of the M points of the larger cloud by default.

    Raises
    ------
    InvalidInputError
        If the exponent is not 2, or the rank is below one or above the number of points.

    Notes
    -----
    Landmarks are farthest points of both clouds together, from the one nearest the mean: no draw,
    O((n+m)Rd), the same for every ε. The factors take O((n+m)R²) once for each ε; eigenvalues of
    :math:`K_{rr}` below R·eps of the largest are left out. Products raise where positivity is
    lost; :func:`nystrom_coupling` goes on from there. Source: 000 §7 and M.3, which take no care
    of the sign.

    Examples
    --------
    >>> line = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
    >>> geometry = NystromCloud(PointCloud(line), rank=8)
    >>> bool(geometry.bound(torch.tensor(1.0, dtype=torch.float64)) < 1e-6)
    True
    """

    tiled = True  # no matrix of this kernel is at hand

    def __init__(self, cloud: PointCloud, *, rank: int | None = None) -> None:
        if cloud.exponent != 2:
            todo = f"found exponent {cloud.exponent}. Use the PointCloud itself."
            raise InvalidInputError(f"a Nyström kernel needs the cost ½|x−y|²; {todo}")
        points = cloud.n + cloud.m
        R = max(1, min(_MOST_LANDMARKS, max(cloud.n, cloud.m) // 10)) if rank is None else rank
        if not 1 <= R <= points:
            raise InvalidInputError(
                f"rank must lie between 1 and the {points} points of both clouds; found {R}. "
                "Leave it out for a tenth of them."
            )
        exact = cloud.to(torch.float64)
        self._set(exact, _farthest_points(torch.cat([exact.x, exact.y], -2).detach(), R))

    def _set(self, cloud: PointCloud, landmarks: Tensor) -> None:
        self.cloud, self.landmarks, self.rank = cloud, landmarks, landmarks.shape[-2]
        self.batch, self.n, self.m = cloud.batch, cloud.n, cloud.m
        self.dtype, self.device = cloud.dtype, cloud.device
        self._known: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self._turned = False

    def _of(self, cloud: PointCloud, landmarks: Tensor) -> "NystromCloud":
        new = object.__new__(NystromCloud)
        new._set(cloud, landmarks)
        return new

    def flat(self) -> "NystromCloud":
        """The same costs with one batch axis and no gradient."""
        return self._of(self.cloud.flat(), self.landmarks.reshape(-1, *self.landmarks.shape[-2:]))

    def take(self, problems: Tensor | slice) -> "NystromCloud":
        """Some problems of a flat batch."""
        return self._of(self.cloud.take(problems), self.landmarks[problems])

    def to(self, dtype: torch.dtype) -> "NystromCloud":
        """Itself: everything inside stays float64, in which results are."""
        return self

    def expand(self, batch: tuple[int, ...]) -> "NystromCloud":
        """The same points for a larger batch, without copies."""
        landmarks = self.landmarks.expand(*batch, *self.landmarks.shape[-2:])
        return self._of(self.cloud.expand(batch), landmarks)

    def transposed(self) -> "NystromCloud":
        """The same costs with rows and columns exchanged; the factors are shared."""
        new = self._of(self.cloud.transposed(), self.landmarks)
        new._known, new._turned = self._known, not self._turned
        return new

    def median(self) -> Float[Tensor, "*batch"]:
        """Median cost of each problem, that of the exact cloud."""
        return self.cloud.median()

    def typical(self) -> Float[Tensor, "*batch"]:
        """A cheap guess at the size of a cost, that of the exact cloud."""
        return self.cloud.typical()

    def largest(self) -> Float[Tensor, "*batch"]:
        """Bound on the largest cost."""
        return self.cloud.largest()

    def dense(self) -> Float[Tensor, "*batch n m"]:
        """The exact cost as a matrix; this is n × m numbers."""
        return self.cloud.dense()

    def factors(
        self, epsilon: Float[Tensor, "*batch"]
    ) -> tuple[Float[Tensor, "*batch n R"], Float[Tensor, "*batch m R"]]:
        """F of the rows and of the columns, K̃ = F_x F_yᵀ; those of the last ε are kept."""
        kept = self._known.get("last")
        if kept is None or not torch.equal(kept[2], epsilon):
            r = self.landmarks
            values, Q = torch.linalg.eigh(_gaussian(r, r, epsilon))
            floor = self.rank * torch.finfo(values.dtype).eps * values[..., -1:]
            W = Q * torch.where(values > floor, values, torch.inf).rsqrt()[..., None, :]
            x, y = (_gaussian(z.detach(), r, epsilon) @ W for z in (self.cloud.x, self.cloud.y))
            kept = (y, x, epsilon) if self._turned else (x, y, epsilon)
            self._known["last"] = kept
        return (kept[1], kept[0]) if self._turned else (kept[0], kept[1])

    def bound(self, epsilon: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Most that any entry of K̃ can miss K by, max_i (1 − |F_i|²)."""
        missing = [(1 - F.square().sum(-1)).amax(-1) for F in self.factors(epsilon)]
        return torch.maximum(*missing).clamp(min=0)

    def sampled_error(
        self, epsilon: Float[Tensor, "*batch"]
    ) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
        """Largest |K̃ − K|, and negative share of Σ|K̃|, over pairs of 256 points a side."""
        X, Y = self.factors(epsilon)
        x, y, X, Y = (
            z[..., :: -(-z.shape[-2] // _SAMPLE), :] for z in (self.cloud.x, self.cloud.y, X, Y)
        )
        approximate = X @ Y.mT
        error = (approximate - _gaussian(x.detach(), y.detach(), epsilon)).abs().amax((-2, -1))
        negative, total = (z.sum((-2, -1)) for z in (-approximate.clamp(max=0), approximate.abs()))
        return error, negative / total.clamp(min=torch.finfo(total.dtype).tiny)

    def row_minimum(self, psi: Tensor, epsilon: Tensor) -> Tensor:
        """Soft minimum −log Σ_j exp(ψ_j) K̃_ij: at most log m below the least, and O((n+m)R)."""
        return -self.soft_rows(psi, epsilon)

    def kernel(self, phi: Tensor, psi: Tensor, epsilon: Tensor) -> "_LowRankKernel":
        """Weights e^φ_i K̃_ij e^ψ_j of a flat batch."""
        return _LowRankKernel(*self.factors(epsilon), phi.exp(), psi.exp())

    def soft_rows(self, psi: Tensor, epsilon: Tensor) -> Tensor:
        """Logarithm of Σ_j exp(ψ_j) K̃_ij."""
        top = psi.amax(-1, keepdim=True)
        X, Y = self.factors(epsilon)
        sums = X @ (Y.mT @ (psi - top).exp()[..., None])
        return top + _positive(sums[..., 0], torch.ones_like(top)).log()

    def product(self, phi: Tensor, psi: Tensor, epsilon: Tensor, v: Tensor) -> Tensor:
        """Σ_j e^φ_i K̃_ij e^ψ_j v_j."""
        X, Y = self.factors(epsilon)
        return phi.exp()[..., None] * (X @ (Y.mT @ (psi.exp()[..., None] * v)))

    def expected(self, phi: Tensor, psi: Tensor, epsilon: Tensor) -> Tensor:
        """Σ_j ½|x_i − y_j|² e^φ_i K̃_ij e^ψ_j of each row, by products with 1, y and |y|²."""
        centre = self.cloud.x.mean(-2, keepdim=True)
        x, y = self.cloud.x - centre, self.cloud.y - centre
        squares = y.square().sum(-1, keepdim=True)
        columns = torch.cat([torch.ones_like(squares), squares, y], -1)
        sums = self.product(phi, psi, epsilon, columns)
        own, crossed = x.square().sum(-1) * sums[..., 0], (x * sums[..., 2:]).sum(-1)
        return (own + sums[..., 1]) / 2 - crossed


class _LowRankKernel:
    """diag(e^φ) F_x F_yᵀ diag(e^ψ), whose sums are looked at before they are given out."""

    def __init__(self, X: Tensor, Y: Tensor, left: Tensor, right: Tensor) -> None:
        self._X, self._Y, self._left, self._right = X, Y, left, right

    def rows(self, w: Float[Tensor, "B m"]) -> Float[Tensor, "B n"]:
        """Sums over columns, Σ_j K_ij w_j."""
        sums = torch.bmm(self._X, torch.bmm(self._Y.mT, (self._right * w)[..., None]))[..., 0]
        return _positive(self._left * sums, self._left)

    def columns(self, w: Float[Tensor, "B n"]) -> Float[Tensor, "B m"]:
        """Sums over rows, Σ_i K_ij w_i."""
        sums = torch.bmm(self._Y, torch.bmm(self._X.mT, (self._left * w)[..., None]))[..., 0]
        return _positive(self._right * sums, self._right)


def _positive(sums: Tensor, weights: Tensor) -> Tensor:
    """The sums, if all that have weight are positive and finite."""
    good = (sums.isfinite() & (sums > 0)) | (weights == 0)
    if not bool(good.all()):
        raise _PositivityLostError(f"{int((~good).sum())} sums over the kernel are not positive.")
    return sums


def _gaussian(x: Tensor, y: Tensor, epsilon: Tensor) -> Tensor:
    distance = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    return torch.exp(-distance.square() / (2 * epsilon[..., None, None]))


def _farthest_points(z: Float[Tensor, "*batch N d"], count: int) -> Float[Tensor, "*batch R d"]:
    """Points each farthest from those before, from the one nearest the mean."""
    chosen: list[Tensor] = []
    away = -(z - z.mean(-2, keepdim=True)).square().sum(-1)
    for k in range(count):
        at = away.argmax(-1)[..., None, None].expand(*z.shape[:-2], 1, z.shape[-1])
        chosen.append(z.gather(-2, at))
        distance = (z - chosen[-1]).square().sum(-1)
        away = distance if k == 0 else torch.minimum(away, distance)
    return torch.cat(chosen, -2)


@dataclass(frozen=True, kw_only=True, eq=False)
class NystromCoupling:
    r"""A coupling sought on a low-rank kernel, and what the search was worth.

    Attributes
    ----------
    coupling
        On the exact kernel, as is its marginal error; its sweeps are those on both kernels.
    kernel
        Which kernel the potentials come from, and why where it is the exact one.
    rank
        Landmarks.
    kernel_error
        Largest \|K̃ − K\| (K ≤ 1) over a fixed sample of up to 256 × 256 pairs.
    kernel_bound
        What no pair's error can exceed.
    negative_share
        Share of the sample's Σ|K̃| that is negative; more than the tolerance is lost positivity.
    low_rank_error, exact_error
        Marginal error of the low-rank potentials within K̃ and on K; NaN if positivity was lost.
    low_rank_iterations
        Sweeps on K̃; 0 if positivity was lost (those up to the loss are not counted).
    """

    coupling: Coupling
    kernel: KernelUsed
    rank: int
    kernel_error: float
    kernel_bound: float
    negative_share: float
    low_rank_error: float = float("nan")
    exact_error: float = float("nan")
    low_rank_iterations: int = 0


def nystrom_coupling(
    cloud: PointCloud,
    a: Tensor | ArrayLike | None = None,
    b: Tensor | ArrayLike | None = None,
    *,
    rank: int | None = None,
    **options: Unpack[Options],
) -> NystromCoupling:
    r"""Entropic coupling of two clouds, sought on a Nyström kernel and judged on the exact one.

    .. math:: \Pi_{ij} = a_i b_j \exp\big((f_i + g_j - \tfrac12|x_i-y_j|^2)/\varepsilon\big),
              \qquad g \text{ from } \tilde K

    Parameters
    ----------
    cloud
        Points x and y of one problem, exponent 2.
    a, b
        Masses with equal totals; uniform of total one when not given.
    rank
        Landmarks; see :class:`NystromCloud`.
    **options
        :class:`~flowscope.transport.options.Options`.

    Raises
    ------
    InvalidInputError
        As for ``sinkhorn`` and :class:`NystromCloud`, and for a batch of problems.
    ConvergenceError
        If the exact kernel, gone on with, did not reach the tolerance either.

    Notes
    -----
    O((n+m)R) a sweep, O((n+m)R²) for the factors, and one exact sweep by tiles, O(nmd), that makes
    the rows exact and measures the columns. Where K̃ has a negative entry or sum the exact solver
    starts anew; where the exact error exceeds the tolerance it goes on from the potentials found.
    No gradient is kept. Source: 000 §7, M.3.

    Examples
    --------
    >>> x = torch.linspace(-1, 1, 200, dtype=torch.float64)[:, None]
    >>> found = nystrom_coupling(PointCloud(x, x + 0.5), epsilon=0.5, rank=20)
    >>> found.kernel, found.coupling.status
    ('nystrom', 'converged')
    """
    if cloud.batch:
        todo = f"found leading axes {cloud.batch}. Call it for each, or use sinkhorn."
        raise InvalidInputError(f"nystrom_coupling takes one problem; {todo}")
    with torch.no_grad():
        geometry = NystromCloud(cloud, rank=rank)
        e = strength(geometry, options.get("epsilon"), options.get("relative_epsilon"))
        tolerance = options.get("tolerance", 1e-3)
        error, negative = (float(number) for number in geometry.sampled_error(e))
        report = partial(
            NystromCoupling,
            rank=geometry.rank,
            kernel_error=error,
            kernel_bound=float(geometry.bound(e)),
            negative_share=negative,
        )
        trial = None if negative > tolerance else _trial(geometry, a, b, options)
        if trial is None:
            coupling = sinkhorn(geometry.cloud, a, b, **options)
            return report(coupling=coupling, kernel="exact (positivity lost)")
        coupling = _on_exact_kernel(trial, geometry.cloud, tolerance)
        report = partial(
            report,
            low_rank_error=float(trial.marginal_error),
            exact_error=float(coupling.marginal_error),
            low_rank_iterations=int(trial.iterations),
        )
        if bool(coupling.converged):
            return report(coupling=coupling, kernel="nystrom")
        return report(coupling=_continued(coupling, options), kernel="exact (kernel error)")


def _trial(
    geometry: NystromCloud,
    a: Tensor | ArrayLike | None,
    b: Tensor | ArrayLike | None,
    options: Options,
) -> Coupling | None:
    """The coupling within the low-rank kernel; None where positivity was lost on the way."""
    try:
        return sinkhorn(geometry, a, b, **cast(Options, {**options, "on_failure": "return"}))
    except _PositivityLostError:
        return None


def _on_exact_kernel(trial: Coupling, cloud: PointCloud, tolerance: float) -> Coupling:
    """The same column potentials on the exact kernel, with rows made exact."""
    e, a, b = trial.epsilon, trial.a, trial.b
    psi = b.log() + trial.g / e
    f = -e * cloud.soft_rows(psi, e)
    columns = (psi + cloud.transposed().soft_rows(a.log() + f / e, e)).exp()
    error = (columns - b).abs().sum(-1) / a.sum(-1)
    return replace(trial, geometry=cloud, f=f, marginal_error=error, converged=error <= tolerance)


def _continued(start: Coupling, options: Options) -> Coupling:
    """The exact solver from the potentials found, its sweeps added to theirs."""
    spent = start.iterations
    left = max(1, options.get("max_iterations", 10_000) - int(spent))
    further = {"epsilon": start.epsilon, "relative_epsilon": None, "initial": (start.f, start.g)}
    settings = cast(Options, {**options, **further, "max_iterations": left})
    try:
        found = sinkhorn(start.geometry, start.a, start.b, **settings)
    except ConvergenceError as failure:
        reached = replace(failure.partial, iterations=failure.partial.iterations + spent)
        raise ConvergenceError(str(failure), reached) from failure
    return replace(found, iterations=found.iterations + spent)
