"""Axes that bend and maps of differences: the same numbers in every back end."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from flowscope.instruments.audit.contraction.figures import curvature, curvature_difference
from flowscope.instruments.audit.contraction.head_figures import heads_difference
from flowscope.instruments.audit.page import PAGE
from flowscope.lab.display.plots import Figures
from flowscope.records import Missing
from flowscope.report import report_html, theme
from flowscope.report.drawing.log_axes import bent, bent_ticks
from flowscope.report.parts.finding_list import with_links
from flowscope.report.source import read_source


def test_a_bent_axis_is_odd_continuous_and_grows():
    places = np.concatenate([np.linspace(-3, 3, 601), np.logspace(0.5, 4, 50)])
    values = [bent(place) for place in places]
    assert all(a < b for a, b in itertools.pairwise(values))
    assert all(bent(-place) == -value for place, value in zip(places, values, strict=True))
    assert bent(1 + 1e-9) == pytest.approx(1.0)
    steps = [bent(10.0**k) - bent(10.0 ** (k - 1)) for k in range(1, 5)]
    assert steps == pytest.approx([steps[0]] * 4)  # a decade has one length above the bend
    assert math.isnan(bent(math.nan))
    assert bent(math.inf) == math.inf


def test_ticks_of_a_bent_axis_stand_at_their_values():
    axis = bent_ticks([-0.2, 34.0])
    pairs = dict(zip(axis["ticktext"], axis["tickvals"], strict=True))
    assert list(pairs)[:5] == ["0", "0.25", "0.5", "0.75", "1"]
    assert all(value == bent(float(text)) for text, value in pairs.items())
    assert max(float(text) for text in pairs) <= 34
    assert "tickvals" not in bent_ticks([-0.2, 0.9])
    assert "−2" in bent_ticks([-2.5])["ticktext"]


@pytest.fixture(scope="module")
def source(run):
    return read_source(run, PAGE)


@pytest.mark.parametrize(
    ("draw", "table", "names"),
    [
        (curvature_difference, "curvature", ("kappa", "keys_permuted")),
        (heads_difference, "heads", ("entropy_share", "random_weights")),
    ],
)
def test_a_map_of_differences_is_the_difference_and_white_at_zero(source, draw, table, names):
    heat = draw(source)["data"][0]
    frame = source.tables[table].set_index(["layer", "head"])
    expected = (frame[names[0]] - frame[names[1]]).unstack("head").to_numpy()
    np.testing.assert_allclose(heat["z"], expected)
    assert heat["zmin"] == -heat["zmax"] == pytest.approx(-np.nanmax(np.abs(expected)))
    scale = heat["colorscale"]
    assert scale[len(scale) // 2] == [0.5, theme.DIVERGING[len(theme.DIVERGING) // 2]]
    assert len(scale) % 2 == 1


def test_equal_maps_give_an_empty_one_and_no_error(source):
    frame = source.tables["curvature"]
    same = type(source)(**{**vars(source), "tables": {
        **source.tables, "curvature": frame.assign(keys_permuted=frame["kappa"])}})  # fmt: skip
    heat = curvature_difference(same)["data"][0]
    assert (heat["zmin"], heat["zmax"]) == (-1.0, 1.0)


def test_without_the_second_map_the_first_stays(source):
    frame = source.tables["curvature"].drop(columns="keys_permuted")
    tables = {**source.tables, "curvature": frame}
    alone = type(source)(**{**vars(source), "tables": tables})
    assert curvature(alone, "kappa")
    with pytest.raises(Missing, match="keys_permuted"):
        curvature_difference(alone)
    empty = frame.assign(keys_permuted=pd.Series(math.nan, index=frame.index))
    tables = {**source.tables, "curvature": empty}
    with pytest.raises(Missing):
        curvature_difference(type(source)(**{**vars(source), "tables": tables}))


def test_page_and_both_back_ends_draw_three_maps_and_the_bent_axis(run):
    page = report_html(run, PAGE)
    for name in ("heads", "heads-null", "heads-difference", "curvature-difference"):
        assert page.count(f'id="plot-{name}"') == 1
    figures = Figures(run, PAGE)
    assert "white is 0" in figures["curvature"].caption
    assert "white is 0" in figures["heads"].caption
    assert "logarithmic above" in figures["depth_loss"].caption
    for name in ("heads", "curvature"):
        assert sum(t.type == "heatmap" for t in figures.draw(name, "plotly").data) == 3
    drawn = figures.draw("depth_loss", "matplotlib")
    upper = next(ax for ax in drawn.axes if "loss" in ax.get_ylabel())
    labels = {text.get_text(): place for text, place in
              zip(upper.get_yticklabels(), upper.get_yticks(), strict=True)}  # fmt: skip
    assert labels["0.5"] == 0.5
    assert labels["2"] == bent(2.0)
    assert "<br>" not in upper.get_ylabel()


def test_a_figure_without_a_box_is_linked_to_the_section_of_its_title():
    section = '<h2 id="map-heading">The map</h2>'
    link = '<a data-figure="other">The map</a>'
    assert with_links(link + section).startswith('<a href="#map">The map</a>')
    assert with_links('<a data-figure="other">No such</a>' + section).startswith("No such<h2")


@pytest.mark.parametrize("place", ["plot-some_long_fits", "plot-some-long-fits", "plot-long_fits"])
def test_a_finding_links_to_a_figure_whose_name_has_several_words(place):
    body = f'<a data-figure="some_long_fits">The fits</a><div class="plot" id="{place}"></div>'
    assert with_links(body).startswith(f'<a href="#{place}">The fits</a>')
