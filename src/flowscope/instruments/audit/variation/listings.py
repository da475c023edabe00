"""Segments as a list for a reader."""

import pandas as pd

from flowscope.report.numerals import bounds, numeral
from flowscope.report.source import column, words

__all__ = ["gate"]


def gate(segments: pd.DataFrame) -> pd.DataFrame:
    """Segments as a reader asks of them: where, how much, against what, and so."""
    parts = ("first_layer", "last_layer", "relative_variation", "low", "high")
    first, last, value, low, high = (column(segments, part) for part in parts)
    rows = range(len(segments))
    shown = {
        "layers": [f"{first[k]:g}" + f"–{last[k]:g}" * (first[k] != last[k]) for k in rows],
        "kind": words(segments, "kind"),
        "relative variation": [f"{numeral(value[k])} {bounds(low[k], high[k])}" for k in rows],
        "threshold": column(segments, "threshold"),
        "random weights": column(segments, "random_weights"),
        "straight line": column(segments, "linear_interpolation"),
        "decision": words(segments, "decision"),
        "because": words(segments, "because"),
    }
    return pd.DataFrame(shown)
