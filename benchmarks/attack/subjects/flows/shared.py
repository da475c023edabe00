"""What several files of this folder draw, and the reasons that they give."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.attack.numbers import Draw
from benchmarks.attack.subject import Arguments

__all__ = ["ABSENT", "DRAWS", "FREE", "cloud", "largest"]
DRAWS = "the random draws depend on the precision"
FREE = "axes have a free sign, and any basis where variances are equal"
ABSENT = {"": "documented: a ratio without a denominator, or a group without tokens"}


def largest(*names: str) -> Callable[[Arguments], float]:
    """Size of the largest number of some arguments."""
    return lambda given: max(float(np.abs(given[name]).max(initial=0.0)) for name in names)


def cloud(draw: Draw, n: int = 24, d: int = 2) -> dict[str, Any]:
    return {"points": draw.array(n, d, mild=draw.one_of(True, True, False))}
