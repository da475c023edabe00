"""The page as text: whole, safe, honest about what is missing, and the same every time."""

import dataclasses
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pandas as pd
import pytest
from tests.instruments.audit.synthetic import HOSTILE, write_run

from flowscope.errors import RecordError
from flowscope.instruments.audit.page import PAGE
from flowscope.records import Interval, Manifest, Measurement, Run, Unavailable, Verdict
from flowscope.report import render, report_html
from flowscope.report.escaping import html_text, script_hash
from flowscope.report.parts.symbols import explained

VOID = {"meta", "input", "br", "img", "link", "hr"}
EVERY = (*PAGE.tables, *PAGE.study_tables)
JOINT = (
    "adequacy_skill",
    "adequacy_clouds",
    "drifts",
    "overlay",
    "budget",
)  # one sentence of P1 for all of them
PNG = b"\x89PNG\r\n\x1a\n"


class Structure(HTMLParser):
    """Scripts, headings, identifiers and whether every element is closed."""

    def __init__(self, page):
        super().__init__()
        self.open, self.scripts, self.headings, self.ids, self.links = [], [], [], [], []
        self.handlers, self.text, self.wrong = [], "", []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.handlers += [name for name in given if name.startswith("on")]
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given[name] for name in ("href", "src") if name in given]
        if tag == "script":
            self.scripts.append([given.get("type", ""), ""])
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += data
        else:
            self.text += data


@pytest.fixture(scope="module")
def page(run):
    return report_html(run, PAGE)


@pytest.fixture(scope="module")
def structure(page):
    return Structure(page)


def test_the_page_is_small_enough_to_send(page):
    assert len(page.encode()) < 1_500_000


def test_every_element_is_closed_and_every_identifier_is_used_once(structure):
    assert structure.wrong == []
    assert structure.open == []
    assert len(structure.ids) == len(set(structure.ids))


def test_headings_are_a_tree(structure):
    assert structure.headings[0] == 1
    assert structure.headings.count(1) == 1
    steps = zip(structure.headings, structure.headings[1:], strict=False)
    assert all(after <= before + 1 for before, after in steps)


def test_only_the_scripts_of_the_policy_can_run(page, structure):
    policy = re.search(r"script-src ([^;]*);", page)[1].split()
    programs = [text for kind, text in structure.scripts if kind != "application/json"]
    assert [script_hash(text) for text in programs] == policy
    assert "default-src 'none'" in page
    assert structure.handlers == []


def test_the_page_points_nowhere_but_to_itself_and_its_tables(structure):
    assert all(link.startswith(("#", "tables/")) for link in structure.links)


def test_hostile_text_is_text(page, structure):
    assert HOSTILE not in page
    assert "<!--" not in page
    assert "onerror=alert" not in re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert "SmallLM-135M<script>alert(3)</script>" in structure.text


def test_the_page_is_the_same_every_time(run, page, tmp_path):
    assert report_html(run, PAGE) == page
    again = write_run(tmp_path / "again")
    assert report_html(again, PAGE) == page


def test_each_verdict_is_shown_with_its_reason_and_its_numbers(run, structure):
    for verdict in run.read_verdicts():
        assert verdict.because.rstrip(".")[1:] in structure.text
        assert verdict.decision in structure.text
    assert "0.0231 [0.0213, 0.0249]" in structure.text
    assert "0.2 [0.186, 0.214]" in structure.text  # the null, beside it


def test_each_caption_says_how_many_and_the_page_says_once_by_which_method(structure):
    assert "interval of the median; n = 32 prompts." in structure.text
    usual = "nothing else: 95\u00a0%, percentile bootstrap over prompts, B = 1000."
    assert structure.text.count(usual) == 1
    assert "; intervals: 95\u00a0%, percentile bootstrap over prompts" not in structure.text


