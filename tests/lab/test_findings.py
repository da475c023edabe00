"""Findings: sentences are checked, a partial run gives fewer, notebooks get a card."""

import io
import re
from dataclasses import FrozenInstanceError, replace

import pandas as pd
import pytest
from rich.console import Console
from tests.lab import toy
from tests.lab.toy import TOY, ToyConfig

from flowscope.lab import engine, registry
from flowscope.lab.cards import card, chip, fact_table, finding_list, verdict_table
from flowscope.lab.claim import Missing
from flowscope.lab.finding import Finding, collected, complete_rows, findings_of, plain_findings
from flowscope.lab.view import Records
from flowscope.records import Run
from flowscope.report.terminal import print_findings

HOSTILE = "</script><script>alert(1)</script>\u202e\x1b[31m"


def _finding(**changed):
    parts = {"text": "The change falls to 0.1.", "next": "Take fewer steps.", "value": 0.1}
    return Finding(**{**parts, **changed})


def test_a_finding_is_frozen_and_plain():
    finding = _finding(interval=(0.0, 0.2), table="fall", figure="fall")
    with pytest.raises(FrozenInstanceError):
        finding.value = 1.0
    assert list(finding.plain()) == ["text", "value", "interval", "table", "figure", "next"]
    assert finding.plain()["interval"] == [0.0, 0.2]
    assert _finding().plain()["interval"] is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": "no full stop"},
        {"next": ""},
        {"next": " ."},
        {"value": float("nan")},
        {"interval": (0.0, float("inf"))},
    ],
)
def test_what_is_no_sentence_and_no_number_is_refused(wrong):
    with pytest.raises(ValueError, match="finding"):
        _finding(**wrong)


def _said(records):
    def last(records):
        rows = complete_rows(records, "fall", ("step", "change"))
        value = rows[-1]["change"]
        return _finding(text=f"The change falls to {value:.2g}.", value=value, table="fall")

    def absent(records):
        records.table("no such table")

    return collected(records, (last, absent, lambda records: None))


toy.said = _said
SPEAKING = replace(TOY, findings="said")


@pytest.fixture
def run(tmp_path):
    return engine.run(TOY, ToyConfig(last=0.05), folder=tmp_path / "run").run


def test_findings_are_made_from_the_tables(run, monkeypatch):
    (finding,) = findings_of(SPEAKING, run)
    assert finding.text == "The change falls to 0.05."
    assert finding.value == pytest.approx(0.05)
    run.write_table("fall", pd.DataFrame({"step": [0], "change": [0.7]}))
    assert plain_findings(SPEAKING, run)[0]["text"] == "The change falls to 0.7."


def test_an_instrument_without_findings_has_none(run):
    assert findings_of(TOY, run) == ()


def test_a_missing_table_gives_fewer_findings_and_no_error(run, tmp_path):
    empty = Run.create(tmp_path / "empty", run.read_manifest())
    assert findings_of(SPEAKING, empty) == ()
    toy.lacking = lambda records: records.table("no such table")
    assert findings_of(replace(TOY, findings="lacking"), run) == ()
    assert Records(run=empty).verdicts == {}
    assert list(Records(run=run).verdicts) == ["T1", "T2", "T3"]


def test_rows_without_a_number_are_left_out(run):
    run.write_table("fall", pd.DataFrame({"step": [0, 1], "change": [None, 0.5]}))
    records = Records(run=run)
    assert [row["step"] for row in complete_rows(records, "fall", ("change",))] == [1]
    with pytest.raises(Missing, match="no column other"):
        complete_rows(records, "fall", ("change",), ("other",))
    run.write_table("fall", pd.DataFrame({"step": [0], "change": [float("inf")]}))
    with pytest.raises(Missing, match="no row"):
        complete_rows(records, "fall", ("change",))


@pytest.mark.parametrize("width", [40, 80])
def test_a_terminal_shows_numbers_and_next_steps_within_its_width(width):
    findings = [_finding(text=f"A [bold]sentence[/] {'of words ' * 30}and {HOSTILE}.").plain()] * 2
    console = Console(file=io.StringIO(), width=width)
    print_findings({"findings": findings}, console)
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "Findings"
    assert max(map(len, lines)) <= width
    assert [line[:2] for line in lines if re.match(r"\d", line)] == ["1.", "2."]
    assert [line.strip() for line in lines if "→" in line] == ["→  Take fewer steps."] * 2
    shown = " ".join(" ".join(lines).split())
    assert "A [bold]sentence[/]" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_a_terminal_without_findings_prints_nothing():
    console = Console(file=io.StringIO())
    print_findings({"findings": []}, console)
    print_findings({}, console)
    assert console.file.getvalue() == ""


def _tags(html):
    return re.findall(r"<(/?[a-z0-9]+)", html)


def test_a_card_escapes_all_text_and_closes_its_elements():
    parts = (
        finding_list([_finding(text=f"{HOSTILE}.", next=f"{HOSTILE}.").plain()]),
        verdict_table([(HOSTILE, "holds", "clear", HOSTILE)]),
        fact_table([(HOSTILE, HOSTILE)]),
    )
    html = card(HOSTILE, HOSTILE, [(HOSTILE, "fails")], *parts)
    tags = _tags(html)
    assert "script" not in tags
    assert html.count("&lt;script&gt;") == 9
    assert "\x1b" not in html
    assert "\u202e" not in html
    opened = [tag for tag in tags if not tag.startswith("/")]
    assert sorted(opened) == sorted(tag[1:] for tag in tags if tag.startswith("/"))
    assert "holds (clear)" in html


def test_a_card_needs_no_style_sheet_and_leaves_the_ground_of_the_notebook():
    html = card("kind", "title", [("refused", "fails")], fact_table([("a", "b")]))
    assert "class=" not in html
    assert "url(" not in html
    grounds = re.findall(r"background:([^;\"]+)", html)
    assert set(grounds) == {"transparent", "#b34700"}
    assert html.count("color:inherit") >= 2
    assert fact_table([]) == finding_list([]) == verdict_table([]) == ""


def _luminance(colour):
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("look", ["holds", "fails", "uninformative", "abstains"])
def test_white_text_on_a_chip_has_contrast(look):
    ground = re.search(r"background:(#[0-9a-f]{6})", chip("word", look))[1]
    assert 1.05 / (_luminance(ground) + 0.05) >= 4.5


def test_a_result_is_a_card_with_findings_verdicts_model_and_folder(run, monkeypatch):
    result = toy.Result(run=run)
    monkeypatch.setattr("flowscope.lab.result.instrument_of", lambda run: SPEAKING)
    html = result._repr_html_()
    for words in ("The change falls to 0.05.", "Take fewer steps.", "T1", "holds", "a toy"):
        assert words in html, words
    assert str(run.folder) in html
    assert result.to_json()["findings"] == [finding.plain() for finding in result.findings]


def test_every_instrument_declares_findings():
    for instrument in registry.instruments():
        assert callable(instrument.resolve(instrument.findings)), instrument.name
