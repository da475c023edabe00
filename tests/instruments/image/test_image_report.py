"""The page of an image model: numbers of the tables, or the reason, and text as text."""

import base64
import io
import json
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread
from tests.instruments.audit.synthetic import write_run
from tests.instruments.audit.synthetic_flow import HOSTILE
from tests.instruments.image.synthetic_image import (
    BINS,
    CLASSES,
    COUNTS,
    DOUBLING,
    IMAGES,
    LAMS,
    LEVELS,
    NASTY,
    NO_ROTATION,
    SINGULAR,
    STEPS,
    UNRESOLVED,
    write_images,
)
from tests.report.test_page import PNG, Structure

from flowscope.instruments.audit.page import PAGE as AUDIT
from flowscope.instruments.image.axes import clock_of
from flowscope.instruments.image.information.figures import (
    information_caption,
    information_figure,
    window_of,
)
from flowscope.instruments.image.page import PAGE, silent_images
from flowscope.instruments.image.parity.figures import (
    above_null,
    parity_caption,
    parity_channels,
    parity_figure,
    paths_listing,
    sample_strip,
    smoothness_figure,
)
from flowscope.instruments.image.rotation.figures import rotation_figure
from flowscope.instruments.image.step_sizes.doublings import doublings, weak_error_figure
from flowscope.instruments.image.step_sizes.figures import family_caption, family_figure, winners
from flowscope.instruments.image.strips import channels_shown
from flowscope.instruments.image.uturn.figures import uturn_figure, uturn_strip
from flowscope.lab import registry
from flowscope.records import Manifest, Measurement, Missing, Run
from flowscope.report import render, report_html
from flowscope.report.drawing.canvas import png
from flowscope.report.escaping import html_text, json_island, script_hash
from flowscope.report.source import read_source

DRAWN = {
    "parity": "image_parity",
    "step_budget": "image_step_budget",
    "weak_error": "image_weak_error",
    "smoothness": "image_smoothness",
    "rotation": "image_rotation",
    "information": "image_information",
    "uturn": "image_uturn",
    "family": "image_family",
    "samples": "image_samples",
    "uturn_strip": "image_uturn_strip",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory, quick_flush):
    """Run with every table, one channel, closed forms, hostile text and a study."""
    return write_images(tmp_path_factory.mktemp("image") / "run", study=True)


@pytest.fixture(scope="module")
def source(run):
    return read_source(run, PAGE)


@pytest.fixture(scope="module")
def page(run):
    return report_html(run, PAGE)


@pytest.fixture(scope="module")
def structure(page):
    return Structure(page)


@pytest.fixture(scope="module")
def bare(tmp_path_factory, quick_flush):
    """Three channels, no classes, no closed form, no rotation, no noise at the last time."""
    return write_images(tmp_path_factory.mktemp("image") / "bare", channels=3, labelled=False,
                        exact=False, without=("rotation",), ends=True, images=96)  # fmt: skip


@pytest.fixture(scope="module")
def bare_page(bare):
    return report_html(bare, PAGE)


def changed(source, arrays=None, **tables):
    return replace(
        source,
        tables={**source.tables, **tables},
        arrays=source.arrays if arrays is None else arrays,
    )


def drawable(picture):
    """The picture as the browser gets it, accepted by plotly."""
    whole = json.loads(json_island(picture))
    go.Figure(whole)
    return whole


def on(picture, axis, mode="lines+markers"):
    return [t for t in picture["data"] if t["yaxis"] == axis and t["mode"] == mode]


def test_the_page_is_about_an_image_model_in_the_asked_order(structure, page):
    assert "flowscope · image model" in structure.text
    assert "depth audit" not in structure.text
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page) == [
        "Findings",
        "Verdicts",
        "What was measured",
        "What the source says, what we measure",
        "Do ODE and SDE give the same distribution?",
        "Samples side by side",
        "Does the error fall at first order?",
        "How smooth are the paths?",
        "Does the learned score rotate?",
        "When does the image decide its class?",
        "Add noise and remove it again",
        "From ODE to SDE at equal cost",
        "Not measured",
        "Where this comes from",
    ]


