"""The page in a browser: it draws, it is silent, it asks nobody, and hostile text stays text."""

import os
import re
import shutil

import pytest
from tests.instruments.audit.synthetic import HOSTILE, write_run
from tests.instruments.heads.synthetic_geometry import LAYERS, SILENT, write_geometry

from flowscope.instruments.audit.page import PAGE
from flowscope.instruments.heads.page import PAGE as HEADS
from flowscope.report import report_html
from flowscope.report.drawing.colours import contrast

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLOTS = 24


def _missing(reason):
    if os.environ.get("FLOWSCOPE_REQUIRE_BROWSER") == "1":
        pytest.fail(f"{reason}, and FLOWSCOPE_REQUIRE_BROWSER=1 asks for the browser tests")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        _missing(f"no Chromium on the path (looked for {', '.join(NAMES)})")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(run):
    return written(run, PAGE)


def written(run, page):
    path = run.folder / "report.html"
    path.write_text(report_html(run, page), encoding="utf-8")
    return path.as_uri()


class Visit:
    """An open page and everything it did that it should not have done."""

    def __init__(self, browser, address, width=1280, plots=PLOTS):
        self.wrong = []
        self.page = browser.new_page(viewport={"width": width, "height": 900})
        self.page.on("console", lambda message: self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", self._dialog)
        self.page.on("request", lambda request: self._request(request.url, address))
        self.page.goto(address)
        self.page.wait_for_function(f"document.querySelectorAll('.plot .chart').length >= {plots}")

    def _dialog(self, dialog):
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, url, address):
        if url != address and not url.startswith(("data:", "blob:")):
            self.wrong.append(f"request: {url}")


@pytest.fixture
def visit(browser, address):
    visit = Visit(browser, address)
    yield visit
    visit.page.close()
    assert visit.wrong == []


def test_every_figure_is_drawn(visit):
    for box in visit.page.locator(".plot").all():
        assert box.locator(".chart").count() > 0, box.get_attribute("id")
        assert box.get_attribute("aria-label")
    assert visit.page.locator(".plot").count() == PLOTS


def test_hover_over_the_map_shows_the_numbers(visit, run):
    row = run.read_table("tokens").query("prompt == 0 and position == 1 and layer == 20")
    visit.page.locator('td[data-at="20,1"]').hover()
    tip = visit.page.locator("#tip")
    tip.wait_for(state="visible")
    assert "position 1, layer 20" in tip.inner_text()
    assert f"{row['mobility_frobenius'].item():.4g}" in tip.inner_text()
    assert f"{row['entropy'].item():.4g}" in tip.inner_text()


def test_the_hostile_token_is_shown_as_text(visit):
    head = visit.page.locator("#map-scroll thead th").nth(3)
    assert head.inner_text() == HOSTILE
    assert head.locator("*").count() == 0
    visit.page.locator('td[data-at="30,2"]').hover()
    visit.page.locator("#tip").wait_for(state="visible")
    assert HOSTILE in visit.page.locator("#tip").inner_text()
    assert "alert(3)" in visit.page.locator("h1").inner_text()


def pointed(page, mark):
    """Move the pointer over a mark of a figure; return where it stands."""
    page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    mark.evaluate("(mark) => mark.ownerSVGElement.scrollIntoView({block: 'center'})")
    page.wait_for_timeout(50)
    place = mark.bounding_box()
    middle = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    page.mouse.move(*middle)
    page.wait_for_selector("#plot-tip", state="visible")
    return middle


def test_a_figure_shows_markup_and_templates_as_text(visit):
    drawn = visit.page.locator("#plot-path text").all_text_contents()
    assert "“<b>%{a}</b>”" in drawn
    traces = visit.page.locator("#plot-path .trace")
    pointed(visit.page, traces.nth(1).locator("path.point").nth(20))
    shown = visit.page.locator("#plot-tip").inner_text()
    assert "“<b>%{a}</b>” 0." in shown
    assert "layer 20" in shown


def test_hover_over_a_figure_shows_the_numbers(visit):
    pointed(visit.page, visit.page.locator("#plot-variation .point").first)
    shown = visit.page.locator("#plot-tip").inner_text()
    assert "layer 1" in shown
    assert "3.35" in shown


