"""Hover texts as templates over the columns of a table."""

from collections.abc import Sequence
from string import Formatter

import pandas as pd

from flowscope.report.escaping import hover
from flowscope.report.numerals import bounds, numeral, percent
from flowscope.report.source import column, words

__all__ = ["notes"]


def notes(frame: pd.DataFrame, *lines: str, names: Sequence[str] = ()) -> list[str]:
    """Hover text of each row: these lines, filled in with the columns that they name in braces.

    Parameters
    ----------
    frame
        The table.
    *lines
        ``{tv}`` is a number to three figures, ``{n:6}`` to six, ``{layer:g}`` as short as can be,
        ``{share:%}`` a percentage, ``{low..high}`` an interval in brackets and ``{word!s}`` text.
        A line that begins with ``?`` is left out where something in it is undefined; an empty
        line is left out, too.
    names
        What ``{}`` stands for: a column, and those of the ends of its interval where there is one.

    Examples
    --------
    >>> table = pd.DataFrame({"layer": [3], "tv": [0.25], "low": [0.2], "high": [0.3], "p": [None]})
    >>> notes(table, "layer {layer:g}", "TV {}", "?p = {p}", names=("tv", "low", "high"))
    ['layer 3<br>TV 0.25 [0.2, 0.3]']
    """
    value = " ".join([f"{{{names[0]}}}", *([f"{{{names[1]}..{names[2]}}}"] if names[2:] else [])]
                     ) if names else ""  # fmt: skip
    filled = [_filled(frame, line.replace("{}", value)) for line in lines]
    return [hover(filter(None, row)) for row in zip(*filled, strict=True)]


def _filled(frame: pd.DataFrame, line: str) -> list[str]:
    """One line of the text of each row."""
    parts: list[Sequence[str]] = []
    lacks = [False] * len(frame)
    for literal, name, digits, kind in Formatter().parse(line.removeprefix("?")):
        parts.append([literal] * len(frame))
        if name is not None:
            shown = _texts(frame, name, digits or "", word=kind == "s")
            lacks = [a or b in ("", "–", "nan") for a, b in zip(lacks, shown, strict=True)]
            parts.append(shown)
    texts = ["".join(row).strip() for row in zip(*parts, strict=True)]
    optional = line.startswith("?")
    return ["" if optional and lack else text for text, lack in zip(texts, lacks, strict=True)]


def _texts(frame: pd.DataFrame, name: str, digits: str, *, word: bool) -> list[str]:
    """What stands in the braces, in each row."""
    if word:
        return words(frame, name)
    if ".." in name:
        return list(map(bounds, *(column(frame, end) for end in name.split(".."))))
    if digits == "%":
        return list(map(percent, column(frame, name)))
    if digits == "g":
        return [f"{value:g}" for value in column(frame, name)]
    return [numeral(value, int(digits or 3)) for value in column(frame, name)]