def test_head_and_body_say_what_was_measured(structure, bare_page):
    for fact in (f"images {IMAGES}", f"reverse steps {STEPS}", "space pixels", "guidance 1.5",
                 f"classes {CLASSES[0]}, {CLASSES[1]}{NASTY}"):  # fmt: skip
        assert fact in structure.text
    assert "8 principal axes of the pixels at each time" in structure.text
    seen = f"With {IMAGES} images this run could have seen an excess of 0.045 of ODE against SDE"
    assert f"{seen} and a rotation of 0.03 of the score." in structure.text
    text = Structure(bare_page).text
    assert "With 96 images this run could have seen an excess of 0.045 of ODE against SDE." in text


def test_every_element_is_closed_and_every_identifier_is_used_once(structure, bare_page):
    for own in (structure, Structure(bare_page)):
        assert own.wrong == []
        assert own.open == []
        assert len(own.ids) == len(set(own.ids))
        steps = zip(own.headings, own.headings[1:], strict=False)
        assert all(after <= before + 1 for before, after in steps)


def test_only_the_scripts_of_the_policy_can_run_and_links_stay_here(page, structure):
    policy = re.search(r"script-src ([^;]*);", page)[1].split()
    programs = [text for kind, text in structure.scripts if kind != "application/json"]
    assert [script_hash(text) for text in programs] == policy
    assert structure.handlers == []
    assert all(link.startswith(("#", "tables/", "data:image/png")) for link in structure.links)


def test_hostile_text_is_text(page, structure):
    assert HOSTILE not in page
    assert f"{UNRESOLVED}{NASTY}" in structure.text
    assert f"{SINGULAR}{NASTY}" in structure.text


def test_an_observable_with_a_hostile_name_is_text(source):
    table = source.tables["weak_error"].replace({"observable": {"mean": NASTY}})
    picture = json_island(weak_error_figure(changed(source, weak_error=table), "ode"))
    assert "<b>" not in picture
    assert "%{x}" not in picture
    own = changed(source, parity=source.tables["parity"].assign(channel=NASTY))
    assert parity_channels(own) == [NASTY]


def test_the_page_is_the_same_every_time_and_small(page, tmp_path):
    assert report_html(write_images(tmp_path / "again", study=True), PAGE) == page
    large = write_images(tmp_path / "large", channels=3, steps=50, size=96)
    assert len(report_html(large, PAGE).encode()) < 6_000_000


def test_distances_stand_above_their_null(source):
    table = source.tables["parity"]
    picture = drawable(parity_figure(source, "all"))
    for axis, name in (("y", "tv"), ("y2", "ks")):
        (line,) = on(picture, axis)
        np.testing.assert_allclose(line["x"], table["log_snr"], rtol=1e-3)
        np.testing.assert_allclose(line["y"], table[name], rtol=1e-3)
        beyond = list(table[name] > table[f"{name}_null_high"])
        assert above_null(table, name) == beyond
        assert [colour != "#ffffff" for colour in line["marker"]["color"]] == beyond
        under, band = (t for t in picture["data"] if t["yaxis"] == axis and "fill" in t)
        assert max(under["y"]) == pytest.approx(table[f"{name}_null_high"].max(), rel=1e-3)
        assert min(under["y"]) == 0
        assert max(band["y"]) == pytest.approx(table[f"{name}_high"].max(), rel=1e-3)
        top, middle = [t for t in on(picture, axis, "lines") if "fill" not in t]
        np.testing.assert_allclose(top["y"], table[f"{name}_null_high"], rtol=1e-3)
        np.testing.assert_allclose(middle["y"], table[f"{name}_null"], rtol=1e-3)


def test_the_caption_of_parity_says_its_basis_null_and_what_it_cannot_see(source):
    said, table = parity_caption(source), source.tables["parity"]
    beyond = int((table["tv"] > table["tv_null_high"]).sum())
    assert f"{beyond} of {STEPS} times by total variation" in said.seen
    assert "do not show structure between pixels" in said.seen
    assert "with the same start and different noise" in said.null
    assert f"n = {IMAGES} images; pixels in {BINS} bins" in said.basis


def test_channels_are_chosen_where_there_are_several(page, bare_page):
    assert '<select data-plots="parity">' not in page
    options = re.search(r'<select data-plots="parity">(.*?)</select>', bare_page)[1]
    names = re.findall(r"<option[^>]*>(.*?)</option>", options)
    assert names == ["all channels (mean)", "channel 0", "channel 1", "channel 2"]
    held = json.loads(re.search(r'id="data-choices-parity">(.*?)</script>', bare_page)[1])
    assert len(held) == 4


