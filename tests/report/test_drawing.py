"""Builders of figures: hover texts from templates, curves and dots of columns, stacked panels."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.grids import head_map, head_table
from flowscope.report.drawing.marks import Look, key, swatch_trace
from flowscope.report.drawing.notes import notes
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import dots, line

TABLE = pd.DataFrame(
    {
        "layer": [1, 2, 3],
        "tv": [0.5, 0.25, math.nan],
        "low": [0.4, 0.2, math.nan],
        "high": [0.6, 0.3, math.nan],
        "share": [0.5, math.nan, 1.0],
        "word": ["<b>", "", "x"],
    }
)
BLUE = Look("blue", theme.BLUE, symbol="circle")
BARE = Look("bare", theme.GREEN, "dot")


@pytest.mark.parametrize(
    ("template", "texts"),
    [
        ("layer {layer:g}", ["layer 1", "layer 2", "layer 3"]),
        ("{tv} {low..high}", ["0.5 [0.4, 0.6]", "0.25 [0.2, 0.3]", "–"]),
        ("TV {}", ["TV 0.5 [0.4, 0.6]", "TV 0.25 [0.2, 0.3]", "TV –"]),
        ("?TV {tv:1}", ["TV 0.5", "TV 0.2", ""]),
        ("{share:%}", ["50\u00a0&#37;", "–", "100\u00a0&#37;"]),
        ("?so {word!s}", ["so &#60;b&#62;", "", "so x"]),
        ("{absent}", ["–", "–", "–"]),
    ],
)
def test_a_line_of_a_hover_text_shows_the_columns_that_it_names(template, texts):
    assert notes(TABLE, template, names=("tv", "low", "high")) == texts


def test_empty_lines_leave_no_break():
    assert notes(TABLE, "{layer:g}", "{word!s}") == ["1<br>&#60;b&#62;", "2", "3<br>x"]


def test_a_line_is_its_columns_above_their_band():
    shade, drawn = line("layer", TABLE, ("tv", "low", "high"), BLUE, "layer {layer:g}")
    np.testing.assert_array_equal(drawn["y"], TABLE["tv"])
    assert shade["y"] == [0.6, 0.3, 0.2, 0.4]  # the row without an interval is left out
    assert drawn["hovertext"] == ["layer 1", "layer 2", "layer 3"]
    (silent,) = line("layer", TABLE, ("tv",), BARE, place=lambda value: 2 * value)
    assert (silent["mode"], silent["hoverinfo"]) == ("lines", "skip")
    assert silent["y"][:2] == [1.0, 0.5]


def test_dots_have_the_arms_of_their_intervals_and_are_hollow_where_not_filled():
    drawn = dots("layer", TABLE, ("tv", "low", "high"), BLUE, filled=[True, False, True])
    np.testing.assert_allclose(drawn["error_y"]["array"][:2], [0.1, 0.05])
    np.testing.assert_allclose(drawn["error_y"]["arrayminus"][:2], [0.1, 0.05])
    assert drawn["marker"]["color"] == [theme.BLUE, "#ffffff", theme.BLUE]


@pytest.mark.parametrize("shares", [(1.0,), (1.0, 0.5), (1.0, 0.82, 0.4)])
def test_stacked_panels_divide_the_height_by_their_shares(shares):
    panels = [Panel(title=str(s), traces=[{"x": [1.0], "y": [2.0]}], share=s) for s in shares]
    picture = stacked(panels, theme.axis("x"), 200, gap=0.1)
    layout = picture["layout"]
    names = ["yaxis", "yaxis2", "yaxis3"][: len(shares)]
    domains = [layout[name]["domain"] for name in names]
    sizes = [top - bottom for bottom, top in domains]
    np.testing.assert_allclose(np.divide(sizes, sizes[0]), np.divide(shares, shares[0]), atol=1e-3)
    assert (domains[0][1], domains[-1][0]) == (1.0, pytest.approx(0.0, abs=1e-3))
    for above, below in itertools.pairwise(domains):
        assert above[0] - below[1] == pytest.approx(0.1, abs=1e-3)
    assert layout["height"] == round(200 * sum(shares)) + 64
    last = "y" if len(shares) == 1 else f"y{len(shares)}"
    assert (layout["xaxis"]["anchor"], picture["data"][-1]["yaxis"]) == (last, last)


def test_a_series_without_a_mark_is_a_bare_line_in_key_and_legend():
    assert key([BARE]).count("<path") == 1
    assert key([BLUE]).count("<path") == 2
    assert swatch_trace(BARE)["mode"] == "lines"
    assert swatch_trace(BLUE)["mode"] == "lines+markers"


class _Tables:
    """Source of one table."""

    def table(self, name, *columns):
        return pd.DataFrame(
            {"layer": [2, 1, 2], "head": [0, 0, 1], "a": [3.0, 1.0, 2.0], "b": [1.0, 4.0, np.nan],
             "state": ["", "out", ""], "none": np.nan}
        )  # fmt: skip


def test_a_map_of_heads_has_a_cell_for_each_layer_and_head():
    frame = head_table(_Tables(), "heads", "a", less="b")
    heat, crosses = head_map(frame, "{layer:g}.{head:g}: {value}", crossed=("state", "out"))["data"]
    np.testing.assert_array_equal(heat["z"], [[-3.0, np.nan], [2.0, np.nan]])
    assert heat["hovertext"] == [["1.0: −3", ""], ["2.0: 2", "2.1: –"]]
    assert (heat["zmin"], heat["zmax"]) == (-3.0, 3.0)
    assert (crosses["x"], crosses["y"]) == ([0.0], [1.0])
    with pytest.raises(Missing, match="the column none of the table “heads” holds no number"):
        head_table(_Tables(), "heads", "none")
    with pytest.raises(Missing, match="no head has both a and none"):
        head_table(_Tables(), "heads", "a", less="none")
