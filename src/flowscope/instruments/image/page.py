"""The page of a run about an image model and its samplers."""

from collections.abc import Mapping

import pandas as pd

from flowscope.instruments.image import INSTRUMENT
from flowscope.instruments.image.findings import could_have_seen
from flowscope.instruments.image.information import figures as information
from flowscope.instruments.image.parity import budget_figure
from flowscope.instruments.image.parity import figures as parity
from flowscope.instruments.image.rotation import figures as rotation
from flowscope.instruments.image.step_sizes import figures as step_sizes
from flowscope.instruments.image.track_i.figures import image_claims
from flowscope.instruments.image.uturn import figures as uturn
from flowscope.lab.display.pages import declared_page
from flowscope.report.claims import claims_section
from flowscope.report.escaping import html_text
from flowscope.report.figure_html import fact_list
from flowscope.report.parts.appendix import silent_rows
from flowscope.report.source import Source, words
from flowscope.report.spec import Fact, Section

__all__ = ["PAGE", "image_facts", "silent_images"]


_SILENT = {"weak_error_slope": ("sampler", "observable"), "rotation": ("step",)}


def _sections(source: Source) -> list[Section]:
    """Sections of the page of a run of an image model, in order."""
    study = [claims_section(image_claims)] if source.study else []
    return [
        ("measured", "What was measured", _measured),
        *study,
        ("parity", "Do ODE and SDE give the same distribution?", _parity),
        ("samples", "Samples side by side", parity.samples_section),
        ("order", "Does the error fall at first order?", step_sizes.order_section),
        ("smoothness", "How smooth are the paths?", parity.smoothness_section),
        ("rotation", "Does the learned score rotate?", rotation.rotation_section),
        ("information", "When does the image decide its class?", information.information_section),
        ("uturn", "Add noise and remove it again", uturn.uturn_section),
        ("family", "From ODE to SDE at equal cost", step_sizes.family_section),
    ]


def _parity(source: Source) -> str:
    return parity.parity_section(source) + budget_figure.budget_section(source)


def _measured(source: Source) -> str:
    return (
        "<p>A diffusion model turns noise into images. It can do so along a smooth path (ODE, the "
        "probability flow) or along a noisy one (SDE); in theory both pass through the same "
        "distribution at every time. λ is the amount of noise: 0 for the ODE, 1 for the SDE.</p>"
        "<p>Time is shown as log snr, the logarithm of signal over noise: the noise is at the "
        "left, the image at the right, and at 0 both have the same strength.</p>"
        f"<p>{html_text(_intervals(source))}</p>"
        f"{_seen(source)}{fact_list(image_facts(source))}"
    )


def _seen(source: Source) -> str:
    """Paragraph on what the run could have seen, else nothing."""
    sentence = could_have_seen(source.tables)
    return f'<p class="note">{html_text(sentence)}</p>' if sentence else ""


def _intervals(source: Source) -> str:
    """How the intervals of all figures were made; no caption repeats it."""
    draws, resamples = (
        f" ({number} {what})" if isinstance(number := source.setting(what), int) else ""
        for what in ("draws", "resamples")
    )
    parts = [
        f"bootstrap over images{resamples} for information",
        f"reflected bootstrap over groups of images{draws} for distances between histograms",
        "the largest Student statistic over groups of images for excesses over step errors",
        "Wilson’s for shares of images",
        "Student’s for changes of an observable, step sizes, path lengths and correlations",
        *_methods(source, "weak_error_slope", "method", "slopes"),
        *_methods(source, "rotation", "interval_method", "rotation"),
    ]
    return f"All intervals are at the 95\u00a0% level: {'; '.join(parts)}."


def _methods(source: Source, table: str, name: str, what: str) -> list[str]:
    """Methods that a column of a table names, in words; empty where it names none."""
    frame = source.tables.get(table, pd.DataFrame())
    methods = ", ".join(word for word in dict.fromkeys(words(frame, name)) if word)
    return [f"{methods} for {what}"] if methods else []


def image_facts(source: Source) -> list[tuple[str, str]]:
    """Size of the measurement, as name and value."""
    measured = source.setting("measured")
    given = dict(measured) if isinstance(measured, Mapping) else {}
    facts = [
        (text, str(given[name]))
        for name, text in {"images": "images", "steps": "reverse steps", "space": "space"}.items()
        if given.get(name) not in (None, "")
    ]
    classes = given.get("classes")
    if isinstance(classes, list | tuple) and classes:
        facts += [("class" if len(classes) == 1 else "classes", ", ".join(map(str, classes)))]
    guidance = source.setting("guidance")
    if isinstance(guidance, int | float):
        facts.append(("guidance", f"{guidance:g}"))
    return facts + [
        (name, str(given[name])) for name in ("encoder", "coordinates") if given.get(name)
    ]


def silent_images(source: Source) -> list[tuple[str, str]]:
    """Slopes and times without a number, by table and reason."""
    return silent_rows(source, _SILENT)


def _facts(source: Source) -> list[Fact]:
    facts = image_facts(source)
    return [(name, value) for name, value in facts if name not in ("encoder", "coordinates")]


def _remark(source: Source) -> str:
    return could_have_seen(source.tables)


_FIGURES = {
    **parity.FIGURES,
    **budget_figure.FIGURES,
    **step_sizes.FIGURES,
    **rotation.FIGURES,
    **information.FIGURES,
    **uturn.FIGURES,
}
_ORDER = (
    "image_parity",
    "image_step_budget",
    "image_samples",
    "image_weak_error",
    "image_smoothness",
    "image_rotation",
    "image_information",
    "image_uturn",
    "image_uturn_strip",
    "image_family",
)

PAGE = declared_page(
    INSTRUMENT,
    kind="image model",
    sections=_sections,
    facts=_facts,
    remark=_remark,
    silent=silent_images,
    scripts=("choices.js",),
    figures={name: _FIGURES[name] for name in _ORDER},
    counted="images",
    symbols={"λ": "amount of noise on the way: 0 for the ODE, 1 for the SDE"},
)
"""How a run about an image model is shown."""
