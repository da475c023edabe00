"""Pictures drawn by matplotlib: artists, limits, scales and texts are those of the picture."""

import io
import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.colors import to_rgba

from flowscope.errors import InvalidInputError, Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.matplotlib_backend import as_matplotlib
from flowscope.report.drawing.panels import beside, with_key
from flowscope.report.drawing.traces import band, curve, dots, level, upright
from flowscope.report.escaping import plotly_text
from flowscope.report.parts.choosing import blank

FORMULA = r"$\frac{1}{$ <b>%{x}"


def picture(*traces, x=None, y=None, **more):
    axes = theme.axis("x") | (x or {}), theme.axis("y") | (y or {})
    return {"data": list(traces), "layout": theme.layout(*axes, 300, **more)}


def only(drawn):
    (ax,) = drawn.axes
    return ax


def line(x=(1, 2, 3), y=(1.0, 4.0, 9.0), **more):
    return curve(x, y, Look("a", theme.VERMILION, "dash"), **more)


def scatters(ax):
    return [c for c in ax.collections if isinstance(c, PathCollection)]


def test_a_line_has_its_data_colour_dash_and_width():
    (drawn,) = only(as_matplotlib(picture(line()))).lines
    np.testing.assert_array_equal(drawn.get_xydata(), [[1, 1], [2, 4], [3, 9]])
    assert drawn.get_color() == to_rgba(theme.VERMILION)
    assert drawn.get_linestyle() == "--"
    assert 1 < drawn.get_linewidth() < 1.8


def test_even_places_come_from_start_and_stride():
    trace = {"type": "scatter", "mode": "lines", "x0": 3, "dx": 2, "y": [1, None, 5]}
    (drawn,) = only(as_matplotlib(picture(trace))).lines
    np.testing.assert_array_equal(drawn.get_xdata(), [3, 5, 7])
    np.testing.assert_array_equal(drawn.get_ydata(), [1, math.nan, 5])


def test_marks_have_a_colour_and_a_symbol_each():
    marker = {"size": 8, "color": ["#ffffff", theme.BLUE, theme.BLUE],
              "symbol": ["circle", "square", "circle-open"],
              "line": {"width": 2, "color": theme.BLUE}}  # fmt: skip
    trace = {"type": "scatter", "mode": "markers", "x": [1, 2, 3], "y": [4, 5, 6], "marker": marker}
    ax = only(as_matplotlib(picture(trace)))
    white, full, hollow = scatters(ax)
    assert not ax.lines
    np.testing.assert_array_equal(full.get_offsets(), [[2, 5]])
    assert tuple(white.get_facecolor()[0]) == (1, 1, 1, 1)
    assert tuple(full.get_facecolor()[0]) == to_rgba(theme.BLUE)
    assert len(hollow.get_facecolor()) == 0
    assert tuple(hollow.get_edgecolor()[0]) == to_rgba(theme.BLUE)


def test_a_band_is_an_area_with_its_opacity_and_no_edge():
    (area,) = band([1, 2], [0.0, 1.0], [2.0, 3.0], theme.BLUE)
    ax = only(as_matplotlib(picture(area)))
    (patch,) = ax.patches
    np.testing.assert_array_equal(patch.get_xy()[:4], [[1, 2], [2, 3], [2, 1], [1, 0]])
    assert patch.get_facecolor()[3] == pytest.approx(0.22)
    assert patch.get_linewidth() == 0
    assert not ax.lines


def test_whiskers_end_where_the_interval_ends():
    frame = pd.DataFrame({"x": [1, 2], "y": [5, 6], "low": [4, None], "high": [7, None]})
    blue = Look("blue", theme.BLUE, symbol="circle")
    ax = only(as_matplotlib(picture(dots("x", frame, ("y", "low", "high"), blue))))
    (container,) = ax.containers
    known = [s for s in container.lines[2][0].get_segments() if np.isfinite(s).all() and len(s)]
    np.testing.assert_array_equal(known, [[[1, 4], [1, 7]]])


def test_bars_and_their_heights():
    bars = {"type": "bar", "x": [0, 1, 2], "y": [0.1, 0.5, 0.4], "marker": {"color": theme.BLUE}}
    y = {"tickformat": ".0%", "rangemode": "tozero"}
    ax = only(as_matplotlib(picture(bars, y=y)))
    assert [patch.get_height() for patch in ax.patches] == [0.1, 0.5, 0.4]
    assert ax.get_ylim()[0] == 0
    ax.figure.canvas.draw()
    assert "40%" in [text.get_text() for text in ax.get_yticklabels()]


def test_a_heat_map_has_its_cells_scale_and_limits_from_top_to_bottom():
    heat = {"type": "heatmap", "x": [0, 1, 2], "y": [1, 2], "z": [[0, 1, None], [2, 3, 4]],
            "zmin": 0, "zmax": 8, "colorscale": theme.colour_scale(),
            "colorbar": {"tickvals": [0, 8], "ticktext": ["none", "all"]}}  # fmt: skip
    drawn = as_matplotlib(picture(heat, y={"autorange": "reversed"}))
    ax, bar = drawn.axes
    (mesh,) = [c for c in ax.collections if isinstance(c, QuadMesh)]
    np.testing.assert_array_equal(mesh.get_array().filled(-1), [[0, 1, -1], [2, 3, 4]])
    assert mesh.get_clim() == (0, 8)
    assert ax.get_ylim() == (2.5, 0.5)
    assert ax.get_xlim() == (-0.5, 2.5)
    assert [text.get_text() for text in bar.get_yticklabels()] == ["none", "all"]


