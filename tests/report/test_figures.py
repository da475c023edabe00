"""Figures as plain data: plotly accepts them, and they show the numbers of the tables."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from tests.instruments.audit.synthetic import HOSTILE, LAYERS, PROMPTS, write_run

from flowscope.instruments.audit.contraction import figures as curvature_figures
from flowscope.instruments.audit.contraction import head_figures
from flowscope.instruments.audit.locking import figures as locking_figures
from flowscope.instruments.audit.page import PAGE
from flowscope.instruments.audit.spans import spans
from flowscope.instruments.audit.tokens import figures as token_figures
from flowscope.instruments.audit.tokens.simplex_figure import simplex_path
from flowscope.instruments.audit.tokens.token_map import MOST_CELLS, token_data
from flowscope.instruments.audit.variation import figures as variation_figures
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.escaping import json_island
from flowscope.report.source import read_source

FIGURES = {
    "variation": variation_figures.variation,
    "entropy": token_figures.entropy,
    "agreement": token_figures.agreement,
    "locking depth": token_figures.locking_depth,
    "locking": locking_figures.locking,
    "locking slope": locking_figures.locking_slope,
    "path": simplex_path,
    "heads": lambda source: head_figures.heads(source, "entropy_share"),
    "random heads": lambda source: head_figures.heads(source, "random_weights"),
    "curvature": lambda source: curvature_figures.curvature(source, "kappa"),
    "permuted": lambda source: curvature_figures.curvature(source, "keys_permuted"),
    "temperature": lambda source: curvature_figures.response(source, "temperature"),
    "key norm": lambda source: curvature_figures.response(source, "key_norm"),
    "evolution": curvature_figures.evolution,
}


@pytest.fixture(scope="module")
def source(run):
    return read_source(run, PAGE)


@pytest.mark.parametrize("name", FIGURES)
def test_plotly_accepts_every_property(source, name):
    picture = FIGURES[name](source)
    go.Figure(json.loads(json_island(picture)))  # raises on a name or value plotly does not know


def test_the_step_of_every_layer_is_drawn(source):
    traces = variation_figures.variation(source)["data"]
    line = next(trace for trace in traces if trace["mode"] == "lines+markers")
    np.testing.assert_array_equal(line["x"], np.arange(1, LAYERS + 1))
    np.testing.assert_array_equal(line["y"], source.tables["layers"]["relative_step"][1:])


def test_every_drawn_step_lies_within_the_axis(source):
    picture = variation_figures.variation(source)
    low, high = picture["layout"]["yaxis"]["range"]
    drawn = [math.log10(y) for trace in picture["data"] for y in trace["y"]]
    assert low < min(drawn)
    assert max(drawn) < high


def test_each_control_is_drawn_once_per_segment_that_has_it(source):
    traces = variation_figures.variation(source)["data"]
    lines = [trace["line"] for trace in traces if trace["mode"] == "lines"]
    dashes = [line["dash"] for line in lines if "dash" in line]
    assert {dash: dashes.count(dash) for dash in dashes} == {"solid": 5, "dash": 2, "dot": 2}


def test_abstained_stretches_are_grey_and_passing_ones_are_not(source):
    fills = [shape["fillcolor"] for shape in token_figures.entropy(source)["layout"]["shapes"]]
    grey, blue = theme.ABSTAINED, theme.PASSING
    assert fills == [grey, grey, blue, grey, grey]


def test_segments_found_from_the_layers_are_those_of_the_table(run, tmp_path):
    bare = write_run(tmp_path / "bare", without=("segments",))
    extent = [(span.first, span.last, span.passes) for span in spans(read_source(bare, PAGE))]
    assert extent == [
        (span.first, span.last, span.passes) for span in spans(read_source(run, PAGE))
    ]


def test_an_undefined_interval_leaves_no_band(source):
    frame = source.tables["layers"].drop(columns=["entropy_low"])
    bare = replace(source, verdicts=(), measurements=(), tables={"layers": frame})
    assert len(token_figures.entropy(source)["data"]) == 2
    assert len(token_figures.entropy(bare)["data"]) == 1


def test_a_median_of_zero_is_a_gap_on_the_logarithmic_axis(source):
    frame = source.tables["locking"].assign(tv_median=0.0)
    tables = {**source.tables, "locking": frame}
    changed = replace(source, verdicts=(), measurements=(), tables=tables)
    median = locking_figures.locking(changed)["data"][2]
    assert all(map(math.isnan, median["y"]))


def test_layers_that_decide_locking_are_filled(source):
    dots = locking_figures.locking_slope(source)["data"][0]
    table = source.tables["locking_slopes"]
    np.testing.assert_array_equal(dots["y"], table["slope"])
    filled = [colour != "#ffffff" for colour in dots["marker"]["color"]]
    assert filled == table["mixed"].tolist()
    assert 0 < sum(filled) < LAYERS
    np.testing.assert_allclose(dots["error_y"]["array"], table["slope_high"] - table["slope"])


def test_slopes_that_are_not_there_are_left_out_and_none_at_all_is_said(source):
    table = source.tables["locking_slopes"]
    part = table.assign(slope=table["slope"].where(table["layer"] > 2))
    changed = replace(source, tables={**source.tables, "locking_slopes": part})
    assert locking_figures.locking_slope(changed)["data"][0]["x"][0] == 3
    flat = table.assign(log_tail_sd=table["log_tail_sd"].where(table["layer"] != 1, 1e-3))
    changed = replace(source, tables={**source.tables, "locking_slopes": flat})
    assert locking_figures.locking_slope(changed)["data"][0]["x"][0] == 2
    empty = {**source.tables, "locking_slopes": table.assign(slope=np.nan)}
    with pytest.raises(Missing, match="no layer has spread"):
        locking_figures.locking_slope(replace(source, tables=empty))


def test_heads_that_collapsed_are_crossed(source):
    crosses = head_figures.heads(source, "entropy_share")["data"][1]
    table = source.tables["heads"]
    assert len(crosses["x"]) == table["collapsed"].sum() > 0


def test_a_missing_head_is_a_hole_not_a_zero(source):
    tables = {"heads": source.tables["heads"].iloc[1:]}
    changed = replace(source, verdicts=(), measurements=(), tables=tables)
    assert math.isnan(head_figures.heads(changed, "entropy_share")["data"][0]["z"][0][0])


def test_curvature_is_drawn_on_one_scale_and_silent_heads_are_crossed(source):
    pictures = [curvature_figures.curvature(source, n) for n in ("kappa", "keys_permuted")]
    limits = [(p["data"][0]["zmin"], p["data"][0]["zmax"]) for p in pictures]
    assert limits[0] == limits[1]
    assert limits[0][0] < 0, "a negative curvature must not look like zero"
    table = source.tables["curvature"]
    assert len(pictures[0]["data"][1]["x"]) == (table["status"] == "abstained").sum() > 0
    row = table.iloc[20]
    layer, head = int(row["layer"]), int(row["head"])
    assert pictures[0]["data"][0]["z"][layer - 1][head] == pytest.approx(row["kappa"], nan_ok=True)


@pytest.mark.parametrize("kind", ["temperature", "key_norm"])
def test_each_sweep_is_drawn_for_all_layers_and_for_each(source, kind):
    traces = curvature_figures.response(source, kind)["data"]
    assert len(traces) == LAYERS + 2  # each layer, the band, all together
    table = source.tables["curvature_response"]
    own = table[(table["kind"] == kind) & (table["scope"] == "all")]
    np.testing.assert_allclose(traces[-1]["y"], own["kappa"])
    np.testing.assert_allclose(traces[-1]["x"], own["setting"])


def test_a_sweep_that_was_not_run_says_so(source):
    frame = source.tables["curvature_response"]
    tables = {"curvature_response": frame[frame["kind"] == "temperature"]}
    changed = replace(source, verdicts=(), measurements=(), tables=tables)
    with pytest.raises(Missing, match="key norm was not run"):
        curvature_figures.response(changed, "key_norm")


def test_abstained_steps_of_the_inequality_are_gaps(source):
    traces = curvature_figures.evolution(source)["data"]
    model = next(t for t in traces if t["mode"] == "lines+markers")
    drawn = [x for x, y in zip(model["x"], model["y"], strict=True) if not math.isnan(y)]
    assert drawn == list(range(3, 25))


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
    large = replace(source, verdicts=(), measurements=(), tables=tables)
    data = token_data(large)
    cells = sum(len(p["layers"]) * len(p["tokens"]) for p in data["prompts"])
    assert cells <= MOST_CELLS
    assert data["left_out"] == 15 * PROMPTS - len(data["prompts"]) > 0


@pytest.mark.parametrize("name", FIGURES)
def test_without_its_table_a_figure_says_which(source, name):
    empty = replace(source, verdicts=(), measurements=(), tables={})
    with pytest.raises(Missing, match="has no table"):
        FIGURES[name](empty)
