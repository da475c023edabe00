"""The page of coupled replicas: numbers of the tables, or the reason, and text as text."""

import base64
import io
import json
import re
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from matplotlib.image import imread
from tests.instruments.audit.synthetic_flow import HOSTILE
from tests.instruments.heads.synthetic_geometry import write_geometry
from tests.instruments.sync.synthetic_replica import (
    CLASSES,
    COUPLINGS,
    FLAT,
    LAYERS,
    LETTING_GO,
    OPTIONAL,
    SILENT,
    STEPS,
    write_replicas,
)
from tests.report.test_page import PNG, Structure

from flowscope.instruments.audit.page import PAGE as AUDIT
from flowscope.instruments.heads.page import PAGE as HEADS
from flowscope.instruments.sync.commitment.curves import (
    agreement_curves,
    agreement_figure,
    scale_figure,
    smooth_fit,
)
from flowscope.instruments.sync.commitment.figures import commitment_listing
from flowscope.instruments.sync.commitment.strip import paired_samples
from flowscope.instruments.sync.internal_gap.curves import (
    beyond_null,
    energy_figure,
    gap_figure,
    gap_panel,
    gap_range,
)
from flowscope.instruments.sync.internal_gap.figures import gap_caption
from flowscope.instruments.sync.page import PAGE, silent_replicas
from flowscope.instruments.sync.propagation.figures import (
    mode_caption,
    mode_figure,
    propagation_choices,
    propagation_figure,
)
from flowscope.instruments.sync.series import rows_of, series_of
from flowscope.instruments.sync.synchronization_gap.figures import replica_claims
from flowscope.lab import registry
from flowscope.records import Manifest, Measurement, Missing, Run
from flowscope.report import render, report_html
from flowscope.report.drawing.canvas import png
from flowscope.report.escaping import html_text, json_island, script_hash
from flowscope.report.parts.strips import MOST_BYTES, strip_png
from flowscope.report.source import read_source

EVERY = (*PAGE.tables, *PAGE.study_tables)
DRAWN = {
    "agreement": ("sync_agreement", "sync_scales"),
    "commitment": ("sync_agreement",),
    "internal_gap": ("sync_gap",),
    "energies": ("sync_energies",),
    "propagation": ("sync_propagation",),
    "mode_commitment": ("sync_modes",),
}
SMALL = {"couplings": (0.5,), "layers": 3, "classes": ("coat",)}


@pytest.fixture(scope="module")
def run(tmp_path_factory, quick_flush):
    """Run of replicas with every table, hostile text and a study."""
    return write_replicas(tmp_path_factory.mktemp("sync") / "run", study=True)


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


def islands(page):
    found = re.findall(r'id="data-([\w-]+)">(.*?)</script>', page, re.S)
    return {name: json.loads(text) for name, text in found}


def test_the_page_is_about_replicas_in_the_asked_order(structure, page):
    assert "flowscope · coupled replicas" in structure.text
    assert "depth audit" not in structure.text
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page) == [
        "Findings",
        "Verdicts",
        "What was measured",
        "What the source says, what we measure",
        "When is it decided that two replicas end up the same?",
        "Is coarse structure decided before fine detail?",
        "The internal gap, by layer",
        "Energy of the modes over time",
        "Pairs of samples",
        "How a block multiplies a difference",
        "Predicted and measured commitment",
        "Not measured",
        "Where this comes from",
    ]


def test_the_head_says_the_size(structure):
    for fact in ("pairs 8", f"reverse steps {STEPS}", "g 0, 0.1, 0.3, 1", "classes sneaker, coat"):
        assert fact in structure.text
    assert "bundled encoder, 64 features" in structure.text


