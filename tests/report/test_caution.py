"""The first screen of a page says when its numbers are not those of one finished run."""

import re
from dataclasses import replace

import pandas as pd
import pytest
from tests.instruments.audit.synthetic import write_run

from flowscope.instruments.audit.page import PAGE
from flowscope.records import Run
from flowscope.records.manifest import JUDGING, UNFINISHED
from flowscope.report import report_html


@pytest.fixture
def finished(tmp_path):
    """A run whose manifest names its files."""
    run = write_run(tmp_path / "run", hostile=False)
    run.update_manifest(wall_time=1.0, files=run.file_hashes())
    return run


def caution(run):
    """Caution in the head of the page; empty if there is none."""
    head = report_html(Run.open(run.folder), PAGE).partition("</header>")[0]
    found = re.findall(r'<p class="caution" role="alert">(.*?)</p>', head)
    assert len(found) <= 1
    return found[0] if found else ""


def test_a_finished_run_has_no_caution(finished):
    assert caution(finished) == ""


def test_an_unfinished_run_says_so(finished):
    finished.update_manifest(wall_time=UNFINISHED, files=UNFINISHED)
    assert caution(finished).startswith("This run has not finished")


def test_a_run_whose_judging_was_interrupted_says_so(finished):
    finished.update_manifest(files=JUDGING)
    assert "--judge" in caution(finished)


def test_a_mixed_run_names_the_files(finished):
    finished.write_table("segments", finished.read_table("segments").iloc[:1])
    finished.write_table("alien", pd.DataFrame({"seed": [7]}))
    words = caution(finished)
    assert words.startswith("This folder is mixed: tables/alien.csv, tables/segments.csv did not")
    assert "measure again into another folder" in words


def test_verdicts_of_another_run_are_seen(finished):
    verdicts = finished.read_verdicts()
    finished.write_verdicts([replace(verdicts[0], because="another reason"), *verdicts[1:]])
    assert "verdicts.json" in caution(finished)


def test_the_name_of_a_strange_file_is_escaped(finished):
    files = {**finished.read_manifest().files, "tables/<img src=x>.csv": "0" * 64}
    finished.update_manifest(files=files)
    assert "&lt;img src=x&gt;" in caution(finished)


def test_a_run_of_an_earlier_version_has_no_caution(tmp_path):
    assert caution(write_run(tmp_path / "run", hostile=False)) == ""
