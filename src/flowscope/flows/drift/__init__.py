"""Drifts of depth paths: fitted to one-step differences, chosen over prompts, held to a budget.

A drift is a frozen callable b(t, y, context) with a name. It is fitted to a
:class:`DriftSample` of one-step pairs, compared with others by :func:`select_drift` and integrated
elsewhere. Nothing here draws from the global generator.
"""

from flowscope.flows.drift.baselines import (
    Drift,
    MeanDrift,
    NamedDrift,
    as_drift,
    carried,
    mean_drift,
    persistence,
)
from flowscope.flows.drift.bounds import first_order, restricted_bound
from flowscope.flows.drift.budget import Budget, RankCorrelation, fit_budget, rank_correlation
from flowscope.flows.drift.features import FeatureMap, feature_map
from flowscope.flows.drift.folds import group_folds
from flowscope.flows.drift.instant import instantaneous_sample
from flowscope.flows.drift.kernels import Kernel, distance_kernel, gaussian_kernel, median_distance
from flowscope.flows.drift.layers import (
    ScaledMean,
    half_of_prompts,
    mean_paths,
    scaled_mean,
    scaled_paths,
    shuffled_layers,
)
from flowscope.flows.drift.lookups import Lookup, chosen_lookup, label_means, lookup_paths
from flowscope.flows.drift.marginals import (
    Discrepancy,
    discrepancy,
    energy_distance,
    ks_distance,
    ks_draws,
    mmd2,
)
from flowscope.flows.drift.neighbours import Neighbours, huber_location, neighbour_drift
from flowscope.flows.drift.perceptron import Perceptron, Training, perceptron_drift
from flowscope.flows.drift.refinement import Refinement, Settling, settling
from flowscope.flows.drift.ridge import Ridge, ridge_drift
from flowscope.flows.drift.samples import DriftSample, drift_sample
from flowscope.flows.drift.validation import CandidateError, Selection, select_drift

__all__ = [
    "Budget",
    "CandidateError",
    "Discrepancy",
    "Drift",
    "DriftSample",
    "FeatureMap",
    "Kernel",
    "Lookup",
    "MeanDrift",
    "NamedDrift",
    "Neighbours",
    "Perceptron",
    "RankCorrelation",
    "Refinement",
    "Ridge",
    "ScaledMean",
    "Selection",
    "Settling",
    "Training",
    "as_drift",
    "carried",
    "chosen_lookup",
    "discrepancy",
    "distance_kernel",
    "drift_sample",
    "energy_distance",
    "feature_map",
    "first_order",
    "fit_budget",
    "gaussian_kernel",
    "group_folds",
    "half_of_prompts",
    "huber_location",
    "instantaneous_sample",
    "ks_distance",
    "ks_draws",
    "label_means",
    "lookup_paths",
    "mean_drift",
    "mean_paths",
    "median_distance",
    "mmd2",
    "neighbour_drift",
    "perceptron_drift",
    "persistence",
    "rank_correlation",
    "restricted_bound",
    "ridge_drift",
    "scaled_mean",
    "scaled_paths",
    "select_drift",
    "settling",
    "shuffled_layers",
]
