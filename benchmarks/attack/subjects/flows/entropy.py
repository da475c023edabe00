"""What the functions of ``flowscope.flows.entropy`` are given."""

from typing import Any

import numpy as np

from benchmarks.attack.numbers import Draw
from benchmarks.attack.subject import Arguments, Seeded, Subject
from flowscope.flows import entropy

__all__ = ["EXCEPTIONS", "SUBJECTS"]


def _points(draw: Draw, n: int = 30) -> Arguments:
    mild = draw.one_of(True, False)
    return {"x": draw.array(n, draw.integer(1, 2), mild=mild)}


def _grouped(draw: Draw, n: int = 30) -> Arguments:
    return {**_points(draw, n), "groups": draw.one_of(None, draw.groups(n, 10))}


def _wide(draw: Draw) -> Arguments:
    """Points of so many coordinates that a product of matrices lists the neighbours."""
    return {"x": draw.array(12, 40), "count": 3}


def _surrogates(draw: Draw) -> Arguments:
    return {**_grouped(draw), "k": draw.integer(1, 3), "surrogates": 1, "generator": Seeded()}


def _interval(x: Any, groups: Any, generator: Any) -> Any:
    return entropy.subsampled_interval(
        lambda chosen: x[chosen].mean(), groups, draws=8, generator=generator
    )


def _span(given: Arguments) -> float:
    return 8 * float(np.abs(given["x"]).max())


SUBJECTS = {
    "dimension_of_distances": Subject(
        function=entropy.dimension_of_distances,
        arguments=lambda draw: {"distances": np.sort(draw.nonnegative(6, draw.integer(2, 4)))},
        passes_nan="documented: a point with fewer neighbours has an infinite distance",
    ),
    "effective_rank": Subject(
        function=entropy.effective_rank, arguments=lambda draw: {"variances": draw.nonnegative(4)}
    ),
    "gaussian_entropy": Subject(function=entropy.gaussian_entropy, arguments=_points),
    "gaussian_surrogate": Subject(
        function=entropy.gaussian_surrogate,
        arguments=lambda draw: {**_points(draw), "generator": Seeded()},
    ),
    "intrinsic_dimension": Subject(
        function=entropy.intrinsic_dimension,
        arguments=lambda draw: {**_grouped(draw), "estimator": draw.one_of("two_nn", "mle")},
    ),
    "kozachenko_leonenko": Subject(
        function=entropy.kozachenko_leonenko,
        arguments=lambda draw: {
            **_grouped(draw),
            "k": draw.integer(1, 4),
            "dimension": draw.one_of(None, 1.0, 2.5, 1e-3),
        },
    ),
    "negentropy": Subject(function=entropy.negentropy, arguments=_surrogates),
    "neighbour_lists": Subject(
        function=entropy.neighbour_lists,
        arguments=lambda draw: {**_grouped(draw), "count": draw.integer(1, 40)},
    ),
    "neighbour_lists of wide points": Subject(function=entropy.neighbour_lists, arguments=_wide),
    "principal_coordinates": Subject(
        function=entropy.principal_coordinates,
        arguments=lambda draw: {"x": draw.array(draw.integer(2, 6), draw.integer(1, 6))},
    ),
    "subsampled_ends": Subject(
        function=entropy.subsampled_ends,
        arguments=lambda draw: {
            "value": draw.one_of(0.0, 1e30),
            "halves": draw.array(16),
            "groups": draw.integer(8, 20),
        },
    ),
    "subsampled_interval": Subject(
        function=_interval,
        arguments=lambda draw: {
            "x": draw.array(24),
            "groups": draw.groups(24, 12),
            "generator": Seeded(),
        },
        unit=_span,
    ),
    "surrogate_bias": Subject(function=entropy.surrogate_bias, arguments=_surrogates),
    "surrogate_errors": Subject(function=entropy.surrogate_errors, arguments=_surrogates),
}
EXCEPTIONS = {"half_samples": "takes whole numbers"}
