"""Attention beside particles on a sphere: fits, clustering predicted and measured, phases."""

import math
from itertools import pairwise

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import curve, depth_axis, ends, level, line, points
from flowscope.report.figure_html import shown
from flowscope.report.rows import ordered
from flowscope.report.source import Source, column
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "particle_section"]

_MODEL = Look("model", theme.BLUE, symbol="circle")
_TWIN = Look("random weights", theme.MUTED, "dot")
_DEALT = Look("tokens dealt anew", theme.ORANGE, "dashdot")
_FITS = {
    "beta": "fitted β",
    "beta_r2": "R² of β",
    "value": "fitted v",
    "value_r2": "R² of v",
}
_CHANGES = {
    "cosine_change": Look("whole block", theme.INK, symbol="square"),
    "cosine_attention": Look("attention", theme.BLUE, symbol="circle"),
    "cosine_feed_forward": Look("feed-forward", theme.ORANGE, "dashdot"),
    "cosine_predicted": Look("particles", theme.VERMILION, "dash", "diamond"),
}


def fits(source: Source) -> Picture:
    """Fitted β and v of every block with their shares, beside random weights."""
    columns = [end for name in _FITS for end in (*ends(name), f"{name}_twin")]
    frame = ordered(source.table("clustering", "layer", *columns, "value_r2_permuted"), "layer")
    at, panels = column(frame, "layer"), []
    for name, title in _FITS.items():
        traces = [curve(at, column(frame, f"{name}_twin"), _TWIN)]
        if name == "value_r2":
            traces.append(curve(at, column(frame, "value_r2_permuted"), _DEALT))
        traces += line("layer", frame, ends(name), _MODEL, "block {layer:g}", title + " {}")
        panels.append(Panel(title=title, traces=traces, shapes=[level(0)], share=0.75))
    return stacked(panels, depth_axis(at, "block"), 180)


def _fits_caption(source: Source) -> str:
    return (
        "Particles on a sphere have attention logits β⟨x, y⟩ and write v Σ P (y − x). β: slope of "
        "the model's logits on cosines of its tokens, within rows. v: slope of the transport part "
        "of attention's write on that velocity. R²: the share of the logits, or of the squared "
        "write, that the fit explains, below 0 where tokens flee what they attend to. Grey: "
        "random weights; orange: tokens dealt anew to the weights. Where R² of v is near 0, the "
        "theory of particles does not describe this attention, whatever β is."
    )


def clustering(source: Source) -> Picture:
    """Change of the mean cosine in every block: predicted, and measured by its parts."""
    columns = [end for name in _CHANGES for end in ends(name)]
    frame = ordered(source.table("clustering", "layer", *columns), "layer")
    traces = [
        trace
        for name, look in _CHANGES.items()
        for trace in line("layer", frame, ends(name), look, "block {layer:g}", f"{look.label} {{}}")
    ]  # fmt: skip
    panel = Panel(title="change of the mean cosine", traces=traces, shapes=[level(0)])
    return stacked([panel], depth_axis(column(frame, "layer"), "block"), 280)


def _clustering_caption(source: Source) -> str:
    return (
        "How much more alike the tokens of a prompt are after each block. Black: the whole block; "
        "blue: attention alone; orange: the feed-forward part after it; red: what particles with "
        "the fitted v predict for attention."
    )


def phases(source: Source) -> Picture:
    """Order of noisy particles over β and noise, with the blocks of the model."""
    frame = source.table("phases", "beta", "noise", "growth", "order", "clusters")
    betas, noises = (sorted(set(column(frame, name))) for name in ("beta", "noise"))
    cells = {
        (row["beta"], row["noise"]): (row["order"], row["clusters"], row["growth"])
        for row in frame.to_dict("records")
    }
    nothing = (math.nan, math.nan, math.nan)
    heat = {
        "type": "heatmap",
        "x": list(range(len(betas))),
        "y": list(range(len(noises))),
        "z": [[cells.get((beta, noise), nothing)[0] for beta in betas] for noise in noises],
        "hovertext": [
            [_cell(beta, noise, cells.get((beta, noise), nothing)) for beta in betas]
            for noise in noises
        ],
        "hoverinfo": "text",
        "zmin": 0.0,
        "zmax": 1.0,
        "xgap": 1,
        "ygap": 1,
        "colorscale": theme.colour_scale(),
        "colorbar": {"title": {"text": "order"}, "thickness": 12},
    }
    axes = (
        theme.axis("β", tickvals=list(range(len(betas))), ticktext=[f"{b:g}" for b in betas],
                   range=[-0.5, len(betas) - 0.5], showgrid=False),
        theme.axis("noise", tickvals=list(range(len(noises))), ticktext=[f"{v:g}" for v in noises],
                   range=[-0.5, len(noises) - 0.5], showgrid=False),
    )  # fmt: skip
    traces = [heat, *_marks(source, betas, noises)]
    return {"data": traces, "layout": theme.layout(*axes, 320)}


def _cell(beta: float, noise: float, found: tuple[float, float, float]) -> str:
    order, clusters, growth = found
    return (
        f"β {beta:g}, noise {noise:g}: order {order:.2f}, {clusters:g} clusters; the uniform law "
        f"is {'unstable' if growth > noise else 'stable'}"
    )


def _marks(source: Source, betas: list[float], noises: list[float]) -> list[Picture]:
    """Blocks of the model; one beyond an end stands at that end."""
    try:
        frame = source.table("clustering", "layer", "beta", "noise")
    except Missing:
        return []
    rows = [
        row for row in frame.to_dict("records")
        if math.isfinite(row["beta"]) and math.isfinite(row["noise"])
    ]  # fmt: skip
    x = [_place(row["beta"], betas) for row in rows]
    y = [_place(row["noise"], noises) for row in rows]
    texts = [
        f"block {int(row['layer'])}: β {row['beta']:.3g}, noise {row['noise']:.3g}" for row in rows
    ]
    look = Look("block of the model", theme.VERMILION, symbol="diamond")
    return [points(x, y, look, texts, line={"width": 1.2, "color": "#ffffff"})] if rows else []


def _place(value: float, ticks: list[float]) -> float:
    """Where a value lies between ticks that are drawn at equal distances."""
    if value <= ticks[0]:
        return 0.0
    for place, (low, high) in enumerate(pairwise(ticks)):
        if value <= high:
            return place + (value - low) / (high - low)
    return float(len(ticks) - 1)


def _phases_caption(source: Source) -> str:
    try:
        frame = source.table("clustering", "layer", "beta", "noise")
        marked = sum(math.isfinite(noise) for noise in column(frame, "noise"))
        said = (
            f"Diamonds: the {marked} of {len(frame)} blocks whose fitted v attracts; those beyond "
            "the last noise stand at the upper edge. A block whose tokens flee has no place here."
        )
    except Missing:
        said = "The blocks of the model have no place here: their attention was not fitted."
    return (
        "Particles on the sphere in three dimensions from a uniform start: length of their mean "
        "vector late in time, over inverse temperature and noise (noise damps the mean at this "
        "rate). Pale: they stay spread; dark: they gather at one point. " + said
    )


def particle_section(source: Source) -> str:
    """Section of the particles."""
    return "".join(shown(source, name, figure) for name, figure in FIGURES.items())


FIGURES: dict[str, Figure] = {
    "particle_fits": Figure(title="Attention as particles", draw=fits, caption=_fits_caption),
    "clustering": Figure(
        title="Clustering, predicted and measured", draw=clustering, caption=_clustering_caption
    ),
    "phases": Figure(title="Phase diagram", draw=phases, caption=_phases_caption),
}
