"""The page of an image model in a browser: it draws, its list redraws, nothing sticks out."""

import pytest
from tests.instruments.image.synthetic_image import write_images
from tests.report.test_browser import Visit, browser, written  # noqa: F401

from flowscope.instruments.image.page import PAGE

PLOTS = 9


@pytest.fixture(scope="module")
def address(tmp_path_factory, quick_flush):
    folder = tmp_path_factory.mktemp("image") / "run"
    return written(write_images(folder, channels=3, study=True, ends=True), PAGE)


@pytest.mark.parametrize("width", [1280, 400])
def test_every_figure_is_drawn_and_no_part_sticks_out(browser, address, width):  # noqa: F811
    visit = Visit(browser, address, width, plots=PLOTS)
    boxes = visit.page.locator(".plot").all()
    assert len(boxes) == PLOTS
    assert all(box.locator(".chart").count() and box.get_attribute("aria-label")
               for box in boxes)  # fmt: skip
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    visit.page.close()
    assert visit.wrong == []


def test_a_channel_can_be_chosen_and_chosen_back(browser, address):  # noqa: F811
    visit = Visit(browser, address, plots=PLOTS)

    def lines():
        return visit.page.evaluate(
            "document.getElementById('plot-parity').picture.data.map((trace) => trace.y)"
        )

    first = lines()
    visit.page.locator("#parity select").select_option("channel 2")
    assert lines() != first
    visit.page.locator("#parity select").select_option(index=0)
    assert lines() == first
    visit.page.close()
    assert visit.wrong == []


@pytest.mark.parametrize(
    "settings",
    [
        {"labelled": False, "exact": False, "without": ("rotation", "samples")},
        {"without": ("parity", "weak_error", "smoothness", "information", "uturn_strip")},
        {"channels": 4, "steps": 50, "size": 64},
    ],
    ids=str,
)
def test_unusual_runs_are_silent_too(browser, tmp_path, settings):  # noqa: F811
    visit = Visit(browser, written(write_images(tmp_path / "run", **settings), PAGE), plots=1)
    visit.page.wait_for_timeout(300)
    visit.page.close()
    assert visit.wrong == []
