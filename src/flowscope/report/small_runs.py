"""Notes on a page whose run is too small for narrow intervals."""

import math
from collections.abc import Mapping

from flowscope.report.escaping import html_text
from flowscope.report.numerals import count
from flowscope.report.source import Source

__all__ = ["size_of", "small_note", "small_remark"]


def size_of(source: Source, unit: str) -> int:
    """Number of units that were measured, by the plural of their name; 0 if it is not recorded."""
    measured = source.setting("measured")
    number = measured.get(unit) if isinstance(measured, Mapping) else source.setting(unit)
    return int(number) if isinstance(number, int | float) and math.isfinite(number) else 0


def small_remark(source: Source, few: int) -> str:
    """Sentence at the top of the page of a run with fewer than ``few`` units, else nothing."""
    size = size_of(source, source.page.units)
    if not 0 < size < few:
        return ""
    return f"This is a small run ({_counted(source, size)}): intervals are wide."


def small_note(source: Source, few: int, of: str = "") -> str:
    """Paragraph that says what a run with fewer than ``few`` units cannot show, else nothing.

    Parameters
    ----------
    source
        The run.
    few
        Number of units from which a run is not small.
    of
        Words after the number of units, e.g. " of replicas".
    """
    size = size_of(source, source.page.units)
    if not 0 < size < few:
        return ""
    return (
        '<p class="note"><strong>This is a small run: intervals are wide.</strong> '
        f"{html_text(_counted(source, size))}{html_text(of)}; with fewer than {few}, real effects "
        "can remain undetected.</p>"
    )


def _counted(source: Source, size: int) -> str:
    return count(size, source.page.units.removesuffix("s"))
