"""One path on the simplex of its two leading tokens and all others, drawn."""

from collections.abc import Sequence

from flowscope.report import theme
from flowscope.report.escaping import hover, plotly_text, shortened
from flowscope.report.numerals import numeral
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["simplex_path"]


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
