"""Each outcome has a look, a word and a sign of its own, with its strength."""

import io
from pathlib import Path

import pytest
from rich.console import Console

import flowscope.report
from flowscope.records import Interval, Measurement, Unavailable, Verdict
from flowscope.report.parts.verdict_cards import card, chip
from flowscope.report.spec import Page
from flowscope.report.terminal import print_verdicts

OUTCOMES = ("holds", "fails", "uninformative", "abstains")


def verdict(outcome, strength="", because="the gap is 0.25"):
    gap = Measurement(name="gap", values=0.25, unit="1", n=9, estimator="mean", dtype="float64")
    return Verdict(
        name="P9", claim="layers contract", statistic=gap, null=Unavailable("none"), effect=0.25,
        interval=Interval(low=0.1, high=0.4, level=0.95, method="t"),
        decision="abstains" if outcome == "uninformative" else outcome,
        because=because, outcome=outcome, strength=strength, p=0.03125,
    )  # fmt: skip


PAGE = Page(kind="toy", tables={}, sections=(), titles={"P9": "Contraction"})
STYLE = (Path(flowscope.report.__file__).parent / "page.css").read_text(encoding="utf-8")


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_each_outcome_has_its_word_and_its_colour(outcome):
    assert f'class="chip {outcome}"' in chip(verdict(outcome))
    assert f"</span> {outcome}</span>" in chip(verdict(outcome))
    assert f".chip.{outcome} {{ background" in STYLE
    assert f'<article class="verdict {outcome}"' in card(verdict(outcome), "v", PAGE)


def test_no_two_outcomes_look_or_read_alike():
    signs = {chip(verdict(outcome)).split('"true">')[1][0] for outcome in OUTCOMES}
    meanings = {
        card(verdict(outcome), "v", PAGE).split("<strong>")[1].split("</strong>")[0]
        for outcome in OUTCOMES
    }
    assert len(signs) == len(meanings) == len(OUTCOMES)


def test_strength_and_p_are_shown():
    assert "holds (clear)</span>" in chip(verdict("holds", "clear"))
    assert "<dt>p</dt><dd>0.0312</dd>" in card(verdict("holds"), "v", PAGE)


def test_the_word_uninformative_is_not_said_twice():
    silent = verdict("uninformative", because="uninformative: every token is decided")
    shown = card(silent, "v", PAGE)
    assert "Every token is decided." in shown
    assert "uninformative:" not in shown


def test_the_terminal_prints_outcome_and_strength():
    out = io.StringIO()
    rows = [
        {"name": "P1", "title": "", "decision": "holds", "outcome": "holds", "strength": "clear",
         "because": "so"},
        {"name": "P2", "title": "", "decision": "abstains", "outcome": "uninformative",
         "strength": "", "because": "uninformative: every token is decided"},
    ]  # fmt: skip
    print_verdicts({"verdicts": rows}, Console(file=out, width=80))
    printed = " ".join(out.getvalue().split())
    assert printed == "P1 HOLDS (clear): so P2 UNINFORMATIVE: every token is decided"
