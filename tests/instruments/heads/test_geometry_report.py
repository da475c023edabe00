"""The page of the heads: numbers of the tables, reasons where there are none, text as text."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from tests.instruments.audit.synthetic_flow import HOSTILE
from tests.instruments.heads.synthetic_geometry import (
    HEADS,
    LAYERS,
    NASTY,
    NO_WEIGHTS,
    SILENT,
    STATISTICS,
    TOKENS,
    write_geometry,
)
from tests.report.test_page import PNG, Structure

from flowscope.instruments.audit.page import PAGE as AUDIT
from flowscope.instruments.heads.dials.figures import (
    MOST_DIALS,
    dial_axis,
    dial_listing,
    dial_place,
    dials,
)
from flowscope.instruments.heads.geometry.figures import TOP, furthest
from flowscope.instruments.heads.geometry.maps import colour_limits, crossed, geometry_data
from flowscope.instruments.heads.page import PAGE
from flowscope.instruments.heads.portrait.figures import (
    ARROWS,
    MOST_ENTRIES,
    MOST_TOKENS,
    chain_words,
    portrait_data,
    token_labels,
)
from flowscope.records import Manifest, Measurement, Missing, Run
from flowscope.report import render, report_html
from flowscope.report.drawing.canvas import png
from flowscope.report.escaping import html_text, json_island, script_hash
from flowscope.report.source import read_source

EVERY = (*PAGE.tables, *PAGE.study_tables)
ARRAYS = ("kernel", "current", "law", "diffusion", "magnetic")
SMALL = (2, 3)
LAW = np.zeros((30, 9, 24))
COLUMNS = {"values": "", "lows": "_low", "highs": "_high", "random": "_random"}


@pytest.fixture(scope="module")
def run(tmp_path_factory, quick_flush):
    """Run of the heads with every table, hostile text and a study."""
    return write_geometry(tmp_path_factory.mktemp("heads") / "run", study=True)


@pytest.fixture(scope="module")
def source(run):
    return read_source(run, PAGE)


@pytest.fixture(scope="module")
def page(run):
    return report_html(run, PAGE)


@pytest.fixture(scope="module")
def structure(page):
    return Structure(page)


def changed(source, arrays=None, **tables):
    return replace(
        source,
        tables={**source.tables, **tables},
        arrays=source.arrays if arrays is None else arrays,
    )


def test_the_page_is_about_heads_and_not_about_depth(structure, page):
    assert "<title>example/SmallLM-135M&lt;script&gt;alert(3)&lt;/script&gt; · heads · flow" in page
    assert "flowscope · heads" in structure.text
    assert "depth audit" not in structure.text
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
    assert headings == [
        "Findings",
        "What the source says, what we measure",
        "Do its identities hold?",
        "Verdicts",
        "How irreversible is each head?",
        "Inspect a head",
        "Ten heads furthest from equilibrium",
        "What the dials do",
        "Not measured",
        "Where this comes from",
    ]


def test_the_head_of_the_page_says_the_size_and_the_chain(source, structure):
    labels = list(source.tables["geometry"]["label"])
    assert f"270 heads: steady state {labels.count('steady state')}, equilibrium" in structure.text
    for fact in ("layers 30", "heads 270", "prompts 32", "tokens 4096", "chain unmasked"):
        assert fact in structure.text


def test_every_element_is_closed_and_every_identifier_is_used_once(structure):
    assert structure.wrong == []
    assert structure.open == []
    assert len(structure.ids) == len(set(structure.ids))
    assert structure.headings.count(1) == 1
    steps = zip(structure.headings, structure.headings[1:], strict=False)
    assert all(after <= before + 1 for before, after in steps)


def test_only_the_scripts_of_the_policy_can_run_and_links_stay_here(page, structure):
    policy = re.search(r"script-src ([^;]*);", page)[1].split()
    programs = [text for kind, text in structure.scripts if kind != "application/json"]
    assert [script_hash(text) for text in programs] == policy
    assert len(programs) == 5 + len(PAGE.scripts)
    assert structure.handlers == []
    assert all(link.startswith(("#", "tables/")) for link in structure.links)


def test_hostile_text_is_text(page, structure):
    assert HOSTILE not in page
    assert "\u202e" not in page
    assert "\\u202e evil" in structure.text
    assert f"{SILENT}{HOSTILE}" in structure.text
    assert "x" * 61 not in structure.text


def test_the_page_is_the_same_every_time(run, page, tmp_path):
    assert report_html(run, PAGE) == page
    assert report_html(write_geometry(tmp_path / "again", study=True), PAGE) == page


def test_the_page_of_a_model_of_that_size_is_small(page):
    islands = dict(re.findall(r'id="data-(\w+)">(.*?)</script>', page, re.S))
    assert len(islands["portrait"]) < 2_000_000
    assert len(page) < 10_000_000


def test_the_maps_hold_the_numbers_of_the_table(source):
    data, table = geometry_data(source), source.tables["geometry"]
    assert data["layers"] == list(range(1, LAYERS + 1))
    assert data["heads"] == list(range(HEADS))
    assert [part["name"] for part in data["statistics"]] == [*STATISTICS, "weight_ratio"]
    for part in data["statistics"]:
        for key, end in (
            ("values", ""),
            ("lows", "_low"),
            ("highs", "_high"),
            ("random", "_random"),
        ):
            expected = table.get(part["name"] + end, pd.Series(np.nan, table.index))
            np.testing.assert_allclose(part[key], expected, rtol=6e-3)
    assert [data["words"][k] for k in data["label"]] == list(table["label"])
    assert data["at"][13] == (2, 4)
    assert sum(data["crossed"]) == (table["status"] == "abstained").sum() > 0


def test_rows_in_any_order_give_the_same_maps(source):
    shuffled = source.tables["geometry"].sample(frac=1, random_state=3)
    expected, data = geometry_data(source), geometry_data(changed(source, geometry=shuffled))
    texts = [[got["words"][k] for k in got["because"]] for got in (data, expected)]
    assert texts[0] == texts[1]
    assert json_island(data["statistics"]) == json_island(expected["statistics"])
    assert data["first"] == expected["first"]


def test_the_head_shown_first_is_the_most_irreversible(source):
    table, data = source.tables["geometry"], geometry_data(source)
    best = table.loc[table["entropy_production"].idxmax()]
    assert data["at"][data["first"]] == (best["layer"], best["head"])
    loud = table.assign(entropy_production=table["entropy_production"].fillna(1e3))
    assert geometry_data(changed(source, geometry=loud))["first"] == data["first"]


def test_model_and_random_weights_share_one_scale(source):
    table = source.tables["geometry"]
    scale = colour_limits(table, "entropy_production")
    assert scale.log
    assert scale.high == table["entropy_production"].max()
    larger = table.assign(entropy_production_random=99.0)
    assert colour_limits(larger, "entropy_production").high == 99.0
    linear = colour_limits(table, "displacement")
    assert (linear.low, linear.log) == (0.0, False)
    assert colour_limits(table, "weight_ratio").high == 1.0
    below = colour_limits(table.assign(gap=-0.5, gap_random=np.nan), "gap")
    assert below.low == -0.5 < below.high


def test_a_number_that_no_head_has_comes_with_its_reason(source):
    ratio = geometry_data(source)["statistics"][-1]
    assert ratio["missing"] == NO_WEIGHTS
    assert geometry_data(source)["statistics"][0]["missing"] == ""


def test_where_no_head_has_a_label_none_is_crossed_for_it(source):
    table = source.tables["geometry"]
    some = table.assign(label=["refused"] + ["steady state"] * (len(table) - 1), status="ok")
    assert crossed(some) == [True] + [False] * (len(table) - 1)
    assert not any(crossed(table.assign(label="refused", status="ok")))


def test_the_portrait_holds_the_arrays(source):
    data, arrays = portrait_data(source), source.arrays["portrait"]
    assert len(data["heads"]) == LAYERS * HEADS
    head = data["heads"]["7,3"]
    for name in ("kernel", "law", "diffusion", "magnetic"):
        np.testing.assert_allclose(head[name], arrays[name][6, 3].ravel(), rtol=6e-3, atol=1e-6)
    current = arrays["current"][6, 3]
    assert len(head["flows"]) == ARROWS
    for a, b, value in head["flows"]:
        assert value == pytest.approx(current[a, b], rel=6e-3)
        assert value > 0
    sizes = np.sort(np.abs(current[np.triu_indices(len(TOKENS), 1)]))[::-1]
    np.testing.assert_allclose([flow[2] for flow in head["flows"]], sizes[:ARROWS], rtol=6e-3)
    assert head["total"] == pytest.approx(sizes.sum(), rel=6e-3)
    assert head["pairs"] == len(sizes)


def test_a_head_without_arrays_has_an_empty_portrait(source):
    assert portrait_data(source)["heads"]["2,4"] == {}


def test_tokens_that_occur_twice_carry_their_position(source):
    assert token_labels([" a", "b", "a", "", "  "]) == ["a₀", "b", "a₂", "∅", "␣␣"]
    assert all(len(label) <= 20 for label in portrait_data(source)["labels"])


@pytest.mark.parametrize(
    ("chain", "says"),
    [("unmasked", "does not use half of these pairs"), ("damped", "probability 0.01 a step"),
     ("quasi-stationary", "no arrows are drawn")],
)  # fmt: skip
def test_the_chain_is_said_in_words(tmp_path, chain, says):
    run = write_geometry(tmp_path / "run", size=SMALL, chain=chain)
    assert says in chain_words(read_source(run, PAGE))
    assert says in Structure(report_html(run, PAGE)).text


def test_a_quasi_stationary_chain_has_no_currents_and_says_why(tmp_path):
    source = read_source(
        write_geometry(tmp_path / "run", size=SMALL, chain="quasi-stationary"), PAGE
    )
    data, maps = portrait_data(source), geometry_data(source)
    assert "flows" not in data["heads"]["1,0"]
    assert "no currents" in data["currents_because"]
    assert "not defined" in maps["statistics"][0]["missing"]
    assert maps["statistics"][maps["shown"]]["name"] == "displacement"
    with pytest.raises(Missing, match="no head of this run has an entropy production"):
        furthest(source)


def test_a_model_too_large_for_the_page_keeps_its_most_irreversible_heads(source):
    n = MOST_TOKENS
    size = (30, 9)
    arrays = {"portrait": {"kernel": np.full((*size, n, n), 1 / n)}}
    sentence = pd.DataFrame({"token": ["x"] * n})
    large = changed(source, arrays, sentence=sentence)
    data, table = portrait_data(large), source.tables["geometry"]
    most = MOST_ENTRIES // n**2
    assert len(data["heads"]) == most < 270
    best = table.sort_values("entropy_production", ascending=False).head(most)
    assert set(data["heads"]) == {
        f"{a},{b}" for a, b in zip(best["layer"], best["head"], strict=True)
    }
    longer = {"portrait": {"law": np.zeros((*size, MOST_TOKENS + 1))}}
    with pytest.raises(Missing, match="can be drawn with"):
        portrait_data(changed(source, longer))


def test_the_ten_furthest_are_in_order_and_crossed_heads_are_not_among_them(source):
    shown = furthest(source)
    heads = re.findall(r'data-head="(\d+),(\d+)"', shown)
    table = source.tables["geometry"].sort_values("entropy_production", ascending=False)
    expected = table[["layer", "head"]].head(TOP).astype(str)
    assert heads == [tuple(row) for row in expected.to_numpy()]
    assert "2,4" not in {",".join(pair) for pair in heads}


def test_plotly_accepts_the_dials_and_they_are_those_of_the_table(source):
    picture, table = json.loads(json_island(dials(source))), source.tables["dials"].iloc[1:]
    go.Figure(picture)
    assert dial_axis(table)[0]
    drawn = np.sinh(picture["data"][0]["x"]) * 0.01
    assert sorted(drawn) == pytest.approx(sorted(table["change"]))
    top = np.add(picture["data"][1]["x"], picture["data"][1]["error_x"]["array"])
    expected = [dial_place(v, True) for v in table["random_change_high"]]
    assert sorted(top) == pytest.approx(sorted(expected))
    labels = picture["layout"]["yaxis"]["ticktext"]
    assert "flux 0 · layer 3" in labels
    assert not any("<" in label for label in labels)


def test_small_changes_have_a_straight_axis_and_many_settings_are_cut(source):
    table = source.tables["dials"]
    names = [name for name in table if "change" in name]
    small = table.assign(**{name: table[name] / 100 for name in names})
    assert dial_axis(small) == (False, [])
    many = pd.concat([table.assign(layers=str(k)) for k in range(9)], ignore_index=True)
    whole = changed(source, dials=pd.concat([many, table]))
    ticks = dials(whole)["layout"]["yaxis"]["ticktext"]
    assert len(ticks) == MOST_DIALS
    assert sum("layer" not in tick and "head" not in tick for tick in ticks) == len(table) - 3


def test_a_dial_is_told_from_its_random_twin_by_the_interval_of_their_difference(source):
    one = source.tables["dials"].iloc[1:4].copy()
    one["excess_low"], one["excess_high"] = [0.1, -0.5, -0.8], [1.5, 1.5, -0.4]
    told = dial_listing(one)["beside random"]
    assert list(told) == ["costs more", "no significant difference", "costs less"]


def test_the_unchanged_model_is_a_row_of_the_table_and_no_dial(source, page):
    assert source.tables["dials"]["dial"][0] == "none"
    assert "<td>unchanged model</td>" in page
    assert not any("none" in tick for tick in dials(source)["layout"]["yaxis"]["ticktext"])


def test_a_study_shows_the_claims_of_002_and_its_identities(page, structure):
    assert "002 says" in structure.text
    assert "000 says" not in page
    assert "tables/diffusion_attention.csv" in structure.links
    rows = re.search(r'id="identities".*?</section>', page, re.S)[0]
    assert rows.count('<span class="chip holds">') == 2
    assert rows.count('<span class="chip fails">') == 1
    assert "5×10⁻⁵" in rows


def test_a_plain_run_of_heads_has_no_claims(tmp_path):
    page = report_html(write_geometry(tmp_path / "run", size=SMALL), PAGE)
    assert "002 says" not in page
    assert "Do its identities hold?" not in page
    assert "diffusion_attention" not in page


@pytest.mark.parametrize("name", EVERY)
def test_a_missing_table_is_named_and_the_rest_is_there(tmp_path, name):
    run = write_geometry(tmp_path / "run", size=SMALL, study=True, without=(name,))
    page = report_html(run, PAGE)
    assert f"no table “{name}”" in page
    assert f"table {name}</th>" in page
    assert Structure(page).wrong == []
    assert not any(f"table {other}</th>" in page for other in AUDIT.purposes)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("damage", ["no rows", "one column", "no numbers"])
def test_a_poor_table_is_no_error(tmp_path, name, damage):
    whole = write_geometry(tmp_path / "run", size=SMALL, study=True)
    bare = Run.create(tmp_path / "bare", whole.read_manifest())
    frame = whole.read_table(name)
    numbers = frame.select_dtypes("number").columns.difference(["layer", "head", "position"])
    frames = {
        "no rows": frame.iloc[:0],
        "one column": pd.DataFrame({"layer": [1, 2]}),
        "no numbers": frame.assign(**dict.fromkeys(numbers, float("nan"))),
    }
    for other in EVERY:
        bare.write_table(other, frames[damage] if other == name else whole.read_table(other))
    bare.write_arrays("portrait", whole.read_arrays("portrait"))
    assert Structure(report_html(bare, PAGE)).wrong == []
    render(bare, PAGE)


@pytest.mark.parametrize("name", ["portrait", *ARRAYS])
def test_missing_arrays_are_no_error(tmp_path, name):
    page = report_html(write_geometry(tmp_path / "run", size=SMALL, without=(name,)), PAGE)
    assert Structure(page).wrong == []
    assert ("no arrays “portrait”" in page) == (name == "portrait")


def test_what_abstained_says_why_in_its_place(tmp_path):
    run = write_geometry(tmp_path / "run", size=SMALL, without=("portrait", "dials"))
    reasons = {"dials": "the model has no loss <of> its own", "portrait": "65 <tokens>"}
    run.write_measurements([Measurement.abstained(name, text) for name, text in reasons.items()])
    page = report_html(run, PAGE)
    for text in reasons.values():
        assert f"Not shown: {html_text(text)}." in page


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"other": np.zeros(3)}, "hold none of"),
        ({"law": np.zeros((30, 9))}, "do not have the axes"),
        (
            {"law": np.zeros((30, 9, 24)), "kernel": np.zeros((30, 9, 24, 23))},
            "not all of one size",
        ),
        (
            {"law": np.zeros((30, 9, 24)), "kernel": np.zeros((30, 9, 23, 23))},
            "not all of one size",
        ),
        ({"law": np.zeros((30, 8, 24))}, "are of 30 × 8 heads"),
        ({"law": np.zeros((30, 9, 23))}, "has 24 tokens, the arrays “portrait” 23"),
        ({"law": np.zeros((30, 9, 0))}, "0 tokens"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_in_words(source, arrays, says):
    with pytest.raises(Missing, match=says):
        portrait_data(changed(source, {"portrait": arrays}))


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (4, 1)])
def test_one_layer_or_one_head_is_no_error(tmp_path, size):
    run = write_geometry(tmp_path / "run", size=size, tokens=["one"])
    page = report_html(run, PAGE)
    assert Structure(page).wrong == []
    assert "Heads furthest from equilibrium" in page
    render(run, PAGE)


def test_an_empty_run_of_heads_is_a_page_that_says_so(tmp_path):
    run = Run.create(tmp_path / "run", Manifest(config_resolved={"command": "heads"}))
    page = report_html(run, PAGE)
    assert "flowscope · heads" in page
    assert all(f"table {name}</th>" in page for name in PAGE.tables)
    assert "no verdicts" in page
    assert not any(f"table {name}</th>" in page for name in AUDIT.tables)


def test_silent_heads_are_listed_by_their_reason(source, structure):
    silent = (source.tables["geometry"]["status"] == "abstained").sum()
    assert f"{silent} heads (layer.head 2.4, " in structure.text


def test_render_writes_the_pictures_of_the_heads_and_no_others(tmp_path):
    run = write_geometry(tmp_path / "run")
    first = {path: path.read_bytes() for path in render(run, PAGE, with_png=True)}
    names = {f"figures/{name}.png" for name in PAGE.figures} | {"report.html"}
    assert {path.relative_to(run.folder).as_posix() for path in first} == names
    assert all(content.startswith(PNG) for path, content in first.items() if path.suffix == ".png")
    assert {path: path.read_bytes() for path in render(run, PAGE)} == first
    assert not set(AUDIT.figures) & set(PAGE.figures)
    (run.folder / "tables" / "dials.csv").unlink()
    with pytest.raises(Missing):
        png(read_source(run, PAGE), "dials")
    render(run, PAGE)
    assert not (run.folder / "figures" / "dials.png").exists()


def test_every_hostile_token_is_in_the_portrait_as_shortened_text(source):
    tokens = portrait_data(source)["tokens"]
    assert tokens[3] == NASTY[3]
    assert tokens[7] == "↵⇥"
    assert len(tokens[17]) == 60
