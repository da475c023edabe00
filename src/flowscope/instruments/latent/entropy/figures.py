"""The cloud of tokens along depth: entropy in four readings, dimension, likeness."""

import pandas as pd

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import curve, depth_axis, ends, line
from flowscope.report.figure_html import shown
from flowscope.report.rows import ordered, rows_where
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "dimension", "entropies", "entropy_section", "likeness", "output"]

SAMPLES = {
    "all": Look("all tokens", theme.BLUE, symbol="circle"),
    "types": Look("one occurrence of each token", theme.VERMILION, "dash", "diamond"),
}
"""Samples of tokens, and how each is drawn."""

_ESTIMATORS = {
    "entropy_knn": "by nearest neighbours, nats",
    "entropy_gaussian": "by covariance, nats",
}
_TWIN = Look("random weights", theme.MUTED, "dot")
_SHUFFLED = Look("shuffled text", theme.ORANGE, "dashdot")
_BESIDE = {"random twin": _TWIN, "shuffled text": _SHUFFLED}


def sample_rows(frame: pd.DataFrame, sample: str) -> pd.DataFrame:
    """Rows of one sample in the first number of coordinates, by layer."""
    first = rows_where(frame, "sample", sample)
    return ordered(first[first["rank"] == frame["rank"].min()], "layer")


def _layers(source: Source, *names: str) -> pd.DataFrame:
    columns = [end for name in names for end in ends(name)]
    return source.table("layers", "layer", "sample", "rank", *columns)


def _sample_lines(frame: pd.DataFrame, name: str, note: str) -> list[Picture]:
    return [
        trace
        for sample, look in SAMPLES.items()
        for trace in line(
            "layer", sample_rows(frame, sample), ends(name), look,
            "layer {layer:g}, " + look.label, note + " {}",
        )
    ]  # fmt: skip


def entropies(source: Source) -> Picture:
    """Entropy by both estimators: both samples, random weights and shuffled text."""
    frame = _layers(source, *_ESTIMATORS)
    if frame["entropy_knn"].isna().all():
        raise Missing("the table “layers” has no entropies; the measurements say why")
    panels = []
    for name, title in _ESTIMATORS.items():
        traces = [*_beside(source, name), *_sample_lines(frame, name, "entropy")]
        panels.append(Panel(title=title, traces=traces))
    return stacked(panels, depth_axis(column(frame, "layer")), 210)


def _beside(source: Source, name: str) -> list[Picture]:
    """Curves of the controls; none where there are no controls."""
    try:
        frame = source.table("entropy_controls", "subject", "layer", "sample", "rank", name)
    except Missing:
        return []
    traces = []
    for subject in dict.fromkeys(words(frame, "subject")):
        look = next(look for start, look in _BESIDE.items() if subject.startswith(start))
        for sample in SAMPLES:
            rows = sample_rows(frame[frame["subject"] == subject], sample)
            traces.append(curve(column(rows, "layer"), column(rows, name), look, opacity=0.75))
    return traces


def _entropy_caption(source: Source) -> str:
    return (
        "Entropy of the directions of the tokens in the first principal coordinates of each layer, "
        "with 95 % intervals over prompts; above for nearest neighbours in other prompts, below "
        "for the Gaussian of the same covariance. Blue: all tokens; red: one occurrence of each. "
        "Repeated tokens lie close together, so that the upper blue curve says more about "
        "repetition than about spread; only where all four curves agree the entropy rises or "
        "falls. Grey dots: random weights; orange: the same tokens in random order, both for each "
        "sample."
    )


def dimension(source: Source) -> Picture:
    """Intrinsic dimension by two estimators, and neighbours of the same type."""
    names = ("dimension_two_nn", "dimension_mle", "same_type_neighbours")
    titles = ("dimension, 2 neighbours", "dimension, 10 neighbours", "same token next to it")
    frame = _layers(source, *names)
    panels = [
        Panel(title=title, traces=_sample_lines(frame, name, title), share=0.8)
        for name, title in zip(names, titles, strict=True)
        if frame[name].notna().any()  # tokens of an image have no type
    ]
    if not panels:
        raise Missing("the table “layers” has no dimensions: tokens are all alike")
    return stacked(panels, depth_axis(column(frame, "layer")), 190)


def _dimension_caption(source: Source) -> str:
    return (
        "Intrinsic dimension of the cloud from distances to two and to ten neighbours in other "
        "prompts, in all coordinates, and the share of tokens whose nearest neighbour is the same "
        "token (one occurrence of each has none). A dimension belongs to the distance at which it "
        "is read: where the nearest neighbour is the same token, it is that of a token's contexts."
    )


def likeness(source: Source) -> Picture:
    """Mean cosine of pairs of tokens, and effective rank."""
    names = {"mean_cosine": "mean cosine", "effective_rank": "effective rank"}
    frame = _layers(source, *names)
    panels = [
        Panel(title=title, traces=_sample_lines(frame, name, title))
        for name, title in names.items()
    ]
    return stacked(panels, depth_axis(column(frame, "layer")), 170)


def _likeness_caption(source: Source) -> str:
    return (
        "How alike tokens are: mean cosine of pairs (1: all point one way) and effective rank of "
        "the centred directions (1: all lie on a line). A high cosine alone is no collapse: it "
        "is a common offset, which the next norm or a bias removes. Collapse shows in the rank."
    )


def output(source: Source) -> Picture:
    """Entropy of the output law that would be given from each layer."""
    frame = source.table("output_entropy", "layer", *ends("output_entropy"))
    look = Look("output", theme.GREEN, symbol="square")
    traces = line(
        "layer", frame, ends("output_entropy"), look, "layer {layer:g}", "entropy {} nats"
    )
    axes = depth_axis(column(frame, "layer")), theme.axis("entropy of the output, nats")
    return {"data": traces, "layout": theme.layout(*axes, 260)}


def _output_caption(source: Source) -> str:
    return (
        "Shannon entropy of the output that the model would give from each layer, mean over "
        "tokens. This is what the measurement cited for “rises, then falls” read; it is another "
        "number than the spread of the hidden states above."
    )


def entropy_section(source: Source) -> str:
    """Section of the cloud."""
    return "".join(shown(source, name, figure) for name, figure in FIGURES.items())


FIGURES: dict[str, Figure] = {
    "entropies": Figure(title="Entropy in four readings", draw=entropies, caption=_entropy_caption),
    "dimension": Figure(title="Dimension", draw=dimension, caption=_dimension_caption),
    "likeness": Figure(title="Likeness of tokens", draw=likeness, caption=_likeness_caption),
    "output": Figure(title="Entropy of the output", draw=output, caption=_output_caption),
}
