"""What ``flowscope heads`` measures: a model on its material."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowscope.instruments.heads.config import HeadsConfig
from flowscope.lab.bench import Bench
from flowscope.models.reading.subject import ReadingSubject, reading_subject

__all__ = ["HeadsBench", "prepare"]


def prepare(config: HeadsConfig, given: Mapping[str, Any]) -> tuple[HeadsConfig, ReadingSubject]:
    """Load the model and its material; see `flowscope.models.reading.subject`."""
    return config, reading_subject(config, given)


HeadsBench = Bench[ReadingSubject, HeadsConfig]
