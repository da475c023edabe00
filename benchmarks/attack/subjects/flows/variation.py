"""What the functions of ``flowscope.flows`` itself are given."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.attack.numbers import Draw
from benchmarks.attack.subject import Arguments, Subject
from benchmarks.attack.subjects.flows.shared import ABSENT, FREE, largest
from flowscope import flows

__all__ = ["EXCEPTIONS", "SUBJECTS"]


def _logits(*names: str) -> Callable[[Draw], Arguments]:
    def arguments(draw: Draw) -> Arguments:
        rows, V = draw.integer(1, 3), draw.integer(2, 5)
        return {name: draw.array(rows, V) for name in names}

    return arguments


def _squares(*names: str) -> Callable[[Draw], Arguments]:
    def arguments(draw: Draw) -> Arguments:
        rows, n = draw.integer(1, 3), draw.integer(1, 5)
        return {name: draw.nonnegative(rows, n) for name in names}

    return arguments


def _line(draw: Draw) -> Arguments:
    a, b = draw.nonnegative(3), draw.nonnegative(3)
    share = draw.one_of(0.0, 0.5, -0.5)
    with np.errstate(all="ignore"):
        product = (share * np.sqrt(a) * np.sqrt(b)).astype(np.float32).astype(np.float64)
    return {"first_sq": a, "last_sq": b, "product": product, "steps": draw.integer(1, 4)}


def _layers(draw: Draw) -> Arguments:
    n = draw.integer(4, 9)
    return {"relative_steps": draw.nonnegative(n), "total_variation": draw.nonnegative(n)}


def _slope(prompt: Any, tail_mass: Any, response: Any) -> Any:
    return flows.common_slope(flows.slope_sums(prompt, tail_mass, response))


def _slope_arguments(draw: Draw) -> Arguments:
    return {
        "prompt": draw.groups(8, 2),
        "tail_mass": draw.nonnegative(8, 2),
        "response": draw.array(8, 2),
    }


def _axes(draw: Draw) -> Arguments:
    d = draw.integer(1, 3)
    return {"covariance": draw.covariance(d), "gram": draw.covariance(d), "rank": 1}


SUBJECTS = {
    "centred_gram": Subject(
        function=flows.centred_gram, arguments=lambda draw: {"output": draw.array(4, 3)}
    ),
    "common_slope": Subject(
        function=_slope, arguments=_slope_arguments, numpy=True, absent=ABSENT, factor=1e6
    ),
    "concentration": Subject(function=flows.concentration, arguments=_squares("step_sq")),
    "jump_report": Subject(function=flows.jump_report, arguments=_layers, numpy=True),
    "line_relative_variation": Subject(
        function=flows.line_relative_variation, arguments=_line, factor=1e6
    ),
    "log_response": Subject(
        function=flows.log_response,
        arguments=lambda draw: {
            "total_variation": draw.nonnegative(3),
            "transplanted": draw.nonnegative(3, 2),
        },
        numpy=True,
        absent=ABSENT,
    ),
    "mass_residual": Subject(function=flows.mass_residual, arguments=_logits("logits"), unit=1.0),
    "path_length": Subject(function=flows.path_length, arguments=_squares("step_sq")),
    "principal_axes": Subject(function=flows.principal_axes, arguments=_axes, unequal=FREE),
    "quadratic_variation": Subject(
        function=flows.quadratic_variation, arguments=_squares("step_sq")
    ),
    "quadratic_variation_gram": Subject(
        function=flows.quadratic_variation_gram,
        arguments=lambda draw: {"step": draw.array(2, 2), "gram": draw.covariance(2)},
    ),
    "relative_variation": Subject(
        function=flows.relative_variation, arguments=_squares("step_sq", "state_sq"), numpy=True
    ),
    "segments_of": Subject(
        function=flows.segments_of,
        arguments=lambda draw: {"relative_steps": _layers(draw)["relative_steps"]},
        numpy=True,
    ),
    "slope_sums": Subject(
        function=flows.slope_sums,
        arguments=_slope_arguments,
        numpy=True,
        factor=1e6,
        unit=lambda given: 1e4 * (1 + float(np.abs(given["response"]).max())),
    ),
    "state_statistics": Subject(
        function=flows.state_statistics, arguments=_logits("logits"), unit=largest("logits")
    ),
    "step_statistics": Subject(
        function=flows.step_statistics,
        arguments=_logits("before", "after"),
        unit=largest("before", "after"),
    ),
    "tortuosity": Subject(
        function=flows.tortuosity,
        arguments=lambda draw: {"step_sq": draw.nonnegative(2, 3), "chord": draw.nonnegative(2)},
        numpy=True,
    ),
}
EXCEPTIONS = {
    "joined": "puts statistics of chunks together",
    "joined_sums": "puts sums of chunks together",
}
