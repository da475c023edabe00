"""One look for the page and the pictures: colours, type, axes.

The categorical colours are those of Okabe and Ito, which people with any of the common colour
deficiencies can tell apart; every distinction is also made by shape, dash or word. The
sequential scale falls steadily in lightness, so it survives a grey printer.
"""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "ABSTAINED",
    "BLUE",
    "DIVERGING",
    "FONT",
    "GREEN",
    "INK",
    "MUTED",
    "ORANGE",
    "PASSING",
    "RULE",
    "SCALE",
    "VERMILION",
    "Picture",
    "axis",
    "colour_scale",
    "faded",
    "layout",
]

Picture = dict[str, Any]
"""A plotly figure as plain data: ``data`` (traces) and ``layout``."""

INK, MUTED, RULE = "#17222d", "#5a6773", "#dde3e8"
BLUE, VERMILION, GREEN, ORANGE = "#0072b2", "#d55e00", "#00795a", "#b87400"
PASSING, ABSTAINED = "#e8f2f9", "#e4e6e8"
SCALE = ("#fbfaf0", "#e0eed5", "#b4dcc4", "#78c2bf", "#3d9bbb", "#236ca6", "#1e4287", "#141f59")
DIVERGING = ("#8c3d00", "#d0793b", "#eebf9b", "#f7f5f2", "#a9cbe3", "#4a93c4", "#0a4a7a")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"


def faded(colour: str, opacity: float) -> str:
    """Colour with an opacity, as CSS and plotly write it.

    Examples
    --------
    >>> faded("#0072b2", 0.2)
    'rgba(0,114,178,0.2)'
    """
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def colour_scale(stops: Sequence[str] = SCALE) -> list[list[Any]]:
    """Sequential scale in plotly's form: position and colour."""
    return [[k / (len(stops) - 1), colour] for k, colour in enumerate(stops)]


def axis(title: str, **settings: Any) -> dict[str, Any]:
    """Axis with the house's lines and type; ``title`` must be ours or neutralised."""
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 13, "color": MUTED}},
        "gridcolor": RULE,
        "linecolor": "#aab4bd",
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": "#aab4bd",
        "tickfont": {"size": 12, "color": MUTED},
        "automargin": True,
        **settings,
    }


def layout(x: Mapping[str, Any], y: Mapping[str, Any], height: int, **more: Any) -> dict[str, Any]:
    """Layout of a Cartesian figure; the page sets its width."""
    return {
        "xaxis": dict(x),
        "yaxis": dict(y),
        "height": height,
        "margin": {"l": 60, "r": 14, "t": 16, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13, "color": INK},
        "showlegend": False,
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": "#ffffff",
            "bordercolor": INK,
            "align": "left",
            "font": {"family": FONT, "size": 13, "color": INK},
        },
        **more,
    }
