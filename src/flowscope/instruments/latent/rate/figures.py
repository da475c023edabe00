"""Change of entropy by two routes, curvature of the flow, memory, and shorter steps."""

import pandas as pd

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import curve, depth_axis, ends, level, line
from flowscope.report.figure_html import shown
from flowscope.report.listings import numbers
from flowscope.report.rows import ordered, rows_where
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "rate_section"]

_ROUTES = {
    "difference": Look("between clouds", theme.BLUE, symbol="circle"),
    "flow": Look("mean flow", theme.VERMILION, "dash", "diamond"),
    "noise": Look("Gaussian noise", theme.ORANGE, "dashdot"),
    "rest": Look("rest", theme.MUTED, "dot"),
}
_SAMPLES = {"all": "all tokens, nats", "types": "one occurrence each, nats"}
_LINES = (
    ("lambda_min", "5 % quantile", theme.BLUE),
    ("lambda_median", "median", theme.GREEN),
)


def _rows(source: Source, *names: str, sample: str = "") -> pd.DataFrame:
    columns = [end for name in names for end in ends(name)]
    frame = source.table("rates", "layer", "sample", *columns)
    return ordered(rows_where(frame, "sample", sample), "layer") if sample else frame


def rates(source: Source) -> Picture:
    """Change of entropy between clouds beside its three terms, for both samples."""
    frame = _rows(source, *_ROUTES)
    panels = []
    for sample, title in _SAMPLES.items():
        rows = ordered(rows_where(frame, "sample", sample), "layer")
        if rows.empty:
            continue
        traces = [
            trace
            for name, look in _ROUTES.items()
            for trace in line("layer", rows, ends(name), look, "block {layer:g}",
                              f"{look.label} {{}}")
        ]  # fmt: skip
        panels.append(Panel(title=title, traces=traces, shapes=[level(0)]))
    return stacked(panels, depth_axis(column(frame, "layer"), "block"), 220)


def _rates_caption(source: Source) -> str:
    turning = _turning_words(source)
    return (
        "Change of entropy in each block, in one set of axes for the layers before and after it. "
        "Blue: between the two clouds, by nearest neighbours. Red: what the mean flow adds, "
        "E log |det(I + ∇u)|. Orange: what Gaussian noise of the size of the unexplained velocity "
        "adds. Grey: the rest. The mean flow explains the change only where red and orange add "
        "up to blue. " + turning
    )


def _turning_words(source: Source) -> str:
    """Where the entropy turns, in a sentence."""
    nothing = "No layer is certain at which the entropy turns."
    try:
        frame = source.table(
            "turning_layers", "sample", "route", "first", "last", "kind", "expanding"
        )
    except Missing:
        return nothing
    kept = frame[[word == "difference" for word in words(frame, "route")]]
    parts = [
        f"a {row['kind']} between blocks {int(row['first'])} and {int(row['last'])} "
        f"({'all tokens' if row['sample'] == 'all' else 'one occurrence each'}; "
        f"{float(row['expanding']):.1f} directions expand there)"
        for row in kept.to_dict("records")
    ]
    return f"The entropy turns at {'; '.join(parts)}." if parts else nothing


def curvature(source: Source) -> Picture:
    """Least curvature of the effective potential, expanding directions and rotation."""
    sample = "all"
    frame = _rows(source, "lambda_min", "lambda_median", "expanding", "turning", sample=sample)
    if frame.empty:
        frame = _rows(source, "lambda_min", "lambda_median", "expanding", "turning", sample="types")
    traces = [
        trace
        for name, said, colour in _LINES
        for trace in line("layer", frame, ends(name), Look(said, colour, symbol="circle"),
                          "block {layer:g}", f"{said} {{}}")
    ]  # fmt: skip
    panels = [Panel(title="least curvature", traces=traces, shapes=[level(0)])]
    for name, title, colour in (
        ("expanding", "expanding directions", theme.VERMILION),
        ("turning", "rotation share", theme.ORANGE),
    ):
        look = Look(title, colour, symbol="diamond")
        drawn = line("layer", frame, ends(name), look, "block {layer:g}", title + " {}")
        panels.append(Panel(title=title, traces=drawn, share=0.7))
    return stacked(panels, depth_axis(column(frame, "layer"), "block"), 190)


def _curvature_caption(source: Source) -> str:
    return (
        "The mean flow near each token. Top: the least eigenvalue of −sym ∇u, the curvature of "
        "the effective potential U + ν log ρ (blue: the 5 % quantile over tokens, the constant of "
        "Bakry and Émery; green: the median). Above 0 clouds draw together in every direction. "
        "Middle: in how many directions the flow expands. Bottom: the share of the Jacobian that "
        "rotates. Directions come from one half of the prompts and values from the other, so that "
        "noise neither bends nor turns the flow. U and ν apart cannot be seen from the clouds, and "
        "no pair is given."
    )


