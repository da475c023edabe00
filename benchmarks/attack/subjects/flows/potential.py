"""What the functions of ``flowscope.flows.potential`` are given."""

from typing import Any

from benchmarks.attack.numbers import Draw
from benchmarks.attack.subject import Arguments, Seeded, Subject
from flowscope.flows import potential
from flowscope.flows.entropy import half_samples

__all__ = ["EXCEPTIONS", "SUBJECTS"]


def _clouds(draw: Draw, *names: str, n: int = 40, groups: int = 10) -> Arguments:
    mild = draw.one_of(True, True, False)
    d = draw.integer(1, 2)
    clouds = {name: draw.array(n, d, mild=mild) for name in names}
    return {**clouds, "groups": draw.groups(n, groups)}


def _moving(draw: Draw) -> Arguments:
    """Points that differ, so that they have an entropy before and mostly after the step."""
    shape = 60, draw.integer(1, 2)
    scale = draw.positive(1e-20, 1e20)
    before = draw.normal(*shape, scale=scale)
    kind = draw.one_of("moved", "moved", "any")
    after = draw.array(*shape) if kind == "any" else draw.normal(*shape, scale=scale)
    return {
        "before": before,
        "after": after,
        "groups": draw.groups(60, 12),
        "generator": Seeded(),
    }


def _twice_moving(draw: Draw) -> Arguments:
    given = {name: x for name, x in _moving(draw).items() if name != "generator"}
    return {**given, "between": draw.array(*given["before"].shape)}


def _two_fits(draw: Draw) -> Arguments:
    shape = draw.integer(1, 4), 2, 2
    return {"first": draw.array(*shape), "second": draw.array(*shape)}


def _flow(before: Any, after: Any, groups: Any) -> Any:
    flow = potential.mean_flow(before, after, groups)
    return flow.weights, flow.residuals, flow.explained, flow.jacobians(), flow.mapped


def _change(before: Any, after: Any, groups: Any, generator: Any) -> Any:
    flow = potential.mean_flow(before, after, groups)
    return potential.entropy_change(flow, groups, half_samples(groups, 8, generator), k=1)


def _forecast(before: Any, between: Any, after: Any, groups: Any) -> Any:
    steps = (before, between), (between, after)
    return potential.covariance_forecast([potential.mean_flow(*step, groups) for step in steps])


SUBJECTS = {
    "covariance_forecast": Subject(
        function=_forecast,
        arguments=_twice_moving,
        share=0.5,
    ),
    "curvature": Subject(
        function=potential.curvature,
        arguments=lambda draw: {"jacobians": draw.array(draw.integer(1, 4), *[2, 2])},
        absent={".turning": "documented: no Jacobian, no share of it"},
    ),
    "crossed_curvature": Subject(
        function=lambda first, second: potential.crossed_curvature([(first, second)]),
        arguments=_two_fits,
        absent={".turning": "documented: no Jacobian, no share of it"},
        unequal="of two equal eigenvalues either eigenvector may be taken",
    ),
    "entropy_change": Subject(
        function=_change,
        arguments=_moving,
        share=0.3,
    ),
    "equivalent_stiffness": Subject(
        function=potential.equivalent_stiffness,
        arguments=lambda draw: {
            "nu": draw.positive(),
            "reference": (draw.positive(), draw.positive()),
            "variance": draw.positive(),
        },
    ),
    "lag_correlation": Subject(
        function=potential.lag_correlation,
        arguments=lambda draw: {"first": draw.array(5, 2), "second": draw.array(5, 2)},
        unit=1.0,
        absent={"": "documented: residuals that do not vary"},
    ),
    "mean_flow": Subject(
        function=_flow,
        arguments=lambda draw: _clouds(draw, "before", "after"),
        share=0.5,
    ),
    "squared_step_diffusivity": Subject(
        function=potential.squared_step_diffusivity,
        arguments=lambda draw: {
            "before": draw.array(3, 2),
            "after": draw.array(3, 2),
            "duration": draw.one_of(1.0, 1e-3, 1e30, 1e-300),
        },
    ),
}
EXCEPTIONS: dict[str, str] = {}
