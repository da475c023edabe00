"""What the functions of ``flowscope.flows.drift`` are given."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.attack.numbers import Draw
from benchmarks.attack.subject import Arguments, Seeded, Subject
from benchmarks.attack.subjects.flows.shared import ABSENT, DRAWS, FREE, largest
from flowscope.flows import drift

__all__ = ["EXCEPTIONS", "SUBJECTS"]


def _two_clouds(draw: Draw) -> Arguments:
    return {"x": draw.array(4, 2), "y": draw.array(5, 2)}


def _grouped_clouds(draw: Draw) -> Arguments:
    return {"x": draw.array(6, 2), "y": draw.array(6, 2), "groups": draw.groups(6, 3)}


def _paths(draw: Draw) -> Arguments:
    return {"y": draw.array(6, 3, 2), "labels": np.arange(6)[:, None] % 2}


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


SUBJECTS = {
    "drift_sample": Subject(
        function=lambda paths, groups: drift.drift_sample(
            paths, torch.linspace(0.0, 1.0, paths.shape[1], dtype=paths.dtype), groups
        ),
        arguments=_path_arguments,
        unit=lambda given: 4 * largest("paths")(given),
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
        unit=largest("y"),
    ),
    "lookup_paths": Subject(
        function=lambda y, labels: drift.lookup_paths(
            drift.label_means(y, labels, (0.5,)), y, labels
        ),
        arguments=_paths,
        unit=largest("y"),
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
        unit=largest("paths"),
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
        unequal=FREE,
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
        unequal=DRAWS,
        share=0.3,
    ),
    "distance_kernel": Subject(
        function=drift.distance_kernel, arguments=_two_clouds, unit=largest("x", "y")
    ),
    "energy_distance": Subject(
        function=drift.energy_distance, arguments=_two_clouds, unit=largest("x", "y")
    ),
    "first_order": Subject(
        function=drift.first_order,
        arguments=lambda draw: {"p": draw.probabilities(2, 3), "dz": draw.array(2, 3)},
        unit=largest("dz"),
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
        unit=largest("values"),
    ),
    "ks_distance": Subject(function=drift.ks_distance, arguments=_two_clouds),
    "ks_draws": Subject(
        function=drift.ks_draws,
        arguments=lambda draw: {**_grouped_clouds(draw), "draws": 20, "generator": Seeded()},
        unequal=DRAWS,
        share=0.3,
    ),
    "median_distance": Subject(
        function=drift.median_distance, arguments=_two_clouds, unit=largest("x", "y")
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
        unequal=DRAWS,
        share=0.3,
        absent=ABSENT,
    ),
    "restricted_bound": Subject(
        function=drift.restricted_bound,
        arguments=lambda draw: {
            "p": draw.probabilities(2, 3),
            "q": draw.probabilities(2, 3),
            "dz": draw.array(2, 3),
        },
        unit=largest("dz"),
    ),
}
EXCEPTIONS = {
    "perceptron_drift": "trains a network: minutes for an example",
    "settling": "fits drifts to refined paths, each by a function that is in the table",
    "carried": "puts a context beside a drift of the caller's",
    "group_folds": "takes whole numbers",
    "half_of_prompts": "takes whole numbers",
    "instantaneous_sample": "refines a sample of drift_sample by a fit that is in the table",
    "select_drift": "chooses among fits that are in the table",
    "feature_map": "makes features of a sample of drift_sample; used by ridge_drift",
    "shuffled_layers": "permutes a sample of drift_sample",
    "as_drift": "names a function",
}
