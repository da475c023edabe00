"""What the functions of ``flowscope.simplex`` are given."""

from typing import Any

import numpy as np

from benchmarks.attack.numbers import Draw
from benchmarks.attack.subject import Arguments, Subject
from flowscope import simplex

__all__ = ["EXCEPTIONS", "SUBJECTS"]


def _p(draw: Draw) -> Arguments:
    return {"p": draw.probabilities(draw.integer(1, 3), draw.integer(2, 6))}


def _pair(draw: Draw) -> Arguments:
    rows, V = draw.integer(1, 3), draw.integer(2, 6)
    return {"p": draw.probabilities(rows, V), "q": draw.probabilities(rows, V)}


def _with_vector(first: str, second: str) -> Any:
    def arguments(draw: Draw) -> Arguments:
        rows, V = draw.integer(1, 3), draw.integer(2, 6)
        return {first: draw.probabilities(rows, V), second: draw.array(rows, V)}

    return arguments


def _effective(p: Any, weight: Any, diffusion: Any, v: Any) -> Any:
    return simplex.effective_mobility(p, weight, diffusion)(v)


def _effective_arguments(draw: Draw) -> Arguments:
    d, V = draw.integer(1, 3), draw.integer(2, 4)
    return {
        "p": draw.probabilities(V),
        "weight": draw.array(d, V),
        "diffusion": draw.covariance(d),
        "v": draw.array(V),
    }


def _window(laws: Any) -> Any:
    return simplex.window_bounds(simplex.path_steps(laws), 2)


def _laws(draw: Draw) -> Arguments:
    return {"laws": draw.probabilities(draw.integer(3, 5), draw.integer(1, 3), draw.integer(2, 5))}


def _transplant(draw: Draw) -> Arguments:
    n, V = draw.integer(2, 4), draw.integer(2, 5)
    donors = (np.arange(n)[:, None] + 1 + np.arange(1)) % n
    return {
        "before": draw.array(n, V),
        "after": draw.array(n, V),
        "donors": donors.astype(np.int64),
    }


SUBJECTS = {
    "apply_mobility": Subject(function=simplex.apply_mobility, arguments=_with_vector("p", "v")),
    "effective_mobility": Subject(function=_effective, arguments=_effective_arguments),
    "entropy": Subject(function=simplex.entropy, arguments=_p),
    "flip_radius": Subject(
        function=simplex.flip_radius,
        arguments=lambda draw: {
            **_p(draw),
            "kind": draw.one_of("tv", "kl", "reverse_kl", "logit"),
        },
    ),
    "kl_divergence": Subject(function=simplex.kl_divergence, arguments=_pair),
    "locking_bound": Subject(
        function=simplex.locking_bound,
        arguments=lambda draw: {**_p(draw), "osc": draw.positive()},
    ),
    "mirror_step": Subject(
        function=simplex.mirror_step,
        arguments=lambda draw: {
            **_with_vector("prior", "cost")(draw),
            "temperature": draw.positive(),
        },
    ),
    "mobility_frobenius": Subject(function=simplex.mobility_frobenius, arguments=_p),
    "mobility_norm": Subject(function=simplex.mobility_norm, arguments=_p),
    "mobility_spectrum": Subject(
        function=simplex.mobility_spectrum, arguments=lambda draw: {**_p(draw), "k": 2}
    ),
    "mobility_trace": Subject(function=simplex.mobility_trace, arguments=_p),
    "oscillation": Subject(
        function=simplex.oscillation,
        arguments=lambda draw: {"v": draw.array(draw.integer(1, 3), draw.integer(2, 5))},
    ),
    "project_to_simplex": Subject(
        function=simplex.project_to_simplex,
        arguments=lambda draw: {"x": draw.array(draw.integer(1, 3), draw.integer(2, 5))},
    ),
    "replicator_flow": Subject(
        function=simplex.replicator_flow,
        arguments=lambda draw: {
            **_with_vector("p0", "drift")(draw),
            "t": draw.positive(),
        },
    ),
    "total_variation": Subject(function=simplex.total_variation, arguments=_pair),
    "path_steps": Subject(function=simplex.path_steps, arguments=_laws),
    "window_bounds": Subject(function=_window, arguments=_laws),
    "transplanted_steps": Subject(function=simplex.transplanted_steps, arguments=_transplant),
}
EXCEPTIONS: dict[str, str] = {
    "matched_support": "takes truth values beside the laws; tests/simplex/test_windows.py"
}
