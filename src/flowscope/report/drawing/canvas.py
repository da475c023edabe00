"""Figures of a page as plotly and matplotlib draw them, and as PNG files.

The bytes of a PNG depend on the tables and the version of matplotlib alone: no date, no software
name, and a fixed font that comes with matplotlib.
"""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

from flowscope.records import Missing
from flowscope.report.source import Source
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

__all__ = ["matplotlib_figure", "picture_of", "png"]

_DPI = 130


def picture_of(source: Source, figure: Figure) -> Picture | MatplotlibFigure:
    """Picture of a figure with its key as a legend; a sheet of images as matplotlib drew it.

    Raises
    ------
    Missing
        The run lacks a table that the figure shows.
    """
    from flowscope.report.drawing.panels import with_key

    try:
        drawn = figure.draw(source)
    except Missing as lack:
        raise figure.why(source, lack) from None
    return with_key(drawn, figure.entries(source)) if isinstance(drawn, dict) else drawn


def matplotlib_figure(source: Source, figure: Figure) -> MatplotlibFigure:
    """Figure of a page drawn by matplotlib.

    Raises
    ------
    Missing
        The run lacks a table that the figure shows.
    """
    from flowscope.report.drawing.matplotlib_backend import as_matplotlib

    drawn = picture_of(source, figure)
    return as_matplotlib(drawn, figure.title) if isinstance(drawn, dict) else drawn


def png(source: Source, name: str) -> bytes:
    """Figure of that name as the content of a PNG file.

    Raises
    ------
    Missing
        The run lacks a table that the figure shows.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawn = matplotlib_figure(source, source.page.figures[name])
    content = io.BytesIO()
    FigureCanvasAgg(drawn)
    with warnings.catch_warnings():
        # A token may be in a script the font does not have; its box is what can be shown.
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        drawn.savefig(content, format="png", dpi=_DPI, metadata={"Software": None})
    return content.getvalue()