def test_the_points_of_a_figure_can_be_walked_with_the_keyboard(visit):
    box, tip = visit.page.locator("#plot-entropy"), visit.page.locator("#plot-tip")
    visit.page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    box.evaluate("(box) => box.scrollIntoView({block: 'center'})")
    box.focus()
    texts = []
    for _ in range(3):
        visit.page.keyboard.press("ArrowRight")
        texts.append(tip.inner_text())
    assert len(set(texts)) == 3
    assert box.locator(".ring").count() == 1
    before = tip.bounding_box()["y"]
    visit.page.evaluate("window.scrollBy(0, 40)")
    visit.page.wait_for_timeout(100)
    assert tip.bounding_box()["y"] == pytest.approx(before - 40, abs=1)
    visit.page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_a_tap_shows_the_text_of_a_point(browser, address):
    context = browser.new_context(viewport={"width": 400, "height": 900}, has_touch=True)
    page = context.new_page()
    page.goto(address)
    mark = page.locator("#plot-variation .point").first
    page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    mark.evaluate("(mark) => mark.ownerSVGElement.scrollIntoView({block: 'center'})")
    place = mark.bounding_box()
    page.touchscreen.tap(place["x"] + 6, place["y"] + 6)
    page.wait_for_selector("#plot-tip", state="visible")
    assert "layer 1" in page.locator("#plot-tip").inner_text()
    context.close()


def labels(page, name):
    return page.locator(f"#plot-{name} .label").all_text_contents()


def test_dragging_enlarges_a_part_and_a_double_click_shows_the_whole(visit):
    page, before = visit.page, labels(visit.page, "variation")
    x, y = pointed(page, page.locator("#plot-variation .point").nth(4))
    page.mouse.down()
    page.mouse.move(x + 90, y + 40, steps=4)
    page.mouse.up()
    assert labels(page, "variation") != before
    page.mouse.dblclick(x + 30, y)
    assert labels(page, "variation") == before
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 90, y, steps=4)
    page.mouse.up()
    page.locator("#plot-variation .whole").click()
    assert labels(page, "variation") == before


def test_a_figure_is_drawn_again_when_the_width_of_the_page_changes(visit):
    chart = visit.page.locator("#plot-variation .chart")
    assert float(chart.get_attribute("width")) > 700
    visit.page.set_viewport_size({"width": 500, "height": 900})
    visit.page.wait_for_timeout(300)
    assert float(chart.get_attribute("width")) < 500


@pytest.mark.parametrize(
    ("picture", "reason"),
    [
        ("{data: [{type: 'pie'}], layout: {}}", "the trace type “pie”"),
        ("{data: [{x: [1], y: [1], fill: 'tonexty'}], layout: {}}", "the fill “tonexty”"),
        ("{data: [{type: 'bar', orientation: 'h'}], layout: {}}", "horizontal bars"),
        ("null", "cannot be read"),
    ],
)
def test_what_cannot_be_drawn_is_said(visit, picture, reason):
    visit.page.evaluate(f"Plot.draw(document.getElementById('plot-variation'), {picture})")
    assert reason in visit.page.locator("#plot-variation .missing").inner_text()
    assert visit.page.locator("#plot-variation svg").count() == 0


def colours(page):
    """Ground and ink of the page, and those of all cells of the map."""
    return page.evaluate(
        """() => [document.body, ...document.querySelectorAll('#map-scroll td')].map((cell) => {
            const style = getComputedStyle(cell);
            return [style.backgroundColor, style.color];
        })"""
    )


def as_hex(colour):
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour)[:3])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_both_themes_have_contrast_and_a_button_between_them(browser, address, theme):
    page = browser.new_page(color_scheme=theme)
    page.goto(address)
    for index in range(len(page.locator("#map-quantity option").all())):
        page.select_option("#map-quantity", index=index)
        shown = colours(page)
        assert shown[0][0] == ("rgb(255, 255, 255)" if theme == "light" else "rgb(16, 23, 30)")
        assert len(shown) > 100
        assert min(contrast(as_hex(a), as_hex(b)) for a, b in shown) >= 4.5
    page.locator("#theme").click()
    assert colours(page)[0][0] == ("rgb(16, 23, 30)" if theme == "light" else "rgb(255, 255, 255)")
    page.close()


