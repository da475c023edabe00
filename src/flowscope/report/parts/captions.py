"""How many units stand behind a figure or a run, and how intervals were made, in words."""

import math
from collections.abc import Mapping

import pandas as pd

from flowscope.records import Interval
from flowscope.report.escaping import html_text
from flowscope.report.numerals import count, numeral
from flowscope.report.rows import known
from flowscope.report.source import Source, column

__all__ = ["bootstrapped", "counted", "size_of", "small_note", "small_remark"]


def counted(frame: pd.DataFrame, what: str, name: str = "n") -> str:
    """How many units a column counts behind the rows, in words."""
    numbers = sorted(set(known(column(frame, name))))
    if not numbers:
        return f"the number of {what} was not recorded"
    most = f" to {numeral(numbers[-1], 6)}" if len(numbers) > 1 else ""
    return f"n = {numeral(numbers[0], 6)}{most} {what}"


def bootstrapped(source: Source, verdict: str, what: str) -> str:
    """How the intervals over units were made, at the level of that verdict, in words."""
    own = (one.statistic.interval for one in source.verdicts if one.name == verdict)
    made = next((interval for interval in own if isinstance(interval, Interval)), None)
    level = f"{100 * made.level:g}" if made else "95"
    resamples = source.setting("resamples")
    many = f", {resamples} resamples" if isinstance(resamples, int) else ""
    return f"intervals: {level}\u00a0%, bootstrap over {what}{many}"


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