def test_verdicts_of_replicas_count_pairs_and_those_of_heads_prompts(page, tmp_path):
    verdicts = re.search(r'id="verdicts".*?</section>', page, re.S)[0]
    assert verdicts.count("<dt>pairs</dt>") == 2
    assert "<dt>prompts</dt>" not in verdicts
    heads = report_html(write_geometry(tmp_path / "heads", size=(1, 1)), HEADS)
    assert "<dt>prompts</dt>" in heads
    assert "choices" not in re.sub(r"<script>.*?</script>", "", heads, flags=re.S)


def test_every_element_is_closed_and_every_identifier_is_used_once(structure):
    assert structure.wrong == []
    assert structure.open == []
    assert len(structure.ids) == len(set(structure.ids))
    steps = zip(structure.headings, structure.headings[1:], strict=False)
    assert all(after <= before + 1 for before, after in steps)


def test_only_the_scripts_of_the_policy_can_run_and_links_stay_here(page, structure):
    policy = re.search(r"script-src ([^;]*);", page)[1].split()
    programs = [text for kind, text in structure.scripts if kind != "application/json"]
    assert [script_hash(text) for text in programs] == policy
    assert len(programs) == 5 + len(PAGE.scripts)
    assert structure.handlers == []
    assert all(link.startswith(("#", "tables/", "data:image/png")) for link in structure.links)


def test_hostile_text_is_text(page, structure):
    assert HOSTILE not in page
    assert f"{SILENT}{HOSTILE}" in structure.text
    assert f"<option>{html_text(CLASSES[1])}" in page


def test_the_page_is_the_same_every_time_and_small(run, page, tmp_path):
    assert report_html(write_replicas(tmp_path / "again", study=True), PAGE) == page
    assert len(page.encode()) < 6_000_000


def test_a_page_of_a_large_model_is_below_six_megabytes(tmp_path):
    run = write_replicas(tmp_path / "run", couplings=(0.1, 0.3, 0.5, 0.7, 0.9, 1.0), layers=28,
                         pairs=32, size=(3, 96, 96))  # fmt: skip
    assert len(report_html(run, PAGE).encode()) < 6_000_000


def test_agreement_curves_hold_the_table(source):
    table = source.tables["agreement"].query("label == 0 and measure == 'feature'")
    picture = json.loads(json_island(agreement_figure(source, 0.0)))
    go.Figure(picture)
    lines = [t for t in picture["data"] if t["mode"] == "lines+markers"]
    assert len(lines) == len(COUPLINGS) + 1
    for line, g in zip(lines, [*COUPLINGS, 0.0], strict=True):
        own = table[table["g"] == g]
        assert line["x"] == list(LETTING_GO)
        np.testing.assert_allclose(line["y"], own["value"], rtol=1e-3)
        assert line["line"]["dash"] == ("dash" if g == 0 else "solid")
    bands = [t for t in picture["data"] if t.get("fill") == "toself"]
    assert max(bands[0]["y"]) == pytest.approx(table[table["g"] == 0.1]["high"].max(), rel=1e-3)


def test_midpoints_stand_below_their_curves_with_their_interval(source):
    picture = agreement_figure(source, 0.0)
    marks = [t for t in picture["data"] if t.get("yaxis") == "y2"]
    fits = source.tables["commitment"].query("label == 0 and measure == 'feature'")
    for mark, (_, fit) in zip(marks, fits.iterrows(), strict=True):
        assert mark["x"] == [pytest.approx(fit["midpoint"], rel=1e-3)]
        ends = mark["error_x"]
        assert mark["x"][0] - ends["arrayminus"][0] == pytest.approx(fit["low"], rel=1e-3)
        assert mark["x"][0] + ends["array"][0] == pytest.approx(fit["high"], rel=1e-3)
    assert [mark["y"] for mark in marks] == [[0], [1], [2], [3]]


def test_a_curve_without_transition_has_no_midpoint_and_says_so(source):
    picture = agreement_figure(source, 1.0)
    marks = [t for t in picture["data"] if t.get("yaxis") == "y2"]
    assert [len(mark["x"]) for mark in marks] == [1, 1, 0, 1]
    assert [note["text"] for note in picture["layout"]["annotations"]] == ["no transition"]
    assert smooth_fit(agreement_curves(source, 1.0)[2]) == ([], [])


