"""The errata page and its tests name each other: nothing is claimed that no test checks."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "theory" / "errata.md").read_text(encoding="utf-8")
CITED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
SUMMARY = dict(
    re.findall(r"^\| \[(E\d{2,3})\]\(#e\d{2,3}\) \|.*\| ([^|]+) \|$", PAGE, re.MULTILINE)
)


def names_in(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {name for name in found if name.startswith("test_")}


def section(identifier):
    return PAGE.split(f"\n### {identifier}\n")[1].split("\n### ")[0].split("\n---\n")[0]


def test_every_cited_test_exists():
    missing = [f"{path}::{name}" for path, name in CITED if name not in names_in(ROOT / path)]
    assert CITED
    assert missing == []


def test_every_errata_test_is_cited():
    written = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in (ROOT / "tests" / "laws").glob("test_errata_*.py")
        for name in names_in(path)
    }
    assert written - set(CITED) == set()


def test_numbers_run_without_gaps_and_match_the_summary():
    headings = re.findall(r"^### (E\d{2,3})$", PAGE, re.MULTILINE)
    assert headings == [f"E{i:02d}" for i in range(1, len(headings) + 1)]
    assert list(SUMMARY) == headings


@pytest.mark.parametrize("identifier", SUMMARY)
def test_status_says_checked_exactly_where_a_test_is_cited(identifier):
    cited = re.search(r"`tests/[\w/]+\.py::\w+`", section(identifier)) is not None
    assert cited == ("checked" in SUMMARY[identifier])


@pytest.mark.parametrize("identifier", SUMMARY)
def test_group_comment_of_each_test_carries_its_number(identifier):
    """The comment above a test in its file names the erratum that cites it."""
    for path, name in re.findall(r"`(tests/laws/test_errata_\w+\.py)::(\w+)`", section(identifier)):
        before = (ROOT / path).read_text(encoding="utf-8").split(f"def {name}(")[0]
        comment = re.findall(r"^# (E\d{2,3}.*)$", before, re.MULTILINE)[-1]
        assert identifier in comment
