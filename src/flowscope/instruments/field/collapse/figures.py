"""Figure of the collapse: likeness and rank of the tokens along depth, beside random weights."""

from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import curve, ends, line
from flowscope.report.figure_html import shown
from flowscope.report.source import Source, column
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "collapse", "collapse_section"]

_MODEL = Look("model", theme.BLUE, "solid", "circle")
_TWIN = Look("random weights", theme.VERMILION, "dash", "square")


def collapse(source: Source) -> Picture:
    """Mean cosine and effective rank of the tokens along depth."""
    names = ("mean_cosine", "effective_rank")
    frame = source.table("collapse", "layer", *names, *(f"{name}_twin" for name in names))
    panels = []
    for name, title in zip(names, ("mean cosine", "effective rank"), strict=True):
        texts = [f"random weights: {value:.3g}" for value in column(frame, f"{name}_twin")]
        traces = [
            *line("layer", frame, ends(name), _MODEL, "block {layer:g}", "model {}"),
            curve(column(frame, "layer"), column(frame, f"{name}_twin"), _TWIN, texts),
        ]
        panels.append(Panel(title=title, traces=traces))
    return stacked(panels, theme.axis("block"), 190)


def _caption(source: Source) -> str:
    return (
        "Top: mean cosine of pairs of tokens; 1 where all point the same way. Bottom: effective "
        "rank of their directions about the mean. Means over prompts with 95 % intervals; the mean "
        "of networks with random weights is dashed. F2 compares the last third of the blocks."
    )


def collapse_section(source: Source) -> str:
    """Section of the collapse."""
    return shown(source, "collapse", FIGURES["collapse"])


FIGURES: dict[str, Figure] = {
    "collapse": Figure(
        title="Likeness of the tokens along depth",
        draw=collapse,
        caption=_caption,
        key=(_MODEL, _TWIN),
        table="collapse",
        verdicts=("F2",),
        measurements=("collapse",),
    )
}
"""Figures of the collapse."""
