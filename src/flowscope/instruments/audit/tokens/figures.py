"""Certainty along depth, drawn."""

from flowscope.instruments.audit.depth_curves import along_depth, depth_curve
from flowscope.report import theme
from flowscope.report.drawing.notes import notes
from flowscope.report.source import Source, column
from flowscope.report.theme import Picture

__all__ = ["agreement", "entropy", "locking_depth"]


def entropy(source: Source) -> Picture:
    """Entropy of the output distribution read at each layer, in nats."""
    return depth_curve(source, "entropy", theme.axis("entropy (nats)", rangemode="tozero"))


def agreement(source: Source) -> Picture:
    """Share of tokens whose top token at a layer is the one of the output."""
    y = theme.axis("share of tokens", range=[0, 1.03], tickformat=".0%")
    return depth_curve(source, "agreement", y)


def locking_depth(source: Source) -> Picture:
    """Histogram of the first layer after which the top token never changes."""
    frame = source.table("locking_depth", "layer", "share")
    bars = {
        "type": "bar",
        "x": column(frame, "layer"),
        "y": column(frame, "share"),
        "marker": {"color": theme.BLUE},
        "hovertext": notes(frame, "layer {layer:g}", "{share:%} of tokens", "{count:6} tokens"),
        "hoverinfo": "text",
    }
    y = theme.axis("share of tokens", tickformat=".0%", rangemode="tozero")
    return {"data": [bars], "layout": along_depth(y, [], 300, bargap=0.15)}
