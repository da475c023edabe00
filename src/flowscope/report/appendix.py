"""The end of the page: what was not measured, and where the run comes from."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from flowscope.records import Manifest, Unavailable
from flowscope.report.escaping import html_text
from flowscope.report.numerals import count, numeral
from flowscope.report.source import Source
from flowscope.report.spec import Absence

__all__ = ["absences", "manifest_details", "not_measured"]


def absences(source: Source) -> list[Absence]:
    """What is missing or abstained, each with its reason."""
    page = source.page
    rows = list(page.withheld(source))
    rows += [
        (f"{verdict.name}: {verdict.claim}", verdict.because)
        for verdict in source.verdicts
        if verdict.decision == "abstains"
    ]
    rows += [(f"{m.name} ({m.status})", m.because) for m in source.measurements if m.status != "ok"]
    rows += [
        (f"table {name}", f"not in this run; it would hold {purpose}")
        for name, purpose in source.expected.items()
        if name not in source.tables
    ]
    rows += page.silent(source)
    if not source.verdicts:
        rows.append(("verdicts", "this run has written none"))
    return rows


def not_measured(source: Source) -> str:
    """Section that says what this page does not say."""
    found = absences(source)
    if not found:
        return "<p>Nothing was withheld: every part of this report was measured.</p>"
    rows = "".join(
        f'<tr><th scope="row">{html_text(what)}</th><td>{html_text(why)}</td></tr>'
        for what, why in found
    )
    return (
        "<p>These parts gave no number, on purpose or for want of data. An abstained part is not "
        "a failed one: its numbers would not have meant what they seem to mean.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="what was not measured">'
        f'<table class="listing reasons"><tbody>{rows}</tbody></table></div>'
    )


def manifest_details(manifest: Manifest) -> str:
    """Manifest as collapsible tables, closed; print shows it open."""
    rows = [(field.name, getattr(manifest, field.name)) for field in fields(manifest)]
    body = "".join(
        f'<tr><th scope="row">{html_text(name.replace("_", " "))}</th><td>{_value(value)}</td></tr>'
        for name, value in rows
    )
    return (
        f"<details><summary>Manifest ({count(len(rows), 'entry').replace('entrys', 'entries')}): "
        "configuration, seeds, versions, device, hashes</summary>"
        '<div class="scroll" tabindex="0" role="region" aria-label="manifest">'
        f'<table class="listing reasons manifest"><tbody>{body}</tbody></table></div></details>'
    )


def _value(value: Any) -> str:
    if isinstance(value, Unavailable):
        return f'<em class="absent">{html_text(value)}</em>'
    if isinstance(value, Mapping):
        if not value:
            return "–"
        rows = "".join(
            f'<tr><th scope="row">{html_text(key)}</th><td>{_value(item)}</td></tr>'
            for key, item in value.items()
        )
        return f"<table><tbody>{rows}</tbody></table>"
    if isinstance(value, list | tuple):
        return ", ".join(_value(item) for item in value) or "–"
    if isinstance(value, float):
        return html_text(numeral(value, 6))
    return f"<code>{html_text(value)}</code>"