def test_small_tables_are_in_the_page_and_a_large_one_is_a_link(run, monkeypatch):
    monkeypatch.setattr("flowscope.report.source.MOST_BYTES", 3000)
    page, sizes = report_html(run, PAGE), []
    for name in set(re.findall(r'<a href="tables/(\w+)\.csv"', page)):
        text = (run.folder / "tables" / f"{name}.csv").read_text()
        held = re.findall(rf'id="table-{name}">(.*?)</script>', page)
        sizes.append(len(text.encode()))
        assert len(held) == (sizes[-1] <= 3000), name
        assert all(json.loads(content) == text for content in held)
        assert (f'data-table="{name}"' in page) == bool(held)
    assert min(sizes) <= 3000 < max(sizes)


def test_symbols_are_explained_once_a_section_outside_headings(page):
    depth = re.search(r'<section id="verdicts".*?</section>', page, re.S)[0]
    assert depth.count('<abbr title="total variation') <= 1
    assert '<abbr title="relative variation' in page
    assert explained("<p><a>TV</a></p><h3>κ</h3><summary>TV</summary>", {}).count("<abbr") == 0


def test_symbols_match_whole_words_only():
    assert explained("<p>TVs S̄ R̂</p>", {"R": "x"}).count("<abbr") == 1
    assert explained("<script>TV</script><p>TV TV</p>", {}).count("<abbr") == 1


def test_the_numbers_of_a_verdict_are_folded(run, page):
    cards = re.findall(r'<article class="verdict.*?</article>', page, re.S)
    assert len(cards) == len(run.read_verdicts())
    assert all(re.search(r"<details><summary>.*?</summary>.*?<dl>", card, re.S) for card in cards)


@pytest.mark.parametrize("name", EVERY)
def test_a_missing_table_is_named_and_the_rest_is_there(tmp_path, name):
    page = report_html(write_run(tmp_path / "run", without=(name,)), PAGE)
    assert f"no table “{name}”" in page or name == "segments"
    assert f"table {name}</th>" in page
    assert Structure(page).wrong == []


def test_an_empty_run_is_a_page_that_says_so(tmp_path):
    page = report_html(Run.create(tmp_path / "empty", Manifest()), PAGE)
    assert "no verdicts" in page
    assert page.count("Not shown:") >= len(PAGE.tables) - len(JOINT)
    assert all(f"table {name}</th>" in page for name in PAGE.tables)
    assert not any(f"table {name}</th>" in page for name in PAGE.study_tables)
    assert "unnamed model" in page


@pytest.mark.parametrize("name", EVERY)
def test_a_table_without_rows_is_no_error(tmp_path, run, name):
    bare = Run.create(tmp_path / "run", run.read_manifest())
    bare.write_table(name, run.read_table(name).iloc[:0])
    assert f"the table “{name}” has no rows" in report_html(bare, PAGE) or name == "segments"
    render(bare, PAGE)


@pytest.mark.parametrize("name", EVERY)
def test_undefined_numbers_are_no_error(tmp_path, run, name):
    bare = Run.create(tmp_path / "run", run.read_manifest())
    frame = run.read_table(name)
    numbers = frame.select_dtypes("number").columns.difference(["layer", "head", "position"])
    bare.write_table(name, frame.assign(**dict.fromkeys(numbers, float("nan"))))
    assert Structure(report_html(bare, PAGE)).wrong == []
    render(bare, PAGE)


@pytest.mark.parametrize("name", EVERY)
def test_one_column_alone_is_no_error(tmp_path, run, name):
    bare = Run.create(tmp_path / "run", run.read_manifest())
    bare.write_table(name, pd.DataFrame({"layer": [0, 1, 2]}))
    assert Structure(report_html(bare, PAGE)).wrong == []
    render(bare, PAGE)


def test_an_abstained_run_withholds_and_says_why(tmp_path):
    run = write_run(tmp_path / "run", abstained=True)
    text = Structure(report_html(run, PAGE)).text
    assert "Of 5 claims, 5 abstain. 0 of 30 layers can be read as a flow." in text
    assert "relative variation 0.41 above the threshold 0.15" in text