def test_the_drawn_sigmoid_is_the_fitted_one_between_the_steps(source):
    own = agreement_curves(source, 0.0)[0]
    x, y = map(np.array, smooth_fit(own))
    middle = own.fit["midpoint"].item()
    assert len(x) > 3 * len(LETTING_GO)
    np.testing.assert_allclose(y, 0.2 + 0.75 / (1 + np.exp(-(x - middle) / 3.5)), atol=1e-6)
    other = type(own)(**{**vars(own), "fit": own.fit.assign(midpoint=middle + 9)})
    assert smooth_fit(other)[0] == list(LETTING_GO)  # what does not belong together is not bent


def test_scales_have_a_panel_for_each_coupling_and_a_list_of_classes(source, page):
    picture = scale_figure(source, 0.0, series_of(source, "agreement")[-1])
    own = source.tables["agreement"].query("label == 0 and control and measure == 'fine'")
    lines = [t for t in picture["data"] if t["mode"] == "lines+markers"]
    np.testing.assert_allclose(lines[1]["y"], own["value"], rtol=1e-3)
    names = " ".join(f"scale-{k}" for k in range(4))
    assert f'<select data-plots="{names}">' in page
    held = islands(page)
    assert len(held["choices-scale-0"]) == len(CLASSES)
    assert held["choices-scale-0"][0] == {"data": [{}] * 8, "layout": {}}
    assert held["choices-scale-0"][1]["data"][2]["y"] != held["scale-0"]["data"][2]["y"]


def test_the_table_of_times_has_intervals_or_the_outcome(source, structure):
    shown = commitment_listing(source)
    assert len(shown) == len(CLASSES) * (len(COUPLINGS) + 1)
    first = shown.iloc[0]
    assert first["τ spec (features)"] == "25.2 [22.7, 28.2]"
    assert first["gap (steps)"] == "13 [9, 17.5]"
    row = shown.iloc[6]
    assert set(row[2:]) == {"no transition"}
    assert FLAT in structure.text


def test_the_table_of_times_names_no_class_where_there_is_one(tmp_path):
    run = write_replicas(tmp_path / "run", **SMALL)
    assert "class" not in commitment_listing(read_source(run, PAGE))
    assert '<select data-plots="agreement"' not in report_html(run, PAGE)


def test_the_gap_by_depth_holds_the_table_and_marks_what_leaves_its_null(source):
    frame = source.tables["internal_gap"]
    picture = json.loads(json_island(gap_figure(source)))
    go.Figure(picture)
    for trace, g in zip(picture["data"], (0.0, *COUPLINGS), strict=True):
        own = frame[frame["g"] == g]
        drawn = np.array(trace["y"], dtype=float)
        np.testing.assert_allclose(drawn, own["log_gap"], rtol=1e-3)
        outside = (own["log_gap"] > own["null_high"]) | (own["log_gap"] < own["null_low"])
        assert beyond_null(own) == list(outside)
        opened = [mark.endswith("-open") for mark in trace["marker"]["symbol"]]
        assert opened == [not out for out in outside]
    assert any(beyond_null(frame))


def test_a_panel_has_null_interval_and_the_naive_ratio_on_one_scale(source):
    frame = source.tables["internal_gap"]
    every = series_of(source, "internal_gap")
    null, naive, interval, line = gap_panel(source, every[0])["data"]
    own = frame[frame["g"] == 0]
    assert (max(null["y"]), min(null["y"])) == (0.4, -0.38)
    np.testing.assert_allclose(naive["y"], np.log(own["naive"]), rtol=1e-3)
    assert max(interval["y"]) == pytest.approx(own["high"].max(), rel=1e-3)
    assert line["line"]["color"] != naive["line"]["color"]
    ranges = {tuple(gap_panel(source, one)["layout"]["yaxis"]["range"]) for one in every}
    assert len(ranges) == 1
    wild = gap_range(frame.assign(naive=1e9))
    assert wild[1] < 3


