r"""Particles on the unit sphere that move by attention.

$$
\dot x_i = P_{x_i}\sum_j a_{ij}\,Vx_j,\qquad P_x = I - xx^\top,\qquad
a_{ij} \propto e^{\beta\langle Qx_i,\,Kx_j\rangle},
$$

with weights that sum to one over the visible $j$ (softmax), or divided by the number of visible
$j$ (unnormalised). A causal particle sees itself and the particles before it. Noise of strength
$\sigma$ adds Brownian motion on the sphere (generator $\frac12\sigma^2\Delta$), which damps the
spherical degree $\ell$ at the rate $\frac12\sigma^2\ell(\ell+d-2)$.
"""

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.sphere.rates import read_beta

__all__ = [
    "ParticleAttention",
    "as_particles",
    "jittered",
    "on_sphere",
    "particle_flow",
    "particle_velocity",
    "plain_velocity",
]

UNIT_TOLERANCE = 1e-6
_TOO_FAR = (
    "Velocity or noise times the length of a step is too large for float64. Take a shorter "
    "duration, more steps, less noise or smaller matrices."
)
_Matrices: TypeAlias = tuple[Tensor | None, Tensor | None, Tensor | None]


@dataclass(frozen=True, eq=False)
class ParticleAttention:
    """Attention that moves the particles; a matrix left out is the identity.

    Raises
    ------
    InvalidInputError
        If ``beta`` is not above 0 or not a number.
    """

    beta: float
    query: Tensor | None = None
    key: Tensor | None = None
    value: Tensor | None = None
    normalised: bool = True
    causal: bool = False

    def __post_init__(self) -> None:
        read_beta(self.beta)


