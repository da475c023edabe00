"""The token-by-layer map as a PNG: words in cells, which no back end draws from plain data."""

import math

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from flowscope.instruments.audit.tokens.token_map import prompts
from flowscope.report import theme
from flowscope.report.escaping import shortened
from flowscope.report.source import Source, column, words

__all__ = ["token_picture"]

_POSITIONS, _DARK = 32, 0.28
"""Positions of the first prompt that are drawn; mobility from which words are white."""


def token_picture(source: Source) -> Figure:
    """Mobility of the first prompt by layer and position, with the top token in each cell.

    Raises
    ------
    Missing
        The run lacks the table ``tokens``, or one of its columns.
    """
    frame = source.table("tokens", "prompt", "position", "token", "layer", "mobility_frobenius")
    name = prompts(frame)[0]
    part = frame[[other == name for other in words(frame, "prompt")]]
    at, layer = column(part, "position"), column(part, "layer")
    positions, layers = sorted(set(at))[:_POSITIONS], sorted(set(layer))
    keys = list(zip(layer, at, strict=True))
    cells = dict(zip(keys, column(part, "mobility_frobenius"), strict=True))
    tops = dict(zip(keys, words(part, "top_token"), strict=True))
    grid = [[cells.get((row, place), math.nan) for place in positions] for row in layers]
    width, height = 1.5 + 0.52 * len(positions), 1.4 + 0.2 * len(layers)
    figure = Figure(figsize=(width, height), facecolor="white")
    # A layout found by drawing would draw a thousand words twice: margins by hand.
    figure.subplots_adjust(left=0.6 / width, right=1, bottom=0.8 / height, top=1 - 0.35 / height)
    ax = figure.subplots()
    scale = LinearSegmentedColormap.from_list("flowscope", list(theme.SCALE))
    image = ax.imshow(grid, cmap=scale, vmin=0, vmax=0.5, aspect="auto", interpolation="nearest")
    for i, row in enumerate(layers):
        for j, place in enumerate(positions):
            text = shortened(tops.get((row, place), "").strip(" "), 8)
            colour = "white" if grid[i][j] > _DARK else theme.INK
            ax.text(j, i, text, ha="center", va="center", fontsize=5.5, color=colour,
                    parse_math=False, clip_on=True, in_layout=False)  # fmt: skip
    tokens = dict(zip(at, words(part, "token"), strict=True))
    labels = [shortened(tokens[place].strip(" "), 9) for place in positions]
    ax.set_xticks(range(len(positions)), labels, rotation=60, ha="right", fontsize=7,
                  parse_math=False)  # fmt: skip
    ax.set_yticks(range(0, len(layers), 5), [f"{layers[k]:g}" for k in range(0, len(layers), 5)])
    ax.tick_params(colors=theme.MUTED)
    ax.spines[:].set_visible(False)
    ax.set_ylabel("layer", color=theme.MUTED)
    where = f"first {len(positions)} positions of prompt {shortened(name, 40)}"
    ax.set_title(f"Mobility and top token, {where}", loc="left", color=theme.INK, fontsize=11,
                 fontweight="bold", parse_math=False)  # fmt: skip
    figure.colorbar(image, ax=ax, label="mobility ‖J‖_F", pad=0.01, fraction=0.09, aspect=30)
    return figure
