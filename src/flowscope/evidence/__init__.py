"""JUDGE: intervals, nulls and gates; measurements in, verdicts out. Knows no model and no tap."""

from flowscope.evidence.adequacy import judge_adequacy
from flowscope.evidence.bootstrap import (
    Counts,
    mean_over_prompts,
    median_over_prompts,
    percentile_interval,
    resampled_counts,
    resampled_medians,
)
from flowscope.evidence.curvature import judge_curvature
from flowscope.evidence.gates import (
    SegmentEvidence,
    judge_locking,
    judge_variation,
)
from flowscope.evidence.images import judge_gradient, judge_order, judge_parity
from flowscope.evidence.irreversibility import Reference, judge_irreversibility
from flowscope.evidence.replicas import judge_commitment_order, judge_internal_gap
from flowscope.evidence.rotation import judge_rotation
from flowscope.evidence.verdicts import not_measured

__all__ = [
    "Counts",
    "Reference",
    "SegmentEvidence",
    "judge_adequacy",
    "judge_commitment_order",
    "judge_curvature",
    "judge_gradient",
    "judge_internal_gap",
    "judge_irreversibility",
    "judge_locking",
    "judge_order",
    "judge_parity",
    "judge_rotation",
    "judge_variation",
    "mean_over_prompts",
    "median_over_prompts",
    "not_measured",
    "percentile_interval",
    "resampled_counts",
    "resampled_medians",
]
