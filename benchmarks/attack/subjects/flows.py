"""What the functions of ``flowscope.flows`` and its packages are given."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.attack.numbers import Draw
from benchmarks.attack.subject import Arguments, Seeded, Subject
from flowscope import flows
from flowscope.flows import drift, hodge, sampling, score

__all__ = ["EXCEPTIONS", "SUBJECTS"]
_DRAWS = "the random draws depend on the precision"
_STEP = "a step of a sampler: states are looked at where it ends"
_FREE = "axes have a free sign, and any basis where variances are equal"
_ABSENT = {"": "documented: a ratio without a denominator, or a group without tokens"}


def _largest(*names: str) -> Callable[[Arguments], float]:
    """Size of the largest number of some arguments."""
    return lambda given: max(float(np.abs(given[name]).max(initial=0.0)) for name in names)


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


def _two_clouds(draw: Draw) -> Arguments:
    return {"x": draw.array(4, 2), "y": draw.array(5, 2)}


def _grouped_clouds(draw: Draw) -> Arguments:
    return {"x": draw.array(6, 2), "y": draw.array(6, 2), "groups": draw.groups(6, 3)}


def _cloud(draw: Draw, n: int = 24, d: int = 2) -> dict[str, Any]:
    return {"points": draw.array(n, d, mild=draw.one_of(True, True, False))}


def _paths(draw: Draw) -> Arguments:
    return {"y": draw.array(6, 3, 2), "labels": np.arange(6)[:, None] % 2}


def _counts(draw: Draw, *names: str) -> Arguments:
    shape = (8, 2, 1, 4)
    return {name: np.abs(draw.array(*shape, mild=draw.one_of(True, False))) for name in names}


def _mixture(draw: Draw) -> Arguments:
    d = draw.integer(1, 2)
    return {
        "x": draw.array(3, d),
        "weights": draw.positive_rows(2),
        "means": draw.array(2, d),
        "covariances": draw.covariance(d, batch=(2,)),
    }


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


def _smooth(x0: Any) -> Any:
    return flows.sampling.smooth_path(lambda t, x: -x, x0, torch.tensor([0.0, 0.5, 1.0])).states


def _sde(x0: Any, generator: Any) -> Any:
    times = torch.tensor([0.0, 0.5, 1.0])
    return flows.sde_path(lambda t, x: -x, 0.5, x0, times, generator=generator).states


def _flow(p0: Any) -> Any:
    return flows.simplex_flow(p0, lambda t, p: torch.cos(p), torch.tensor([0.0, 0.5])).states


def _family(x: Any) -> Any:
    member = flows.family_drift(lambda t, x: -x, lambda t, x: -x, 1.0, lam=0.5)
    return member.drift(0.5, x)


def _sample_of(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Fit a drift to the paths and ask it for a velocity."""

    def called(paths: Any, groups: Any, **options: Any) -> Any:
        layers = paths.shape[1]
        times = torch.linspace(0.0, 1.0, layers, dtype=paths.dtype)
        sample = drift.drift_sample(paths, times, groups)
        fitted = fit(sample, **options)
        return fitted(sample.times[:2], sample.states[:2])

    return called


def _path_arguments(draw: Draw) -> Arguments:
    return {"paths": draw.array(24, 4, 2), "groups": draw.groups(24, 6)}


def _grid(draw: Draw) -> Arguments:
    return {
        "density": draw.nonnegative(4, 4),
        "velocity": draw.array(4, 4, 2),
        "spacing": 0.5,
        "diffusion": 1.0,
    }


