"""Parts of captions: how many units stand behind a figure, how its intervals were made."""

import pandas as pd

from flowscope.records import Interval
from flowscope.report.numerals import numeral
from flowscope.report.rows import known
from flowscope.report.source import Source, column

__all__ = ["bootstrapped", "counted"]


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
