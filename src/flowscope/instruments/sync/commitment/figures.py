"""How similar two finished images are, by the step at which their coupling ended."""

from functools import partial

import pandas as pd

from flowscope.instruments.sync.commitment.curves import agreement_figure, scale_figure
from flowscope.instruments.sync.series import Series, class_names, rows_of, series_of
from flowscope.records import Missing
from flowscope.report.drawing.marks import Drawn, Entry
from flowscope.report.drawing.panels import panel_row
from flowscope.report.escaping import html_text, shortened
from flowscope.report.figure_html import Caption, figure, fold, key, part, plot
from flowscope.report.listings import listing, numbers
from flowscope.report.numerals import bounds, numeral
from flowscope.report.parts.captions import counted
from flowscope.report.parts.choosing import choice_data, choice_list, panel_grid, pictures_of
from flowscope.report.rows import rows_where
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = [
    "FIGURES",
    "agreement_caption",
    "agreement_section",
    "commitment_listing",
    "coupling_name",
    "effect_listing",
    "order_listing",
    "scale_caption",
    "scales_section",
    "without_midpoint",
]


_MOST = 8
"""Panels side by side; further couplings and classes are on the page alone."""


_TIMES = {"feature": "τ spec (features)", "coarse": "τ coarse", "fine": "τ fine"}


def _classes(source: Source) -> dict[float, str]:
    return class_names(source) or {0.0: ""}


def _agreement_key(source: Source) -> list[Entry | Drawn]:
    more = [("rule grey", "fitted sigmoid (thin)"), ("abstained", "interval (in its colour)")]
    return [*series_of(source, "agreement"), *more]


_SAME = "When two replicas end up the same"


def _agreement_panels(source: Source) -> Picture:
    named = list(_classes(source).items())[:_MOST]
    panels = {
        ", ".join(filter(None, (_SAME, shortened(name, 24)))): partial(
            agreement_figure, label=label
        )
        for label, name in named
    }
    return panel_row(panels)(source)


@part("agreement", "tau_spec")
def agreement_section(source: Source) -> str:
    """Section of the agreement of the features."""
    classes, drawing = _classes(source), FIGURES["sync_agreement"]
    pictures = pictures_of([partial(agreement_figure, source, label) for label in classes],
                           must=True)  # fmt: skip
    caption, entries = drawing.caption(source), drawing.entries(source)
    return (
        choice_list("Class", ["agreement"], list(classes.values()))
        + figure("agreement", pictures[0], caption, entries)
        + choice_data("agreement", pictures)
        + _effect(source)
        + numbers(source, "agreement")
    )


def _effect(source: Source) -> str:
    """How much later the least coupling commits, where that was judged."""
    frame = source.tables.get("coupling_effect", pd.DataFrame())
    if frame.empty or "difference" not in frame:
        return ""
    table = '<a href="tables/coupling_effect.csv">tables/coupling_effect.csv</a>'
    return (
        "<h3>What the coupling moves</h3>"
        + listing(effect_listing(frame), "differences of τ spec between couplings")
        + f'<p class="source">Pairs resampled jointly. Drawn from {table}.</p>'
    )


def _scale_panels(source: Source) -> Picture:
    label = next(iter(_classes(source)))
    source.table("agreement", "label", "g", "measure")
    panels = {
        f"Coarse and fine, {one.label}": partial(scale_figure, label=label, one=one)
        for one in series_of(source, "agreement")[:_MOST]
    }
    return panel_row(panels)(source)


def scales_section(source: Source) -> str:
    """Section of the agreement at two scales."""
    return _scale_figures(source) + _times(source)


@part("agreement")
def _scale_figures(source: Source) -> str:
    source.table("agreement")
    classes, every = _classes(source), series_of(source, "agreement")
    if not every:
        raise Missing("no coupling is named")
    names, panels = [f"scale-{k}" for k in range(len(every))], []
    for name, one in zip(names, every, strict=True):
        pictures = pictures_of([partial(scale_figure, source, label, one) for label in classes])
        said = f"coarse and fine agreement, {one.label}"
        panels.append(
            f"<div><h3>{html_text(one.label)}</h3>{plot(name, pictures[0], said)}"
            f"{choice_data(name, pictures)}</div>"
        )
    chooser = choice_list("Class", names, list(classes.values()))
    legend = key(FIGURES["sync_scales"].entries(source))
    return f"{chooser}<figure>{legend}{panel_grid(panels)}{scale_caption(source).html}</figure>"


