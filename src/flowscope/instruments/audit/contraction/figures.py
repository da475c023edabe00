"""Figures of the contraction: curvature of heads, its response to sweeps, the EVI along depth."""

import math

import pandas as pd

from flowscope.instruments.audit.spans import shading, spans
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.grids import (
    crosses,
    difference_grid,
    difference_map,
    head_grid,
    heat_map,
)
from flowscope.report.drawing.traces import band, extent
from flowscope.report.escaping import hover
from flowscope.report.numerals import bounds, numeral, percent
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["SHARES", "SWEEPS", "curvature", "curvature_difference", "evolution", "response"]

SWEEPS = {
    "temperature": "temperature τ (1: as is)",
    "key_norm": "spread s of key norms (0: alike, 1: as is)",
}
"""The sweeps on the live model, and the title of their axis."""

SHARES = {
    "share": ("the model", theme.BLUE, "solid"),
    "share_shuffled": ("the same states in shuffled order", theme.VERMILION, "dash"),
    "share_straight": ("straight line between the same ends", theme.GREEN, "dot"),
}
"""Columns of the table ``evi`` that are shares of tokens: their name, colour and dash."""


def curvature(source: Source, name: str) -> Picture:
    """Heat map of ``kappa`` or ``keys_permuted`` over layers and heads, on one scale."""
    grid = head_grid(source, name, table="curvature", mark=("status", "abstained"))
    frame = source.table("curvature")
    notes = _notes(frame, name)
    texts = [[notes.get((layer, head), "") for head in grid.heads] for layer in grid.layers]
    known = [v for v in (*column(frame, "kappa"), *column(frame, "keys_permuted")) if v == v]
    return heat_map(grid, (min([0.0, *known]), 1), texts, crosses(grid.marked))


def curvature_difference(source: Source) -> Picture:
    """Heat map of ``kappa`` less ``keys_permuted``: contraction beyond overlap."""
    names, mark = ("kappa", "keys_permuted"), ("status", "abstained")
    grid = difference_grid(source, names, table="curvature", mark=mark)
    return difference_map(grid, "κ less that with keys permuted", crosses(grid.marked))


def _notes(frame: pd.DataFrame, name: str) -> dict[tuple[float, float], str]:
    parts = ["layer", "head", name, "low", "high", "pairs", "left_out"]
    parts += ["effect", "joint_low", "joint_high"]
    reasons = words(frame, "because")
    notes = {}
    for k, row in enumerate(zip(*(column(frame, part) for part in parts), strict=True)):
        layer, head, value, low, high, pairs, left_out, effect, least, most = row
        label = "κ" if name == "kappa" else "κ with keys permuted"
        limits = bounds(low, high) if name == "kappa" else ""
        lines = [f"layer {layer:g}, head {head:g}", f"{label} {numeral(value)} {limits}"]
        if name == "kappa" and not math.isnan(effect):
            lines += [f"less keys permuted {numeral(effect)}, all heads {bounds(least, most)}"]
        lines += [f"{numeral(pairs, 6)} pairs, {numeral(left_out, 6)} left out"]
        notes[layer, head] = hover(lines + ([f"abstains: {reasons[k]}"] if reasons[k] else []))
    return notes


def response(source: Source, kind: str) -> Picture:
    """Curvature against the setting of one sweep: thin for each layer, thick for all together."""
    frame = source.table("curvature_response", "kind", "setting", "scope", "layer", "kappa")
    own = frame[[word == kind for word in words(frame, "kind")]]
    if own.empty:
        raise Missing(f"the sweep of the {kind.replace('_', ' ')} was not run")
    scopes = words(own, "scope")
    whole, parts = (own[[scope == name for scope in scopes]] for name in ("all", "layer"))
    layers = column(parts, "layer")
    traces = [
        _curve(parts[[other == layer for other in layers]], f"layer {layer:g}", thin=True)
        for layer in sorted(set(layers))
    ]
    at, low, high = (column(whole, part) for part in ("setting", "low", "high"))
    traces += [*band(at, low, high, theme.BLUE), _curve(whole, "all layers")]
    settings = sorted(set(column(own, "setting")))
    x = theme.axis(SWEEPS[kind], tickvals=settings, ticktext=[f"{s:g}" for s in settings])
    if kind == "temperature" and settings and settings[0] > 0:
        x |= {"type": "log"}
    return {"data": traces, "layout": theme.layout(x, theme.axis("curvature κ"), 340)}


def _curve(frame: pd.DataFrame, label: str, *, thin: bool = False) -> Picture:
    settings, values = column(frame, "setting"), column(frame, "kappa")
    parts = ("low", "high", "change", "change_low", "change_high")
    low, high, change, change_low, change_high = (column(frame, part) for part in parts)
    texts = [
        hover(
            [
                f"{label}, setting {settings[k]:g}",
                f"κ {numeral(values[k])} {bounds(low[k], high[k])}",
                f"change {numeral(change[k])} {bounds(change_low[k], change_high[k])}",
            ]
        )
        for k in range(len(settings))
    ]
    colour = theme.faded(theme.MUTED, 0.45) if thin else theme.BLUE
    return {
        "type": "scatter",
        "mode": "lines" if thin else "lines+markers",
        "x": settings,
        "y": values,
        "line": {"color": colour, "width": 1 if thin else 2.4},
        "marker": {"size": 7},
        "hovertext": texts,
        "hoverinfo": "text",
    }


def evolution(source: Source) -> Picture:
    """Share of tokens whose step satisfies the inequality, beside both references."""
    frame = source.table("evi", "step", "share")
    steps, reasons = column(frame, "step"), words(frame, "because")
    traces = []
    for name, (label, colour, dash) in SHARES.items():
        values = column(frame, name)
        if name == "share":
            traces += band(steps, column(frame, "share_low"), column(frame, "share_high"), colour)
        texts = [
            hover([f"{label}, step into layer {step:g}", percent(value), reason])
            for step, value, reason in zip(steps, values, reasons, strict=True)
        ]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": steps,
                "y": values,
                "line": {"color": colour, "width": 1.8, "dash": dash},
                "marker": {"size": 6},
                "hovertext": texts,
                "hoverinfo": "text",
            }
        )
    y = theme.axis("share of tokens", range=[0, 1.03], tickformat=".0%")
    x = theme.axis("step into layer", showgrid=False, range=extent(steps))
    return {"data": traces, "layout": theme.layout(x, y, 320, shapes=shading(spans(source)))}