def test_ranges_of_logarithmic_axes_are_exponents():
    x, y = {"type": "log", "range": [-1, 2]}, {"range": [10, 0]}
    ax = only(as_matplotlib(picture(line(), x=x, y=y)))
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "linear")
    assert ax.get_xlim() == pytest.approx((0.1, 100))
    assert ax.get_ylim() == (10, 0)


def test_ticks_titles_and_notes_are_text_and_no_formula():
    x = {"tickvals": [1, 3], "ticktext": [plotly_text(FORMULA), "end"],
         "title": {"text": plotly_text(FORMULA)}}  # fmt: skip
    note = {"x": 2, "y": 4, "text": plotly_text(FORMULA), "showarrow": False, "xanchor": "left"}
    shown = with_key(
        picture(line(), x=x, annotations=[note]), [Look(label=FORMULA, colour="#000000")]
    )
    drawn = as_matplotlib(shown, FORMULA)
    ax = only(drawn)
    assert [text.get_text() for text in ax.get_xticklabels()] == [FORMULA, "end"]
    assert ax.get_xlabel() == ax.get_title(loc="left") == ax.texts[0].get_text() == FORMULA
    assert ax.texts[0].get_ha() == "left"
    assert drawn.legends[0].get_texts()[0].get_text() == FORMULA
    drawn.savefig(io.BytesIO(), format="png")  # a formula like this would be refused


def test_shapes_do_not_move_the_limits():
    shade = {"type": "rect", "xref": "x", "yref": "paper", "x0": -50, "x1": 1.5, "y0": 0, "y1": 1,
             "fillcolor": theme.PASSING}  # fmt: skip
    bare = only(as_matplotlib(picture(line())))
    ax = only(as_matplotlib(picture(line(), shapes=[shade, upright(40.0), level(99.0)])))
    assert ax.get_xlim() == bare.get_xlim()
    assert ax.get_ylim() == bare.get_ylim()
    assert len(ax.lines) == 3
    (rectangle,) = [a for a in ax.patches if a.get_width() == 51.5]
    assert rectangle.get_facecolor() == to_rgba(theme.PASSING)
    corner = rectangle.get_transform().transform((-50, 1))
    np.testing.assert_allclose(corner[1], ax.transAxes.transform((0, 1))[1])


def stacked():
    upper, lower = {"domain": [0.4, 1], "range": [0, 10]}, theme.axis("below", domain=[0, 0.3])
    x = {"anchor": "y2", "title": {"text": "steps"}}
    traces = (line(), line(y=(5, 6, 7), yaxis="y2"))
    return picture(
        *traces, x=x, y=upper, yaxis2=lower, shapes=[upright(2.0), level(6.0, yref="y2")]
    )


def test_panels_above_each_other_share_their_axis():
    upper, lower = as_matplotlib(stacked(), "Title").axes
    assert upper.get_title(loc="left") == "Title"
    assert upper.get_shared_x_axes().joined(upper, lower)
    assert (upper.get_xlabel(), lower.get_xlabel()) == ("", "steps")
    assert (upper.get_ylabel(), lower.get_ylabel()) == ("y", "below")
    assert upper.get_ylim() == (0, 10)
    assert (len(upper.lines), len(lower.lines)) == (2, 3)  # the level is in the lower one alone
    tall, low = (ax.get_subplotspec().get_gridspec().get_height_ratios() for ax in (upper, lower))
    assert tall == low == [0.6, 0.3]


def test_an_axis_that_matches_another_has_its_limits():
    whole = stacked()
    whole["layout"]["yaxis"].pop("range")
    whole["layout"]["yaxis2"]["matches"] = "y"
    upper, lower = as_matplotlib(whole).axes
    assert upper.get_ylim() == lower.get_ylim()
    assert upper.get_ylim()[0] < 1
    assert upper.get_ylim()[1] > 9


def test_panels_beside_each_other_keep_their_shapes_and_titles():
    whole = beside({"Left": stacked(), f"Right {FORMULA}": picture(line(), shapes=[level(3.0)])})
    upper, lower, right = as_matplotlib(whole, "not shown").axes
    assert [ax.get_title(loc="left") for ax in (upper, lower, right)] == [
        "Left",
        "",
        f"Right {FORMULA}",
    ]
    assert [len(ax.lines) for ax in (upper, lower, right)] == [2, 3, 2]
    assert not right.get_shared_x_axes().joined(upper, right)


def test_the_key_is_a_legend_with_the_look_of_the_page():
    entries = [("line", "median"), ("band", "interval"), ("diamond open", "control"),
               Look(label="g = 1", colour="#123456", dash="dash", symbol="square")]  # fmt: skip
    drawn = as_matplotlib(with_key(picture(line()), entries))
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "median",
        "interval",
        "control",
        "g = 1",
    ]
    first, area, mark, series = legend.legend_handles
    assert first.get_color() == to_rgba(theme.BLUE)
    assert area.get_facecolor()[3] == pytest.approx(0.22)
    assert (mark.get_marker(), mark.get_markerfacecolor(), mark.get_linestyle()) == (
        "D",
        "none",
        "None",
    )
    assert (series.get_marker(), series.get_linestyle()) == ("s", "--")
    assert len(only(drawn).lines) == 1  # entries of the key are not drawn in the panel


def test_a_picture_without_traces_shows_its_sentence():

    ax = only(as_matplotlib(blank(Missing("no rows"), 200)))
    assert [text.get_text() for text in ax.texts] == ["no rows"]
    assert not ax.xaxis.get_visible()


def test_an_unknown_type_is_named():
    with pytest.raises(InvalidInputError, match="'scatterternary'"):
        as_matplotlib(picture({"type": "scatterternary", "a": [1], "b": [1], "c": [1]}))
