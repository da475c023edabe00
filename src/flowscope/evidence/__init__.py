"""The kit of every judge: intervals, resampled prompts, verdicts. Knows no model and no tap."""

from flowscope.evidence.bootstrap import (
    Counts,
    mean_over_prompts,
    median_over_prompts,
    percentile_interval,
    resampled_counts,
    resampled_medians,
)
from flowscope.evidence.decisions import MINIMUM_UNITS, judged_effect, strength_of
from flowscope.evidence.verdicts import not_measured

__all__ = [
    "MINIMUM_UNITS",
    "Counts",
    "judged_effect",
    "mean_over_prompts",
    "median_over_prompts",
    "not_measured",
    "percentile_interval",
    "resampled_counts",
    "resampled_medians",
    "strength_of",
]