SUBJECTS = {
    "centred_gram": Subject(
        function=flows.centred_gram, arguments=lambda draw: {"output": draw.array(4, 3)}
    ),
    "common_slope": Subject(
        function=_slope, arguments=_slope_arguments, numpy=True, absent=_ABSENT, factor=1e6
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
        absent=_ABSENT,
    ),
    "mass_residual": Subject(function=flows.mass_residual, arguments=_logits("logits"), unit=1.0),
    "path_length": Subject(function=flows.path_length, arguments=_squares("step_sq")),
    "principal_axes": Subject(function=flows.principal_axes, arguments=_axes, unequal=_FREE),
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
        function=flows.state_statistics, arguments=_logits("logits"), unit=_largest("logits")
    ),
    "step_statistics": Subject(
        function=flows.step_statistics,
        arguments=_logits("before", "after"),
        unit=_largest("before", "after"),
    ),
    "tortuosity": Subject(
        function=flows.tortuosity,
        arguments=lambda draw: {"step_sq": draw.nonnegative(2, 3), "chord": draw.nonnegative(2)},
        numpy=True,
    ),
    "drift_sample": Subject(
        function=lambda paths, groups: drift.drift_sample(
            paths, torch.linspace(0.0, 1.0, paths.shape[1], dtype=paths.dtype), groups
        ),
        arguments=_path_arguments,
        unit=lambda given: 4 * _largest("paths")(given),
    ),
    "rotation": Subject(
        function=hodge.rotation,
        arguments=lambda draw: {
            **_cloud(draw, 300),
            "velocities": draw.array(300, 2),
            "diffusion": 1.0,
            "generator": Seeded(),
        },
        share=0.1,
        unequal=_DRAWS,
        absent={".": "a rotation that abstains, with its reason"},
    ),
    "grid_rotation": Subject(
        function=hodge.grid_rotation,
        arguments=_grid,
        numpy=True,
        share=0.2,
        unequal="asks for float64",
        absent={".": "a rotation that abstains, with its reason"},
    ),
    "ode_path": Subject(function=_ode, arguments=lambda draw: {"x0": draw.array(2, 2)}, share=0.3),
    "smooth_path": Subject(
        function=_smooth, arguments=lambda draw: {"x0": draw.array(2, 2)}, share=0.3
    ),
    "sde_path": Subject(
        function=_sde,
        arguments=lambda draw: {"x0": draw.array(2, 2), "generator": Seeded()},
        unequal=_DRAWS,
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
    "stein_identities": Subject(
        function=score.stein_identities,
        arguments=lambda draw: {
            "score_values": draw.array(24, 2),
            "points": draw.array(24, 2),
            "groups": draw.groups(24, 12),
        },
        factor=1e5,
        unit=1.0,
    ),
    "score_error": Subject(
        function=score.score_error,
        arguments=lambda draw: {
            "points": draw.array(120, 2, mild=draw.one_of(True, True, False)),
            "learned": draw.array(120, 2),
            "true": draw.array(120, 2),
            "generator": Seeded(),
        },
        share=0.2,
        factor=1e5,
        unequal=_DRAWS,
    ),
    "ridge_drift": Subject(
        function=_sample_of(drift.ridge_drift),
        arguments=_path_arguments,
        share=0.1,
        unequal="the strength is chosen by an error that rounds otherwise",
    ),
    "neighbour_drift": Subject(
        function=_sample_of(drift.neighbour_drift),
        arguments=lambda draw: {**_path_arguments(draw), "candidates": (2, 4)},
        share=0.1,
        unequal="the nearest of equal distances is chosen by rounding",
    ),
    "mean_drift": Subject(
        function=_sample_of(drift.mean_drift), arguments=_path_arguments, factor=1e5
    ),
    "scaled_mean": Subject(
        function=lambda paths, groups: drift.scaled_mean(
            drift.drift_sample(paths, torch.linspace(0.0, 1.0, 4, dtype=paths.dtype), groups)
        ),
        arguments=_path_arguments,
        factor=1e5,
    ),
    "chosen_lookup": Subject(
        function=lambda y, labels: drift.chosen_lookup(
            y, labels, torch.tensor([False, False, False, True, True, True])
        ).means(labels),
        arguments=_paths,
        share=0.3,
        unequal="the shrinkage is chosen by an error that rounds otherwise",
    ),
    "label_means": Subject(
        function=lambda y, labels: drift.label_means(y, labels, (0.5,)).means(labels),
        arguments=_paths,
        unit=_largest("y"),
    ),
    "lookup_paths": Subject(
        function=lambda y, labels: drift.lookup_paths(
            drift.label_means(y, labels, (0.5,)), y, labels
        ),
        arguments=_paths,
        unit=_largest("y"),
    ),
    "mean_paths": Subject(
        function=lambda paths, groups: drift.mean_paths(
            drift.mean_drift(
                drift.drift_sample(paths, torch.linspace(0.0, 1.0, 4, dtype=paths.dtype), groups)
            ),
            paths,
            torch.linspace(0.0, 1.0, 4, dtype=paths.dtype),
        ),
        arguments=_path_arguments,
        factor=1e5,
        unit=_largest("paths"),
    ),
    "scaled_paths": Subject(
        function=lambda paths, groups: drift.scaled_paths(
            drift.scaled_mean(
                drift.drift_sample(paths, torch.linspace(0.0, 1.0, 4, dtype=paths.dtype), groups)
            ),
            paths,
            torch.linspace(0.0, 1.0, 4, dtype=paths.dtype),
        ),
        arguments=_path_arguments,
        unequal=_FREE,
    ),
    "discrepancy": Subject(
        function=drift.discrepancy,
        arguments=lambda draw: {
            **_grouped_clouds(draw),
            "kernel": drift.distance_kernel,
            "draws": 20,
            "generator": Seeded(),
        },
        absent={".draws": "a resample of one prompt has no pair"},
        unequal=_DRAWS,
        share=0.3,
    ),
    "distance_kernel": Subject(
        function=drift.distance_kernel, arguments=_two_clouds, unit=_largest("x", "y")
    ),
    "energy_distance": Subject(
        function=drift.energy_distance, arguments=_two_clouds, unit=_largest("x", "y")
    ),
    "first_order": Subject(
        function=drift.first_order,
        arguments=lambda draw: {"p": draw.probabilities(2, 3), "dz": draw.array(2, 3)},
        unit=_largest("dz"),
    ),
    "fit_budget": Subject(
        function=drift.fit_budget,
        arguments=lambda draw: {
            **{name: draw.nonnegative(40) for name in ("error", "largest", "squares")},
            "groups": draw.groups(40, 20),
        },
        share=0.3,
        factor=1e6,
        unequal="asks for float64, and fits a ratio to magnitudes that span the range",
    ),
    "huber_location": Subject(
        function=drift.huber_location,
        arguments=lambda draw: {"values": draw.array(2, 5, 2)},
        unit=_largest("values"),
    ),
    "ks_distance": Subject(function=drift.ks_distance, arguments=_two_clouds),
    "ks_draws": Subject(
        function=drift.ks_draws,
        arguments=lambda draw: {**_grouped_clouds(draw), "draws": 20, "generator": Seeded()},
        unequal=_DRAWS,
        share=0.3,
    ),
    "median_distance": Subject(
        function=drift.median_distance, arguments=_two_clouds, unit=_largest("x", "y")
    ),
    "mmd2": Subject(function=drift.mmd2, arguments=_two_clouds, unit=1.0),
    "rank_correlation": Subject(
        function=drift.rank_correlation,
        arguments=lambda draw: {
            "error": draw.nonnegative(12),
            "budget": draw.nonnegative(12),
            "groups": draw.groups(12, 6),
            "draws": 20,
            "generator": Seeded(),
        },
        unequal=_DRAWS,
        share=0.3,
        absent=_ABSENT,
    ),
    "restricted_bound": Subject(
        function=drift.restricted_bound,
        arguments=lambda draw: {
            "p": draw.probabilities(2, 3),
            "q": draw.probabilities(2, 3),
            "dz": draw.array(2, 3),
        },
        unit=_largest("dz"),
    ),
    "bca_interval": Subject(
        function=hodge.bca_interval,
        arguments=lambda draw: {
            "point": 0.0,
            "draws": draw.array(24),
            "jackknife": draw.array(6),
        },
        unit=_largest("draws"),
    ),
    "doubling_slope": Subject(
        function=sampling.doubling_slope,
        arguments=lambda draw: {"differences": draw.array(10, 2), "steps": [10, 20]},
        factor=1e5,
        absent={".": "a slope that is not resolved, with its status"},
        unit=_largest("differences"),
    ),
    "euler_step": Subject(
        function=_euler,
        arguments=_step_arguments,
        unit=_largest("x", "clean", "noise", "drawn"),
        passes_nan=_STEP,
    ),
    "family_step": Subject(
        function=_step,
        arguments=_step_arguments,
        unit=_largest("x", "clean", "noise", "drawn"),
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
        unequal=_DRAWS,
    ),
    "step_budget": Subject(
        function=sampling.step_budget,
        arguments=lambda draw: {
            **_counts(draw, "flow", "sde", "fine_flow", "fine_sde"),
            "draws": 20,
            "generator": Seeded(),
        },
        share=0.1,
        unequal=_DRAWS,
    ),
    "weak_error_slope": Subject(
        function=sampling.weak_error_slope,
        arguments=lambda draw: {"steps": [4, 8, 16], "errors": draw.nonnegative(3)},
        factor=1e5,
        unit=1.0,
    ),
    "anisotropy_spectrum": Subject(
        function=score.anisotropy_spectrum,
        arguments=lambda draw: {"score_values": draw.array(12, 2)},
        unequal=_FREE,
    ),
    "gaussian_score": Subject(
        function=score.gaussian_score,
        arguments=lambda draw: {
            "x": draw.array(3, 2),
            "mean": draw.array(2),
            "covariance": draw.covariance(2),
        },
        factor=1e5,
    ),
    "gradient_part": Subject(
        function=score.gradient_part,
        arguments=lambda draw: {
            **_cloud(draw, 120),
            "field": draw.array(120, 2),
            "generator": Seeded(),
        },
        share=0.2,
        unequal=_DRAWS,
    ),
    "mixture_log_density": Subject(
        function=score.mixture_log_density, arguments=_mixture, factor=1e5
    ),
    "mixture_score": Subject(function=score.mixture_score, arguments=_mixture, factor=1e5),
    "noised_moments": Subject(
        function=score.noised_moments,
        arguments=lambda draw: {
            "means": draw.array(2, 2),
            "covariances": draw.covariance(2, batch=(2,)),
            "t": draw.one_of(0.5, 1e-6, 20.0),
        },
    ),
    "noised_stein_identities": Subject(
        function=lambda points, generator: score.noised_stein_identities(
            lambda x: -x, points, 0.5, generator=generator
        ),
        arguments=lambda draw: {**_cloud(draw), "generator": Seeded()},
        share=0.3,
        unequal=_DRAWS,
    ),
    "score_consistency": Subject(
        function=score.score_consistency,
        arguments=lambda draw: {
            **_cloud(draw),
            "scores": draw.array(24, 2),
            "draws": 20,
            "generator": Seeded(),
        },
        absent={".": "an answer that abstains, with its reason"},
        share=0.2,
        unequal=_DRAWS,
    ),
    "student_t_score": Subject(
        function=score.student_t_score,
        arguments=lambda draw: {
            "x": draw.array(3, 2),
            "mean": draw.array(2),
            "scatter": draw.covariance(2),
            "freedom": draw.one_of(3.0, 1e-3, 1e6),
        },
        factor=1e5,
    ),
    "gradient_null": Subject(
        function=hodge.gradient_null,
        arguments=lambda draw: {
            **_cloud(draw, 300),
            "velocities": draw.array(300, 2),
            "diffusion": 1.0,
            "generator": Seeded(),
        },
        share=0.1,
        unequal=_DRAWS,
        absent={".": "a rotation that abstains, with its reason"},
    ),
    "planted_rotation": Subject(
        function=lambda points, **options: hodge.planted_rotation(points, -points, **options),
        arguments=lambda draw: {
            **_cloud(draw, 300),
            "share": 0.3,
            "diffusion": 1.0,
            "generator": Seeded(),
        },
        share=0.1,
        unequal=_DRAWS,
        absent={".": "a rotation that abstains, with its reason"},
    ),
    "rotation_reading": Subject(
        function=hodge.rotation_reading,
        arguments=lambda draw: {
            **_cloud(draw, 300),
            "velocities": draw.array(300, 2),
            "groups": draw.groups(300, 60),
            "seed": 0,
        },
        share=0.1,
        unequal=_DRAWS,
        absent={".": "a reading that abstains, with its reason"},
    ),
}
EXCEPTIONS = {
    "fit_denoising_score": "trains a network: minutes for an example",
    "perceptron_drift": "trains a network: minutes for an example",
    "settling": "fits drifts to refined paths, each by a function that is in the table",
    "step_doubling": "runs a sampler of the caller's",
    "joined": "puts statistics of chunks together",
    "joined_sums": "puts sums of chunks together",
    "restored_readings": "reads what stored_readings has written",
    "carried": "puts a context beside a drift of the caller's",
    "group_folds": "takes whole numbers",
    "half_of_prompts": "takes whole numbers",
    "instantaneous_sample": "refines a sample of drift_sample by a fit that is in the table",
    "select_drift": "chooses among fits that are in the table",
    "feature_map": "makes features of a sample of drift_sample; used by ridge_drift",
    "shuffled_layers": "permutes a sample of drift_sample",
    "as_drift": "names a function",
}