def test_captions_say_null_contrary_basis_and_the_smallest_detectable_gap(source, page):
    caption = gap_caption(source)
    frame = source.tables["internal_gap"]
    beyond = sum(beyond_null(frame[frame["g"] == 0]))
    assert f"{beyond} of {LAYERS} layers at g = 0" in caption.null
    assert "over layers: 0.52 at g = 0 (a ratio of 1.68), 0.52 at g = 0.1" in caption.null
    assert "E86" in caption.seen
    assert "n = 8 pairs; bands of 2 modes" in caption.basis
    figures = len(re.findall("<figure", page))
    assert figures == 7
    for lead in ("Null.", "Would count against it.", "Basis."):
        assert page.count(f"<strong>{lead}</strong>") == figures
    assert "95\u00a0% level: bootstrap over pairs (1000 resamples)" in page


def test_energies_of_every_layer_can_be_chosen_and_one_near_the_end_is_shown(source, page):
    held = islands(page)
    table = source.tables["energies"]
    assert len(held["choices-energies"]) == LAYERS
    assert "<option selected>layer 15</option>" in page
    own = table.query("layer == 15 and g == 0.3")
    lead, trail, size = (held["energies"]["data"][k] for k in (4, 5, 10))
    for trace, name in ((lead, "lead"), (trail, "trail"), (size, "difference")):
        np.testing.assert_allclose(trace["y"], own[name], rtol=1e-3)
    assert (lead["x0"], lead["dx"]) == (0, 1)
    fourth = held["choices-energies"][3]["data"][5]["y"]
    np.testing.assert_allclose(fourth, table.query("layer == 4 and g == 0.3")["trail"], rtol=1e-3)
    assert held["energies"]["layout"]["yaxis"]["type"] == "log"


def test_steps_that_are_not_even_are_drawn_where_they_are(source):
    table = source.tables["energies"]
    uneven = energy_figure(changed(source, energies=table[table["step"] != 3]), 1.0)
    assert uneven["data"][0]["x"][:4] == [0, 1, 2, 4]
    go.Figure(json.loads(json_island(uneven)))


def test_the_strip_holds_the_images(source, page):
    strip = paired_samples(source)
    images = source.arrays["strip"]["images"]
    assert strip.rows == [*(f"g = {g:g}" for g in COUPLINGS), "control"]
    assert strip.columns == [str(step) for step in LETTING_GO[::2]]
    encoded = re.search(r"data:image/png;base64,([^\"]+)", page)[1]
    sheet = imread(io.BytesIO(base64.b64decode(encoded)))
    height, width = images.shape[-2:]
    tall, wide = 2 * height + 5, width + 4
    for i, j, k in ((0, 0, 0), (1, 3, 1), (3, 5, 0)):
        top, left = i * tall + k * (height + 1), j * wide
        cell = sheet[top : top + height, left : left + width, 0]
        np.testing.assert_allclose(cell, images[i, j, k, 0] / 2 + 0.5, atol=3e-3)


