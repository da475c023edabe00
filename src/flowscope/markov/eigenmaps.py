r"""Diffusion maps and magnetic maps of a head: tokens as points, by the slow modes of its kernel.

With $K = e^{-\beta D}$, degrees $g$ and $\alpha \in [0, 1]$, the kernel and its law are

$$
P_{ij} \propto_j \frac{K_{ij}}{(g_i g_j)^{\alpha}}, \qquad
\pi_i \propto \sum_j \frac{K_{ij}}{(g_i g_j)^{\alpha}}, \qquad
P\psi_k = \lambda_k\psi_k, \quad \sum_i \pi_i \psi_k(i)^2 = 1, \qquad
x_i = \bigl(\lambda_1^t\psi_1(i), \dots, \lambda_r^t\psi_r(i)\bigr)
$$

(Coifman and Lafon 2006). $\psi_0 = 1$ with $\lambda_0 = 1$ says nothing and is left out. $P$ is
reversible: $\psi_k = v_k/\sqrt\pi$ with $v_k$ an eigenvector of the symmetric
$\sqrt{\pi_i}P_{ij}/\sqrt{\pi_j}$. The magnetic map does the same with the phases of
`flowscope.markov.magnetic`, where no mode is trivial; at charge 0 it is the diffusion map at time
0 with $\psi_0$ in front.

**Order.** Modes come by falling $\lambda$: slow ones first. Kernels of points have $\lambda \ge 0$.
Query–key scores make indefinite $D$, and $\lambda$ can come near $-1$ (tokens that change sides at
each step); such modes are not among the first, and a truncated map at a whole time $t$ then leaves
out as much as $|\lambda|^t$ of the lowest. ``least`` tells.

**Signs.** An eigenvector is fixed up to a sign or a phase: the first entry of $v_k$ whose modulus
is within a thousandth of the largest is made positive. Where eigenvalues coincide, only the space
of their vectors is determined; the vectors in it are those of this build of LAPACK, and distances
between coordinates do not depend on them as long as no such group is cut.

**Routes.** Up to 512 tokens: the matrix and `torch.linalg.eigh`, batched over heads. Beyond:
products with blocks, tile by tile, and `flowscope.markov.eigensolver`; scores given as queries and
keys are then never held as a matrix.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.markov.eigensolver import leading_eigenpairs
from flowscope.markov.magnetic import log_kernel
from flowscope.markov.operators import (
    DenseScores,
    FactoredScores,
    apply_kernel,
    as_charge,
    log_degrees,
    pair_phases,
)
from flowscope.markov.scores import as_scores, as_share, as_strength
from flowscope.simplex.probability import ArrayLike, refuse

__all__ = ["DiffusionMap", "MagneticMap", "diffusion_map", "magnetic_map"]

_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}


@dataclass(frozen=True, kw_only=True, eq=False)
class DiffusionMap:
    r"""Coordinates of tokens from the slow modes of the diffusion kernel.

    Attributes
    ----------
    eigenvalues
        $\lambda_1 \ge \dots \ge \lambda_r$, without the trivial one.
    coordinates
        $\lambda_k^t\psi_k(i)$, one row a token.
    functions
        $\psi_k(i)$, of unit length in $L^2(\pi)$.
    stationary
        $\pi$.
    residual
        Largest $\Vert Mv - \lambda v\Vert$ of the symmetric form over the modes.
    least
        Lowest eigenvalue; for the tiled route the lowest Ritz value, an upper bound of it.
    time
        $t$.
    """

    eigenvalues: Float[Tensor, "*batch r"]
    coordinates: Float[Tensor, "*batch N r"]
    functions: Float[Tensor, "*batch N r"]
    stationary: Float[Tensor, "*batch N"]
    residual: Float[Tensor, "*batch"]
    least: Float[Tensor, "*batch"]
    time: float


@dataclass(frozen=True, kw_only=True, eq=False)
class MagneticMap:
    r"""Lowest modes of the magnetic Laplacian.

    Attributes
    ----------
    eigenvalues
        $\mu_1 \le \dots \le \mu_r$ of $L$, from 0 to 2.
    vectors
        $\phi_k = v_k/\sqrt\pi$, of unit length in $L^2(\pi)$, $\pi = g/\sum g$.
    stationary
        $\pi$.
    residual
        Largest $\Vert Lv - \mu v\Vert$ over the modes.
    charge
        $q$.
    """

    eigenvalues: Float[Tensor, "*batch r"]
    vectors: Complex[Tensor, "*batch N r"]
    stationary: Float[Tensor, "*batch N"]
    residual: Float[Tensor, "*batch"]
    charge: float

    @property
    def phases(self) -> Float[Tensor, "*batch N r"]:
        r"""Angles of the entries in $(-\pi, \pi]$: the place of a token around a cycle."""
        return self.vectors.angle()

    @property
    def moduli(self) -> Float[Tensor, "*batch N r"]:
        """Lengths of the entries: how much a token takes part."""
        return self.vectors.abs()


@dataclass(frozen=True, kw_only=True, eq=False)
class _Modes:
    values: Tensor
    vectors: Tensor
    law: Tensor
    residual: Tensor
    least: Tensor


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """What is asked of the symmetric form of a kernel; charge None is the real one."""

    count: int
    alpha: float = 0.0
    charge: float | None = None
    loops: bool = True
    tolerance: float | None = None
    dense_limit: int = 512


def diffusion_map(
    scores: Tensor | ArrayLike | FactoredScores,
    beta: Tensor | float = 1.0,
    *,
    alpha: float = 0.0,
    coordinates: int = 2,
    time: float = 1.0,
    tolerance: float | None = None,
    dense_limit: int = 512,
) -> DiffusionMap:
    r"""Diffusion map of the tokens of a head, $x_i = (\lambda_k^t\psi_k(i))_{k=1\dots r}$.

    Parameters
    ----------
    scores
        Raw scores W (batched; $-\infty$ on both sides where there is no pair), or queries and keys
        as `FactoredScores`.
    beta
        β > 0, one or one for each matrix.
    alpha
        Exponent that takes out the density of tokens: 0 none, ½ Fokker–Planck, 1 all of it.
    coordinates
        $r$, below the number of tokens.
    time
        $t \ge 0$. A time that is not whole needs eigenvalues that are not negative.
    tolerance
        Largest residual of the tiled route; $10^{-9}$ in double, $10^{-5}$ in single precision.
    dense_limit
        Number of tokens up to which the matrix is held and taken apart whole.

    Raises
    ------
    InvalidInputError
        For scores, numbers or parameters outside what is said above.
    ConvergenceError
        When the tiled route does not reach the tolerance.

    Notes
    -----
    Dense: $O(N^3)$, $N^2$ numbers a head. Tiled: some 25 products with a block of $r + 8$ vectors,
    $N^2(d + r + 8)$ multiplications each, two thirds of them in single precision; memory is some
    $25\,(r + 8)N$ numbers and a few tiles.

    Examples
    --------
    >>> angle = torch.arange(16) * (2 * torch.pi / 16)
    >>> x = torch.stack([angle.cos(), angle.sin()], -1).double()
    >>> diffusion_map(x @ x.mT, beta=1.0).eigenvalues
    tensor([0.6978, 0.6978], dtype=torch.float64)
    """
    if not (math.isfinite(time) and time >= 0):
        raise InvalidInputError(f"time must be finite and not negative; got {time!r}.")
    wanted = _Wanted(
        count=coordinates,
        alpha=as_share(alpha, "alpha"),
        tolerance=tolerance,
        dense_limit=dense_limit,
    )
    modes = _modes(scores, beta, wanted)
    functions = _functions(modes)
    return DiffusionMap(
        eigenvalues=modes.values,
        coordinates=functions * _powers(modes.values, time)[..., None, :],
        functions=functions,
        stationary=modes.law,
        residual=modes.residual,
        least=modes.least,
        time=float(time),
    )


def magnetic_map(
    scores: Tensor | ArrayLike | FactoredScores,
    beta: Tensor | float = 1.0,
    charge: float = 0.0,
    *,
    coordinates: int = 2,
    loops: bool = True,
    tolerance: float | None = None,
    dense_limit: int = 512,
) -> MagneticMap:
    r"""Lowest modes of the magnetic Laplacian, $L v_k = \mu_k v_k$, as functions $v_k/\sqrt\pi$.

    Parameters
    ----------
    scores, beta, tolerance, dense_limit
        As for `diffusion_map`.
    charge
        $q$, finite.
    coordinates
        Number of modes, at most the number of tokens; none is left out.
    loops
        Whether $K_{ii}$ counts, as for `magnetic_laplacian`.

    Raises
    ------
    InvalidInputError, ConvergenceError
        As for `diffusion_map`; also for a token without pairs when there are no loops.

    Notes
    -----
    With phases that look random (a large charge) eigenvalues crowd and the tiled route needs many
    products, or gives up and says so.

    Examples
    --------
    >>> W = torch.tensor([[0.0, 0.5, -0.5], [-0.5, 0.0, 0.5], [0.5, -0.5, 0.0]]).double()
    >>> found = magnetic_map(W, beta=1.0, charge=0.25, loops=False)
    >>> found.eigenvalues
    tensor([0.1340, 1.0000], dtype=torch.float64)
    >>> found.phases[:, 0] / torch.pi * 3
    tensor([ 0., -2.,  2.], dtype=torch.float64)
    """
    wanted = _Wanted(
        count=coordinates,
        charge=as_charge(charge),
        loops=loops,
        tolerance=tolerance,
        dense_limit=dense_limit,
    )
    modes = _modes(scores, beta, wanted)
    return MagneticMap(
        eigenvalues=1.0 - modes.values,
        vectors=_functions(modes),
        stationary=modes.law,
        residual=modes.residual,
        charge=as_charge(charge),
    )


def _modes(
    scores: Tensor | ArrayLike | FactoredScores, beta: Tensor | float, wanted: _Wanted
) -> _Modes:
    """Leading modes by the route that the number of tokens calls for."""
    if isinstance(scores, FactoredScores):
        _check_count(wanted, scores.N)
        if wanted.dense_limit < scores.N:
            return _tiled_modes(scores, float(as_strength(beta, scores.q)), wanted)
        scores = scores.matrix()
    W = as_scores(scores)
    _check_count(wanted, W.shape[-1])
    if W.shape[-1] <= wanted.dense_limit:
        return _dense_modes(W, beta, wanted)
    b = as_strength(beta, W).expand(*W.shape[:-2], 1, 1).reshape(-1).tolist()
    heads = W.reshape(-1, *W.shape[-2:])
    found = [_tiled_modes(DenseScores(W=head), b[i], wanted) for i, head in enumerate(heads)]

    def stacked(part: Callable[[_Modes], Tensor]) -> Tensor:
        joined = torch.stack([part(modes) for modes in found])
        return joined.reshape((*W.shape[:-2], *joined.shape[1:]))

    return _Modes(
        values=stacked(lambda m: m.values),
        vectors=stacked(lambda m: m.vectors),
        law=stacked(lambda m: m.law),
        residual=stacked(lambda m: m.residual),
        least=stacked(lambda m: m.least),
    )


def _dense_modes(W: Float[Tensor, "*batch N N"], beta: Tensor | float, wanted: _Wanted) -> _Modes:
    E, log_degree = log_kernel(W, beta, loops=wanted.loops)
    if wanted.alpha:
        c = wanted.alpha * log_degree
        E = E - (c[..., None] + c[..., None, :])
        log_degree = E.logsumexp(-1)
    c, law = 0.5 * log_degree, log_degree.softmax(-1)
    M = (E - (c[..., None] + c[..., None, :])).exp()
    if wanted.charge is None:
        root = law.sqrt()
        # The trivial mode goes from 1 to −1, where no other is: every token has a loop.
        M = M - 2 * root[..., None] * root[..., None, :]
    else:
        M = torch.polar(M, pair_phases(W, W.mT, wanted.charge))
    values, vectors = torch.linalg.eigh(M)
    least = values[..., 0] if wanted.charge is not None else values[..., 1]
    values, vectors = values.flip(-1)[..., : wanted.count], vectors.flip(-1)[..., : wanted.count]
    left = M @ vectors - vectors * values[..., None, :]
    residual = left.norm(dim=-2).amax(-1)
    return _Modes(values=values, vectors=_turned(vectors), law=law, residual=residual, least=least)


def _tiled_modes(scores: FactoredScores | DenseScores, beta: float, wanted: _Wanted) -> _Modes:
    log_degree = log_degrees(scores, beta, loops=wanted.loops)
    shift = wanted.alpha * log_degree
    if wanted.alpha:
        log_degree = log_degrees(scores, beta, potentials=shift)
    c, law = shift + 0.5 * log_degree, log_degree.softmax(-1)
    charge = wanted.charge
    precise = {scores.dtype: scores, torch.float32: scores.to(torch.float32)}

    def apply(x: Tensor) -> Tensor:
        tiles = precise[x.real.dtype]
        return apply_kernel(tiles, x, beta, potentials=c, charge=charge or 0.0, loops=wanted.loops)

    double = scores.dtype == torch.float64
    complex_dtype = torch.complex128 if double else torch.complex64
    pairs = leading_eigenpairs(
        apply,
        scores.N,
        wanted.count,
        dtype=scores.dtype if charge is None else complex_dtype,
        without=law.sqrt() if charge is None else None,
        device=scores.device,
        tolerance=_TOLERANCE[scores.dtype] if wanted.tolerance is None else wanted.tolerance,
    )
    return _Modes(
        values=pairs.values,
        vectors=_turned(pairs.vectors),
        law=law,
        residual=pairs.residuals.amax(),
        least=torch.tensor(pairs.least, dtype=scores.dtype, device=scores.device),
    )


def _functions(modes: _Modes) -> Tensor:
    """Eigenvectors over the root of the law: functions of unit length in L²(π)."""
    refuse(
        ~(modes.law > 0),
        modes.law,
        "every token must have weight in the stationary law",
        "The scores span more than the exponentials of their dtype hold: divide them, or lower β.",
    )
    return modes.vectors / modes.law.sqrt()[..., None]


def _turned(vectors: Tensor) -> Tensor:
    """The same eigenvectors with the sign or phase of the module docstring."""
    size = vectors.abs()
    place = (size >= 0.999 * size.amax(-2, keepdim=True)).to(torch.uint8).argmax(-2, keepdim=True)
    return vectors * vectors.gather(-2, place).sgn().conj()


def _powers(values: Float[Tensor, "*batch r"], time: float) -> Float[Tensor, "*batch r"]:
    if float(time).is_integer():
        return values.pow(int(time))
    # Zero up to rounding is zero; anything lower has no such power.
    rounding = 100 * torch.finfo(values.dtype).eps
    if bool((values < -rounding).any()):
        raise InvalidInputError(
            f"time {time} is not whole, and of {values.numel()} eigenvalues some are negative (the "
            f"lowest {float(values.min()):.3g}). Take a whole time, or fewer coordinates."
        )
    return values.clamp_min(0.0).pow(time)


def _check_count(wanted: _Wanted, N: int) -> None:
    most = N - 1 if wanted.charge is None else N
    whole = isinstance(wanted.count, int) and not isinstance(wanted.count, bool)
    if not (whole and 1 <= wanted.count <= most):
        raise InvalidInputError(
            f"coordinates must be a whole number from 1 to {most} for {N} tokens; got "
            f"{wanted.count!r}."
        )
