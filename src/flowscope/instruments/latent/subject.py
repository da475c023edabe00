"""What ``flowscope latent`` measures: a model on its material."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from flowscope.errors import InvalidInputError
from flowscope.instruments.latent.config import LatentConfig
from flowscope.lab.bench import Bench
from flowscope.models.reading.subject import ReadingSubject, reading_subject

__all__ = ["LatentBench", "prepare"]

MOST_RANKS = 4


def prepare(config: LatentConfig, given: Mapping[str, Any]) -> tuple[LatentConfig, ReadingSubject]:
    """Load the model and its material; see `flowscope.models.reading.subject`.

    Raises
    ------
    InvalidInputError
        For ranks or refinements that cannot be read.
    """
    _refuse("ranks", config.ranks, least=1, most=64)
    _refuse("refinements", config.refinements, least=1, most=64)
    if max(config.ranks) * 10 > config.points:
        raise InvalidInputError(
            f"An entropy in {max(config.ranks)} coordinates needs {10 * max(config.ranks)} points; "
            f"points is {config.points}. Ask for more points or fewer ranks."
        )
    return config, reading_subject(config, given)


def _refuse(name: str, values: tuple[int, ...], *, least: int, most: int) -> None:
    ascending = all(a < b for a, b in pairwise(values))
    good = bool(values) and len(values) <= MOST_RANKS and ascending
    if not good or not all(least <= value <= most for value in values):
        raise InvalidInputError(
            f"{name} must be 1 to {MOST_RANKS} whole numbers from {least} to {most}, each larger "
            f"than the one before; found {list(values)}."
        )


LatentBench = Bench[ReadingSubject, LatentConfig]