def test_large_images_are_averaged_and_the_page_says_so(source):
    rng = np.random.default_rng(3)
    images = rng.uniform(-1, 1, (3, 5, 2, 3, 130, 130)).astype(np.float32)
    images[0, 0, 0, :, :3, :3] = 1.0
    arrays = {"strip": {"images": images, "g": np.array([0.1, 1, 0]), "steps": np.arange(5)}}
    strip = paired_samples(changed(source, arrays))
    assert strip.shrunk == 3
    assert strip.images.size <= 1.1 * MOST_BYTES
    assert strip.images[0, 0, 0, 0, 0, 0] == pytest.approx(1)
    expected = images[1, 2, 1, 2, 3:6, 6:9].mean() / 2 + 0.5
    assert strip.images[1, 2, 1, 1, 2, 2] == pytest.approx(expected, abs=1e-6)
    edge = images[2, 4, 0, 1, 129:, 129:].mean() / 2 + 0.5
    assert strip.images[2, 4, 0, -1, -1, 1] == pytest.approx(edge, abs=1e-6)
    assert strip_png(strip).startswith(PNG)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"g": np.zeros(1)}, "hold no images, steps"),
        ({"images": np.zeros((1, 2, 2, 2, 4, 4))}, "1 × 2 × 2 × 2 × 4 × 4"),
        ({"images": np.zeros((1, 2, 3, 1, 4, 4))}, "should be rows"),
        ({"images": np.zeros((2, 2, 2, 1, 4, 4))}, "not all of one size"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_in_words(source, arrays, says):
    whole = {"g": np.zeros(1), "steps": np.zeros(2), **arrays} if "images" in arrays else arrays
    with pytest.raises(Missing, match=says):
        paired_samples(changed(source, {"strip": whole}))


def test_undefined_pixels_are_grey_and_beyond_the_range_is_cut(source):
    images = np.full((1, 1, 2, 1, 2, 2), np.nan, dtype=np.float32)
    images[0, 0, 1] = 7.0
    arrays = {"strip": {"images": images, "g": np.zeros(1), "steps": np.zeros(1)}}
    strip = paired_samples(changed(source, arrays))
    assert strip.images[0, 0, 0].mean() == pytest.approx(0.9)
    assert strip.images[0, 0, 1].mean() == 1


def test_gains_and_their_parts_hold_the_table(source):
    one, step = propagation_choices(source)[1]
    picture = propagation_figure(source, one, step)
    go.Figure(json.loads(json_island(picture)))
    own = source.tables["propagation"].query("g == 0.1 and band == 'trail'")
    gain, direct, routing, query, key = (picture["data"][k] for k in (1, 6, 7, 8, 9))
    np.testing.assert_allclose(gain["y"], own["gain"], rtol=1e-3)
    np.testing.assert_allclose(direct["y"], own["direct"] - 1, rtol=1e-3, atol=1e-4)
    parts = sum(np.array(part["y"]) for part in (direct, routing, query, key))
    np.testing.assert_allclose(parts + 1, gain["y"], atol=2e-3)


def test_modes_without_a_step_are_counted_and_not_drawn(source):
    frame = source.tables["mode_commitment"]
    picture = mode_figure(source)
    go.Figure(json.loads(json_island(picture)))
    drawn = sum(len(trace["x"]) for trace in picture["data"][1:])
    none = int(frame["predicted"].isna().sum())
    assert drawn == len(frame) - none > 0
    said = mode_caption(source).basis
    assert f"{drawn} of {len(frame)} modes drawn; {none} have no such pair of steps" in said
    assert picture["data"][0]["x"] == picture["data"][0]["y"]


def test_claims_show_both_sides_the_answer_and_its_reason(source, page, structure):
    assert "004 says" in structure.text
    assert "we measure on this model" in structure.text
    rows = re.search(r'id="claims".*?</section>', page, re.S)[0]
    for look in ("holds", "partly", "fails", "abstains"):
        assert rows.count(f'<span class="chip {look}">') == 1
    assert "yes: 1, partly: 1, no: 1, abstains: 1 (of 4)" in rows
    assert "interval [0.01, 0.61], n = 8 pairs" in rows
    numbers = source.tables["synchronization_gap"].assign(measured=0.123456)
    assert "0.123<" in replica_claims(changed(source, synchronization_gap=numbers))


def test_a_plain_run_has_no_claims(tmp_path):
    page = report_html(write_replicas(tmp_path / "run", **SMALL), PAGE)
    assert "004 says" not in page
    assert "synchronization_gap" not in page


def test_silent_rows_are_listed_by_reason_and_no_transition_is_not_among_them(source):
    found = dict(silent_replicas(source))
    assert any(what.startswith("internal gap, 1 row (g = 1, layer 2)") for what in found)
    assert not any(FLAT in why for why in found.values())


def test_a_table_with_a_reason_for_every_row_is_one_line(source):
    frame = source.tables["mode_commitment"].copy()
    frame["status"], frame["because"] = "abstained", [f"reason {k}" for k in range(len(frame))]
    found = dict(silent_replicas(changed(source, mode_commitment=frame)))
    told = [why for what, why in found.items() if what.startswith("mode commitment")]
    assert told == [f"{len(frame)} reasons, e.g. reason 0; see tables/mode_commitment.csv"]


def test_couplings_have_one_look_on_the_whole_page(source):
    looks = {}
    for table in PAGE.tables:
        for one in series_of(source, table):
            looks.setdefault((one.g, one.control), set()).add((one.colour, one.symbol, one.dash))
    assert all(len(found) == 1 for found in looks.values())
    assert len({next(iter(found)) for found in looks.values()}) == len(looks)
    order = [one.label for one in series_of(source, "agreement")]
    assert order == ["g = 0.1", "g = 0.3", "g = 1", "control"]


@pytest.mark.parametrize("name", EVERY)
def test_a_missing_table_is_named_and_the_rest_is_there(tmp_path, name):
    run = write_replicas(tmp_path / "run", study=True, without=(name,), **SMALL)
    page = report_html(run, PAGE)
    study = name in PAGE.study_tables  # without it the run is no study
    assert (f"no table “{name}”" in page) is not study
    assert (f"table {name}</th>" in page) is not study
    assert Structure(page).wrong == []
    assert not any(f"table {other}</th>" in page for other in (*AUDIT.tables, *OPTIONAL))


@pytest.mark.parametrize("name", [*EVERY, *OPTIONAL])
@pytest.mark.parametrize("damage", ["no rows", "one column", "no numbers"])
def test_a_poor_table_is_no_error(tmp_path, name, damage):
    whole = write_replicas(tmp_path / "run", study=True, **SMALL)
    bare = Run.create(tmp_path / "bare", whole.read_manifest())
    frame = whole.read_table(name)
    numbers = frame.select_dtypes("number").columns.difference(["layer", "g", "label", "step"])
    frames = {
        "no rows": frame.iloc[:0],
        "one column": pd.DataFrame({"g": [0.5, 0.5]}),
        "no numbers": frame.assign(**dict.fromkeys(numbers, float("nan"))),
    }
    for other in (*EVERY, *OPTIONAL):
        bare.write_table(other, frames[damage] if other == name else whole.read_table(other))
    bare.write_arrays("strip", whole.read_arrays("strip"))
    page = report_html(bare, PAGE)
    assert Structure(page).wrong == []
    for picture in islands(page).values():
        if isinstance(picture, dict):
            go.Figure(picture)
    for picture in DRAWN.get(name, ()):
        with suppress(Missing):
            png(read_source(bare, PAGE), picture)


@pytest.mark.parametrize("name", OPTIONAL)
def test_what_a_run_may_lack_has_no_section(tmp_path, name):
    page = report_html(write_replicas(tmp_path / "run", without=OPTIONAL, **SMALL), PAGE)
    assert name not in re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert "Predicted and measured" not in page
    assert "How a block multiplies" not in page


def test_what_abstained_says_why_in_its_place(tmp_path):
    run = write_replicas(tmp_path / "run", without=("strip", "internal_gap"), **SMALL)
    reasons = {"internal_gap": "too few <pairs>", "strip": "the latents have <4> channels"}
    run.write_measurements([Measurement.abstained(name, text) for name, text in reasons.items()])
    page = report_html(run, PAGE)
    for text in reasons.values():
        assert f"Not shown: {html_text(text)}." in page


def test_an_empty_run_of_replicas_is_a_page_that_says_so(tmp_path):
    page = report_html(
        Run.create(tmp_path / "run", Manifest(config_resolved={"command": "sync"})), PAGE
    )
    assert "flowscope · coupled replicas" in page
    assert all(f"table {name}</th>" in page for name in PAGE.tables)
    assert "no arrays “strip”" in page
    assert not any(f"table {name}</th>" in page for name in AUDIT.tables)


def test_render_writes_the_pictures_of_replicas_and_no_others(tmp_path):
    run = write_replicas(tmp_path / "run", **SMALL)
    first = {path: path.read_bytes() for path in render(run, PAGE, with_png=True)}
    names = {f"figures/{name}.png" for name in PAGE.figures} | {"report.html"}
    assert {path.relative_to(run.folder).as_posix() for path in first} == names
    assert all(content.startswith(PNG) for path, content in first.items() if path.suffix == ".png")
    assert {path: path.read_bytes() for path in render(run, PAGE)} == first
    pages = [one.resolve(one.page) for one in registry.instruments()]
    assert not any(set(PAGE.figures) & set(page.figures) for page in pages if page is not PAGE)
    (run.folder / "tables" / "energies.csv").unlink()
    with pytest.raises(Missing):
        png(read_source(run, PAGE), "sync_energies")
    render(run, PAGE)
    assert not (run.folder / "figures" / "sync_energies.png").exists()


def test_rows_of_a_coupling_are_not_those_of_the_control(source):
    control = series_of(source, "agreement")[-1]
    rows = rows_of(source.tables["agreement"], control)
    assert set(rows["control"]) == {True}
    assert len(rows) == len(CLASSES) * 3 * len(LETTING_GO)
    inside = series_of(source, "internal_gap")[0]
    assert (inside.g, inside.control) == (0.0, False)
    assert rows_of(source.tables["agreement"], inside).empty


def test_statements_with_a_rule_are_shown_as_every_study_shows_them(source):
    rows = [("order", "§4.1", f"coarse first {HOSTILE}", "13 steps", "cannot be told", "interval")]
    names = ["item", "where", "says", "measured", "agrees", "rule"]
    own = changed(source, synchronization_gap=pd.DataFrame(rows, columns=names))
    shown = replica_claims(own)
    assert '<td data-label="004 says">coarse first &lt;/script&gt;' in shown
    assert "How each answer was decided" in shown
    assert "tables/synchronization_gap.csv" in shown


def test_effects_of_the_coupling_and_the_joint_level_are_said_where_they_were_judged(tmp_path):
    bare = write_replicas(tmp_path / "bare", without=("coupling_effect",), **SMALL)
    assert "What the coupling moves" not in report_html(bare, PAGE)
    run = write_replicas(tmp_path / "run", without=("internal_gap",), **SMALL)
    whole = read_source(write_replicas(tmp_path / "whole", **SMALL), PAGE).tables["internal_gap"]
    run.write_table("internal_gap", whole.assign(p_all=[0.01, 0.3, 0.9] * 2))
    text = Structure(report_html(run, PAGE)).text
    assert "7.2 [3.1, 11]" in text
    assert f"{FLAT}{HOSTILE}" in text
    assert "Corrected for all layers of a coupling, 2 of 6 remain" in text
    assert "over all layers 0.3" in report_html(run, PAGE)


@pytest.mark.parametrize("name", ["tau_spec", "internal gap"])
def test_a_part_that_abstained_as_a_whole_says_why(tmp_path, name):
    run = write_replicas(tmp_path / "run", without=("agreement", "internal_gap"), **SMALL)
    run.write_measurements([Measurement.abstained(name, "the <reason>")])
    assert "Not shown: the &lt;reason&gt;." in report_html(run, PAGE)


def test_methods_of_intervals_are_said_once(page):
    said = re.sub(r"<script.*?</script>|<[^>]+>", "", page, flags=re.S)
    assert said.count("bootstrap over pairs") == said.count("jackknife") == 1
    assert "where a caption says nothing else" not in said
