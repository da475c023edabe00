"""Figures of a run: their names, titles and captions, and how plotly and matplotlib draw them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from flowscope.errors import InvalidInputError, Missing
from flowscope.records import Run
from flowscope.report import Page
from flowscope.report.drawing.canvas import matplotlib_figure, picture_of
from flowscope.report.source import Source, read_source

__all__ = ["Figures", "NamedFigure"]


@dataclass(frozen=True, kw_only=True)
class NamedFigure:
    """What a figure of a run shows.

    Attributes
    ----------
    name
        Name of the figure, and of its PNG file.
    title
        What the figure shows, in a few words.
    caption
        The caption on the page; where a table is missing, the sentence that says so.
    """

    name: str
    title: str
    caption: str


class Figures(Mapping[str, NamedFigure]):
    """Figures that the page of a run has, by name.

    Parameters
    ----------
    run
        The run folder, which is read when a caption or a drawing is asked for.
    page
        How a run of its instrument is shown.
    """

    def __init__(self, run: Run, page: Page) -> None:
        self._run = run
        self._page = page

    def __getitem__(self, name: str) -> NamedFigure:
        if name not in self._page.figures:
            raise KeyError(self._unknown(name))
        figure, source = self._page.figures[name], read_source(self._run, self._page)
        try:
            figure.draw(source)
            caption = str(figure.caption(source))
        except Missing as lack:
            caption = f"Not shown: {figure.why(source, lack).reason.rstrip('.')}."
        return NamedFigure(name=name, title=figure.title, caption=caption)

    def __iter__(self) -> Iterator[str]:
        return iter(self._page.figures)

    def __len__(self) -> int:
        return len(self._page.figures)

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        rows = [f"{name:<{width}}  {figure.title}" for name, figure in self._page.figures.items()]
        return "\n".join(rows)

    def _unknown(self, name: str) -> str:
        near = get_close_matches(str(name), list(self), n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        return f"This run has no figure {name!r}{hint} It has {', '.join(self)}."

    def draw(self, name: str, backend: str) -> Any:
        """Draw a figure; see `flowscope.lab.Result.plot`."""
        if name not in self._page.figures:
            raise InvalidInputError(self._unknown(name))
        if backend not in _BACKENDS:
            raise InvalidInputError(
                f"A figure is drawn by one of {', '.join(map(repr, _BACKENDS))}, found {backend!r}."
            )
        return _BACKENDS[backend](read_source(self._run, self._page), name)


def _plotly(source: Source, name: str) -> Any:
    figure = source.page.figures[name]
    picture = picture_of(source, figure)
    if not isinstance(picture, dict):
        raise InvalidInputError(
            f"The figure {name!r} shows images or words in cells, which matplotlib alone draws: "
            f'result.plot({name!r}, backend="matplotlib").'
        )
    try:
        from plotly.graph_objects import Figure as PlotlyFigure
    except ImportError as error:
        raise InvalidInputError(
            "plotly is not installed: pip install plotly, or "
            f'result.plot({name!r}, backend="matplotlib").'
        ) from error
    layout = {"title": {"text": figure.title}, "paper_bgcolor": "#ffffff"}
    margin = {**picture["layout"]["margin"], "t": 76, "b": 90}
    return PlotlyFigure(picture["data"], {**picture["layout"], **layout, "margin": margin,
                                          "height": picture["layout"]["height"] + 90})  # fmt: skip


def _matplotlib(source: Source, name: str) -> Any:
    return matplotlib_figure(source, source.page.figures[name])


_BACKENDS: dict[str, Callable[[Source, str], Any]] = {
    "plotly": _plotly,
    "matplotlib": _matplotlib,
}
