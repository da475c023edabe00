"""The page of replicas in a browser: lists redraw their figures, nothing sticks out or fails."""

import pytest
from tests.instruments.sync.synthetic_replica import COUPLINGS, LAYERS, write_replicas
from tests.report.test_browser import Visit, browser, written  # noqa: F401

from flowscope.instruments.sync.page import PAGE

PLOTS = 1 + (len(COUPLINGS) + 1) + 1 + (len(COUPLINGS) + 1) + 1 + 1 + 1


@pytest.fixture(scope="module")
def address(tmp_path_factory, quick_flush):
    return written(write_replicas(tmp_path_factory.mktemp("sync") / "run", study=True), PAGE)


@pytest.fixture
def visit(browser, address):  # noqa: F811
    visit = Visit(browser, address, plots=PLOTS)
    yield visit
    visit.page.close()
    assert visit.wrong == []


def lines(page, name):
    return page.evaluate(
        f"document.getElementById('plot-{name}').picture.data.map((trace) => Array.from(trace.y))"
    )


def test_every_figure_is_drawn_and_named(visit):
    boxes = visit.page.locator(".plot").all()
    assert len(boxes) == PLOTS
    for box in boxes:
        assert box.locator(".chart").count() > 0, box.get_attribute("id")
        assert box.get_attribute("aria-label")


def test_a_layer_can_be_chosen_and_chosen_back(visit):
    page = visit.page
    chooser = page.locator("#energies select")
    assert chooser.input_value() == f"layer {LAYERS - 1}"
    first = lines(page, "energies")
    chooser.select_option("layer 1")
    other = lines(page, "energies")
    assert [len(line) for line in other] == [len(line) for line in first]
    assert other != first
    chooser.select_option(f"layer {LAYERS - 1}")
    assert lines(page, "energies") == first


def test_a_class_redraws_all_panels_of_the_scales(visit):
    page = visit.page
    names = [f"scale-{k}" for k in range(len(COUPLINGS) + 1)]
    before = [lines(page, name) for name in names]
    page.locator("#scales select").select_option(index=1)
    after = [lines(page, name) for name in names]
    assert all(a != b for a, b in zip(after, before, strict=True))
    assert page.locator("#plot-scale-2 .annotation").count() == 2
    page.locator("#scales select").select_option(index=0)
    assert [lines(page, name) for name in names] == before
    assert page.locator("#plot-scale-2 .annotation").count() == 0


def test_gains_can_be_chosen_by_coupling(visit):
    chooser = visit.page.locator("#propagation select")
    before = lines(visit.page, "propagation")
    chooser.select_option("g = 1, step 20")
    assert lines(visit.page, "propagation") != before


def test_the_strip_is_drawn_and_its_labels_stand_beside_their_rows(visit):
    image = visit.page.locator(".strip img")
    assert image.evaluate("(img) => img.complete && img.naturalWidth > 0")
    box = image.bounding_box()
    rows = [row.bounding_box() for row in visit.page.locator(".strip .row").all()]
    assert len(rows) == len(COUPLINGS) + 1
    assert rows[0]["y"] == pytest.approx(box["y"], abs=2)
    last = rows[-1]
    assert last["y"] + last["height"] == pytest.approx(box["y"] + box["height"], abs=2)
    assert all(row["x"] + row["width"] <= box["x"] + 1 for row in rows)


@pytest.mark.parametrize("width", [1280, 400])
def test_no_part_sticks_out(browser, address, width):  # noqa: F811
    visit = Visit(browser, address, width, plots=PLOTS)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    visit.page.close()
    assert visit.wrong == []


@pytest.mark.parametrize(
    "settings",
    [
        {"couplings": (0.5,), "layers": 1, "classes": ("coat",)},
        {"without": ("agreement", "internal_gap")},
        {"without": ("commitment", "energies", "strip", "propagation", "mode_commitment")},
        {"couplings": (0.1, 0.3, 0.5, 0.7, 0.9, 1.0), "layers": 28, "size": (3, 96, 96)},
    ],
    ids=str,
)
def test_unusual_runs_are_silent_too(browser, tmp_path, settings):  # noqa: F811
    visit = Visit(browser, written(write_replicas(tmp_path / "run", **settings), PAGE), plots=1)
    visit.page.wait_for_timeout(300)
    visit.page.close()
    assert visit.wrong == []
