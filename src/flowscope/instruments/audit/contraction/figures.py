"""Figures of the contraction: curvature of heads, its response to sweeps, the EVI along depth."""

from flowscope.instruments.audit.spans import shading, spans
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.grids import HEAD, head_map, head_table
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.traces import depth_axis, line
from flowscope.report.rows import known, rows_where
from flowscope.report.source import Source, column
from flowscope.report.theme import Picture

__all__ = ["SHARES", "SWEEPS", "curvature", "curvature_difference", "evolution", "response"]

SWEEPS = {
    "temperature": "temperature τ (1: as is)",
    "key_norm": "spread s of key norms (0: alike, 1: as is)",
}
"""The sweeps on the live model, and the title of their axis."""

SHARES = {
    "share": Look("the model", theme.BLUE, symbol="circle"),
    "share_shuffled": Look("the same states in shuffled order", theme.VERMILION, "dash", "circle"),
    "share_straight": Look("straight line between the same ends", theme.GREEN, "dot", "circle"),
}
"""Columns of the table ``evi`` that are shares of tokens, and how each is drawn."""

_ABSTAINED = ("status", "abstained")


def curvature(source: Source, name: str) -> Picture:
    """Heat map of ``kappa`` or ``keys_permuted`` over layers and heads, on one scale."""
    frame = head_table(source, "curvature", name)
    values = known([*column(frame, "kappa"), *column(frame, "keys_permuted")])
    own = ("κ {value} {low..high}",
           "?less keys permuted {effect}, all heads {joint_low..joint_high}")  # fmt: skip
    said = own if name == "kappa" else ("κ with keys permuted {value}",)
    rest = ("{pairs:6} pairs, {left_out:6} left out", "?abstains: {because!s}")
    limits = (min([0.0, *values]), 1)
    return head_map(frame, HEAD, *said, *rest, limits=limits, crossed=_ABSTAINED)


def curvature_difference(source: Source) -> Picture:
    """Heat map of ``kappa`` less ``keys_permuted``: contraction beyond overlap."""
    frame = head_table(source, "curvature", "kappa", less="keys_permuted")
    return head_map(frame, HEAD, "κ less that with keys permuted {value}", crossed=_ABSTAINED)


def response(source: Source, kind: str) -> Picture:
    """Curvature against the setting of one sweep: thin for each layer, thick for all together."""
    frame = source.table("curvature_response", "kind", "setting", "scope", "layer", "kappa")
    own = rows_where(frame, "kind", kind)
    if own.empty:
        raise Missing(f"the sweep of the {kind.replace('_', ' ')} was not run")
    whole, parts = (rows_where(own, "scope", scope) for scope in ("all", "layer"))
    said = ("κ {kappa} {low..high}", "change {change} {change_low..change_high}")
    grey, blue = Look("", theme.faded(theme.MUTED, 0.45)), Look("", theme.BLUE, symbol="circle")
    traces = [
        trace
        for layer in sorted(set(column(parts, "layer")))
        for trace in line("setting", rows_where(parts, "layer", layer), ("kappa",), grey,
                          f"layer {layer:g}, setting {{setting:g}}", *said,
                          line={"color": grey.colour, "width": 1})
    ]  # fmt: skip
    traces += line("setting", whole, ("kappa", "low", "high"), blue,
                   "all layers, setting {setting:g}", *said,
                   line={"color": blue.colour, "width": 2.4})  # fmt: skip
    settings = sorted(set(column(own, "setting")))
    x = theme.axis(SWEEPS[kind], tickvals=settings, ticktext=[f"{s:g}" for s in settings])
    if kind == "temperature" and settings and settings[0] > 0:
        x |= {"type": "log"}
    return {"data": traces, "layout": theme.layout(x, theme.axis("curvature κ"), 340)}


def evolution(source: Source) -> Picture:
    """Share of tokens whose step satisfies the inequality, beside both references."""
    frame = source.table("evi", "step", "share")
    traces = []
    for name, look in SHARES.items():
        columns = (name, "share_low", "share_high") if name == "share" else (name,)
        said = (f"{look.label}, step into layer {{step:g}}", f"{{{name}:%}}", "{because!s}")
        traces += line("step", frame, columns, look, *said)
    x = depth_axis(column(frame, "step"), "step into layer")
    y = theme.axis("share of tokens", range=[0, 1.03], tickformat=".0%")
    return {"data": traces, "layout": theme.layout(x, y, 320, shapes=shading(spans(source)))}