def test_a_time_without_noise_stands_at_the_end_under_its_word(bare):
    frame = read_source(bare, PAGE).tables["parity"]
    clock = clock_of(frame)
    places, texts = clock.marks
    assert texts[-1] == "image"
    assert places[-1] == clock.at([math.inf])[0] > clock.high
    (line,) = on(drawable(parity_figure(read_source(bare, PAGE), "all")), "y")
    assert line["x"][-1] == pytest.approx(places[-1], rel=1e-3)
    assert None not in line["y"]


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=8))
def test_every_time_lies_inside_the_axis_and_marks_do_too(values):
    clock = clock_of(pd.DataFrame({"log_snr": [*values, math.inf, -math.inf]}))
    low, high = clock.room
    assert all(low < place < high for place in clock.at([*values, math.inf, -math.inf]))
    places, texts = clock.marks
    assert len(places) == len(texts) <= 12
    assert all(low < place < high for place in places)


def test_errors_hold_the_table_and_their_intervals_are_of_the_size(source):
    table = source.tables["weak_error"].query("sampler == 'ode'")
    every = doublings(source, "ode")
    assert [own.name for own in every] == ["mean", "mean square", "roughness"]
    for own, name in zip(every, ("mean", "square", "roughness"), strict=True):
        rows = table[table["observable"] == name]
        np.testing.assert_allclose(own.size, rows["difference"].abs())
        inside = rows["low"] * rows["high"] <= 0
        assert list(own.rows["size_low"] == 0) == list(inside)
        assert own.rows["size"].between(own.rows["size_low"], own.rows["size_high"]).all()
    square = table[table["observable"] == "square"].iloc[0]  # a negative difference
    first = every[1].rows.iloc[0]
    assert (first["size_low"], first["size_high"]) == (-square["high"], -square["low"])


def test_slopes_are_drawn_where_they_are_resolved_and_said_in_the_key(source, page):
    picture = drawable(weak_error_figure(source, "sde"))
    line, *rest = picture["data"]
    slope = np.diff(np.log(line["y"])) / np.diff(np.log(line["x"]))
    np.testing.assert_allclose(slope, -1, atol=1e-2)
    fits, dots = rest[::2], rest[1::2]
    slope = np.diff(np.log(fits[0]["y"])) / np.diff(np.log(DOUBLING))
    np.testing.assert_allclose(slope, -1.05, atol=1e-2)
    assert set(fits[2]["y"]) == {None}
    filled = [colour != "#ffffff" for colour in dots[2]["marker"]["color"]]
    assert filled == list(source.tables["weak_error"].query(
        "sampler == 'sde' and observable == 'roughness'")["resolved"])  # fmt: skip
    assert True in filled
    assert False in filled
    order = re.search(r'id="order".*?</section>', page, re.S)[0]
    assert "mean: slope −1.05 [−1.11, −0.98]" in order
    assert order.count("roughness: slope not resolved") == 1
    assert "Why some have no slope" in order


def test_an_error_without_slopes_is_still_drawn(source):
    own = changed(source)
    del own.tables["weak_error_slope"]
    assert all(math.isnan(each.slope) for each in doublings(own, "ode"))
    drawable(weak_error_figure(own, "ode"))


def test_steps_of_both_samplers_and_their_paths(source):
    table = source.tables["smoothness"]
    lines = on(drawable(smoothness_figure(source)), "y")
    for line, name in zip(lines, ("ode", "sde"), strict=True):
        np.testing.assert_allclose(line["y"], table.query(f"sampler == '{name}'")["size"],
                                   rtol=1e-3)  # fmt: skip
    shown = paths_listing(source)
    assert list(shown["variation"]) == ["1.9 [1.86, 1.94]", "9.4 [9.21, 9.59]"]
    assert list(shown["expected"]) == ["0", "18"]


