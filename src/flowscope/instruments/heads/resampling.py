"""How many prompts the controls read, and how prompts are resampled."""

from __future__ import annotations

from flowscope.evidence import resampled_counts
from flowscope.evidence.bootstrap import Counts
from flowscope.instruments.heads.subject import HeadsBench

__all__ = ["control_size", "prompt_counts"]


def control_size(bench: HeadsBench) -> int:
    """Number of prompts that the controls read."""
    return min(bench.config.control_prompts, bench.subject.material.size)


def prompt_counts(bench: HeadsBench, size: int) -> Counts:
    """How often each prompt is drawn in each resample."""
    return resampled_counts(size, resamples=bench.config.resamples, seed=bench.config.seed)
