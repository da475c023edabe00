"""Figures of the study: losses and disagreement of every way to combine two models."""

from collections.abc import Mapping

import pandas as pd

from flowscope.instruments.latent.stable_alignment.names import (
    APART,
    AVERAGE,
    CHILDREN,
    DOMAINS,
    FIRST,
    LAYER_SETS,
    LOGITS,
    PAIRED,
    PARENT,
    PROBABILITIES,
    SECOND,
    TRANSPORT,
)
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import dots, ends
from flowscope.report.figure_html import shown
from flowscope.report.rows import rows_where
from flowscope.report.source import Source, words
from flowscope.report.spec import Figure, Section
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "study_sections"]

_HALF = Look("consensus, weaker strengths", "#3d8fc0", symbol="circle")
_FULL = Look("consensus, largest strength", theme.BLUE, symbol="diamond")
_CLOUDS = Look("consensus of clouds (transport)", theme.VERMILION, symbol="square")
_ONE = Look("one model", theme.MUTED, symbol="triangle-up")
_CHEAP = Look("cheap way to combine two", theme.INK, symbol="square")
_LOOKS = (_ONE, _CHEAP, _HALF, _FULL, _CLOUDS)
_METHODS = {
    PARENT: _ONE, FIRST: _ONE, SECOND: _ONE, APART: _ONE,
    LOGITS: _CHEAP, PROBABILITIES: _CHEAP, AVERAGE: _CHEAP,
}  # fmt: skip
_AGREED = {
    **{f"pairs, {layers}": layers for layers in LAYER_SETS},
    "clouds, one early": "one", "clouds, last": "last",
}  # fmt: skip
_LOSSES = {
    PARENT: "parent", FIRST: "first", SECOND: "second", LOGITS: "logits",
    PROBABILITIES: "probs", AVERAGE: "weights", **_AGREED,
}  # fmt: skip
_DIVERGENCES = {APART: "apart", **_AGREED}
"""Places on the axis and their labels."""


def _ways(source: Source, value: str) -> pd.DataFrame:
    """Rows about the children, each with its place on the axis."""
    frame = source.table(
        "consensus", "domain", "members", "method", "layers", "strength", *ends(value)
    )
    frame = rows_where(frame, "members", CHILDREN)
    if not len(frame):
        raise Missing("the table “consensus” has no rows about the children")
    layers = [layer if isinstance(layer, str) else "" for layer in frame["layers"]]
    short = {PAIRED: "pairs", TRANSPORT: "clouds"}
    place = [
        f"{short[method]}, {layer}" if method in short else method
        for method, layer in zip(words(frame, "method"), layers, strict=True)
    ]
    return frame.assign(place=place)


def _picture(source: Source, value: str, title: str, places: Mapping[str, str]) -> Picture:
    frame = _ways(source, value)
    strongest = frame["strength"].max()
    panels = []
    for domain, label in DOMAINS.items():
        rows = rows_where(frame, "domain", domain)
        if len(rows):
            panels.append(
                Panel(title=f"{title}, {label}", traces=_marks(rows, value, strongest, places))
            )
    ticks = {"tickvals": list(range(len(places))), "ticktext": list(places.values())}
    axis = theme.axis("", range=[-0.6, len(places) - 0.4], **ticks)
    return stacked(panels, axis, 190)


def _marks(
    rows: pd.DataFrame, value: str, strongest: float, places: Mapping[str, str]
) -> list[Picture]:
    marks, order = [], list(places)
    for _, row in rows.iterrows():
        if row["place"] not in order:
            continue
        look = _METHODS.get(str(row["method"]))
        if look is None:
            look = _CLOUDS if row["method"] == TRANSPORT else _HALF
            look = _FULL if look is _HALF and row["strength"] == strongest else look
        shift = 0.0 if look is not _HALF else -0.22
        one = pd.DataFrame([row])
        marks.append(
            dots(
                [order.index(row["place"]) + shift], one, ends(value), look,
                "{place}, strength {strength:g}", f"{value} {{}} nats", size=8,
            )
        )  # fmt: skip
    return marks


def _losses(source: Source) -> Picture:
    return _picture(source, "loss", "loss, nats", _LOSSES)


def _divergences(source: Source) -> Picture:
    frame = source.table("consensus", "method", "divergence")
    if APART not in set(words(frame, "method")):
        raise Missing("the table “consensus” has no members apart")
    return _picture(source, "divergence", "divergence, nats", _DIVERGENCES)


def _loss_caption(source: Source) -> str:
    return (
        "Loss of the next token, mean over the members, with 95 % intervals over texts. Consensus "
        "is worth its cost only where it lies below all three black squares (mean of logits, of "
        "probabilities, of weights). To their right: the blocks after which states move, all, a "
        "third, or the last one. Orange: clouds transported without knowing tokens, after one "
        "early block and after the last, on fewer texts."
    )


def _divergence_caption(source: Source) -> str:
    return (
        "Jensen–Shannon divergence between the predictions of the two children, with 95 % "
        "intervals over texts; 0 for one prediction. Agreement is no merit by itself: the mean of "
        "two models agrees with itself at no cost."
    )


FIGURES: dict[str, Figure] = {
    "consensus_loss": Figure(
        title="Loss of members, averages and consensus",
        draw=_losses,
        caption=_loss_caption,
        key=_LOOKS,
    ),
    "consensus_divergence": Figure(
        title="Disagreement of the members",
        draw=_divergences,
        caption=_divergence_caption,
        key=_LOOKS[:1] + _LOOKS[2:],
    ),
}
"""Figures of the study."""


def study_sections(source: Source) -> list[Section]:
    """Section of the study, after its claims."""
    return [("consensus", "Do two models agree, and is it worth it?", _section)]


def _section(source: Source) -> str:
    return "".join(shown(source, name, figure) for name, figure in FIGURES.items())