def test_a_table_can_be_downloaded_from_the_page_alone(browser, address, run, tmp_path):
    alone = tmp_path / "mailed.html"
    alone.write_bytes((run.folder / "report.html").read_bytes())
    page = browser.new_page()
    page.goto(alone.as_uri())
    with page.expect_download() as download:
        page.locator('a[data-table="layers"]').first.click()
    assert download.value.suggested_filename == "layers.csv"
    saved = download.value.path()
    assert saved.read_bytes() == (run.folder / "tables" / "layers.csv").read_bytes()
    page.close()


def test_the_selectors_switch_prompt_and_quantity(visit):
    cell = visit.page.locator('td[data-at="24,1"]')
    before = visit.page.locator("#map-scroll thead").inner_text()
    colour = cell.evaluate("cell => cell.style.backgroundColor")
    visit.page.select_option("#map-prompt", "1")
    assert visit.page.locator("#map-scroll thead").inner_text() != before
    visit.page.select_option("#map-prompt", "0")
    assert visit.page.locator("#map-scroll thead").inner_text() == before
    visit.page.select_option("#map-quantity", "1")
    assert cell.evaluate("cell => cell.style.backgroundColor") != colour
    assert visit.page.locator("#map-high").inner_text() != "0.5"


def test_the_map_can_be_walked_with_the_keyboard(visit):
    visit.page.locator('td[data-at="0,0"]').focus()
    visit.page.keyboard.press("ArrowDown")
    visit.page.keyboard.press("ArrowRight")
    assert visit.page.evaluate("document.activeElement.dataset.at") == "1,1"
    assert "position 1, layer 1" in visit.page.locator("#tip").inner_text()


def test_an_injected_script_is_stopped_by_the_policy(browser, run, tmp_path):
    # Not the escaping but what stands behind it: the policy alone must stop a script.
    page = report_html(run, PAGE)
    broken = tmp_path / "broken.html"
    broken.write_text(page.replace("</main>", "<script>alert(9)</script></main>"), "utf-8")
    visit = Visit(browser, broken.as_uri())
    visit.page.close()
    assert any("Content Security Policy" in message for message in visit.wrong)
    assert not any(message.startswith("dialog") for message in visit.wrong)


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_sticks_out_of_the_page(browser, address, width):
    visit = Visit(browser, address, width)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    visit.page.close()
    assert visit.wrong == []


def test_a_run_with_missing_tables_is_silent_too(browser, tmp_path):
    run = write_run(tmp_path / "run", without=("tokens", "heads", "simplex_path"), abstained=True)
    page = browser.new_page()
    wrong = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(written(run, PAGE))
    page.wait_for_selector("#plot-variation .chart")
    page.close()
    assert wrong == []


@pytest.fixture(scope="module")
def heads_address(tmp_path_factory, quick_flush):
    return written(write_geometry(tmp_path_factory.mktemp("heads") / "run", study=True), HEADS)


@pytest.fixture
def heads(browser, heads_address):
    visit = Visit(browser, heads_address, plots=1)
    visit.page.wait_for_selector("#head-kernel svg")
    yield visit
    visit.page.close()
    assert visit.wrong == []


DRAWINGS = ("law", "kernel", "flows", "diffusion", "magnetic")


def drawings(page):
    return {name: page.locator(f"#head-{name}").inner_html() for name in DRAWINGS}


def test_a_click_on_a_head_shows_its_portrait(heads):
    page = heads.page
    title, before = page.locator("#head-title").inner_text(), drawings(page)
    page.locator('#maps-model rect[data-k="60"]').click()
    assert title.startswith("Layer 28, head 3")
    assert page.locator("#head-title").inner_text().startswith("Layer 7, head 6 · ")
    assert "layer 7, head 6" in page.locator("#maps-chosen").inner_text()
    after = drawings(page)
    assert all(after[name] != before[name] for name in DRAWINGS)
    assert page.locator("#head-kernel rect").count() == 24**2
    assert page.locator("#head-flows .flow").count() == 15
    assert page.locator("#head-law .bar").count() == 24
    assert page.input_value("#head-layer") == "7"


