"""The kit of every judge: intervals, resampled prompts, verdicts. Knows no model and no tap."""

from flowscope.evidence.bootstrap import (
    Counts,
    expanded_level,
    percentile_interval,
    resampled_counts,
    resampled_medians,
)
from flowscope.evidence.decisions import MINIMUM_UNITS, judged_effect, strength_of
from flowscope.evidence.layer_shifts import (
    FEWEST_LAYERS,
    ShiftedCorrelations,
    mirrored_shifts,
    shifted_correlations,
)
from flowscope.evidence.maximal_t import Simultaneous, simultaneous
from flowscope.evidence.means import mean_over_prompts
from flowscope.evidence.medians import median_over_prompts
from flowscope.evidence.two_samples import simultaneous_difference
from flowscope.evidence.verdicts import not_measured

__all__ = [
    "FEWEST_LAYERS",
    "MINIMUM_UNITS",
    "Counts",
    "ShiftedCorrelations",
    "Simultaneous",
    "expanded_level",
    "judged_effect",
    "mean_over_prompts",
    "median_over_prompts",
    "mirrored_shifts",
    "not_measured",
    "percentile_interval",
    "resampled_counts",
    "resampled_medians",
    "shifted_correlations",
    "simultaneous",
    "simultaneous_difference",
    "strength_of",
]