@part("commitment")
def _commitments(source: Source) -> str:
    listed = listing(commitment_listing(source), "steps at which each scale commits")
    return f"<h3>When it is decided</h3>{listed}"


@part("commitment_gap")
def _gap_lack(source: Source) -> str:
    source.table("commitment_gap")
    return ""


def _times(source: Source) -> str:
    """Midpoints and gaps as a table, and why some are not there."""
    silent = without_midpoint(source)
    reasons = (
        fold("Why some have no number", listing(silent, "curves without a midpoint"))
        if len(silent)
        else ""
    )
    return (
        _commitments(source)
        + _gap_lack(source)
        + _against_gaussian(source)
        + reasons
        + numbers(source, "commitment")
        + numbers(source, "commitment_gap")
    )


def _against_gaussian(source: Source) -> str:
    """Gaps beside those of the Gaussian control, in runs that have one."""
    frame = source.tables.get("commitment_order", pd.DataFrame())
    if frame.empty or "excess" not in frame:
        return ""
    table = '<a href="tables/commitment_order.csv">tables/commitment_order.csv</a>'
    return (
        "<h3>How much of the order the images alone make</h3>"
        "<p>Images whose large scales vary more than their small ones decide the large ones first, "
        "whatever made them. The control is a Gaussian with the covariance of the model’s images, "
        "which goes through the same steps with its exact score.</p>"
        + listing(order_listing(frame), "gaps of the model and of the Gaussian control")
        + '<p class="source">Steps from the mean step at which coarse distance is lost to that of '
        f"fine distance; intervals hold for all rows together. Drawn from {table}.</p>"
    )


def order_listing(frame: pd.DataFrame) -> pd.DataFrame:
    """Gap of the model, of the control, and their difference, one row per class and coupling."""
    rows = [frame.iloc[[k]] for k in range(len(frame))]
    titles = {"gap": "model", "gaussian": "Gaussian", "excess": "difference"}
    return pd.DataFrame(
        {
            "class": [shortened(word, 24) for word in words(frame, "class")],
            "coupling": [coupling_name(row) for row in rows],
            **{title: [_beside(row, name) for row in rows] for name, title in titles.items()},
            "because": words(frame, "because"),
        }
    )


def _beside(row: pd.DataFrame, name: str) -> str:
    value, low, high = (column(row, part)[0] for part in (name, f"{name}_low", f"{name}_high"))
    return f"{numeral(value)} {bounds(low, high)}".strip() if value == value else "–"


def commitment_listing(source: Source) -> pd.DataFrame:
    """Midpoints of all three curves and the gap between the scales, one row per coupling."""
    frame = source.table("commitment", "label", "g", "measure", "midpoint")
    gaps = source.rows("commitment_gap", "label", "g", "gap")
    classes = class_names(source) or dict.fromkeys(sorted(set(column(frame, "label"))), "")
    shown: list[dict[str, str]] = []
    for label, name in classes.items():
        own = rows_where(frame, "label", label)
        for one in series_of(source, "commitment"):
            rows = rows_of(own, one)
            if rows.empty:
                continue
            times = {
                title: _reading(rows_where(rows, "measure", measure), "midpoint")
                for measure, title in _TIMES.items()
            }
            gap = _gap(gaps, label, one)
            shown.append(
                {"class": shortened(name, 24), "coupling": one.label, **times, "gap (steps)": gap}
            )
    if not shown:
        raise Missing("the table “commitment” names no coupling")
    listed = pd.DataFrame(shown)
    return listed if len(classes) > 1 else listed.drop(columns="class")


