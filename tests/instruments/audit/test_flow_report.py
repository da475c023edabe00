"""P1, P4 and the claims of a study: numbers of the tables, reasons where there are none."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from tests.instruments.audit.synthetic import HOSTILE, LAYERS, verdicts, write_run
from tests.instruments.audit.synthetic_flow import FREE, KINDS, SEGMENTS, TOKENS

from flowscope.instruments.audit.adequacy import figures as flow_figures
from flowscope.instruments.audit.adequacy.listings import clouds, drift_skills, skill_sums
from flowscope.instruments.audit.adequacy.sections import flow_section
from flowscope.instruments.audit.exits import figures as exit_figures
from flowscope.instruments.audit.exits.sections import depth_loss_section
from flowscope.instruments.audit.page import FIGURES as AUDIT_FIGURES
from flowscope.instruments.audit.page import PAGE
from flowscope.instruments.audit.rotation import figures as rotation_figures
from flowscope.instruments.audit.rotation.sections import rotation_section
from flowscope.instruments.audit.track_t import figures as sweep_figures
from flowscope.records import Interval, Measurement, Missing
from flowscope.report import theme
from flowscope.report.claims import claims
from flowscope.report.drawing.canvas import png
from flowscope.report.drawing.log_axes import bent, log_ticks
from flowscope.report.escaping import html_text, json_island
from flowscope.report.page import report_html
from flowscope.report.source import read_source

FIGURES = {
    "adequacy": lambda source: flow_figures.forecast(source, "onward"),
    "overlay": flow_figures.overlay,
    "budget": flow_figures.budget,
    "depth_loss": exit_figures.depth_loss,
    "rotation": rotation_figures.rotation,
    "identification": sweep_figures.identification,
    "output_temperature": sweep_figures.temperatures,
}
BOXES = {
    "adequacy": ("forecast-onward", "forecast-one-layer"),
    "overlay": ("overlay",),
    "budget": ("budget",),
    "depth_loss": ("depth-loss",),
    "rotation": ("rotation",),
    "identification": ("identification",),
    "output_temperature": ("temperature",),
}
PNGS = {"adequacy": "forecasts"}


@pytest.fixture(scope="module")
def source(run):
    return read_source(run, PAGE)


@pytest.fixture(scope="module")
def page(run):
    return report_html(run, PAGE)


def with_tables(source, **tables):
    return replace(source, tables={**source.tables, **tables})


def numbers(values):
    return [value for value in values if not math.isnan(value)]


@pytest.mark.parametrize("name", FIGURES)
def test_plotly_accepts_the_figure_as_it_stands(source, name):
    picture = json.loads(json_island(FIGURES[name](source)))
    assert len(go.Figure(picture).data) == len(picture["data"]) > 0


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_there_exactly_when_its_table_is(source, page, tmp_path, name):
    bare = write_run(tmp_path / "run", without=(name,))
    shown, picture = report_html(bare, PAGE), PNGS.get(name, name)
    for box in BOXES[name]:
        assert f'id="plot-{box}"' in page
        assert f'id="plot-{box}"' not in shown
    assert f"no table “{name}”" in shown
    with pytest.raises(Missing):
        png(read_source(bare, PAGE), picture)
    assert isinstance(png(source, picture), bytes)


@pytest.mark.parametrize("horizon", ["onward", "one layer"])
def test_forecasts_are_those_of_the_table_with_a_gap_between_segments(source, horizon):
    table = source.tables["adequacy"]
    traces = flow_figures.forecast(source, horizon)["data"]
    lines = [trace for trace in traces if "fill" not in trace]
    names = (
        [*flow_figures.FORECASTS][::-1]
        if horizon == "onward"
        else ["floor", "persistence", "lookup", "scaled", "mean", "flow"]
    )
    assert len(lines) == len(names)
    for name, line in zip(names, lines, strict=True):
        own = table[(table["horizon"] == horizon) & (table["forecast"] == name)]
        np.testing.assert_allclose(numbers(line["y"]), own["tv"])
        np.testing.assert_allclose(numbers(line["x"]), own["layer"])
        assert sum(map(math.isnan, line["x"])) == len(SEGMENTS) - 1
    bands = [trace for trace in traces if "fill" in trace]
    assert len(bands) == len(SEGMENTS)
    flow = table[(table["horizon"] == horizon) & (table["forecast"] == "flow")]
    assert {*bands[0]["y"], *bands[1]["y"]} == {*flow["low"], *flow["high"]}


def test_a_flow_that_could_not_be_integrated_is_left_out_and_said(source):
    frame = source.tables["adequacy"].copy()
    frame.loc[frame["forecast"] == "flow", ["tv", "low", "high"]] = np.nan
    stopped = with_tables(source, adequacy=frame)
    traces = flow_figures.forecast(stopped, "onward")["data"]
    assert theme.BLUE not in {trace["line"].get("color") for trace in traces}
    assert "The flow is not drawn" in flow_section(stopped)
    assert "The flow is not drawn" not in flow_section(source)


def test_each_kind_of_drift_has_its_skill_at_the_last_layer(source):
    shown = drift_skills(source)
    assert len(shown) == len(SEGMENTS) * (len(KINDS) + 5)
    ridge = shown[shown["drift"] == "ridge"].iloc[0]
    assert ridge["skill onward"] == "0.28 [0.25, 0.31]"
    assert ridge["chosen"] == "both halves"
    errors = source.tables["drifts"].query("first_layer == 3 and drift == 'ridge'")
    assert ridge["held-out error"] == ", ".join(f"{e:.3g}" for e in errors["relative_error"])
    assert set(shown[shown["drift"] != "ridge"]["chosen"]) == {""}
    changed = source.tables["adequacy"].copy()
    last = (changed["layer"] == SEGMENTS[0][1]) & (changed["forecast"] == "ridge")
    changed.loc[last & (changed["horizon"] == "onward"), "skill"] = -0.5
    again = drift_skills(with_tables(source, adequacy=changed))
    assert again[again["drift"] == "ridge"].iloc[0]["skill onward"].startswith("−0.5 ")


def test_skills_of_all_layers_are_listed_with_the_flow_of_less_data(source):
    shown = skill_sums(source).set_index("forecast")["skill"]
    assert shown["flow"] == "0.28"
    assert shown["flow, fitted on half as many prompts"] == "0.22"
    assert shown["mean step and a scale per layer"] == "0.1"
    frame = source.tables["adequacy_skill"].copy()
    frame.loc[3, "flow_half"] = np.nan
    again = skill_sums(with_tables(source, adequacy_skill=frame)).set_index("forecast")["skill"]
    assert again["flow, fitted on half as many prompts"] == "–"
    assert "What the verdict rests on" in flow_section(source)


def test_clouds_are_one_row_per_layer_under_a_fold(source):
    shown = clouds(source)
    table = source.tables["adequacy_clouds"]
    assert list(shown["layer"]) == [str(k) for a, b in SEGMENTS for k in range(a, b + 1)]
    first = table[(table["layer"] == 3) & (table["forecast"] == "persistence")].iloc[0]
    assert shown["KS, persistence"][0].startswith(f"{first['ks']:.3g} [")
    fold = re.search(r"<details><summary>Are the forecast.*?</details>", flow_section(source))[0]
    assert fold.count("<tr>") == len(shown) + 1


def test_bounds_are_those_of_the_table_and_the_share_that_says_something_is_told(source):
    table, picture = source.tables["overlay"], flow_figures.overlay(source)
    drawn = dict(zip(reversed(flow_figures.BOUNDS), picture["data"], strict=True))
    for name, trace in drawn.items():
        np.testing.assert_allclose(numbers(trace["y"]), table[name])
    assert picture["layout"]["shapes"][-1]["y0"] == 0.99
    text = flow_section(source)
    assert (
        "in 2\u00a0% of token–layer pairs for the budget and in 94\u00a0% for the restricted"
        in text
    )
    assert "exceeded 0 times" in text


def test_an_exceeded_bound_is_counted(source):
    frame = source.tables["overlay"].assign(exceeded=[2] + [0] * 20)
    assert "exceeded 2 times" in flow_section(with_tables(source, overlay=frame))


def test_without_writes_the_budget_of_a_layer_is_not_drawn(source):
    frame = source.tables["overlay"].assign(budget=np.nan, budget_informative=np.nan)
    bare = with_tables(source, overlay=frame)
    assert len(flow_figures.overlay(bare)["data"]) == len(flow_figures.BOUNDS) - 1
    assert "the writes of a block cannot be separated" in flow_section(bare)


def test_the_budget_is_thinned_and_covers_what_the_caption_says(source):
    table = source.tables["budget"]
    dots, line = flow_figures.budget(source)["data"]
    pairs = set(zip(table["budget"], table["error"], strict=True))
    assert 1000 < len(dots["x"]) <= 2000 < len(table)
    assert set(zip(dots["x"], dots["y"], strict=True)) <= pairs
    assert line["x"] == line["y"]
    covered = 100 * (table["error"] <= table["budget"]).mean()
    assert f"{covered:.2g}\u00a0% of all" in flow_section(source)
    assert f"{len(dots['x'])} of {len(table)} tokens drawn" in flow_section(source)


def test_the_rank_correlation_stands_in_the_caption(source):
    told = Measurement(name="rank correlation of forecast error and budget", values=0.41,
                       unit="1", n=17, estimator="Spearman", dtype="float64",
                       interval=Interval(low=0.2, high=0.6, level=0.95, method="b"))  # fmt: skip
    noted = replace(source, measurements=(told,), tables=source.tables)
    assert "Rank correlation 0.41 [0.2, 0.6]" in flow_section(noted)
    assert "Rank correlation" not in flow_section(source)


def test_the_last_free_layer_is_marked(source):
    picture = exit_figures.depth_loss(source)
    mark = picture["layout"]["shapes"][0]
    assert mark["x0"] == mark["x1"] == FREE
    assert picture["layout"]["annotations"][0]["text"] == f"the last {FREE} layers can be removed"
    curves = {t["yaxis"]: t["customdata"] for t in picture["data"] if "fill" not in t}
    table = source.tables["depth_loss"]
    np.testing.assert_allclose(curves["y"], table["increase"])
    np.testing.assert_allclose(curves["y2"], table["mobility"])
    assert f"The last {FREE} of {LAYERS} layers can be removed" in depth_loss_section(source)


def test_the_axis_of_the_loss_shows_small_costs_beside_large_ones(source):
    frame = source.tables["depth_loss"]
    huge = frame.assign(**{n: frame[n].where(frame["removed"] != 9, 400.0)
                           for n in ("increase", "increase_low", "increase_high")})  # fmt: skip
    picture = exit_figures.depth_loss(with_tables(source, depth_loss=huge))
    axis, (line,) = (
        picture["layout"]["yaxis"],
        (s for s in picture["layout"]["shapes"] if s["xref"] == "paper"),
    )
    drawn = next(t for t in picture["data"] if "fill" not in t and t["yaxis"] == "y")
    small = [(y, v) for y, v in zip(drawn["y"], drawn["customdata"], strict=True) if v <= 1]
    assert len(small) > 5
    assert all(y == pytest.approx(v, rel=1e-3) for y, v in small)
    assert max(drawn["y"]) < 3.2  # 0 to 1 nat has a third of the axis beside 400 nats
    ticks = dict(zip(axis["ticktext"], axis["tickvals"], strict=True))
    assert ticks["0.25"] == 0.25
    assert ticks["100"] == bent(100.0) > ticks["10"] > ticks["1"] == 1.0 == line["y0"]
    assert "log above 1" in axis["title"]["text"]


def test_a_loss_that_stays_below_one_nat_has_a_plain_axis(source):
    frame = source.tables["depth_loss"]
    names = [name for name in frame if name.startswith("increase")]
    small = frame.assign(**{name: frame[name].clip(upper=0.9) for name in names})
    picture = exit_figures.depth_loss(with_tables(source, depth_loss=small))
    assert "tickvals" not in picture["layout"]["yaxis"]
    assert all(shape["xref"] != "paper" for shape in picture["layout"]["shapes"])
    assert "log" not in picture["layout"]["yaxis"]["title"]["text"]


@pytest.mark.parametrize(
    ("free", "said"), [(0, "no layer can be removed"), (1, "the last layer can be removed")]
)
def test_few_free_layers_are_said_in_words(source, free, said):
    frame = source.tables["depth_loss"]
    changed = with_tables(source, depth_loss=frame.assign(free=frame["removed"] <= free))
    assert exit_figures.depth_loss(changed)["layout"]["annotations"][0]["text"] == said


def test_rotation_is_filled_where_it_is_detected_and_abstained_layers_are_left_out(source):
    table = source.tables["rotation"]
    ok = table[table["status"] == "ok"]
    controls, mean, share, _, least, most = rotation_figures.rotation(source)["data"]
    np.testing.assert_allclose(share["y"], ok["normalised"], rtol=1e-3)
    np.testing.assert_allclose(share["x"], ok["layer"], rtol=1e-3)
    np.testing.assert_allclose(mean["y"], ok["control"], rtol=1e-3)
    assert (min(controls["y"]), max(controls["y"])) == (0.005, 0.04)
    np.testing.assert_allclose(least["y"], ok["rotation_share"], rtol=1e-3)
    np.testing.assert_allclose(most["y"], 1 - ok["gradient_share"], rtol=1e-3)
    for trace, high, low in (
        (share, ok["high"], ok["low"]),
        (least, ok["rotation_share_high"], ok["rotation_share_low"]),
        (most, 1 - ok["gradient_share_low"], 1 - ok["gradient_share_high"]),
    ):
        np.testing.assert_allclose(np.add(trace["y"], trace["error_y"]["array"]), high, rtol=1e-3)
        np.testing.assert_allclose(
            np.subtract(trace["y"], trace["error_y"]["arrayminus"]), low, rtol=1e-2
        )
    assert {trace["yaxis"] for trace in (least, most)} == {"y2"}
    filled = [colour == theme.BLUE for colour in share["marker"]["color"]]
    assert filled == list(ok["p_adjusted"] <= 0.05)
    assert 0 < sum(filled) < len(filled)
    text = rotation_section(source)
    assert f"in {sum(filled)} of {len(ok)} layers" in text
    assert "1 layer abstained" in text
    assert "represent 70" in text
    assert "t over prompts" in text


def test_rotation_that_nowhere_could_be_read_says_why(source):
    frame = source.tables["rotation"].assign(status="abstained", because="all <noise>")
    text = rotation_section(with_tables(source, rotation=frame))
    assert html_text("rotation could be measured at no layer: all <noise>") in text
    assert "plot-" not in text


@pytest.mark.parametrize(
    ("section", "tables"),
    [
        (
            flow_section,
            ("adequacy", "adequacy_skill", "adequacy_clouds", "drifts", "overlay", "budget"),
        ),
        (depth_loss_section, ("depth_loss",)),
        (rotation_section, ("rotation",)),
    ],
)
def test_an_abstained_section_is_one_sentence_with_the_verdict_s_reason(source, section, tables):
    left = {name: table for name, table in source.tables.items() if name not in tables}
    silent = replace(source, verdicts=tuple(verdicts(True)), measurements=(), tables=left)
    text = section(silent)
    assert text.count("<p") == 1
    assert "plot-" not in text
    assert "no segment passed the gate (smallest relative variation 0.41" in text
    measured = replace(source, measurements=(), tables=left)
    assert f"no table “{tables[0]}”" in section(measured)


def test_two_verdicts_with_two_reasons_lend_none_to_a_table(source):
    lack = Missing("nothing there")
    one, two = (verdicts(True)[k] for k in (1, 4))
    other = type(two)(**{**vars(two), "statistic": Measurement.abstained("none", "another")})
    apart = replace(source, verdicts=(one, other), measurements=(), tables={})
    assert apart.withheld(lack, "P1", "P4") == lack
    assert apart.withheld(lack, "P1").reason == one.because
    assert apart.withheld(lack, "P9") == lack


def test_claims_come_first_each_with_its_answer_in_words(source, page):
    table = source.tables["track_t"]
    assert page.index('<section id="claims"') < page.index('<section id="verdicts"')
    shown = claims(source, "track_t", "000")
    rows = re.findall(r'<tr><th scope="row">.*?</tr>', shown)
    assert len(rows) == len(table)
    looks = {"yes": "holds", "no": "fails"}
    for row, (_, claim) in zip(rows, table.iterrows(), strict=True):
        assert html_text(claim["says"]) in row
        assert html_text(claim["measured"]) in row
        look = looks.get(claim["agrees"], "abstains")
        assert re.search(rf'class="chip {look}"><span[^>]*>.</span> {claim["agrees"]}<', row)
    assert "yes: 3, no: 1, cannot be told: 1, not measured: 1 (of 6)" in shown
    assert html_text(table["rule"].iloc[2]) in shown


def test_an_audit_that_is_no_study_has_no_claims(tmp_path):
    page = report_html(write_run(tmp_path / "run", study=False), PAGE)
    for anchor in ("claims", "identification", "temperature"):
        assert f'<section id="{anchor}"' not in page
    assert "track_t" not in page


def test_an_unknown_answer_is_shown_as_text_and_not_as_agreement(source):
    frame = source.tables["track_t"].assign(agrees=HOSTILE, item=HOSTILE, where=HOSTILE)
    shown = claims(with_tables(source, track_t=frame), "track_t", "000")
    assert HOSTILE not in shown
    assert html_text(HOSTILE) in shown
    assert 'class="chip holds"' not in shown


@pytest.mark.parametrize("table", ["drifts", "rotation", "adequacy_clouds", "track_t"])
def test_hostile_text_in_any_column_is_text(tmp_path, run, table):
    bare = write_run(tmp_path / "run", without=(table,))
    frame = run.read_table(table)
    kept = {"status", "chosen", "horizon"}
    named = [c for c in frame.columns if frame[c].dtype.kind not in "iufb" and c not in kept]
    assert named
    bare.write_table(table, frame.assign(**dict.fromkeys(named, HOSTILE)))
    assert HOSTILE not in report_html(bare, PAGE)
    for picture in AUDIT_FIGURES:
        png(read_source(bare, PAGE), picture)


def test_distances_lie_on_their_slope(source):
    traces = sweep_figures.identification(source)["data"]
    table = source.tables["identification"].iloc[:-1]
    expected, fit, states, _, drift = traces
    np.testing.assert_allclose(states["y"], table["state_to_next"])
    np.testing.assert_allclose(drift["y"], table["drift_to_next"])
    np.testing.assert_allclose(fit["y"], states["y"])  # they were made with that slope
    slope = np.polyfit(np.log(expected["x"]), np.log(expected["y"]), 1)[0]
    assert slope == pytest.approx(-1)
    assert expected["y"][0] == pytest.approx(states["y"][0])
    caption = sweep_figures.identification_section(source)
    assert "−0.93 for the states, −0.61 for the drift" in caption


def test_the_sweep_of_the_temperature_is_that_of_the_table(source):
    table = source.tables["output_temperature"]
    picture = sweep_figures.temperatures(source)
    curves = {t["yaxis"]: t["y"] for t in picture["data"] if "fill" not in t}
    for axis, name in zip(("y", "y2", "y3"), sweep_figures.PANELS, strict=True):
        np.testing.assert_allclose(curves[axis], table[name], rtol=1e-3)
    best = table["temperature"][table["loss"].idxmin()]
    assert f"(τ = {best:g})" in sweep_figures.temperature_section(source)


def test_captions_say_how_many_and_by_which_method(source):
    text = flow_section(source)
    basis = "n = 32 prompts"
    assert f"{TOKENS} tokens, {basis}" in text
    assert f"1024 tokens, {basis}" in depth_loss_section(source)
    assert "2048 tokens, n = 32 prompts" in rotation_section(source)
    assert "n = 256 tokens" in sweep_figures.identification_section(source)


@pytest.mark.parametrize("values", [[], [math.nan], [0.0, -1.0]])
def test_a_logarithmic_axis_of_nothing_has_no_marks(values):
    assert log_ticks(values) == []


def test_a_budget_of_nothing_is_no_figure(source):
    frame = pd.DataFrame({"error": [math.nan], "budget": [1.0]})
    with pytest.raises(Missing, match="holds no number"):
        flow_figures.budget(with_tables(source, budget=frame))
