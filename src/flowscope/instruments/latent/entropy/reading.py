"""Numbers of one cloud: entropy by two estimators, dimension, likeness, with halves of prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float64
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.entropy import (
    dimension_of_distances,
    effective_rank,
    gaussian_entropy,
    neighbour_lists,
    principal_coordinates,
    surrogate_errors,
)
from flowscope.flows.entropy.dimensions import ESTIMATORS
from flowscope.flows.entropy.nearest import refuse_repeats, refuse_sparse
from flowscope.flows.entropy.neighbours import NeighbourLists
from flowscope.flows.entropy.principal import PrincipalCoordinates
from flowscope.instruments.latent.clouds import Sample

__all__ = ["ENTROPIES", "SHAPES", "cloud_entropies", "cloud_shape", "principal_axes"]

ENTROPIES = ("entropy_knn", "entropy_gaussian", "negentropy", "bias", "bias_error")
"""Columns of one cloud in one number of coordinates; the last is the standard error of `bias`."""

SHAPES = ("dimension_two_nn", "dimension_mle", "mean_cosine", "effective_rank")
"""Columns of one cloud in all its coordinates."""

_LISTED = 48  # neighbours of each point, of which a half of the prompts holds enough

Rows = NDArray[np.float64]


def principal_axes(x: Float64[Tensor, "n d"]) -> PrincipalCoordinates | None:
    """All principal coordinates of a cloud; None where all directions are equal."""
    try:
        return principal_coordinates(x)
    except InvalidInputError:
        return None


def cloud_shape(
    x: Float64[Tensor, "n d"], axes: PrincipalCoordinates | None, sample: Sample
) -> dict[str, Rows]:
    """Dimension, likeness and share of neighbours of the same type.

    Returns ``shape`` ``[1 + draws, columns]``, the whole sample first, and ``same_type`` ``[n]``,
    NaN where tokens have no type.
    """
    lists = neighbour_lists(x, groups=sample.prompt, count=_LISTED)
    halves: list[Tensor | None] = [None, *sample.halves]
    values = np.full((len(halves), len(SHAPES)), np.nan)
    distinct = bool((lists.distances[:, 0] > 0).all())
    squares = None if axes is None else axes.coordinates.square()
    for row, half in enumerate(halves):
        if distinct:
            values[row, :2] = [_dimension(lists, name, half) for name in ("two_nn", "mle")]
        values[row, 2] = _mean_cosine(x if half is None else x[half])
        values[row, 3] = _effective_rank(squares, half)
    same = np.full(len(x), np.nan)
    if bool((sample.kind >= 0).all()):
        same = (sample.kind[lists.indices[:, 0]] == sample.kind).double().numpy()
    return {"shape": values, "same_type": same}


def _dimension(lists: NeighbourLists, estimator: str, half: Tensor | None) -> float:
    count = ESTIMATORS[estimator]
    if int(lists.candidates.min()) < count:
        return math.nan
    distances, _ = lists.nearest(count, half)
    return dimension_of_distances(distances[:, :count])


def _mean_cosine(x: Float64[Tensor, "n d"]) -> float:
    n = len(x)
    return (
        float((x.sum(0).square().sum() - x.square().sum()) / (n * (n - 1))) if n > 1 else math.nan
    )


def _effective_rank(squares: Float64[Tensor, "n m"] | None, half: Tensor | None) -> float:
    """Effective rank of the sample or of a half, in the axes of the sample; 1 without axes."""
    if squares is None:
        return 1.0
    return effective_rank((squares if half is None else squares[half]).mean(0))


def cloud_entropies(
    axes: PrincipalCoordinates | None,
    sample: Sample,
    ranks: Sequence[int],
    *,
    k: int,
    surrogates: int,
    generator: torch.Generator,
) -> tuple[Rows, list[str]]:
    """Entropies ``[ranks, 1 + draws, columns]``, and for each rank why it has none, or nothing."""
    values = np.full((len(ranks), 1 + len(sample.halves), len(ENTROPIES)), np.nan)
    reasons = []
    for place, rank in enumerate(ranks):
        spanned = 0 if axes is None else axes.coordinates.shape[1]
        if axes is None or spanned < rank:
            reasons.append(f"the tokens lie in {spanned} dimensions, fewer than {rank}")
            continue
        try:
            values[place] = _entropies(axes.coordinates[:, :rank], sample, k, surrogates, generator)
            reasons.append("")
        except InvalidInputError as refusal:
            reasons.append(str(refusal))
    return values, reasons


def _entropies(
    y: Float64[Tensor, "n r"], sample: Sample, k: int, surrogates: int, g: torch.Generator
) -> Rows:
    n, rank = y.shape
    refuse_sparse(n, rank)
    lists = neighbour_lists(y, groups=sample.prompt, count=_LISTED)
    refuse_repeats(lists)
    bias = error = math.nan
    if surrogates:
        errors = np.array(
            surrogate_errors(y, k, groups=sample.prompt, surrogates=surrogates, generator=g)
        )
        bias = float(errors.mean())
        if surrogates > 1:
            error = float(errors.std(ddof=1)) / math.sqrt(surrogates)
    rows = []
    halves: list[Tensor | None] = [None, *sample.halves]
    for half in halves:
        nearest = float(lists.entropy(k, float(rank), half))
        gaussian = gaussian_entropy(y if half is None else y[half])
        rows.append([nearest, gaussian, gaussian + bias - nearest, bias, error])
    return np.array(rows)