def particle_velocity(x: Tensor, attention: ParticleAttention) -> Float64[Tensor, "N d"]:
    """Velocity of every particle, tangent to the sphere.

    Parameters
    ----------
    x
        Unit vectors, one a row.
    attention
        Inverse temperature, matrices and mask.

    Raises
    ------
    InvalidInputError
        If a row of ``x`` is not a unit vector, a matrix does not fit or a weight overflows.

    Examples
    --------
    >>> v = particle_velocity(torch.eye(2), ParticleAttention(beta=1e-6))
    >>> v.round(decimals=4).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    points = as_particles(x)
    return _velocity(points, attention, _matrices(attention, points.shape[1]))


def particle_flow(
    x: Tensor,
    attention: ParticleAttention,
    duration: float,
    steps: int,
    *,
    noise: float = 0.0,
    generator: torch.Generator | None = None,
) -> Float64[Tensor, "times N d"]:
    r"""Path of the particles at ``steps + 1`` equally spaced times, the start first.

    A step is one of the classical Runge-Kutta method of order four for the velocity at ``x/|x|``,
    then the division by the norm. Both leave the order at four, and the path on the sphere. With
    noise, a Brownian increment along the geodesic of a Gaussian tangent vector follows, of weak
    order one.

    Parameters
    ----------
    x
        Unit vectors, one a row.
    attention
        Inverse temperature, matrices and mask.
    duration, steps
        Time, and the number of steps it is cut into.
    noise
        Strength σ of the noise, per square root of time and coordinate of the tangent plane.
    generator
        Random numbers of the noise.

    Raises
    ------
    InvalidInputError
        As `particle_velocity`, or if ``duration`` is not finite, ``steps`` is below 1, ``noise`` is
        negative, or a step is so long that the particles leave the range of float64.

    Examples
    --------
    >>> path = particle_flow(torch.eye(6), ParticleAttention(beta=2.0), duration=1.0, steps=40)
    >>> round(float(path[-1, 0] @ path[-1, 1]), 6)
    0.249395
    """
    if steps < 1 or not math.isfinite(duration):
        raise InvalidInputError(
            f"A flow needs a finite duration and 1 step or more; found {duration} and {steps}."
        )
    if not 0 <= noise < math.inf:
        raise InvalidInputError(f"noise is a strength of 0 or more; found {noise}.")
    points = as_particles(x)
    matrices = _matrices(attention, points.shape[1])
    path = [points]
    for _ in range(steps):
        moved = _step(path[-1], attention, matrices, duration / steps)
        path.append(jittered(moved, noise * math.sqrt(abs(duration) / steps), generator))
    if not on_sphere(path[-1]):
        raise InvalidInputError(_TOO_FAR)
    return torch.stack(path)


def on_sphere(x: Float64[Tensor, "*batch N d"]) -> bool:
    """Whether all rows are unit vectors; where a step overflowed, some are NaN or 0."""
    return bool(((torch.linalg.vector_norm(x, dim=-1) - 1).abs() <= UNIT_TOLERANCE).all())


def jittered(
    x: Float64[Tensor, "*batch N d"],
    size: float | Tensor,
    generator: torch.Generator | None = None,
) -> Float64[Tensor, "*batch N d"]:
    """Unit vectors moved along the geodesics of Gaussian tangent vectors of that size."""
    if isinstance(size, float) and size == 0:
        return x
    drawn = torch.randn(x.shape, generator=generator, dtype=x.dtype)
    tangent = size * (drawn - (drawn * x).sum(-1, keepdim=True) * x)
    angle = torch.linalg.vector_norm(tangent, dim=-1, keepdim=True)
    return _unit(angle.cos() * x + torch.sinc(angle / math.pi) * tangent)


def _step(x: Tensor, attention: ParticleAttention, matrices: _Matrices, h: float) -> Tensor:
    first = _velocity(x, attention, matrices)
    second = _velocity(_unit(x + 0.5 * h * first), attention, matrices)
    third = _velocity(_unit(x + 0.5 * h * second), attention, matrices)
    fourth = _velocity(_unit(x + h * third), attention, matrices)
    return _unit(x + h / 6 * (first + 2 * second + 2 * third + fourth))


def _velocity(x: Tensor, attention: ParticleAttention, matrices: _Matrices) -> Tensor:
    query, key, value = (x if matrix is None else x @ matrix.mT for matrix in matrices)
    scores = attention.beta * query @ key.mT
    if attention.causal:
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    if attention.normalised:
        weights = scores.softmax(-1)
    else:
        weights = scores.exp() / (scores > -torch.inf).sum(-1, keepdim=True)
    write: Tensor = weights @ value
    if not bool(torch.isfinite(write).all()):
        if not bool(torch.isfinite(x).all()):
            raise InvalidInputError(_TOO_FAR)
        raise InvalidInputError(
            f"Weights of attention overflow at beta = {attention.beta}. "
            "Lower beta or the norm of the matrices, or take normalised=True."
        )
    radial: Tensor = (write * x).sum(-1, keepdim=True) * x
    return write - radial


def plain_velocity(x: Float64[Tensor, "*batch N d"], beta: float) -> Float64[Tensor, "*batch N d"]:
    """Velocity with identity matrices and softmax, of several clouds at once, unchecked."""
    return _velocity(x, ParticleAttention(beta), (None, None, None))


def _unit(x: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / norms


def as_particles(x: Tensor) -> Float64[Tensor, "N d"]:
    """Read x as unit vectors, one a row."""
    points = torch.as_tensor(x).to(torch.float64)
    if points.ndim != 2 or points.shape[0] < 1 or points.shape[1] < 2:
        raise InvalidInputError(
            "Particles are a matrix with one row a particle and 2 columns or more; "
            f"found shape {tuple(points.shape)}."
        )
    excess = float((torch.linalg.vector_norm(points, dim=-1) - 1).abs().max())
    if not excess <= UNIT_TOLERANCE:
        raise InvalidInputError(
            f"Particles are unit vectors; found a norm off by {excess:.3g}. "
            "Divide each row by its norm first."
        )
    return _unit(points)


def _matrices(attention: ParticleAttention, dim: int) -> _Matrices:
    return (
        _read_matrix("query", attention.query, (None, dim)),
        _read_matrix("key", attention.key, _key_shape(attention, dim)),
        _read_matrix("value", attention.value, (dim, dim)),
    )


def _key_shape(attention: ParticleAttention, dim: int) -> tuple[int | None, int]:
    return (dim if attention.query is None else attention.query.shape[0], dim)


def _read_matrix(name: str, matrix: Tensor | None, shape: tuple[int | None, int]) -> Tensor | None:
    rows, columns = shape
    if matrix is None:
        if rows is not None and rows != columns:
            raise InvalidInputError(
                f"{name} is the identity of {columns} rows, but query has {rows} rows."
            )
        return None
    good = matrix.ndim == 2 and matrix.shape[1] == columns and rows in (None, matrix.shape[0])
    if not good or not bool(torch.isfinite(matrix).all()):
        wanted = f"{'any number of' if rows is None else rows} rows and {columns} columns"
        raise InvalidInputError(
            f"{name} is a finite matrix of {wanted}; found shape {tuple(matrix.shape)}."
        )
    return matrix.to(torch.float64)
