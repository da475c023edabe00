"""The kit of every judge: intervals, resampled prompts, verdicts. Knows no model and no tap."""

from flowscope.evidence.bootstrap import Counts, percentile_interval, resampled_counts
from flowscope.evidence.decisions import MINIMUM_UNITS, judged_effect
from flowscope.evidence.layer_shifts import (
    FEWEST_LAYERS,
    mirrored_shifts,
)
from flowscope.evidence.maximal_t import Simultaneous, simultaneous
from flowscope.evidence.means import mean_over_prompts
from flowscope.evidence.medians import median_over_prompts
from flowscope.evidence.random_draws import distance_from_draws
from flowscope.evidence.risk import risk_control, running_worst
from flowscope.evidence.shares import share_interval
from flowscope.evidence.two_samples import simultaneous_difference
from flowscope.evidence.verdicts import not_measured

__all__ = [
    "FEWEST_LAYERS",
    "MINIMUM_UNITS",
    "Counts",
    "Simultaneous",
    "distance_from_draws",
    "judged_effect",
    "mean_over_prompts",
    "median_over_prompts",
    "mirrored_shifts",
    "not_measured",
    "percentile_interval",
    "resampled_counts",
    "risk_control",
    "running_worst",
    "share_interval",
    "simultaneous",
    "simultaneous_difference",
]
