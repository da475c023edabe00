"""What a run could have seen at its size, in a sentence."""

import math
from collections.abc import Iterable, Mapping

import pandas as pd

__all__ = ["could_have_seen"]


def could_have_seen(tables: Mapping[str, pd.DataFrame]) -> str:
    """Smallest effects that a run of this size finds in 80 % of cases; empty where none is stored.

    Parameters
    ----------
    tables
        Tables of the run by name: ``step_budget`` and ``rotation`` are read.

    Examples
    --------
    >>> could_have_seen({"step_budget": pd.DataFrame({"detectable": [0.3, 0.11], "images": 40})})
    'With 40 images this run could have seen an excess of 0.11 of ODE against SDE.'
    """
    parts, images = [], ""
    for name, words in (
        ("step_budget", "an excess of {:.2g} of ODE against SDE"),
        ("rotation", "a rotation of {:.2g} of the score"),
    ):
        frame = tables.get(name, pd.DataFrame())
        numbers = _finite(frame.get("detectable", ()))
        if numbers:
            parts.append(words.format(min(numbers)))
            images = images or f"With {int(frame['images'].max())} images this"
    return f"{images} run could have seen {' and '.join(parts)}." if parts else ""


def _finite(values: Iterable[float]) -> list[float]:
    return [float(value) for value in values if math.isfinite(value)]
