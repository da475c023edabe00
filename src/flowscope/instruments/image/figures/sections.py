"""The sections of a page about an image model and its samplers, between verdicts and appendix."""

from collections.abc import Callable

import pandas as pd

from flowscope.instruments.image.figures.axes import SAMPLERS
from flowscope.instruments.image.figures.captions import (
    family_caption,
    information_caption,
    parity_caption,
    rotation_caption,
    sample_caption,
    smoothness_caption,
    uturn_caption,
    uturn_strip_caption,
    weak_error_caption,
)
from flowscope.instruments.image.figures.order_figures import (
    doublings,
    family_figure,
    family_looks,
    weak_error_figure,
)
from flowscope.instruments.image.figures.strips import sample_strip, uturn_strip
from flowscope.instruments.image.figures.tables import (
    FEW_IMAGES,
    image_claims,
    image_facts,
    paths_listing,
)
from flowscope.instruments.image.figures.time_figures import (
    EXACT,
    channel_name,
    information_figure,
    parity_channels,
    parity_figure,
    rotation_figure,
    rotation_rows,
    smoothness_figure,
    uturn_figure,
)
from flowscope.records import Unavailable
from flowscope.report.choosing import choice_data, choice_list, panel_grid
from flowscope.report.claims import claims_section
from flowscope.report.escaping import html_text
from flowscope.report.figure_html import Caption, captioned, fact_list, fold, key, missing, plot
from flowscope.report.listings import listing, numbers
from flowscope.report.marks import mark_key
from flowscope.report.rotation import CONTROLS
from flowscope.report.rows import known
from flowscope.report.small_runs import small_note
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Section
from flowscope.report.strips import Strip, strip_html

__all__ = ["image_sections"]

_PLACES = ("sampler", "observable")


def image_sections(source: Source) -> list[Section]:
    """Sections of the page of a run of an image model, in order."""
    found = [("measured", "What was measured", _measured(source))]
    if source.study:
        found.append(claims_section(image_claims(source)))
    return [
        *found,
        ("parity", "Do ODE and SDE give the same distribution?", _parity(source)),
        ("samples", "Samples side by side", _samples(source)),
        ("order", "Does the error fall at first order?", _order(source)),
        ("smoothness", "How smooth are the paths?", _smoothness(source)),
        ("rotation", "Does the learned score rotate?", _rotation(source)),
        ("information", "When does the image decide its class?", _information(source)),
        ("uturn", "Add noise and remove it again", _uturn(source)),
        ("family", "From ODE to SDE at equal cost", _family(source)),
    ]


def _measured(source: Source) -> str:
    return (
        "<p>A diffusion model turns noise into images. It can do so along a smooth path (ODE, the "
        "probability flow) or along a noisy one (SDE); in theory both pass through the same "
        "distribution at every time. λ is the amount of noise: 0 for the ODE, 1 for the SDE.</p>"
        "<p>Time is shown as log snr, the logarithm of signal over noise: the noise is at the "
        "left, the image at the right, and at 0 both have the same strength.</p>"
        f"{small_note(source, FEW_IMAGES)}{fact_list(image_facts(source))}"
    )


def _absent(source: Source, lack: Unavailable, *names: str) -> str:
    """Why a part is not there: the reason of its measurement where that abstained."""
    for name in names:
        lack = source.noted(lack, name)
    return missing(lack)


def _parity(source: Source) -> str:
    channels = parity_channels(source)
    if isinstance(channels, Unavailable):
        return _absent(source, channels, "parity")
    pictures = [parity_figure(source, channel) for channel in channels]
    entries = [("line", "ODE against SDE"), ("band", "interval"),
               ("hollow blue", "hollow: not above the null’s 95 % line"),
               ("abstained", "SDE against SDE: 95 % of the null"),
               ("rule vacuous", "its median")]  # fmt: skip
    return (
        choice_list("Shown", ["parity"], [channel_name(channel) for channel in channels])
        + captioned("parity", pictures[0], parity_caption(source), key(entries))
        + choice_data("parity", pictures)
        + numbers(source, "parity")
    )


def _samples(source: Source) -> str:
    return _strip(source, sample_strip(source), "samples", sample_caption)


def _strip(
    source: Source,
    strip: Strip | Unavailable,
    name: str,
    caption: Callable[[Source, Strip], Caption],
) -> str:
    if isinstance(strip, Unavailable):
        return _absent(source, strip, name)
    return f"<figure>{strip_html(strip)}{caption(source, strip).html}</figure>"


def _order(source: Source) -> str:
    frame = source.table("weak_error", "sampler", "observable", "steps", "difference")
    if isinstance(frame, Unavailable):
        return _absent(source, frame, "weak_error_slope", "weak_error")
    panels = [_order_panel(source, name) for name in SAMPLERS]
    entries = [("rule layer", "slope −1"), ("hollow", "hollow: interval contains 0"),
               ("rule grey", "fitted slope (in its colour)")]  # fmt: skip
    drawn = f"<figure>{key(entries)}{panel_grid(panels)}{weak_error_caption(source).html}</figure>"
    return (
        drawn + _unresolved(source) + numbers(source, "weak_error_slope")
        + numbers(source, "weak_error")
    )  # fmt: skip


