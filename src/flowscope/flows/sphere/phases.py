r"""Where noisy attention clusters particles, over inverse temperature and noise.

Noise is given as the rate at which it damps degree 1, $\delta=\tfrac12\sigma^2(d-1)$. The uniform
law is unstable where $\lambda_1(\beta)>\delta$. The *order* of a cloud is the length of its mean
vector: 0 for the uniform law, 1 for a point. Where several clusters last for long, the order may
be small and the number of clusters is not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.sphere.clusters import cluster_counts
from flowscope.flows.sphere.particles import jittered, on_sphere, plain_velocity
from flowscope.flows.sphere.rates import growth_rate, read_beta

__all__ = ["Phase", "phase_diagram"]


@dataclass(frozen=True, kw_only=True)
class Phase:
    """State of the particles at one inverse temperature and one noise.

    Attributes
    ----------
    beta, noise
        Inverse temperature, and the damping rate of degree 1.
    growth
        Growth rate of degree 1 without noise; the uniform law is unstable where it exceeds the
        noise.
    order
        Length of the mean vector, mean over the last third of the time.
    clusters
        Number of clusters at the end, by the gap statistic.
    """

    beta: float
    noise: float
    growth: float
    order: float
    clusters: int


def phase_diagram(
    betas: Sequence[float],
    noises: Sequence[float],
    *,
    dim: int = 3,
    particles: int = 64,
    duration: float = 40.0,
    steps: int = 400,
    generator: torch.Generator | None = None,
) -> list[Phase]:
    """States of particles that start from the uniform law, for every pair of settings.

    Parameters
    ----------
    betas, noises
        Inverse temperatures, and damping rates of degree 1.
    dim
        Dimension of the space: 2 is the circle, 3 the sphere.
    particles, duration, steps
        Particles of each cloud, how long they move, and the steps of that time.
    generator
        Random numbers of starts and noise.

    Raises
    ------
    InvalidInputError
        If an inverse temperature is not above 0, a noise is negative, nothing is asked for, there
        is no step, no time or fewer than four particles, or a step leaves the range of float64.

    Notes
    -----
    All noises of one inverse temperature move together; steps of the midpoint rule.

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> cold, hot = phase_diagram([1.0], [0.0, 3.0], duration=20.0, steps=100, generator=g)
    >>> cold.order > 0.9, hot.order < 0.4
    (True, True)
    """
    if not betas or not noises or not all(0 <= noise < math.inf for noise in noises):
        raise InvalidInputError(
            "a phase diagram needs inverse temperatures and damping rates of 0 or more; found "
            f"{list(betas)} and {list(noises)}."
        )
    if steps < 1 or particles < 4 or not 0 < duration < math.inf:
        raise InvalidInputError(
            "a phase diagram needs 1 step, 4 particles and a finite duration above 0; found "
            f"{steps} steps, {particles} particles and {duration}."
        )
    found = []
    for beta in map(read_beta, betas):
        growth = growth_rate(beta, 1, dim)
        start = torch.randn(len(noises), particles, dim, generator=generator, dtype=torch.float64)
        start = start / torch.linalg.vector_norm(start, dim=-1, keepdim=True)
        end, order = _moved(start, beta, noises, duration, steps, generator)
        if not on_sphere(end):
            raise InvalidInputError(
                f"A step of {duration / steps:.3g} with noise up to {max(noises):.3g} leaves the "
                "range of float64. Take more steps, a shorter duration or less noise."
            )
        counts = cluster_counts(end, most=min(8, particles - 3), generator=generator)
        for noise, length, counted in zip(noises, order.tolist(), counts, strict=True):
            found.append(Phase(
                beta=beta, noise=float(noise), growth=growth, order=length, clusters=counted.count
            ))  # fmt: skip
    return found


def _moved(
    x: Float64[Tensor, "C N d"],
    beta: float,
    noises: Sequence[float],
    duration: float,
    steps: int,
    generator: torch.Generator | None,
) -> tuple[Float64[Tensor, "C N d"], Float64[Tensor, "C"]]:
    """Clouds after the time, and the mean length of their mean vectors over its last third."""
    h, d = duration / steps, x.shape[-1]
    damping = torch.tensor([float(noise) for noise in noises], dtype=x.dtype)
    size = (2 * damping * h / (d - 1)).sqrt()[:, None, None]
    orders = []
    for step in range(steps):
        half = _unit(x + 0.5 * h * plain_velocity(x, beta))
        x = jittered(_unit(x + h * plain_velocity(half, beta)), size, generator)
        if step >= 2 * steps // 3:
            orders.append(torch.linalg.vector_norm(x.mean(1), dim=-1))
    return x, torch.stack(orders).mean(0)


def _unit(x: Tensor) -> Tensor:
    unit: Tensor = x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return unit