def effect_listing(frame: pd.DataFrame) -> pd.DataFrame:
    """Differences of the midpoint between couplings, each with its interval or the outcome."""
    rows = [frame.iloc[[k]] for k in range(len(frame))]
    return pd.DataFrame(
        {
            "class": [shortened(word, 24) for word in words(frame, "class")],
            "of τ spec": words(frame, "kind"),
            "steps later": [_reading(row, "difference") for row in rows],
            "because": words(frame, "because"),
        }
    )


def _gap(gaps: pd.DataFrame, label: float, one: Series) -> str:
    if gaps.empty:
        return "not in this run"
    return _reading(rows_of(rows_where(gaps, "label", label), one), "gap")


def _reading(rows: pd.DataFrame, name: str) -> str:
    """Value with its interval; without one, the word that says why."""
    if rows.empty:
        return "–"
    status = words(rows, "status")[0]
    value, low, high = (column(rows, part)[0] for part in (name, "low", "high"))
    if status not in ("ok", ""):
        return status
    return f"{numeral(value)} {bounds(low, high)}".strip()


def without_midpoint(source: Source) -> pd.DataFrame:
    """Curves and gaps without a number, each with its reason."""
    found = []
    for table, what in {"commitment": "", "commitment_gap": "gap"}.items():
        frame = source.tables.get(table, pd.DataFrame())
        for k, status in enumerate(words(frame, "status")):
            if status in ("ok", ""):
                continue
            row = frame.iloc[[k]]
            measure = words(row, "measure")[0] or what
            found.append({"class": words(row, "class")[0], "coupling": coupling_name(row),
                          "of": measure, "outcome": status,
                          "because": words(row, "because")[0]})  # fmt: skip
    return pd.DataFrame(found)


def coupling_name(row: pd.DataFrame) -> str:
    """Name of the coupling of a row."""
    control = words(row, "control")[0] in ("True", "true", "1", "1.0")
    return "control" if control else f"g = {column(row, 'g')[0]:g}"


def agreement_caption(source: Source) -> Caption:
    """Caption of the agreement of the features."""
    frame = source.tables.get("agreement", pd.DataFrame())
    return Caption(
        seen="Similarity of the two finished images (cosine between their features, median over "
        "pairs), by the step at which the coupling ended; at 1 the encoder sees the same image. "
        "Strip below: midpoint τ_spec of the fitted sigmoid with its interval, the step at which "
        "the content of both images is decided.",
        null="A flat curve: its last quarter does not differ from its first beyond noise. Such a "
        "curve has “no transition” and no midpoint. The control (dashed) was never coupled; its "
        "replicas share their noise up to that step, so it shows the effect of shared noise alone.",
        against="Midpoints that do not move with g beyond their intervals: then the coupling does "
        "not affect the time of the decision.",
        basis=f"{counted(frame, 'pairs')}; sigmoids by least squares on the median curve.",
    )


def scale_caption(source: Source) -> Caption:
    """Caption of the agreement at two scales."""
    frame = source.tables.get("agreement", pd.DataFrame())
    return Caption(
        seen="The same for two scales of the image: coarse is what remains after strong "
        "averaging, fine is the rest. 1: A and B agree at this scale; 0: they differ as much as "
        "two unrelated images. Strip below each panel: midpoints with intervals.",
        null="Gaussian images with the same covariance, in the same protocol (table below). Both "
        "scales at the same step, gap 0, is what images of a white spectrum give.",
        against="A gap (τ fine − τ coarse) no larger than that of the Gaussian images.",
        basis=f"medians over pairs; {counted(frame, 'pairs')}; the gap is taken within each "
        "resample.",
    )


FIGURES: dict[str, Figure] = {
    "sync_agreement": Figure(
        title="When is it decided that two replicas end up the same?",
        draw=_agreement_panels,
        caption=agreement_caption,
        key=_agreement_key,
        measurements=("agreement", "tau_spec"),
    ),
    "sync_scales": Figure(
        title="Is coarse structure decided before fine detail?",
        draw=_scale_panels,
        caption=scale_caption,
        key=(
            ("disc", "coarse structure"),
            ("diamond", "fine detail"),
            ("rule grey", "fitted sigmoid (thin)"),
            ("band", "interval"),
        ),
        measurements=("agreement",),
    ),
}
"""Figures of this diagnostic by the name of their file."""