def test_an_abstained_measurement_is_listed_with_its_reason(tmp_path):
    run = write_run(tmp_path / "run")
    run.write_measurements([Measurement.abstained("rotation", "too few <prompts>")])
    assert f"<td>{html_text('too few <prompts>')}</td>" in report_html(run, PAGE)


def test_a_caption_prefers_the_birth_certificate_of_its_own_measurement(tmp_path):
    run = write_run(tmp_path / "run")
    made = Interval(low=[1.0], high=[2.0], level=0.9, method="BCa over prompts")
    own = Measurement(name="entropy", values=[1.5], axes=("layer",), unit="nat", n=17,
                      estimator="median", dtype="float64", interval=made)  # fmt: skip
    run.write_measurements([own])
    assert "n = 17 prompts; intervals: 90\u00a0%, " in (text := report_html(run, PAGE))
    assert re.search("n = 17 prompts; intervals: 90\u00a0%, (<abbr[^>]*>)?BCa(</abbr>)? over", text)


def test_a_verdict_without_key_interval_or_null_is_shown(tmp_path):
    run = Run.create(tmp_path / "run", Manifest())
    one = Measurement(name="gap", values=0.0, unit="nat", n=1, estimator="mean", dtype="float64")
    absent = Unavailable("one <prompt> has no interval")
    odd = Verdict(name="own", claim="it <b>holds</b>", statistic=one, null=absent, effect=absent,
                  interval=absent, decision="holds", because="so")  # fmt: skip
    run.write_verdicts([odd])
    text = Structure(report_html(run, PAGE)).text
    assert "It <b>holds</b>" in text
    assert "not available: one <prompt> has no interval" in text
    assert "0 nat" in text


def test_a_damaged_table_is_refused(tmp_path):
    run = write_run(tmp_path / "run")
    path = run.folder / "tables" / "layers.csv"
    path.write_text(path.read_text().replace("3.35", "0.01"))
    with pytest.raises(RecordError, match="damaged"):
        report_html(run, PAGE)


def test_render_writes_the_page_alone_by_default(tmp_path):
    run = write_run(tmp_path / "run")
    assert render(run, PAGE) == (run.folder / "report.html",)
    assert not (run.folder / "figures").exists()


@pytest.fixture(scope="module")
def brief_page():
    """The page of an audit with two figures: drawing all of them as PNG takes half a minute."""
    figures = {name: PAGE.figures[name] for name in ("heads", "variation")}
    return dataclasses.replace(PAGE, figures=figures)


def test_render_draws_existing_pictures_again(tmp_path, brief_page):
    run = write_run(tmp_path / "run")
    render(run, brief_page, with_png=True)
    picture = run.folder / "figures" / "heads.png"
    content = picture.read_bytes()
    picture.write_bytes(b"older")
    (run.folder / "figures" / "variation.png").unlink()
    written = render(run, brief_page)
    assert picture.read_bytes() == content
    assert picture in written
    assert not (run.folder / "figures" / "variation.png").exists()


def test_render_writes_the_page_and_the_pictures(tmp_path):
    run = write_run(tmp_path / "run")
    first = {path: path.read_bytes() for path in render(run, PAGE, with_png=True)}
    names = {f"figures/{name}.png" for name in PAGE.figures} | {"report.html"}
    assert {path.relative_to(run.folder).as_posix() for path in first} == names
    assert first[run.folder / "report.html"].decode() == report_html(run, PAGE)
    assert all(content.startswith(PNG) for path, content in first.items() if path.suffix == ".png")
    assert not list(run.folder.rglob(".*"))


def test_a_picture_whose_table_is_gone_does_not_stay(tmp_path, brief_page):
    run = write_run(tmp_path / "run")
    render(run, brief_page, with_png=True)
    assert (run.folder / "figures" / "heads.png").exists()
    (run.folder / "tables" / "heads.csv").unlink()
    assert not any(path.name == "heads.png" for path in render(run, brief_page))
    assert not (run.folder / "figures" / "heads.png").exists()


def test_the_report_needs_no_torch_and_no_model():
    code = (
        "import sys, flowscope.instruments.audit.page; "
        "sys.exit(bool({'torch', 'transformers', 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
