"""What ``flowscope field`` measures: a model on its material."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowscope.instruments.field.config import FieldConfig
from flowscope.lab.bench import Bench
from flowscope.models.reading.subject import ReadingSubject, reading_subject

__all__ = ["FieldBench", "prepare"]


def prepare(config: FieldConfig, given: Mapping[str, Any]) -> tuple[FieldConfig, ReadingSubject]:
    """Load the model and its material; see `flowscope.models.reading.subject`."""
    return config, reading_subject(config, given, hides=True)


FieldBench = Bench[ReadingSubject, FieldConfig]
