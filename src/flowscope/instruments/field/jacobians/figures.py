"""Figure of the Jacobians: gains and growth rates of every block, beside random weights."""

from flowscope.instruments.field.jacobians.stiff import STIFF
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import curve, ends, level, line
from flowscope.report.figure_html import shown
from flowscope.report.rows import above_zero
from flowscope.report.source import Source, column
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "jacobians", "jacobians_section"]

_MODEL = Look("model", theme.BLUE, "solid", "circle")
_TWIN = Look("random weights", theme.VERMILION, "dash", "square")
_TITLES = {"sigma_max": "largest gain", "log_norm": "growth rate", "mean_gain": "mean gain"}


def jacobians(source: Source) -> Picture:
    """Largest gain, growth rate and mean gain along depth."""
    frame = source.table("jacobians", "layer", *_TITLES, *(f"{name}_twin" for name in _TITLES))
    log = {"type": "log", "exponentformat": "power", "dtick": 1}
    panels = []
    for name, title in _TITLES.items():
        values = [above_zero(value) for value in column(frame, f"{name}_twin")]
        texts = [f"random weights: {value:.3g}" for value in values]
        said = "block {layer:g}", title + " {}"
        traces = [
            *line("layer", frame, ends(name), _MODEL, *said, place=above_zero),
            curve(column(frame, "layer"), values, _TWIN, texts),
        ]
        shapes = (level(STIFF),) if name == "sigma_max" else ()
        panels.append(Panel(title=title, traces=traces, shapes=shapes, axis=log))
    return stacked(panels, theme.axis("block"), 180)


def _caption(source: Source) -> str:
    return (
        "The block's write as a linear map of small changes at one prompt, each token measured by "
        "its own length. Top: largest gain σ_max; above the dotted line a block is called stiff. "
        "Middle: largest growth rate μ₂, the leak above which this state's linearisation "
        "contracts. Bottom: gain of a random direction. Gains and rates are lower bounds; bands "
        "end at their residuals, and all of it holds at this state alone."
    )


def jacobians_section(source: Source) -> str:
    """Section of the Jacobians."""
    return shown(source, "jacobians", FIGURES["jacobians"])


FIGURES: dict[str, Figure] = {
    "jacobians": Figure(
        title="How strongly each block reacts",
        draw=jacobians,
        caption=_caption,
        key=(_MODEL, _TWIN),
        table="jacobians",
        measurements=("jacobians",),
    )
}
"""Figures of the Jacobians."""
