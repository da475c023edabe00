"""JUDGE: intervals, nulls and gates; measurements in, verdicts out. Knows no model and no tap."""

from flowscope.evidence.bootstrap import (
    Estimate,
    mean_over_prompts,
    median_over_prompts,
    resampled_counts,
)
from flowscope.evidence.gates import (
    VARIATION_THRESHOLD,
    SegmentEvidence,
    judge_locking,
    judge_variation,
    not_measured,
)

__all__ = [
    "VARIATION_THRESHOLD",
    "Estimate",
    "SegmentEvidence",
    "judge_locking",
    "judge_variation",
    "mean_over_prompts",
    "median_over_prompts",
    "not_measured",
    "resampled_counts",
]
