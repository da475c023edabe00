"""The kit of every judge: intervals, resampled prompts, verdicts. Knows no model and no tap."""

from flowscope.evidence.bootstrap import (
    Counts,
    expanded_level,
    percentile_interval,
    resampled_counts,
    resampled_medians,
)
from flowscope.evidence.decisions import MINIMUM_UNITS, judged_effect, strength_of
from flowscope.evidence.means import mean_over_prompts
from flowscope.evidence.medians import median_over_prompts
from flowscope.evidence.verdicts import not_measured

__all__ = [
    "MINIMUM_UNITS",
    "Counts",
    "expanded_level",
    "judged_effect",
    "mean_over_prompts",
    "median_over_prompts",
    "not_measured",
    "percentile_interval",
    "resampled_counts",
    "resampled_medians",
    "strength_of",
]