def test_rotation_has_its_controls_and_marks_what_is_told_from_none(source, structure):
    table = source.tables["rotation"].dropna(subset="normalised")
    picture = drawable(rotation_figure(source))
    gradient, planted, share = on(picture, "y", "markers")
    np.testing.assert_allclose(gradient["y"], table["gradient_control"], rtol=1e-3)
    np.testing.assert_allclose(planted["y"], table["planted_control"], rtol=1e-3)
    np.testing.assert_allclose(share["y"], table["normalised"], rtol=1e-3)
    up = np.array(share["error_y"]["array"]) + table["normalised"]
    np.testing.assert_allclose(up, table["high"])
    filled = [colour != "#ffffff" for colour in share["marker"]["color"]]
    assert filled == list(table["p_value"] < 0.05)
    (error,) = on(picture, "y2", "markers")
    np.testing.assert_allclose(error["y"], table["gradient_error"], rtol=1e-3)
    assert structure.text.count("must not be compared with that of another space") == 2
    assert "coordinates: 8 principal axes" in structure.text


def test_rotation_that_was_not_measured_says_why(bare_page, source):
    section = re.search(r'id="rotation".*?</section>', bare_page, re.S)[0]
    assert f"Not shown: {NO_ROTATION}." in section
    table = source.tables["rotation"].assign(normalised=math.nan, because="no <rank>")
    with pytest.raises(Missing, match=r"^no <rank>$"):
        rotation_figure(changed(source, rotation=table))


def test_entropy_rate_and_closed_form_hold_the_table(source):
    table = source.tables["information"]
    picture = drawable(information_figure(source))
    (entropy,), (rate,) = on(picture, "y"), on(picture, "y2")
    np.testing.assert_allclose(entropy["y"], table["entropy"], rtol=1e-3)
    np.testing.assert_allclose(rate["y"], table["rate"], rtol=1e-3)
    exact = [t for t in on(picture, "y", "lines") if "fill" not in t]
    np.testing.assert_allclose(exact[0]["y"], table["exact"], rtol=1e-3)


def test_the_window_is_where_the_middle_four_fifths_are_gained(source):
    snr = np.linspace(0, 10, 101)
    line = pd.DataFrame({"log_snr": snr, "entropy": 1 - snr / 10, "time": 100 - snr})
    window = window_of(line)
    assert (window.first, window.last) == pytest.approx((1, 9))
    assert (window.began, window.ended) == pytest.approx((99, 91))
    assert window.gained == pytest.approx(1)
    # A logistic of width w has its 10 % and 90 % at ± w log 9.
    own = window_of(source.tables["information"])
    assert (own.first, own.last) == pytest.approx((-1 - 1.2 * math.log(9), -1 + 1.2 * math.log(9)),
                                                  abs=0.1)  # fmt: skip
    (shape,) = [s for s in information_figure(source)["layout"]["shapes"] if s["type"] == "rect"]
    assert (shape["x0"], shape["x1"]) == (own.first, own.last)
    said = information_caption(source).seen
    assert "between log snr −3.6" in said
    assert "the window where guidance matters" in said


@pytest.mark.parametrize("change", [{"entropy": 0.5}, {"low": 0.0, "high": 1.0}])
def test_no_window_where_nothing_is_gained_beyond_the_interval(source, change):
    table = source.tables["information"].assign(**change)
    assert "does not fall by more than its interval" in window_of(table).reason
    own = changed(source, information=table)
    assert not any(s["type"] == "rect" for s in information_figure(own)["layout"]["shapes"])
    assert "No window is marked" in information_caption(own).seen


def test_uturns_hold_the_table_with_chance_and_closed_form(source):
    table = source.tables["uturn"]
    picture = drawable(uturn_figure(source))
    (same,), (like,) = on(picture, "y"), on(picture, "y2")
    np.testing.assert_allclose(same["y"], table["same_class"], rtol=1e-3)
    np.testing.assert_allclose(like["y"], table["correlation"], rtol=1e-3)
    chance, exact = [t for t in on(picture, "y", "lines") if "fill" not in t]
    assert set(chance["y"]) == {0.5}
    np.testing.assert_allclose(exact["y"], table["exact"], rtol=1e-3)


def test_classes_that_were_not_read_leave_no_empty_panel(bare, bare_page):
    own = read_source(bare, PAGE)
    for picture in (uturn_figure(own), family_figure(own)):
        assert "yaxis2" not in drawable(picture)["layout"]
    text = Structure(bare_page).text
    assert "Whether they return as the same class was not measured" in text
    assert "There is no accuracy, because there is no classifier." in text
    section = re.search(r'id="information".*?</section>', bare_page, re.S)[0]
    assert "closed form" not in re.sub(r' title="[^"]*"', "", section)


