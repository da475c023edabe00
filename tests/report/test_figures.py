"""Figures as plain data: plotly accepts them, and they show the numbers of the tables."""

import json
import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from tests.report.synthetic import HOSTILE, LAYERS, PROMPTS, write_run

from flowscope.records import Unavailable
from flowscope.report import depth_figures, head_figures, simplex_figures, theme
from flowscope.report.escaping import json_island
from flowscope.report.source import read_source, spans
from flowscope.report.token_map import MOST_CELLS, token_data

FIGURES = {
    "variation": depth_figures.variation,
    "entropy": depth_figures.entropy,
    "agreement": depth_figures.agreement,
    "locking depth": depth_figures.locking_depth,
    "locking": simplex_figures.locking,
    "path": simplex_figures.simplex_path,
    "heads": lambda source: head_figures.heads(source, "entropy_share"),
    "random heads": lambda source: head_figures.heads(source, "random_weights"),
}


@pytest.fixture(scope="module")
def source(run):
    return read_source(run)


@pytest.mark.parametrize("name", FIGURES)
def test_plotly_accepts_every_property(source, name):
    picture = FIGURES[name](source)
    go.Figure(json.loads(json_island(picture)))  # raises on a name or value plotly does not know


def test_the_step_of_every_layer_is_drawn(source):
    traces = depth_figures.variation(source)["data"]
    line = next(trace for trace in traces if trace["mode"] == "lines+markers")
    np.testing.assert_array_equal(line["x"], np.arange(1, LAYERS + 1))
    np.testing.assert_array_equal(line["y"], source.tables["layers"]["relative_step"][1:])


def test_every_drawn_step_lies_within_the_axis(source):
    picture = depth_figures.variation(source)
    low, high = picture["layout"]["yaxis"]["range"]
    drawn = [math.log10(y) for trace in picture["data"] for y in trace["y"]]
    assert low < min(drawn)
    assert max(drawn) < high


def test_each_control_is_drawn_once_per_segment_that_has_it(source):
    traces = depth_figures.variation(source)["data"]
    dashes = [trace["line"]["dash"] for trace in traces if "dash" in trace.get("line", {})]
    assert {dash: dashes.count(dash) for dash in dashes} == {"solid": 5, "dash": 2, "dot": 2}


def test_abstained_stretches_are_grey_and_passing_ones_are_not(source):
    fills = [shape["fillcolor"] for shape in depth_figures.entropy(source)["layout"]["shapes"]]
    grey, blue = theme.ABSTAINED, theme.PASSING
    assert fills == [grey, grey, blue, grey, grey]


def test_segments_found_from_the_layers_are_those_of_the_table(run, tmp_path):
    bare = write_run(tmp_path / "bare", without=("segments",))
    extent = [(span.first, span.last, span.passes) for span in spans(read_source(bare))]
    assert extent == [(span.first, span.last, span.passes) for span in spans(read_source(run))]


def test_an_undefined_interval_leaves_no_band(source):
    frame = source.tables["layers"].drop(columns=["entropy_low"])
    bare = type(source)(
        manifest=source.manifest, verdicts=(), measurements=(), tables={"layers": frame}
    )
    assert len(depth_figures.entropy(source)["data"]) == 2
    assert len(depth_figures.entropy(bare)["data"]) == 1


def test_a_median_of_zero_is_a_gap_on_the_logarithmic_axis(source):
    frame = source.tables["locking"].assign(tv_median=0.0)
    tables = {**source.tables, "locking": frame}
    changed = type(source)(manifest=source.manifest, verdicts=(), measurements=(), tables=tables)
    median = simplex_figures.locking(changed)["data"][2]
    assert set(median["y"]) == {None}


def test_heads_that_collapsed_are_crossed(source):
    crosses = head_figures.heads(source, "entropy_share")["data"][1]
    table = source.tables["heads"]
    assert len(crosses["x"]) == table["collapsed"].sum() > 0


def test_a_missing_head_is_a_hole_not_a_zero(source):
    tables = {"heads": source.tables["heads"].iloc[1:]}
    changed = type(source)(manifest=source.manifest, verdicts=(), measurements=(), tables=tables)
    assert math.isnan(head_figures.head_grid(changed, "entropy_share").cells[0][0])


def test_the_map_holds_the_numbers_of_the_table(source):
    data = token_data(source)
    rows = source.tables["tokens"].sample(50, random_state=0)
    for row in rows.itertuples():
        prompt = next(p for p in data["prompts"] if p["title"].startswith(f"prompt {row.prompt} "))
        value = prompt["values"]["mobility_frobenius"][row.layer][row.position]
        assert value == pytest.approx(row.mobility_frobenius, rel=1e-3)
    assert HOSTILE in data["prompts"][0]["tokens"]
    assert len(data["prompts"]) == PROMPTS


def test_a_map_too_large_for_the_page_says_what_it_left_out(source):
    frame = source.tables["tokens"]
    copies = [frame.assign(prompt=frame["prompt"] + 100 * k) for k in range(15)]
    tables = {"tokens": pd.concat(copies, ignore_index=True)}
    large = type(source)(manifest=source.manifest, verdicts=(), measurements=(), tables=tables)
    data = token_data(large)
    cells = sum(len(p["layers"]) * len(p["tokens"]) for p in data["prompts"])
    assert cells <= MOST_CELLS
    assert data["left_out"] == 15 * PROMPTS - len(data["prompts"]) > 0


@pytest.mark.parametrize("name", FIGURES)
def test_without_its_table_a_figure_says_which(source, name):
    empty = type(source)(manifest=source.manifest, verdicts=(), measurements=(), tables={})
    reason = FIGURES[name](empty)
    assert isinstance(reason, Unavailable)
    assert "has no table" in reason.reason
