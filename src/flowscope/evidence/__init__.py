"""The kit of every judge: intervals, resampled prompts, verdicts. Knows no model and no tap."""

from flowscope.evidence.bootstrap import (
    Counts,
    mean_over_prompts,
    median_over_prompts,
    percentile_interval,
    resampled_counts,
    resampled_medians,
)
from flowscope.evidence.verdicts import not_measured

__all__ = [
    "Counts",
    "mean_over_prompts",
    "median_over_prompts",
    "not_measured",
    "percentile_interval",
    "resampled_counts",
    "resampled_medians",
]
