"""The title of a claim is shown wherever its code is shown."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from flowscope.lab.registry import instrument, instrument_names
from flowscope.lab.result import open_run
from flowscope.records import Run
from flowscope.records.verdict_text import decision_text, verdict_line
from flowscope.report import report_html
from flowscope.report.terminal import print_verdicts

FOLDERS = Path(__file__).parents[1] / "golden" / "folders"
CLAIMS = [claim for name in instrument_names() for claim in instrument(name).claims]


@pytest.fixture(params=sorted(path.parent.name for path in FOLDERS.glob("*/manifest.json")))
def result(request):
    return open_run(FOLDERS / request.param)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_every_claim_has_a_title_of_one_or_two_words(claim):
    assert re.fullmatch(r"[A-Z][a-z]+( [a-z]+)?", claim.title)
    assert [other.title for other in CLAIMS].count(claim.title) == 1


def test_text_of_a_result_has_titles_and_a_separator(result):
    lines = str(result).splitlines()
    for verdict in result.verdicts:
        title = result.instrument.title(verdict.name)
        parts = (verdict.name, title, verdict.outcome, verdict.because, verdict.strength)
        assert verdict_line(*parts, result.instrument.gates.get(verdict.name)) in lines


def test_document_has_titles_and_the_terminal_prints_them(result):
    document, out = result.to_json(), io.StringIO()
    print_verdicts(document, Console(file=out, width=80))
    printed = " ".join(out.getvalue().split())
    assert document["verdicts"]
    for verdict in document["verdicts"]:
        assert verdict["title"] == result.instrument.title(verdict["name"]) != ""
        label = f"{verdict['name']} {verdict['title']}"
        parts = (verdict["outcome"], verdict["strength"], verdict["gate_words"])
        assert f"{label} {decision_text(*parts)} " in printed
        assert verdict["gate"] == (verdict["name"] in ("P0", "I2"))


def test_page_shows_titles_on_chips_and_cards(result):
    page = report_html(result.run, result.instrument.resolve(result.instrument.page))
    for verdict in result.verdicts:
        label = f"{verdict.name} {result.instrument.title(verdict.name)}"
        assert page.count(f'<span class="key-label">{label}</span>') == 2


def test_records_on_disk_have_no_title(result):
    assert not any(
        hasattr(verdict, "title") for verdict in Run.open(result.run.folder).read_verdicts()
    )
