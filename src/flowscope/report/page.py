"""The page: one file, no network, nothing executed but a few known scripts.

Scripts are admitted by their sha256 in a content security policy, so even markup that slipped
through the escaping could not run; data stand in JSON elements, which no browser executes.
The bytes depend on the run folder and the versions of flowscope and plotly alone.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from plotly.offline import get_plotlyjs

from flowscope.records import Run, Unavailable
from flowscope.records.files import remove_file, write_file
from flowscope.records.verdict import Decision
from flowscope.report.appendix import manifest_details, not_measured
from flowscope.report.escaping import html_text, script_hash
from flowscope.report.figure_html import missing
from flowscope.report.geometry_sections import geometry_sections, identities_section
from flowscope.report.geometry_tables import label_counts
from flowscope.report.image_pictures import IMAGE_PICTURES
from flowscope.report.image_sections import image_sections
from flowscope.report.image_tables import FEW_IMAGES, image_count, image_facts
from flowscope.report.numerals import count, numeral
from flowscope.report.pictures import GEOMETRY_PICTURES, PICTURES, png
from flowscope.report.replica_pictures import REPLICA_PICTURES
from flowscope.report.replica_sections import replica_sections
from flowscope.report.replica_tables import FEW_PAIRS, pair_count, replica_facts
from flowscope.report.sections import Section, body_sections
from flowscope.report.source import Source, column, read_source, spans
from flowscope.report.study_tables import claims
from flowscope.report.verdict_cards import card, chip

__all__ = ["render", "report_html"]

_DECISIONS: tuple[Decision, ...] = ("holds", "fails", "abstains")


def report_html(run: Run) -> str:
    """Page of a run as text: self-contained, a few megabytes, most of them plotly.

    Parameters
    ----------
    run
        Its tables, verdicts, measurements and manifest are read, and nothing else.

    Raises
    ------
    RecordError
        A file of the run is damaged. A table that is not there is no error: the page says so.
    """
    return _page(read_source(run))


def render(run: Run) -> tuple[Path, ...]:
    """Write ``report.html`` and ``figures/*.png`` into the run folder; return their paths.

    Each file is replaced atomically. A picture whose table is not there is not written, and
    one that an earlier report left is removed.

    Raises
    ------
    RecordError
        A file of the run is damaged, or the folder cannot be written.
    """
    source = read_source(run)
    page = run.folder / "report.html"
    contents = {page: _page(source).encode()}
    for name in (*PICTURES, *GEOMETRY_PICTURES, *REPLICA_PICTURES, *IMAGE_PICTURES):
        path, drawn = run.folder / "figures" / f"{name}.png", png(source, name)
        if isinstance(drawn, Unavailable):
            remove_file(path)
        else:
            contents[path] = drawn
    for path, content in contents.items():
        write_file(path, content)
    return tuple(contents)


def _page(source: Source) -> str:
    scripts, style = _scripts(source), _asset("page.css")
    policy = (
        f"default-src 'none'; script-src {' '.join(map(script_hash, scripts))}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    sections = [
        *_claims(source),
        ("verdicts", "Verdicts", _verdicts(source)),
        *_body(source),
        ("not-measured", "Not measured", not_measured(source)),
        ("manifest", "Where this comes from", manifest_details(source.manifest)),
    ]
    title = f"{html_text(source.model)} · {_kind(source)} · flowscope"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light">'
        f"<title>{title}</title>\n<style>{style}</style></head>\n<body>"
        f'<a class="skip" href="#main">Skip to the verdicts</a>{_head(source)}'
        f'<div class="frame">{_contents(sections)}<main id="main">'
        "<noscript><p class=missing>The figures need JavaScript; the same figures are PNG files "
        "in the folder figures/ beside this page.</p></noscript>"
        + "\n".join(_section(section) for section in sections)
        + "</main></div>\n"
        + "\n".join(f"<script>{script}</script>" for script in scripts)
        + "\n</body></html>\n"
    )


def _body(source: Source) -> list[Section]:
    if source.of_replicas:
        return replica_sections(source)
    if source.of_images:
        return image_sections(source)
    return geometry_sections(source) if source.of_heads else body_sections(source)


def _kind(source: Source) -> str:
    if source.of_replicas:
        return "coupled replicas"
    if source.of_images:
        return "image model"
    return "heads" if source.of_heads else "depth audit"


def _scripts(source: Source) -> list[str]:
    own: tuple[str, ...] = ("head_map.js", "portrait.js") if source.of_heads else ()
    own = ("choices.js",) if source.of_replicas or source.of_images else own
    return [_plotly(), _asset("page.js"), *map(_asset, own)]


@cache
def _plotly() -> str:
    # A browser turns line ends into \n before it hashes a script.
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n")


@cache
def _asset(name: str) -> str:
    return (files("flowscope.report") / name).read_text(encoding="utf-8")


def _head(source: Source) -> str:
    manifest = source.manifest
    facts = [
        *_facts(source),
        ("made", manifest.created_at),
        ("device", manifest.device),
        ("took", _seconds(manifest.wall_time)),
    ]
    shown = "".join(
        f"<li><span>{name}</span> {html_text(value)}</li>"
        for name, value in facts
        if not isinstance(value, Unavailable)
    )
    chips = "".join(
        f'<li><a href="#verdict-{k}"><span class="key-label">{html_text(verdict.name)}</span> '
        f"{chip(verdict)}</a></li>"
        for k, verdict in enumerate(source.verdicts)
    )
    return (
        '<header class="top"><div><p class="eyebrow">flowscope · '
        f"{_kind(source)}</p>"
        f"<h1>{html_text(source.model)}</h1>"
        f'<p class="lead">{html_text(_summary(source))}</p>'
        f'<ul class="chips">{chips}</ul><ul class="facts">{shown}</ul></div></header>'
    )


def _facts(source: Source) -> list[tuple[str, str | Unavailable]]:
    if source.of_replicas:
        return [(name, value) for name, value in replica_facts(source) if name != "encoder"]
    if source.of_images:
        return [fact for fact in image_facts(source) if fact[0] not in ("encoder", "coordinates")]
    return _head_facts(source) if source.of_heads else [("layers", _depth(source))]


def _depth(source: Source) -> str | Unavailable:
    frame = source.table("layers", "layer")
    if isinstance(frame, Unavailable):
        return frame
    return numeral(max(column(frame, "layer")), 6)


def _head_facts(source: Source) -> list[tuple[str, str | Unavailable]]:
    """Size of the model and of the measurement, and which chain was walked."""
    chain, measured = source.setting("chain"), source.setting("measured")
    facts: list[tuple[str, str | Unavailable]] = []
    frame = source.table("geometry", "layer", "head")
    if not isinstance(frame, Unavailable):
        facts += [("layers", numeral(len(set(column(frame, "layer"))), 6))]
        facts += [("heads", numeral(len(frame), 6))]
    if isinstance(measured, Mapping):
        names = {"prompts": "prompts", "tokens_measured": "tokens"}
        facts += [(text, str(measured[name])) for name, text in names.items() if name in measured]
    return facts + ([("chain", chain)] if isinstance(chain, str) else [])


def _seconds(wall_time: float | Unavailable) -> str | Unavailable:
    return wall_time if isinstance(wall_time, Unavailable) else f"{numeral(wall_time)} s"


def _summary(source: Source) -> str:
    decisions = [verdict.decision for verdict in source.verdicts]
    if not decisions:
        return "This run holds no verdicts."
    parts = [
        f"{number} {decision if number == 1 else decision.removesuffix('s')}"
        for decision, number in ((each, decisions.count(each)) for each in _DECISIONS)
        if number
    ]
    told = f"Of {count(len(decisions), 'claim')}, {', '.join(parts)}."
    labels = label_counts(source) if source.of_heads else {}
    if labels:
        shown = ", ".join(f"{label} {number}" for label, number in labels.items())
        return f"{told} {count(sum(labels.values()), 'head')}: {shown}."
    if source.of_replicas and 0 < pair_count(source) < FEW_PAIRS:
        pairs = count(pair_count(source), "pair")
        return f"{told} A small run of {pairs}: intervals are wide."
    if source.of_images and 0 < image_count(source) < FEW_IMAGES:
        images = count(image_count(source), "image")
        return f"{told} A small run of {images}: intervals are wide."
    stretches = spans(source)
    total = sum(span.last - span.first + 1 for span in stretches)
    passing = sum(span.last - span.first + 1 for span in stretches if span.passes)
    depth = f" {passing} of {total} layers can be read as a flow." if total else ""
    return f"{told}{depth}"


def _claims(source: Source) -> list[Section]:
    """What the source says, first of all; a plain audit has no such section."""
    if not source.study or source.of_replicas or source.of_images:  # theirs are after the verdicts
        return []
    shown = claims(source)
    content = missing(shown) if isinstance(shown, Unavailable) else shown
    said = [("claims", "What the source says, what we measure", content)]
    if not source.of_heads:
        return said
    return [*said, ("identities", "Do its identities hold?", identities_section(source))]


def _verdicts(source: Source) -> str:
    if not source.verdicts:
        return '<p class="missing">Not shown: this run has written no verdicts.</p>'
    return "".join(card(verdict, f"verdict-{k}") for k, verdict in enumerate(source.verdicts))


def _contents(sections: list[Section]) -> str:
    links = "".join(
        f'<li><a href="#{anchor}">{heading}</a></li>' for anchor, heading, _ in sections
    )
    return f'<nav aria-label="sections"><ul>{links}</ul></nav>'


def _section(section: Section) -> str:
    anchor, heading, content = section
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-heading">'
        f'<h2 id="{anchor}-heading">{heading}</h2>{content}</section>'
    )
