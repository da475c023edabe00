"""The PNG figures of a depth audit, from the same tables as the page and in its look."""

import math
from collections.abc import Callable
from typing import Any

import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from flowscope.instruments.audit.figures.curvature_figures import SHARES, SWEEPS, curvature_grid
from flowscope.instruments.audit.figures.depth_figures import CONTROLS
from flowscope.instruments.audit.figures.flow_pictures import FLOW_PICTURES
from flowscope.instruments.audit.figures.head_figures import entropy_grid
from flowscope.instruments.audit.figures.spans import shade
from flowscope.instruments.audit.figures.token_map import prompts
from flowscope.records import Unavailable
from flowscope.report import theme
from flowscope.report.canvas import COLOUR_MAP, DASHES, canvas, titled
from flowscope.report.escaping import shortened
from flowscope.report.grids import grid_picture
from flowscope.report.source import Source, column, words

__all__ = ["PICTURES"]

_POSITIONS = 32


def _variation(source: Source) -> Figure | Unavailable:
    frame = source.table("layers", "layer", "relative_step")
    if isinstance(frame, Unavailable):
        return frame
    figure, (ax,) = canvas(9, 4.6, 1)
    steps = frame[[layer > 0 for layer in column(frame, "layer")]]
    ax.set_yscale("log")
    _curve(ax, steps, "relative_step", source)
    segments = source.table("segments", "first_layer", "last_layer")
    if not isinstance(segments, Unavailable):
        ends = [column(segments, name) for name in ("first_layer", "last_layer")]
        for name, (label, colour, dash) in CONTROLS.items():
            text: str | None = label
            for first, last, value in zip(*ends, column(segments, name), strict=True):
                if value > 0:
                    x = [first - 0.42, last + 0.42]
                    ax.plot(x, [value] * 2, DASHES[dash], color=colour, label=text)
                    text = None  # one entry in the legend for all segments
    jumps = source.table("jumps", "layer", "relative_step")
    if not isinstance(jumps, Unavailable):
        at, size = column(jumps, "layer"), column(jumps, "relative_step")
        ax.plot(at, size, "D", color=theme.VERMILION, markersize=8, zorder=4, label="jump")
    titled(ax, "layer", "relative step ‖Δz‖² / ‖z‖²", "How far each layer moves the output")
    ax.legend(frameon=False, fontsize=8)
    return figure


def _locking(source: Source) -> Figure | Unavailable:
    frame = source.table("locking", "tail_mass_low", "tail_mass_high", "tv_median")
    if isinstance(frame, Unavailable):
        return frame
    figure, (ax,) = canvas(7, 4.6, 1)
    low, high = column(frame, "tail_mass_low"), column(frame, "tail_mass_high")
    x = [math.sqrt((a or b / 10) * b) for a, b in zip(low, high, strict=True)]
    ax.set_xscale("log")
    ax.set_yscale("log")
    q25, q75 = column(frame, "tv_q25"), column(frame, "tv_q75")
    ax.fill_between(x, q25, q75, color=theme.BLUE, alpha=0.22, lw=0, label="quartiles")
    ax.plot(x, column(frame, "tv_median"), "o-", color=theme.BLUE, ms=5, label="TV, median")
    bound = column(frame, "bound_median")
    ax.plot(x, bound, "--", color=theme.VERMILION, label="exact bound, median")
    titled(ax, "tail mass δ = 1 − p_max", "TV of one step", "Locking")
    ax.legend(frameon=False, fontsize=8)
    return figure


def _entropy_agreement(source: Source) -> Figure | Unavailable:
    frame = source.table("layers", "layer")
    if isinstance(frame, Unavailable):
        return frame
    present = [name for name in ("entropy", "agreement") if name in frame]
    if not present:
        return Unavailable("the table “layers” has no column entropy or agreement")
    figure, axes = canvas(5 * len(present), 3.9, len(present))
    labels = {"entropy": "entropy (nats)", "agreement": "share of tokens"}
    titles = {"entropy": "Entropy", "agreement": "Agreement with the output"}
    for ax, name in zip(axes, present, strict=True):
        _curve(ax, frame, name, source)
        titled(ax, "layer", labels[name], titles[name])
        ax.set_ylim(0, 1.03 if name == "agreement" else None)
    return figure


def _heads(source: Source) -> Figure | Unavailable:
    titles = {
        "entropy_share": "Attention entropy, this model",
        "random_weights": "Attention entropy, random weights",
    }
    grids = {titles[name]: entropy_grid(source, name) for name in titles}
    return grid_picture(grids, Normalize(0.0, 1.0), "share of the largest")


def _curvature(source: Source) -> Figure | Unavailable:
    titles = {"kappa": "Curvature, this model", "keys_permuted": "Curvature, keys permuted"}
    grids = {titles[name]: curvature_grid(source, name) for name in titles}
    present = [grid for grid in grids.values() if not isinstance(grid, Unavailable)]
    known = [v for grid in present for row in grid.cells for v in row if not math.isnan(v)]
    return grid_picture(grids, Normalize(min([0.0, *known]), 1.0), "κ")


