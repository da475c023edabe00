r"""How many clusters points on a sphere form, by the gap statistic.

With $W_k=\sum_i\bigl(1-\max_c\langle x_i,c\rangle\bigr)$ the dispersion around k centres found by
k-means on the sphere,

$$ \operatorname{Gap}(k) = \mathbb E^*\log W_k - \log W_k, $$

$\mathbb E^*$ over uniform points on the same sphere (Tibshirani, Walther and Hastie 2001). The
count is the least k whose gap lies within two standard errors of the reference of the largest gap.
The rule of 2001, the first k with a gap of at least the next one less its error, stops at one
cluster where three lie at right angles: two centres serve them little better than one. Uniform
points are one cluster.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.sphere.particles import as_particles

__all__ = ["ClusterCount", "cluster_count", "cluster_counts"]

_ROUNDS = 25  # of k-means
_STARTS = 4
_FLOOR = 1e-9  # dispersion per point that counts as none


@dataclass(frozen=True, kw_only=True)
class ClusterCount:
    """Number of clusters.

    Attributes
    ----------
    count
        How many.
    gaps, errors
        Gap and its standard error for 1 … ``most`` clusters.
    """

    count: int
    gaps: tuple[float, ...]
    errors: tuple[float, ...]


def cluster_count(
    x: Tensor,
    *,
    most: int = 8,
    references: int = 20,
    generator: torch.Generator | None = None,
) -> ClusterCount:
    """Number of clusters of unit vectors.

    Parameters
    ----------
    x
        Unit vectors, one a row.
    most
        Largest number that is looked for.
    references
        Uniform samples that the dispersion is compared with.
    generator
        Random numbers of the samples and of the starts of k-means.

    Raises
    ------
    InvalidInputError
        If rows are no unit vectors, or there are no more points than clusters.

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.eye(3)[torch.arange(60) % 3] + 0.05 * torch.randn(60, 3, generator=g)
    >>> cluster_count(x / x.norm(dim=1, keepdim=True), generator=g).count
    3
    """
    (found,) = cluster_counts(
        as_particles(x)[None], most=most, references=references, generator=generator
    )
    return found


def cluster_counts(
    clouds: Float64[Tensor, "C N d"],
    *,
    most: int = 8,
    references: int = 20,
    generator: torch.Generator | None = None,
) -> list[ClusterCount]:
    """Numbers of clusters of several clouds of as many points, against the same references."""
    _, n, d = clouds.shape
    if not 1 <= most < n or references < 2:
        raise InvalidInputError(
            f"most lies between 1 and the number of points less 1, {n - 1}, and references are 2 "
            f"or more; found {most} and {references}."
        )
    uniform = torch.randn(references, n, d, generator=generator, dtype=clouds.dtype)
    uniform = uniform / torch.linalg.vector_norm(uniform, dim=-1, keepdim=True)
    sizes = range(1, most + 1)
    own = torch.stack([_log_dispersion(clouds, k, generator) for k in sizes])
    of_uniform = torch.stack([_log_dispersion(uniform, k, generator) for k in sizes])
    gaps = of_uniform.mean(1, keepdim=True) - own
    errors = of_uniform.std(1, correction=0) * (1 + 1 / references) ** 0.5
    return [_counted(gaps[:, cloud], errors) for cloud in range(len(clouds))]


def _counted(gaps: Tensor, errors: Tensor) -> ClusterCount:
    largest = int(gaps.argmax())
    enough = gaps >= gaps[largest] - 2 * errors[largest]
    return ClusterCount(
        count=int(enough.nonzero()[0, 0]) + 1,
        gaps=tuple(gaps.tolist()),
        errors=tuple(errors.tolist()),
    )


def _log_dispersion(
    clouds: Float64[Tensor, "C N d"], k: int, generator: torch.Generator | None
) -> Float64[Tensor, "C"]:
    """Logarithm of the least dispersion over a few starts."""
    found = torch.stack([_dispersion(clouds, k, generator) for _ in range(_STARTS if k > 1 else 1)])
    return found.amin(0).clamp_min(_FLOOR * clouds.shape[1]).log()


def _dispersion(
    clouds: Float64[Tensor, "C N d"], k: int, generator: torch.Generator | None
) -> Float64[Tensor, "C"]:
    centres = _spread_start(clouds, k, generator)
    for _ in range(_ROUNDS):
        nearest = (clouds @ centres.mT).argmax(-1)
        member = torch.nn.functional.one_hot(nearest, k).to(clouds.dtype)
        sums = member.mT @ clouds
        length = torch.linalg.vector_norm(sums, dim=-1, keepdim=True)
        centres = torch.where(length > 0, sums / length.clamp_min(1e-300), centres)
    cosines: Tensor = (clouds @ centres.mT).amax(-1)
    return (1 - cosines).sum(-1)


def _spread_start(
    clouds: Float64[Tensor, "C N d"], k: int, generator: torch.Generator | None
) -> Float64[Tensor, "C k d"]:
    """Starts of k-means++: each centre is drawn with its distance to those before it."""
    every = torch.arange(len(clouds))
    place = torch.randint(clouds.shape[1], (len(clouds),), generator=generator)
    chosen = [clouds[every, place]]
    for _ in range(k - 1):
        cosines = (clouds @ torch.stack(chosen, 1).mT).amax(-1)
        weights = (1 - cosines).clamp_min(0) + 1e-12
        chosen.append(clouds[every, torch.multinomial(weights, 1, generator=generator)[:, 0]])
    return torch.stack(chosen, 1)