def _order_panel(source: Source, sampler: str) -> str:
    look = SAMPLERS[sampler]
    every, picture = doublings(source, sampler), weak_error_figure(source, sampler)
    heading = f"<h3>{html_text(look.label)}</h3>"
    if isinstance(every, Unavailable) or isinstance(picture, Unavailable):
        lack = every if isinstance(every, Unavailable) else Unavailable("no picture could be drawn")
        return f"<div>{heading}{missing(lack)}</div>"
    legend = mark_key([own.look for own in every])
    box = plot(f"order-{sampler}", picture, f"weak error by number of steps, {look.label}")
    return f"<div>{heading}{legend}{box}</div>"


def _unresolved(source: Source) -> str:
    """Slopes that were not fitted, each with its reason."""
    fits = source.table("weak_error_slope")
    if isinstance(fits, Unavailable):
        return _absent(source, fits, "weak_error_slope")
    silent = fits[[status not in ("ok", "") for status in words(fits, "status")]]
    if silent.empty:
        return ""
    shown = pd.DataFrame({name: words(silent, name) for name in (*_PLACES, "status", "because")})
    return fold("Why some have no slope", listing(shown, "slopes that were not fitted"))


def _smoothness(source: Source) -> str:
    picture = smoothness_figure(source)
    if isinstance(picture, Unavailable):
        drawn = _absent(source, picture, "smoothness")
    else:
        legend = mark_key(list(SAMPLERS.values()), [("abstained", "interval (in its colour)")])
        drawn = captioned("smoothness", picture, smoothness_caption(source), legend)
    shown = paths_listing(source)
    if isinstance(shown, Unavailable):
        table = _absent(source, shown, "paths")
    else:
        table = (
            f"<h3>The whole path</h3>{listing(shown, 'lengths of the paths')}"
            '<p class="source">Variation: sum of the steps. Tortuosity: that sum over the distance '
            "from start to end, 1 for a straight line. Quadratic variation: sum of the squared "
            "steps; expected: what it tends to as the steps become small. In brackets: "
            "intervals over images.</p>"
        )
    return drawn + table + numbers(source, "smoothness") + numbers(source, "paths")


def _rotation(source: Source) -> str:
    picture, frame = rotation_figure(source), rotation_rows(source)
    if isinstance(picture, Unavailable) or isinstance(frame, Unavailable):
        lack = picture if isinstance(picture, Unavailable) else Unavailable("no number")
        return _absent(source, lack, "rotation") + numbers(source, "rotation")
    names = [label for label, *_ in CONTROLS.values()]
    entries = [("disc", "share that rotates (hollow: not significant)"),
               ("diamond open", names[0]), ("triangle", names[1])]  # fmt: skip
    if known(column(frame, "gradient_error")):
        entries.append(("square vermilion", "gradient part of the error (below)"))
    drawn = captioned("rotation", picture, rotation_caption(source, frame), key(entries))
    return drawn + numbers(source, "rotation")


def _information(source: Source) -> str:
    picture = information_figure(source)
    if isinstance(picture, Unavailable):
        return _absent(source, picture, "information")
    entries = [("line", "measured"), ("band", "interval"),
               *_exact_entry(source, "information"),
               ("passing", "10 % to 90 % of what is gained")]  # fmt: skip
    drawn = captioned("information", picture, information_caption(source), key(entries))
    return drawn + numbers(source, "information")


def _exact_entry(source: Source, table: str) -> list[tuple[str, str]]:
    return [("rule green", EXACT.label)] * bool(known(column(source.tables[table], "exact")))


def _uturn(source: Source) -> str:
    picture = uturn_figure(source)
    strip = "<h3>Images after noising and denoising</h3>" + _strip(
        source, uturn_strip(source), "uturn_strip", uturn_strip_caption
    )
    if isinstance(picture, Unavailable):
        return _absent(source, picture, "uturn") + strip
    entries = [("line", "same class"), *_exact_entry(source, "uturn"), ("rule vacuous", "chance")]
    if not known(column(source.tables["uturn"], "same_class")):
        entries = []
        if known(column(source.tables["uturn"], "correlation_chance")):
            entries = [("rule vacuous", "of two different images")]
    entries += [("diamond", "correlation of the two images"),
                ("abstained", "interval (in its colour)")]  # fmt: skip
    drawn = captioned("uturn", picture, uturn_caption(source), key(entries))
    return drawn + strip + numbers(source, "uturn")


def _family(source: Source) -> str:
    picture, looks = family_figure(source), family_looks(source)
    if isinstance(picture, Unavailable) or isinstance(looks, Unavailable):
        lack = picture if isinstance(picture, Unavailable) else Unavailable("no number of steps")
        return _absent(source, lack, "family") + numbers(source, "family")
    more = [("abstained", "total variation of the null, 95 %"), ("rule vacuous", "its median")]
    legend = mark_key(list(looks.values()), more)
    return captioned("family", picture, family_caption(source), legend) + numbers(source, "family")
