"""What the functions of ``flowscope.flows.sampling`` are given."""

from typing import Any

import numpy as np
import torch

from benchmarks.attack.numbers import Draw
from benchmarks.attack.subject import Arguments, Seeded, Subject
from benchmarks.attack.subjects.flows.shared import DRAWS, largest
from flowscope import flows
from flowscope.errors import InvalidInputError
from flowscope.flows import sampling

__all__ = ["EXCEPTIONS", "SUBJECTS"]
_STEP = "a step of a sampler: states are looked at where it ends"


def _counts(draw: Draw, *names: str) -> Arguments:
    shape = (8, 2, 1, 4)
    return {name: np.abs(draw.array(*shape, mild=draw.one_of(True, False))) for name in names}


def _step(x: Any, clean: Any, noise: Any, now: float, then: float, lam: float, drawn: Any) -> Any:
    prediction = sampling.Prediction(clean=clean, noise=noise)
    return sampling.family_step(x, prediction, now, then, lam, drawn)


def _euler(x: Any, clean: Any, noise: Any, now: float, then: float, lam: float, drawn: Any) -> Any:
    prediction = sampling.Prediction(clean=clean, noise=noise)
    return sampling.euler_step(x, prediction, now, then, lam, drawn)


def _step_arguments(draw: Draw) -> Arguments:
    return {
        **{name: draw.array(2, 3) for name in ("x", "clean", "noise", "drawn")},
        "now": draw.one_of(0.5, 0.1),
        "then": draw.one_of(0.8, 1.0),
        "lam": draw.one_of(0.5, 0.0, 1.0),
    }


def _ode(x0: Any) -> Any:
    return flows.ode_path(lambda t, x: -x, x0, torch.tensor([0.0, 0.5, 1.0]), method="heun").states


def _smooth(x0: Any, *, recorded: bool = False) -> Any:
    times = torch.tensor([0.0, 0.5, 1.0])
    return _whole(flows.sampling.smooth_path(lambda t, x: -x, x0, times, recorded=recorded))


def _whole(path: Any) -> Any:
    """States of a path; one that stopped has NaN behind the stop, and says why."""
    if path.status != "ok":
        raise InvalidInputError(path.because)
    return path.states


def _recorded(x0: Any) -> Any:
    return _smooth(x0, recorded=True)


def _heun(x0: Any) -> Any:
    return _whole(flows.sampling.heun_path(lambda t, x: -x, x0, torch.tensor([0.0, 0.5, 1.0])))


def _sde(x0: Any, generator: Any) -> Any:
    times = torch.tensor([0.0, 0.5, 1.0])
    return flows.sde_path(lambda t, x: -x, 0.5, x0, times, generator=generator).states


def _flow(p0: Any) -> Any:
    return flows.simplex_flow(p0, lambda t, p: torch.cos(p), torch.tensor([0.0, 0.5])).states


def _family(x: Any) -> Any:
    member = flows.family_drift(lambda t, x: -x, lambda t, x: -x, 1.0, lam=0.5)
    return member.drift(0.5, x)


SUBJECTS = {
    "ode_path": Subject(function=_ode, arguments=lambda draw: {"x0": draw.array(2, 2)}, share=0.3),
    "smooth_path": Subject(
        function=_smooth, arguments=lambda draw: {"x0": draw.array(2, 2)}, share=0.3
    ),
    "smooth_path, recorded": Subject(
        function=_recorded, arguments=lambda draw: {"x0": draw.array(2, 2)}, share=0.3
    ),
    "heun_path": Subject(
        function=_heun, arguments=lambda draw: {"x0": draw.array(2, 2)}, share=0.3
    ),
    "sde_path": Subject(
        function=_sde,
        arguments=lambda draw: {"x0": draw.array(2, 2), "generator": Seeded()},
        unequal=DRAWS,
        share=0.3,
    ),
    "simplex_flow": Subject(
        function=_flow,
        arguments=lambda draw: {"p0": draw.probabilities(2, 3)},
        share=0.2,
        factor=1e4,  # steps of the solver are chosen by its own tolerance
    ),
    "family_drift": Subject(
        function=_family,
        arguments=lambda draw: {"x": draw.array(2, 2)},
        passes_nan="asks functions of the caller's for numbers",
    ),
    "score_to_velocity": Subject(
        function=flows.score_to_velocity,
        arguments=lambda draw: {
            "drift": draw.array(3, 2),
            "score": draw.array(3, 2),
            "diffusion": draw.covariance(2),
        },
    ),
    "doubling_slope": Subject(
        function=sampling.doubling_slope,
        arguments=lambda draw: {"differences": draw.array(10, 2), "steps": [10, 20]},
        factor=1e5,
        absent={".": "a slope that is not resolved, with its status"},
        unit=largest("differences"),
    ),
    "euler_step": Subject(
        function=_euler,
        arguments=_step_arguments,
        unit=largest("x", "clean", "noise", "drawn"),
        passes_nan=_STEP,
    ),
    "family_step": Subject(
        function=_step,
        arguments=_step_arguments,
        unit=largest("x", "clean", "noise", "drawn"),
        passes_nan=_STEP,
    ),
    "histogram_counts": Subject(
        function=sampling.histogram_counts,
        arguments=lambda draw: {
            "values": draw.array(2, 1, 6),
            "edges_half_width": 1.0,
            "bins": 4,
        },
    ),
    "histogram_distances": Subject(
        function=sampling.histogram_distances,
        arguments=lambda draw: {"first": draw.nonnegative(2, 4), "second": draw.nonnegative(2, 4)},
        unit=1.0,
    ),
    "linear_weak_error": Subject(
        function=sampling.linear_weak_error,
        arguments=lambda draw: {
            "steps": [4, 8],
            "mean": draw.array(2),
            "covariance": draw.covariance(2),
            "linear": draw.array(2, 2),
            "diffusion": draw.covariance(2),
            "horizon": 1.0,
            "lam": draw.one_of(0.5, 0.0, 1.0),
        },
        share=0.2,
        factor=1e6,
    ),
    "marginal_parity": Subject(
        function=sampling.marginal_parity,
        arguments=lambda draw: {
            **_counts(draw, "first", "second", "third"),
            "draws": 20,
            "generator": Seeded(),
        },
        share=0.1,
        unequal=DRAWS,
    ),
    "step_budget": Subject(
        function=sampling.step_budget,
        arguments=lambda draw: {
            **_counts(draw, "flow", "sde", "fine_flow", "fine_sde"),
            "draws": 20,
            "generator": Seeded(),
        },
        share=0.1,
        unequal=DRAWS,
    ),
    "weak_error_slope": Subject(
        function=sampling.weak_error_slope,
        arguments=lambda draw: {"steps": [4, 8, 16], "errors": draw.nonnegative(3)},
        factor=1e5,
        unit=1.0,
    ),
}
EXCEPTIONS = {
    "step_doubling": "runs a sampler of the caller's",
}
