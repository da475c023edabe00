"""The budget along depth."""

from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.traces import ends, line
from flowscope.report.figure_html import shown
from flowscope.report.source import Source
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "budget", "budget_section"]

_LOOKS = {
    "angular_attention": Look("attention", theme.BLUE),
    "angular_feed_forward": Look("feed-forward", theme.VERMILION),
}


def budget(source: Source) -> Picture:
    """How far each write turns the tokens, along depth."""
    frame = source.table("blocks", "layer", *_LOOKS)
    traces = [
        trace
        for name, look in _LOOKS.items()
        for trace in line("layer", frame, ends(name), look, "block {layer:g}", look.label + " {}")
    ]
    axes = (
        theme.axis("block"),
        theme.axis("angular step", type="log", exponentformat="power", dtick=1),
    )
    return {"data": traces, "layout": theme.layout(*axes, 300)}


def _caption(source: Source) -> str:
    return (
        "How far the writes of attention (blue) and of the feed-forward part (red) turn a token, "
        "relative to its length: medians over tokens, means over prompts with 95 % intervals."
    )


def budget_section(source: Source) -> str:
    """Section of the budget."""
    return shown(source, "budget", FIGURES["budget"])


FIGURES: dict[str, Figure] = {
    "budget": Figure(title="Budget along depth", draw=budget, caption=_caption)
}
