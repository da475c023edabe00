"""A list above a figure that chooses which of several pictures is drawn, and grids of pictures."""

from collections.abc import Callable, Iterable, Sequence

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.escaping import html_text, json_island, plotly_text
from flowscope.report.theme import Picture

__all__ = ["Pictures", "blank", "choice_data", "choice_list", "panel_grid", "pictures_of"]

Pictures = Sequence[Picture]
"""The pictures that a list chooses between."""

_HEIGHT = 278
"""Height of an empty frame in pixels."""


def pictures_of(draws: Iterable[Callable[[], Picture]], *, must: bool = False) -> Pictures:
    """Pictures that these functions draw; one whose table is missing is an empty frame.

    Parameters
    ----------
    draws
        Functions without arguments.
    must
        Whether the first one may not be missing.

    Raises
    ------
    Missing
        The first one is missing, and it must not be.
    """
    pictures: list[Picture] = []
    for draw in draws:
        try:
            pictures.append(draw())
        except Missing as lack:
            if must and not pictures:
                raise
            pictures.append(blank(lack, _HEIGHT))
    return pictures


def choice_list(label: str, names: Sequence[str], options: Sequence[str], shown: int = 0) -> str:
    """List that chooses between the pictures of these plots; nothing where there is no choice."""
    if len(options) < 2:
        return ""
    items = "".join(
        f"<option{' selected' if k == shown else ''}>{html_text(option)}</option>"
        for k, option in enumerate(options)
    )
    return (
        f'<div class="controls"><label>{html_text(label)} '
        f'<select data-plots="{" ".join(names)}">{items}</select></label></div>'
    )


def choice_data(name: str, pictures: Pictures, shown: int = 0) -> str:
    """Pictures of a plot beside the one it starts with; nothing where there is no choice."""
    if len(pictures) < 2:
        return ""
    held = [_beyond(pictures[shown], picture) for picture in pictures]
    return f'<script type="application/json" id="data-choices-{name}">{json_island(held)}</script>'


def _beyond(base: Picture, picture: Picture) -> Picture:
    """What a picture has that the one shown first has not; all of it where they differ in kind."""
    pairs = [*zip(base["data"], picture["data"], strict=False), (base["layout"], picture["layout"])]
    if len(base["data"]) != len(picture["data"]) or any(set(a) - set(b) for a, b in pairs):
        return {**picture, "whole": True}
    *data, layout = [
        {name: part for name, part in new.items() if name not in old or old[name] != part}
        for old, new in pairs
    ]
    return {"data": data, "layout": layout}


def panel_grid(panels: Sequence[str]) -> str:
    """Small pictures of one kind in a grid; two or four of them in two columns."""
    pairs = " even" if len(panels) in (2, 4) else ""
    return f'<div class="panels{pairs}">{"".join(panels)}</div>'


def blank(lack: Missing, height: int) -> Picture:
    """Empty frame that says why, for one of several choices of a figure."""
    hidden = {"visible": False}
    said = {"x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper", "showarrow": False,
            "text": plotly_text(lack.reason),
            "font": {"size": 13, "color": theme.MUTED}}  # fmt: skip
    return {"data": [], "layout": theme.layout(hidden, hidden, height, annotations=[said])}
