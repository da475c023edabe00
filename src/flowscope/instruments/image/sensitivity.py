"""What a run could have seen at its size, in a sentence."""

import math
from collections.abc import Iterable, Mapping

import pandas as pd

from flowscope.instruments.image.parity import LEAST_LOG_SNR as PARITY_FROM
from flowscope.instruments.image.rotation import LEAST_LOG_SNR as ROTATION_FROM

__all__ = ["could_have_seen"]


def could_have_seen(tables: Mapping[str, pd.DataFrame]) -> str:
    """Effects that a run of this size finds in 80 % of cases at any judged time; empty without.

    Parameters
    ----------
    tables
        Tables of the run by name: ``step_budget`` and ``rotation`` are read.

    Examples
    --------
    >>> rows = pd.DataFrame({"log_snr": [-9, 1], "detectable": [0.3, 0.11], "images": 40})
    >>> could_have_seen({"step_budget": rows})
    'With 40 images this run could have seen an excess of 0.11 of ODE against SDE.'
    """
    parts, images = [], ""
    for name, least, words in (
        ("step_budget", PARITY_FROM, "an excess of {:.2g} of ODE against SDE"),
        ("rotation", ROTATION_FROM, "a rotation of {:.2g} of the score"),
    ):
        frame = tables.get(name, pd.DataFrame())
        if "detectable" not in frame:
            continue
        numbers = _finite(frame.loc[frame["log_snr"] >= least, "detectable"])
        if numbers:
            parts.append(words.format(max(numbers)))
            images = images or f"With {int(frame['images'].max())} images this"
    return f"{images} run could have seen {' and '.join(parts)}." if parts else ""


def _finite(values: Iterable[float]) -> list[float]:
    return [float(value) for value in values if math.isfinite(value)]
