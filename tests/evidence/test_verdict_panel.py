"""Every verdict says yes where that is right and something else where it is wrong, on three seeds.

The whole panel is ``python -m benchmarks.verdict_panel``; its counts are in
``docs/theory/what-holds-means.md``.
"""

import json
from functools import cache
from pathlib import Path

import pytest
from benchmarks.known_subjects import EXPECTED, SUBJECTS, verdicts_of
from benchmarks.panel_tables import counted, page_tables
from benchmarks.verdict_panel import PAGE, RESULT

SEEDS = range(3)


drawn = cache(verdicts_of)


def outcomes(subject, verdict):
    every = [drawn(subject, seed) for seed in SEEDS]
    return [next(v for v in verdicts if v.name == verdict).outcome for verdicts in every]


@pytest.mark.parametrize(
    ("subject", "verdict", "right"),
    [
        ("shuffled depth", "P0", "fails"),
        ("locking δ^.1, V = 50", "P2", "holds"),
        ("unlocking δ^-.1, V = 50", "P2", "fails"),
        ("gathered attention", "P3", "holds"),
        ("opposite attention", "P3", "fails"),
        ("uniform attention", "P3", "uninformative"),
        ("linear rotation of .8", "P4", "fails"),
        ("linear gradient", "P4", "holds"),
        ("linear rotation of .8", "P4r", "holds"),
    ],
)
def test_known_answers_are_given(subject, verdict, right):
    assert outcomes(subject, verdict) == [right] * len(SEEDS)


@pytest.mark.parametrize(
    ("subject", "verdict"),
    [
        ("iid steps, V = 50", "P2"),
        ("permuted attention", "P3"),
        ("log-sum-exp gradient, n = 2000", "P4r"),
        ("linear gradient", "P4r"),
        ("rough rotation in 2-D", "P4"),
    ],
)
def test_subjects_without_the_property_never_hold(subject, verdict):
    assert "holds" not in outcomes(subject, verdict)


def test_a_flow_is_forecast_and_a_constant_drift_is_not():
    assert outcomes("planted flow, steady", "P1") == ["holds"] * len(SEEDS)
    assert "holds" not in outcomes("constant drift", "P1")


def test_smooth_paths_pass_the_gate():
    assert outcomes("planted flow, steady", "P0") == ["holds"] * len(SEEDS)


def test_every_expectation_is_of_a_subject_of_the_panel():
    assert {subject for subject, _ in EXPECTED} <= set(SUBJECTS)
    assert set(EXPECTED.values()) <= {"holds", "fails", "never holds"}
    for verdict in ("P0", "P1", "P2", "P3", "P4", "P4r"):
        answers = {right for (_, name), right in EXPECTED.items() if name == verdict}
        assert len(answers) > 1, verdict


def test_the_page_shows_the_stored_runs():
    document = json.loads(RESULT.read_text(encoding="utf-8"))
    page = Path(PAGE).read_text(encoding="utf-8")
    for name, table in page_tables(document).items():
        assert table in page, f"run `python -m benchmarks.verdict_panel --page`: {name}"


def test_stored_runs_agree_with_what_is_known():
    document = json.loads(RESULT.read_text(encoding="utf-8"))
    for (subject, verdict), right in EXPECTED.items():
        runs = document["known"][subject].values()
        counts = counted([run["verdicts"][verdict] for run in runs])
        share = counts["holds" if right == "never holds" else right] / len(runs)
        assert share <= 0.05 if right == "never holds" else share >= 0.85, (subject, verdict)