def spectrum(source: Source) -> Picture:
    """Every eigenvalue of the mean of −sym ∇u, by block."""
    frame = source.table("curvature_spectrum", "layer", "sample", "number", "curvature")
    sample = "all" if "all" in set(words(frame, "sample")) else "types"
    frame = rows_where(frame, "sample", sample)
    numbered = sorted(set(column(frame, "number")))
    traces = []
    for place, number in enumerate(numbered):
        rows = ordered(rows_where(frame, "number", number), "layer")
        look = Look(f"{int(number)}", theme.SCALE[2 + place % 5], symbol="circle")
        at, values = column(rows, "layer"), column(rows, "curvature")
        texts = [
            f"block {x:g}, eigenvalue {int(number)}: {y:.3g}"
            for x, y in zip(at, values, strict=True)
        ]
        traces.append(curve(at, values, look, texts))
    panel = Panel(title="eigenvalues", traces=traces, shapes=[level(0)])
    return stacked([panel], depth_axis(column(frame, "layer"), "block"), 260)


def _spectrum_caption(source: Source) -> str:
    return (
        "Eigenvalues of the mean over tokens of −sym ∇u, the Hessian of the effective potential. "
        "Those above 0 are directions in which the block draws tokens together."
    )


def memory(source: Source) -> Picture:
    """Correlation of residuals of neighbouring blocks, and forecasts of the covariance."""
    frame = ordered(
        source.table(
            "memory", "layer", *ends("lag_correlation"), "forecast_error", "persistence_error"
        ),
        "layer",
    )
    lag = Look("residuals", theme.BLUE, symbol="circle")
    forecast = Look("steps in turn", theme.VERMILION, "dash", "diamond")
    still = Look("nothing changes", theme.MUTED, "dot")
    at = column(frame, "layer")
    first = line("layer", frame, ends("lag_correlation"), lag, "block {layer:g}", "correlation {}")
    errors = [
        curve(at, column(frame, f"{name}_error"), look)
        for name, look in (("forecast", forecast), ("persistence", still))
    ]
    panels = [
        Panel(title="memory", traces=first, shapes=[level(0)]),
        Panel(title="error ahead", traces=errors),
    ]
    return stacked(panels, depth_axis(at, "block"), 180)


def _memory_caption(source: Source) -> str:
    return (
        "Whether a few coordinates, the same at all layers, move as a Markov process. Top: the "
        "correlation of what the mean flow leaves in a block with what it leaves in the next; 0 "
        "if that were new noise. Bottom: relative error of the covariance several blocks later, "
        "forecast from the steps in turn (red) and if nothing changed (grey)."
    )


def shorter_steps(source: Source) -> Picture:
    """Diffusivity by squared steps, where blocks are cut into shorter steps."""
    frame = ordered(source.table("refinement", "steps", *ends("diffusivity"), "smooth"), "steps")
    look = Look("measured", theme.BLUE, symbol="circle")
    smooth = Look("smooth flow", theme.MUTED, "dot")
    traces = [
        curve(column(frame, "steps"), column(frame, "smooth"), smooth),
        *line("steps", frame, ends("diffusivity"), look, "{steps:g} steps a block", "ν {}"),
    ]
    axes = theme.axis("steps that replace one block"), theme.axis("ν from squared steps")
    return {"data": traces, "layout": theme.layout(*axes, 240)}


def _shorter_caption(source: Source) -> str:
    return (
        "The diffusion ν that source 003 reads from squared steps, with every block cut into n "
        "shorter steps of the same network. A diffusion would stay; that of a smooth flow falls "
        "as 1/n (grey): then the number says how long the steps are."
    )


def rate_section(source: Source) -> str:
    """Section of the rate."""
    drawn = "".join(shown(source, name, figure) for name, figure in FIGURES.items())
    return drawn + numbers(source, "turning_layers")


FIGURES: dict[str, Figure] = {
    "rates": Figure(title="Change of entropy by two routes", draw=rates, caption=_rates_caption),
    "curvature": Figure(title="Curvature of the flow", draw=curvature, caption=_curvature_caption),
    "spectrum": Figure(title="Hessian spectrum", draw=spectrum, caption=_spectrum_caption),
    "memory": Figure(title="Memory", draw=memory, caption=_memory_caption),
    "shorter_steps": Figure(title="Shorter steps", draw=shorter_steps, caption=_shorter_caption),
}