def test_the_family_holds_the_table(source):
    table = source.tables["family"]
    picture = drawable(family_figure(source))
    for axis, name in (("y", "accuracy"), ("y2", "tv")):
        for line, steps in zip(on(picture, axis), COUNTS, strict=True):
            rows = table[table["steps"] == steps]
            np.testing.assert_allclose(line["y"], rows[name], rtol=1e-3)
            np.testing.assert_allclose(line["x"], LAMS, atol=0.02)
    grey = next(t for t in picture["data"] if t["yaxis"] == "y2" and "fill" in t)
    assert max(grey["y"]) == 0.021


def test_the_winner_is_apart_only_from_those_whose_interval_it_does_not_meet():
    frame = pd.DataFrame({"lam": [0.0, 0.5, 1.0], "steps": 10, "accuracy": [0.9, 0.88, 0.5],
                          "accuracy_low": [0.87, 0.85, 0.4],
                          "accuracy_high": [0.93, 0.91, 0.6]})  # fmt: skip
    best = winners(frame, "accuracy", largest=True)[10]
    assert (best.lam, best.beside) == (0.0, (0.5,))
    least = winners(frame, "accuracy", largest=False)[10]
    assert (least.lam, least.beside) == (1.0, ())
    unknown = winners(frame.assign(accuracy_low=math.nan), "accuracy", largest=True)[10]
    assert unknown.beside == (0.5, 1.0)
    assert winners(frame.assign(accuracy=math.nan), "accuracy", largest=True) == {}


def test_the_caption_says_who_wins_at_each_number_of_steps(source):
    said = family_caption(source).seen
    for steps in COUNTS:
        assert f"With {steps} steps accuracy is best at λ = " in said
    assert (
        "total variation is least at λ = 0 (0.03 [0.027, 0.033], overlaps with no other λ)" in said
    )


def test_strips_hold_the_images(source, page):
    sheets = [imread(io.BytesIO(base64.b64decode(code)))
              for code in re.findall(r'" src="data:image/png;base64,([^"]+)', page)]  # fmt: skip
    for sheet, name in zip(sheets, ("samples", "uturn_strip"), strict=True):
        images = source.arrays[name]["images"]
        height, width = images.shape[-2:]
        assert sheet.shape[:2] == (len(images) * (height + 4), images.shape[1] * (width + 4))
        for i, j in ((0, 0), (1, 3)):
            top, left = i * (height + 4), j * (width + 4)
            cell = sheet[top : top + height, left : left + width, 0]
            np.testing.assert_allclose(cell, images[i, j, 0] / 2 + 0.5, atol=3e-3)
    assert sample_strip(source).rows == ["ODE", "SDE"]
    levels = [f"{level:g}".replace("-", "−") for level in LEVELS]
    assert uturn_strip(source).rows == ["before", *levels]


@pytest.mark.parametrize(("channels", "says"), [(4, "first three as red"), (2, "first alone")])
def test_latents_are_shown_by_their_first_channels(source, channels, says):
    images = np.zeros((2, 3, channels, 4, 4), dtype=np.float32)
    images[0, 1, 0] = 1
    own = changed(source, {"samples": {"images": images}})
    assert sample_strip(own).images[0, 1, 0, :, :, 0].min() == 1
    assert says in channels_shown(own, "samples")