def _response(source: Source) -> Figure | Unavailable:
    frame = source.table("curvature_response", "kind", "setting", "scope", "layer", "kappa")
    if isinstance(frame, Unavailable):
        return frame
    figure, axes = canvas(5 * len(SWEEPS), 3.9, len(SWEEPS))
    for ax, (kind, title) in zip(axes, SWEEPS.items(), strict=True):
        own = frame[[word == kind for word in words(frame, "kind")]]
        scopes, layers = words(own, "scope"), column(own, "layer")
        for layer in sorted({v for v in layers if not math.isnan(v)}):
            part = own[[other == layer for other in layers]]
            ax.plot(column(part, "setting"), column(part, "kappa"), color="#aab4bd", lw=0.8)
        whole = own[[scope == "all" for scope in scopes]]
        x, low, high = (column(whole, name) for name in ("setting", "low", "high"))
        ax.fill_between(x, low, high, color=theme.BLUE, alpha=0.22, lw=0)
        ax.plot(x, column(whole, "kappa"), "o-", color=theme.BLUE, lw=2, ms=5)
        if kind == "temperature" and x and min(x) > 0:
            ax.set_xscale("log")
            ax.set_xticks(x, [f"{v:g}" for v in x], minor=False)
            ax.minorticks_off()
        titled(ax, title, "curvature κ", "Response, all layers (blue) and each")
    return figure


def _evolution(source: Source) -> Figure | Unavailable:
    frame = source.table("evi", "step", "share")
    if isinstance(frame, Unavailable):
        return frame
    figure, (ax,) = canvas(8, 4.2, 1)
    shade(ax, source)
    x = column(frame, "step")
    low, high = column(frame, "share_low"), column(frame, "share_high")
    ax.fill_between(x, low, high, color=theme.BLUE, alpha=0.22, lw=0)
    for name, (label, colour, dash) in SHARES.items():
        ax.plot(x, column(frame, name), "o" + DASHES[dash], color=colour, ms=4, label=label)
    ax.set_ylim(0, 1.03)
    titled(ax, "step into layer", "share of tokens", "Steps that satisfy the EVI")
    ax.legend(frameon=False, fontsize=8)
    return figure


def _token_map(source: Source) -> Figure | Unavailable:
    frame = source.table("tokens", "prompt", "position", "token", "layer", "mobility_frobenius")
    if isinstance(frame, Unavailable):
        return frame
    name = prompts(frame)[0]
    part = frame[[other == name for other in words(frame, "prompt")]]
    at, layer = column(part, "position"), column(part, "layer")
    positions, layers = sorted(set(at))[:_POSITIONS], sorted(set(layer))
    cells = dict(zip(zip(layer, at, strict=True), column(part, "mobility_frobenius"), strict=True))
    grid = [[cells.get((row, place), math.nan) for place in positions] for row in layers]
    size = (1.5 + 0.52 * len(positions), 1.4 + 0.2 * len(layers))
    # A layout found by drawing would draw a thousand words twice: margins by hand.
    figure, (ax,) = canvas(*size, 1, constrained=False)
    width, height = size
    margins = {"left": 0.6 / width, "bottom": 0.8 / height, "top": 1 - 0.35 / height}
    figure.subplots_adjust(right=1, **margins)
    image = ax.imshow(
        grid, cmap=COLOUR_MAP, vmin=0, vmax=0.5, aspect="auto", interpolation="nearest"
    )
    tops = dict(zip(zip(layer, at, strict=True), words(part, "top_token"), strict=True))
    for i, row in enumerate(layers):
        for j, place in enumerate(positions):
            text = shortened(tops.get((row, place), "").strip(" "), 8)
            colour = "white" if grid[i][j] > 0.28 else theme.INK
            ax.text(j, i, text, ha="center", va="center", fontsize=5.5, color=colour,
                    parse_math=False, clip_on=True, in_layout=False)  # fmt: skip
    tokens = dict(zip(at, words(part, "token"), strict=True))
    labels = [shortened(tokens[place].strip(" "), 9) for place in positions]
    ax.set_xticks(range(len(positions)), labels, rotation=60, ha="right", fontsize=7,
                  parse_math=False)  # fmt: skip
    ax.set_yticks(range(0, len(layers), 5), [f"{layers[k]:g}" for k in range(0, len(layers), 5)])
    where = f"first {len(positions)} positions of prompt {shortened(name, 40)}"
    titled(ax, "", "layer", f"Mobility and top token, {where}")
    ax.grid(False)
    figure.colorbar(image, ax=ax, label="mobility ‖J‖_F", pad=0.01, fraction=0.09, aspect=30)
    return figure


def _curve(ax: Any, frame: pd.DataFrame, name: str, source: Source) -> None:
    shade(ax, source)
    x, y, states = column(frame, "layer"), column(frame, name), words(frame, "status")
    low, high = column(frame, f"{name}_low"), column(frame, f"{name}_high")
    ax.fill_between(x, low, high, color=theme.BLUE, alpha=0.22, lw=0)
    ax.plot(x, y, "-", color=theme.BLUE, lw=1.6, label="median over tokens, with interval")
    grey = [state == "abstained" for state in states]
    colours = ["white" if abstained else theme.BLUE for abstained in grey]
    edges = ["#7b8791" if abstained else theme.BLUE for abstained in grey]
    ax.scatter(x, y, s=26, c=colours, edgecolors=edges, zorder=3)


PICTURES: dict[str, Callable[[Source], Figure | Unavailable]] = {
    "variation": _variation,
    "locking": _locking,
    "entropy_agreement": _entropy_agreement,
    "heads": _heads,
    "curvature": _curvature,
    "curvature_response": _response,
    "evi": _evolution,
    "token_map": _token_map,
    **FLOW_PICTURES,
}
"""Pictures of a report by the name of their file."""