def test_a_head_can_be_chosen_without_a_mouse(heads):
    page = heads.page
    page.select_option("#head-layer", "2")
    page.select_option("#head-number", "0")
    assert page.locator("#head-title").inner_text().startswith("Layer 2, head 0")
    page.locator("#maps-model").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.locator("#head-title").inner_text().startswith("Layer 3, head 1")
    for _ in range(LAYERS):
        page.keyboard.press("ArrowDown")
    assert page.locator("#head-title").inner_text().startswith(f"Layer {LAYERS}, head 1")
    page.locator("#head-first").press("Enter")
    first = page.locator("button.look").first
    assert first.inner_text() in page.locator("#head-title").inner_text().lower()


def test_a_row_of_the_furthest_leads_to_its_portrait(heads):
    button = heads.page.locator("button.look").nth(4)
    button.click()
    assert button.inner_text() in heads.page.locator("#head-title").inner_text().lower()


def test_the_maps_are_painted_by_the_chosen_statistic(heads):
    page = heads.page
    cell = page.locator('#maps-model rect[data-k="5"]')
    before, scale = cell.get_attribute("fill"), page.locator("#maps-high").inner_text()
    page.select_option("#maps-statistic", label="effective keys")
    assert cell.get_attribute("fill") != before
    assert page.locator("#maps-high").inner_text() != scale
    page.select_option("#maps-statistic", label="R_qk of the weights")
    assert "rotary positions" in page.locator("#maps-model .missing").inner_text()


def test_a_silent_head_says_why_and_draws_nothing(heads):
    page = heads.page
    cell = page.locator('#maps-model rect[data-k="13"]')
    cell.hover()
    tip = page.locator("#tip")
    tip.wait_for(state="visible")
    assert f"{SILENT}{HOSTILE}" in tip.inner_text()
    cell.click()
    assert page.locator("#head-title").inner_text() == "Layer 2, head 4 · refused"
    assert page.locator("#portrait .missing").count() == len(DRAWINGS)
    assert page.locator("#portrait svg").count() == 0


def test_hostile_tokens_are_labels_and_nothing_else(heads):
    page = heads.page
    page.locator("#head-law .catch").nth(3).hover()
    assert HOSTILE in page.locator("#tip").inner_text()
    assert page.locator("#portrait script, #portrait b, #portrait img").count() == 0
    assert page.locator("#portrait svg text", has_text="</script>").count() > 0


@pytest.mark.parametrize("width", [1400, 400])
def test_no_part_of_the_heads_sticks_out(browser, heads_address, width):
    visit = Visit(browser, heads_address, width, plots=1)
    visit.page.wait_for_selector("#head-kernel svg")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    cut = visit.page.evaluate(
        """() => [...document.querySelectorAll('.drawing svg, .head-map svg')].flatMap((svg) => {
            const frame = svg.getBoundingClientRect();
            return [...svg.querySelectorAll('text')].filter((text) => {
              const box = text.getBoundingClientRect();
              return box.left < frame.left - 2 || box.right > frame.right + 2 ||
                box.top < frame.top - 2 || box.bottom > frame.bottom + 2;
            }).map((text) => text.textContent);
        })"""
    )
    assert cut == []
    visit.page.close()
    assert visit.wrong == []


@pytest.mark.parametrize(
    "settings",
    [
        {"size": (1, 1), "tokens": ["only"]},
        {"size": (64, 64)},
        {"chain": "quasi-stationary", "without": ("random", "dials")},
        {"without": ("portrait",)},
        {"without": ("geometry",)},
        {"without": ("kernel", "magnetic", "sentence")},
    ],
    ids=str,
)
def test_unusual_runs_of_heads_are_silent_too(browser, tmp_path, settings):
    address = written(write_geometry(tmp_path / "run", **settings), HEADS)
    visit = Visit(browser, address, plots=0)
    visit.page.wait_for_timeout(300)
    if "geometry" not in settings.get("without", ()):
        visit.page.locator("#maps-model rect[data-k]").last.click()
        assert "Chosen" in visit.page.locator("#maps-chosen").inner_text()
    visit.page.close()
    assert visit.wrong == []