@pytest.mark.parametrize(
    ("strip", "arrays", "says"),
    [
        (sample_strip, {}, "no arrays “samples”"),
        (sample_strip, {"images": np.zeros((2, 3, 1, 4))}, "2 × 3 × 1 × 4"),
        (sample_strip, {"images": np.zeros((3, 3, 1, 4, 4))}, "they hold 3"),
        (uturn_strip, {"images": np.zeros((3, 3, 1, 4, 4))}, "not all of one size"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_in_words(source, strip, arrays, says):
    name = "samples" if strip is sample_strip else "uturn_strip"
    with pytest.raises(Missing, match=says):
        strip(changed(source, {name: arrays}))


def test_claims_are_shown_as_every_study_shows_them(page, tmp_path):
    section = re.search(r'id="claims".*?</section>', page, re.S)[0]
    assert '<td data-label="000 says">slope −1.08 on CIFAR-10</td>' in section
    assert "about diffusion models of images" in section
    assert html_text(NASTY) in section
    assert "tables/track_i.csv" in section
    plain = report_html(write_images(tmp_path / "run"), PAGE)
    assert 'id="claims"' not in plain


def test_verdicts_ask_their_question_and_count_images(page):
    verdicts = re.search(r'id="verdicts".*?</section>', page, re.S)[0]
    assert verdicts.count('class="question"') == 3
    assert "<dt>images</dt>" in verdicts
    assert "<dt>prompts</dt>" not in verdicts


@pytest.mark.parametrize("name", [*PAGE.tables, "samples", "uturn_strip"])
def test_a_missing_part_leaves_its_reason_and_the_rest(tmp_path, name):
    run = write_images(tmp_path / "run", without=(name,), hostile=False)
    assert f"no table “{name}”" in report_html(run, PAGE) or name in ("samples", "uturn_strip",
                                                                "rotation")  # fmt: skip
    run.write_measurements([Measurement.abstained(name, "the <reason>")])
    page = report_html(run, PAGE)
    assert "Not shown: the &lt;reason&gt;." in page
    assert Structure(page).wrong == []
    if name in DRAWN:
        with pytest.raises(Missing, match=r"^the <reason>$"):
            png(read_source(run, PAGE), DRAWN[name])


def test_a_run_without_any_table_has_a_page(source, tmp_path):
    run = Run.create(tmp_path / "run", source.manifest)
    page = report_html(run, PAGE)
    assert page.count('class="missing"') >= 9
    assert "flowscope · image model" in Structure(page).text


def test_a_run_without_settings_has_a_page(tmp_path):
    run = Run.create(tmp_path / "run", Manifest(config_resolved={"command": "image"}))
    page = report_html(run, PAGE)
    assert all(f"table {name}</th>" in page for name in PAGE.tables)


def test_rows_without_a_number_are_told_at_the_end(source):
    found = dict(silent_images(source))
    slope = "weak error slope, 1 row (sampler sde, observable roughness)"
    assert found[slope] == f"{UNRESOLVED}{NASTY}"
    assert any(SINGULAR in reason for reason in found.values())


def test_a_table_of_the_same_name_has_the_purpose_that_its_page_declares(tmp_path):
    audit = read_source(write_run(tmp_path / "run"), AUDIT)
    assert "rotation" in audit.tables
    with pytest.raises(Missing, match="by layer"):
        replace(audit, tables={}).table("rotation")
    with pytest.raises(Missing, match="by time"):
        replace(audit, page=PAGE, tables={}).table("rotation")


def test_pictures_are_written_beside_the_page_the_same_every_time(tmp_path):
    run = write_images(tmp_path / "run", study=True)
    first = {path: path.read_bytes() for path in render(run, PAGE, with_png=True)}
    names = {path.relative_to(run.folder).as_posix() for path in first}
    assert names == {"report.html", *(f"figures/{name}.png" for name in PAGE.figures)}
    assert all(content.startswith(PNG) for path, content in first.items() if path.suffix == ".png")
    assert {path: path.read_bytes() for path in render(run, PAGE)} == first
    pages = [one.resolve(one.page) for one in registry.instruments()]
    assert not any(set(PAGE.figures) & set(page.figures) for page in pages if page is not PAGE)
    (run.folder / "tables" / "family.csv").unlink()
    render(run, PAGE)
    assert not (run.folder / "figures" / "image_family.png").exists()


def test_methods_of_intervals_are_said_once(page):
    said = re.sub(r"<script.*?</script>|<[^>]+>", "", page, flags=re.S)
    for method in ("reflected bootstrap", "Wilson’s", "Student’s", "bootstrap over images"):
        assert said.count(method) == 1, method
    assert "where a caption says nothing else" not in said


def test_hover_texts_use_words_of_the_page_instead_of_column_names(source):
    texts = " ".join(t for trace in parity_figure(source, "all")["data"]
                     for t in trace.get("hovertext", []))  # fmt: skip
    assert "line of the null: " in texts
    assert "null high" not in texts
    assert "total variation: " in texts
