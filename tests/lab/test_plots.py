"""``result.figures`` and ``result.plot``: names, captions, both back ends, and what is refused."""

import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib.figure
import plotly.graph_objects as go
import pytest

from flowscope.errors import InvalidInputError, Missing
from flowscope.lab.result import opened

FOLDERS = Path(__file__).parent.parent / "golden" / "folders"
SHEETS = {"token_map", "sync_strip", "image_samples", "image_uturn_strip"}
"""Figures of images or words, which matplotlib alone draws."""
LATER = {"locking_slope": "locking_slopes", "image_step_budget": "step_budget"}
"""Figures of a table that these folders of an earlier version lack."""


@pytest.fixture(params=["audit", "heads", "sync", "image"])
def result(request):
    return opened(FOLDERS / request.param)


@pytest.fixture
def audit():
    return opened(FOLDERS / "audit")


def test_every_figure_is_drawn_by_both_back_ends(result):
    for name, figure in result.figures.items():
        if name in LATER:
            with pytest.raises(Missing, match=f"no table “{LATER[name]}”"):
                result.plot(name)
            continue
        assert isinstance(result.plot(name, backend="matplotlib"), matplotlib.figure.Figure)
        assert figure.name == name
        assert figure.title
        assert len(figure.caption) > 20
        assert "Not shown" not in figure.caption
        if name in SHEETS:
            with pytest.raises(InvalidInputError, match='backend="matplotlib"'):
                result.plot(name)
        else:
            drawn = result.plot(name)
            assert isinstance(drawn, go.Figure)
            assert drawn.layout.title.text == figure.title


def test_the_same_numbers_are_in_both_figures(audit):
    layers = audit.tables.layers
    drawn = audit.plot("entropy_agreement", backend="matplotlib")
    curves = [list(ax.lines[0].get_ydata()) for ax in drawn.axes]
    assert curves == [list(layers["entropy"]), list(layers["agreement"])]
    traces = [list(t.y) for t in audit.plot("entropy_agreement").data if t.mode == "lines+markers"]
    assert traces == curves
    assert {trace.name for trace in audit.plot("variation").data} >= {"jump", "abstained"}


def test_figures_are_listed_with_their_titles(audit):
    lines = repr(audit.figures).splitlines()
    assert len(lines) == len(audit.figures) == 16
    assert lines[0].split("  ", 1)[0] == "variation"
    assert lines[0].endswith("How far each layer moves the output")
    with pytest.raises(KeyError, match="did you mean 'variation'"):
        audit.figures["variaton"]


def test_a_wrong_name_gets_the_nearest_one(audit):
    with pytest.raises(InvalidInputError, match="'curvatur'; did you mean 'curvature'"):
        audit.plot("curvatur")
    with pytest.raises(InvalidInputError, match=r"'qqq'\. It has variation, locking"):
        audit.plot("qqq")


def test_an_unknown_back_end_is_refused(audit):
    with pytest.raises(InvalidInputError, match="'plotly', 'matplotlib', found 'bokeh'"):
        audit.plot("variation", backend="bokeh")


@pytest.mark.parametrize("backend", ["plotly", "matplotlib"])
def test_a_missing_table_is_said_as_on_the_page(tmp_path, backend):
    shutil.copytree(FOLDERS / "audit", tmp_path / "run")
    for file in ("evi.csv", "evi.json"):
        (tmp_path / "run" / "tables" / file).unlink()
    result = opened(tmp_path / "run")
    with pytest.raises(Missing, match="this run has no table “evi”") as lack:
        result.plot("evi", backend=backend)
    assert result.figures["evi"].caption == f"Not shown: {lack.value.reason}."
    page = result.report().read_text()
    assert f"Not shown: {lack.value.reason}." in page
    assert 'id="plot-variation"' in page
    assert not (tmp_path / "run" / "figures" / "evi.png").exists()


def test_drawing_loads_no_torch():
    code = f"""
import sys
from flowscope.lab.result import opened
result = opened({str(FOLDERS / "heads")!r})
result.plot("dials"), result.plot("dials", backend="matplotlib"), repr(result.figures)
sys.exit(bool({{"torch", "matplotlib.pyplot"}} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
