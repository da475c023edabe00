r"""Samples of a velocity as the decomposition reads them: in the metric of the diffusion.

.. math:: v = a^{-1/2}(u - b_R), \qquad a\nabla_x\theta = a^{1/2}\,\nabla_y\theta, \quad
          y = a^{-1/2}x, \qquad z = L^{-1}(x - \bar x), \quad LL^\top = \mathrm{Cov}(x) .

In the coordinates y the diffusion is the identity and R is a plain squared length; in the
coordinates z the functions of the dictionary have one scale.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_reals, refuse

__all__ = ["Blocks", "Diffusion", "Reference", "Sample", "blocks", "diffusion_matrix", "sample"]

Reference: TypeAlias = Float[Tensor, "N d"] | Callable[[Tensor], Tensor] | None
Diffusion: TypeAlias = Tensor | ArrayLike | float

# Smaller against the largest, an eigenvalue of a diffusion or of a covariance is none.
_SINGULAR = 1e-10


@dataclass(frozen=True, kw_only=True, eq=False)
class Blocks:
    """Which unit of resampling each point belongs to.

    Attributes
    ----------
    labels
        Block of each point, 0 … count − 1.
    count
        Number of blocks; groups beyond the bound are pooled at random.
    groups
        Number of groups that were passed; the number of points where none were.
    """

    labels: Int64[Tensor, "N"]
    count: int
    groups: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """Points and velocities, checked, in float64; velocities less the reference."""

    points: Float64[Tensor, "N d"]
    velocities: Float64[Tensor, "N d"]
    reference: Float64[Tensor, "N d"]
    blocks: Blocks
    times: Float64[Tensor, "N"]
    timed: bool

    @cached_property
    def centre(self) -> Tensor:
        """Mean of the points."""
        return self.points.mean(0)

    @cached_property
    def scale(self) -> Tensor:
        """L, the lower Cholesky factor of the covariance of the points."""
        centred = self.points - self.centre
        found: Tensor = torch.linalg.cholesky(centred.mT @ centred / len(centred))
        return found

    def whitened(self, x: Tensor) -> Tensor:
        """Coordinates z of points x."""
        found: Tensor = torch.linalg.solve_triangular(self.scale, (x - self.centre).mT, upper=False)
        return found.mT

    def clock(self, t: Tensor) -> Tensor:
        """Times, centred and divided by their spread; zero where time plays no part."""
        if not self.timed:
            return torch.zeros_like(t)
        return (t - self.times.mean()) / self.times.std()


def diffusion_matrix(diffusion: Diffusion, d: int, like: Tensor) -> Float64[Tensor, "d d"]:
    r"""Constant diffusion as a matrix, symmetric and positive semi-definite.

    .. math:: a = a^\top \succeq 0

    Parameters
    ----------
    diffusion : a, a matrix, its diagonal or a number.
    d : number of coordinates.
    like : tensor whose device is used.

    Raises
    ------
    InvalidInputError
        If the shape does not fit, or a is not finite, not symmetric or has a negative eigenvalue.

    Notes
    -----
    O(d³).

    Examples
    --------
    >>> diffusion_matrix(2.0, 2, torch.zeros(1))
    tensor([[2., 0.],
            [0., 2.]], dtype=torch.float64)
    """
    a = as_reals(diffusion, "diffusion", like.device).double().to(like.device)
    if a.ndim == 0:
        a = a.expand(d)
    if a.shape == (d,):
        a = torch.diag(a)
    if a.shape != (d, d):
        raise InvalidInputError(
            f"diffusion must be a number, {d} diagonal entries or a matrix of shape ({d}, {d}); "
            f"found shape {tuple(a.shape)}. Pass it in the coordinates of the points."
        )
    refuse(~a.isfinite(), a, "diffusion must be finite", "Look for a broken estimate.")
    skew = float((a - a.mT).abs().max())
    if skew > 1e-8 * float(a.abs().max()):
        raise InvalidInputError(
            f"diffusion must be symmetric; found a difference of {skew:.3g} from its transpose. "
            "Pass a = σσᵀ."
        )
    least = float(torch.linalg.eigvalsh(a)[0])
    if least < -1e-10 * float(a.abs().max()):
        raise InvalidInputError(
            f"diffusion must have no negative eigenvalue; found {least:.3g}. Pass a = σσᵀ."
        )
    return 0.5 * (a + a.mT)


def roots(a: Float64[Tensor, "d d"]) -> tuple[Tensor, Tensor]:
    """Symmetric a^{1/2} and a^{-1/2}; raises where a is singular."""
    values, vectors = torch.linalg.eigh(a)
    if float(values[0]) <= _SINGULAR * float(values[-1]):
        raise InvalidInputError(
            f"diffusion must be invertible; its smallest eigenvalue is {float(values[0]):.3g} and "
            f"its largest {float(values[-1]):.3g}. Pass regularise=(ε, …), decreasing: R is then "
            "taken with a + εI for each, and the table shows whether it settles."
        )
    root = values.sqrt()
    return (vectors * root) @ vectors.mT, (vectors / root) @ vectors.mT


def blocks(
    groups: Tensor | None, N: int, *, generator: torch.Generator, at_most: int, least: int
) -> Blocks:
    r"""Units of resampling: groups, pooled at random where there are many.

    .. math:: N \to \{0, \dots, \min(G, B_{\max}) - 1\}

    Parameters
    ----------
    groups : G labels, one per point; without, each point is its own group.
    N : number of points.
    generator : draws which groups share a block.
    at_most : B_max, bound on the number of blocks.
    least : fewest groups that can be split.

    Raises
    ------
    InvalidInputError
        If there is not one integer per point, or there are fewer groups than ``least``.

    Notes
    -----
    O(N log N). Groups that are independent stay independent when pooled, and the moments of at
    most B_max blocks are kept.

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> blocks(torch.tensor([7, 7, 9, 9]), 4, generator=g, at_most=8, least=2).count
    2
    """
    if groups is None:
        labels = torch.arange(N)
    else:
        if groups.shape != (N,) or groups.is_floating_point() or groups.is_complex():
            raise InvalidInputError(
                f"groups must be {N} integers, one per point; found shape {tuple(groups.shape)} "
                f"of {groups.dtype}. Number the prompts, and repeat each number for its points."
            )
        labels = torch.unique(groups, return_inverse=True)[1]
    count = int(labels.max()) + 1
    if count < least:
        raise InvalidInputError(
            f"At least {least} groups are needed to fit on some and judge on others; found "
            f"{count}. Pass more prompts, or fewer folds if there are really so few."
        )
    order = torch.randperm(count, generator=generator, device=generator.device).to(labels.device)
    kept = min(count, at_most)
    pooled = (order % kept)[labels]
    return Blocks(labels=pooled, count=kept, groups=count)


def sample(
    points: Tensor | ArrayLike,
    velocities: Tensor | ArrayLike,
    *,
    reference: Reference,
    blocks: Callable[[int], Blocks],
    times: Tensor | None,
) -> Sample:
    r"""Points and velocities checked against the assumptions of the decomposition.

    .. math:: (x_i,\; u_i - b_R(x_i),\; t_i)_{i \le N}

    Parameters
    ----------
    points : x.
    velocities : u, one (noisy) vector per point.
    reference : b_R, values, a function of the points, or None for zero.
    blocks : makes the units of resampling from N.
    times : t of each point, or None.

    Raises
    ------
    InvalidInputError
        If shapes do not match, an entry is not finite, or the points do not span their space.

    Notes
    -----
    O(N d²).

    Examples
    --------
    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> one = Blocks(labels=torch.zeros(3, dtype=torch.int64), count=1, groups=1)
    >>> sample(x, x, reference=None, blocks=lambda n: one, times=None).scale
    tensor([[0.8165]], dtype=torch.float64)
    """
    x = _matrix(points, "points")
    u = _matrix(velocities, "velocities")
    if u.shape != x.shape:
        raise InvalidInputError(
            f"points and velocities must have one shape [N, d]; found {tuple(x.shape)} and "
            f"{tuple(u.shape)}. Pass the velocity of each point, in the same coordinates."
        )
    drift = reference(x) if callable(reference) else reference
    b = torch.zeros_like(x) if drift is None else _matrix(drift, "reference").to(x.device)
    if b.shape != x.shape:
        raise InvalidInputError(
            f"reference must give one vector per point, shape {tuple(x.shape)}; found "
            f"{tuple(b.shape)}."
        )
    _check_span(x)
    made = blocks(len(x))
    return Sample(
        points=x,
        velocities=u.to(x.device) - b,
        reference=b,
        blocks=Blocks(labels=made.labels.to(x.device), count=made.count, groups=made.groups),
        times=_clock(times, x),
        timed=times is not None,
    )


def _matrix(x: Tensor | ArrayLike, name: str) -> Tensor:
    found = as_reals(x, name).double()
    if found.ndim != 2 or 0 in found.shape:
        raise InvalidInputError(
            f"{name} must have shape [N, d] with at least one point; found {tuple(found.shape)}. "
            "Put samples in rows."
        )
    refuse(~found.isfinite(), found, f"{name} must be finite", "Remove or mask such rows first.")
    return found.detach()


def _clock(times: Tensor | None, x: Tensor) -> Tensor:
    if times is None:
        return torch.zeros(len(x), dtype=torch.float64, device=x.device)
    t = as_reals(times, "times").double().to(x.device)
    if t.shape != (len(x),):
        raise InvalidInputError(
            f"times must be {len(x)} numbers, one per point; found shape {tuple(t.shape)}."
        )
    refuse(~t.isfinite(), t, "times must be finite", "Remove such points first.")
    if float(t.min()) == float(t.max()):
        raise InvalidInputError(
            "times must take at least two values; found one. Leave times out for a single time."
        )
    return t


def _check_span(x: Tensor) -> None:
    d = x.shape[1]
    spread, most = x.std(0, correction=0), x.abs().amax(0)
    unit = (x - x.mean(0)) / spread
    # Read at once; matrices as small as these are quicker on the host, too.
    numbers = torch.cat([spread[None], most[None], unit.mT @ unit / len(x)]).cpu()
    still = (numbers[0] <= 1e-12 * numbers[1].clamp_min(1e-300)).nonzero().flatten().tolist()
    if still:
        raise InvalidInputError(
            f"Every coordinate of points must vary; coordinate {still[0]} is constant "
            f"({len(still)} of {d} are). Leave it out: nothing moves along it that could "
            "be told apart."
        )
    values = torch.linalg.eigvalsh(numbers[2:])
    if float(values[0]) <= _SINGULAR * float(values[-1]):
        rank = int((values > _SINGULAR * values[-1]).sum())
        raise InvalidInputError(
            f"points must span their {d} coordinates; found rank {rank} among {len(x)} "
            "points. Pass the leading principal coordinates instead."
        )
