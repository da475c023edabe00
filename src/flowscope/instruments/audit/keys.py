"""Entries of keys and captions that the figures of an audit share."""

import math

from flowscope.report.source import Source, column

__all__ = ["SHADES", "tokens_behind"]


SHADES = (("passing", "segment that passes the gate"), ("abstained", "abstained"))
"""Entries of a key for the shading of segments."""


def tokens_behind(source: Source, table: str) -> str:
    """How many tokens stand behind a table, in words, to begin a list."""
    known = [v for v in column(source.rows(table, "tokens"), "tokens") if math.isfinite(v)]
    return f"{max(known):.0f} tokens, " if known else ""
