"""Figures on the simplex: locking, and one path in a triangle.

Each function takes the tables and returns a plotly figure as plain data, or why there is none.
"""

import math
from collections.abc import Sequence
from typing import Any

from flowscope.report import theme
from flowscope.report.escaping import hover, plotly_text, shortened
from flowscope.report.numerals import bounds, numeral, percent
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["locking", "simplex_path"]


def locking(source: Source) -> Picture:
    """Movement of the output against tail mass, with the exact bound and where it says anything."""
    frame = source.table("locking", "tail_mass_low", "tail_mass_high", "tv_median")
    low, high = column(frame, "tail_mass_low"), column(frame, "tail_mass_high")
    parts = ("tv_median", "tv_q25", "tv_q75", "bound_median", "informative_share", "n")
    median, q25, q75, bound, share, n = (column(frame, part) for part in parts)
    bins = [(a if a > 0 else b / 10, b) for a, b in zip(low, high, strict=True)]
    centre = [math.sqrt(a * b) for a, b in bins]
    texts = [
        hover(
            [
                f"tail mass {numeral(low[k])} to {numeral(high[k])} (n = {numeral(n[k], 6)})",
                f"median TV {numeral(median[k])}, quartiles {bounds(q25[k], q75[k])}",
                f"exact bound, median {numeral(bound[k])}",
                f"bound informative in {percent(share[k])} of rows",
            ]
        )
        for k in range(len(centre))
    ]
    traces = [
        *_quartiles(centre, q25, q75),
        _curve(centre, bound, theme.VERMILION, dash="dash", hoverinfo="skip"),
        _curve(centre, median, theme.BLUE, hovertext=texts, hoverinfo="text"),
    ]
    traces += [
        _step(edges, level, text) for edges, level, text in zip(bins, share, texts, strict=True)
    ]
    return {"data": traces, "layout": _locking_layout()}


def _step(edges: tuple[float, float], level: float, text: str) -> Picture:
    low, high = edges
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [low, math.sqrt(low * high), high],
        "y": [level] * 3,
        "yaxis": "y2",
        "line": {"width": 1, "color": theme.VERMILION},
        "fill": "tozeroy",
        "fillcolor": theme.faded(theme.VERMILION, 0.55),
        "hovertext": text,
        "hoverinfo": "text",
    }


def _locking_layout() -> Picture:
    log: dict[str, Any] = {"type": "log", "exponentformat": "power", "dtick": 1}
    x = theme.axis("tail mass δ = 1 − p_max", **log, anchor="y2")
    y = theme.axis("TV of one step", **log, domain=[0.32, 1])
    below = theme.axis("informative", range=[0, 1], domain=[0, 0.2], tickformat=".0%", nticks=3)
    return theme.layout(x, y, 420, yaxis2=below)


def _curve(x: Sequence[float], y: Sequence[float], colour: str, **more: Any) -> Picture:
    dash = more.pop("dash", "solid")
    return {
        "type": "scatter",
        "mode": "lines" if dash != "solid" else "lines+markers",
        "x": list(x),
        "y": [value if value > 0 else None for value in y],
        "line": {"color": colour, "width": 1.8, "dash": dash},
        "marker": {"size": 7, "color": colour},
        **more,
    }


def _quartiles(x: Sequence[float], low: Sequence[float], high: Sequence[float]) -> list[Picture]:
    kept = [row for row in zip(x, low, high, strict=True) if row[1] > 0 and row[2] > 0]
    if not kept:
        return []
    centre, bottom, top = zip(*kept, strict=True)
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [*centre, *reversed(centre)],
            "y": [*top, *reversed(bottom)],
            "fill": "toself",
            "fillcolor": theme.faded(theme.BLUE, 0.22),
            "line": {"width": 0},
            "hoverinfo": "skip",
        }
    ]


def simplex_path(source: Source) -> Picture:
    """Path of one token's output distribution: two outcomes and everything else."""
    frame = source.table("simplex_path", "layer", "first", "second", "rest")
    frame = frame.sort_values("layer", kind="stable")
    layers, first, second, rest = (
        column(frame, name) for name in ("layer", "first", "second", "rest")
    )
    names = [
        next(filter(None, words(frame, part)), part) for part in ("first_token", "second_token")
    ]
    path = {
        "type": "scatterternary",
        "mode": "lines+markers+text",
        "a": rest,
        "b": first,
        "c": second,
        "line": {"color": "#7b8791", "width": 1.4},
        "marker": {
            "size": 10,
            "color": layers,
            "colorscale": theme.colour_scale(theme.SCALE[1:]),
            "line": {"width": 1, "color": theme.INK},
            "colorbar": {
                "title": {"text": "layer"},
                "thickness": 10,
                "len": 0.6,
                "y": 1,
                "yanchor": "top",
                "outlinewidth": 0,
            },
        },
        "hovertext": [
            hover(
                [
                    f"layer {layers[k]:g}",
                    f"“{shortened(names[0], 40)}” {numeral(first[k])}",
                    f"“{shortened(names[1], 40)}” {numeral(second[k])}",
                    f"all other tokens {numeral(rest[k])}",
                ]
            )
            for k in range(len(layers))
        ],
        "hoverinfo": "text",
        "cliponaxis": False,
        "text": _ends(layers),
        "textposition": "middle right",
        "textfont": {"size": 12, "color": theme.INK},
    }
    return {"data": [_corners(names), path], "layout": _ternary_layout()}


def _ends(layers: Sequence[float]) -> list[str]:
    names = [""] * len(layers)
    names[-1] = f"  layer {layers[-1]:g}"
    names[0] = "  embedding" if layers[0] == 0 else f"  layer {layers[0]:g}"
    return names


def _corners(names: Sequence[str]) -> Picture:
    shown = [plotly_text(f"“{shortened(name, 16)}”") for name in names]
    return {
        "type": "scatterternary",
        "mode": "markers+text",
        "a": [1, 0, 0],
        "b": [0, 1, 0],
        "c": [0, 0, 1],
        "text": ["all other tokens", *shown],
        "textposition": ["top center", "bottom center", "bottom center"],
        "textfont": {"size": 13, "color": theme.MUTED},
        "marker": {"size": 22, "opacity": 0},  # unseen: it holds the words off the path
        "cliponaxis": False,
        "hoverinfo": "skip",
    }


def _ternary_layout() -> Picture:
    side = {
        "title": {"text": ""},
        "min": 0,
        "dtick": 0.25,
        "ticks": "",
        "showticklabels": False,
        "gridcolor": theme.RULE,
        "linecolor": "#aab4bd",
    }
    ternary = {name: dict(side) for name in ("aaxis", "baxis", "caxis")}
    layout = theme.layout({}, {}, 420, ternary={"sum": 1, "bgcolor": "#ffffff", **ternary})
    del layout["xaxis"], layout["yaxis"]
    layout["margin"] = {"l": 60, "r": 20, "t": 44, "b": 44}
    return layout
