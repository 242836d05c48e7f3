"""The report page in a real, headless Chromium: it draws, sorts, filters and jumps, says no error, asks for nothing."""

import shutil
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
import reporter_profiles as profiles

from traceread.reporters.page import render_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.skipif(find_spec("playwright") is None, reason="playwright is not installed: pip install playwright"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt install chromium"),
    pytest.mark.filterwarnings("default"),
]
SLOW = 60_000  # ms; a loaded machine must not fail what is right


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """A page opened from its file, with everything that it said and asked for."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(viewport={"width": 900, "height": 800}, **options)
        self.context.set_default_timeout(SLOW)
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        begin = time.monotonic()
        self.page.goto(path.as_uri())
        self.shown_s = time.monotonic() - begin
        self.page.wait_for_selector("body[data-ready]")

    def draw_everything(self):
        for box in self.page.locator(".plot").all():
            box.scroll_into_view_if_needed()
            box.locator(".main-svg").first.wait_for()


@pytest.fixture
def visit(browser, tmp_path):
    opened = []

    def open_report(report, **options):
        path = tmp_path / "report.html"
        path.write_text(render_page(report), "utf-8")
        opened.append(Visit(browser, path, **options))
        return opened[-1]

    yield open_report
    for one in opened:
        assert one.said == []
        assert [url for url in one.asked if not url.startswith(("file:", "data:", "blob:"))] == []
        one.context.close()


def eventually(page, condition):
    """Waits until a condition holds; the page's policy forbids what wait_for_function does."""
    end = time.monotonic() + SLOW / 1000
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(50)


def column(page, table, number):
    return page.locator(f"#{table} tbody tr:visible td:nth-child({number})").all_inner_texts()


@pytest.mark.parametrize("name", ["four_ranks", "whole_capture", "host_only", "empty_steps", "many_ranks"])
def test_every_figure_is_drawn(visit, name):
    opened = visit(profiles.everything()[name]())
    opened.draw_everything()
    assert opened.page.locator(".plot").count() == opened.page.locator(".plot[data-drawn]").count()
    assert opened.page.locator("#trouble").is_hidden()


def test_the_text_is_there_at_once(visit):
    opened = visit(profiles.four_ranks())
    assert opened.shown_s < 2
    assert opened.page.locator("h1").inner_text() == "run/"


def test_tables_sort(visit):
    page = visit(profiles.four_ranks()).page
    heading = page.locator("#kernel-table th").nth(2)
    heading.get_by_role("button").click()
    totals = [float(t.split()[-1].replace(",", "")) for t in column(page, "kernel-table", 3)]
    assert totals == sorted(totals, reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"
    heading.get_by_role("button").press("Enter")
    assert [float(t.split()[-1].replace(",", "")) for t in column(page, "kernel-table", 3)] == sorted(totals)
    assert heading.get_attribute("aria-sort") == "ascending"
    page.locator("#kernel-table th").last.get_by_role("button").click()
    names = column(page, "kernel-table", 7)
    assert names[0].startswith("cutlass")
    assert heading.get_attribute("aria-sort") is None


def test_units_count_when_sorting(visit):
    page = visit(profiles.four_ranks()).page
    page.locator("#kernel-table th").nth(4).get_by_role("button").click()
    means = column(page, "kernel-table", 5)
    assert means[-1].endswith("µs")
    assert means[0].endswith("ms")


def test_tables_filter(visit):
    page = visit(profiles.four_ranks()).page
    everything = len(column(page, "kernel-table", 7))
    page.locator("input[data-filters=kernel-table]").fill("ncclDevKernel")
    assert len(column(page, "kernel-table", 7)) == 1
    assert page.locator("#kernel-table-count").inner_text() == f"1 of {everything} rows"
    page.locator("input[data-filters=kernel-table]").fill("")
    assert len(column(page, "kernel-table", 7)) == everything


def test_evidence_jumps_into_the_timeline(visit):
    page = visit(profiles.four_ranks()).page
    link = page.locator("a.evidence").first
    link.focus()
    link.press("Enter")
    eventually(page, "document.activeElement.id === 'timeline'")
    shown = page.evaluate("document.getElementById('timeline').layout.xaxis.range")
    assert [round(v, 6) for v in shown] == [round(float(link.get_attribute(f"data-{end}")), 6) for end in ("from", "to")]
    assert page.locator("#timeline-choice").input_value() == link.get_attribute("data-rank")
    top = page.locator("#timeline-section-title").bounding_box()["y"]
    assert 0 <= top < 400
    page.locator("#timeline-whole").click()
    assert page.evaluate("document.getElementById('timeline').layout.xaxis.range[0]") == 0


def test_another_rank_has_another_timeline(visit):
    page = visit(profiles.four_ranks()).page
    page.locator("#timeline").scroll_into_view_if_needed()
    page.locator("#timeline .main-svg").first.wait_for()
    page.locator("#timeline-choice").select_option("1")
    eventually(page, "document.getElementById('timeline').layout.title.text.includes('of rank 1')")


def test_dark_pages_have_dark_figures(visit):
    page = visit(profiles.one_rank(), color_scheme="dark").page
    page.locator("#classes, #fix-list").first.locator(".main-svg").first.wait_for()
    assert page.evaluate("document.querySelector('.plot[data-drawn]').layout.template.layout.paper_bgcolor") == "#16181d"
    page.emulate_media(color_scheme="light")
    eventually(page, "document.querySelector('.plot[data-drawn]').layout.template.layout.paper_bgcolor === '#ffffff'")


def test_printing_draws_everything(visit):
    opened = visit(profiles.four_ranks())
    assert opened.page.locator(".plot:not([data-drawn])").count() > 0
    pdf = opened.page.pdf()
    assert pdf.startswith(b"%PDF")
    assert opened.page.locator(".plot:not([data-drawn])").count() == 0


def test_hostile_names_do_nothing(visit):
    opened = visit(profiles.hostile())
    opened.draw_everything()
    page = opened.page
    assert page.locator("script").count() <= 4
    assert page.locator("main b, main img, .plot a[href^=javascript]").count() == 0
    assert "alert(1)" in page.locator("#kernel-table").inner_text()
    assert "A1<scrip…(javascript:y)" in page.locator("#top-kernels").inner_text()


def test_a_narrow_screen_does_not_scroll_sideways(visit):
    opened = visit(profiles.four_ranks())
    opened.page.set_viewport_size({"width": 480, "height": 800})
    opened.draw_everything()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 480


def test_everything_that_acts_can_be_reached_and_named(visit):
    page = visit(profiles.four_ranks()).page
    for element in page.locator("a, button, input, select, summary").all():
        name = element.evaluate("e => (e.labels?.[0]?.textContent ?? e.getAttribute('aria-label') ?? e.textContent).trim()")
        assert name or element.evaluate("e => e.closest('.modebar') !== null")
    assert all(box.get_attribute("aria-label") for box in page.locator(".plot").all())
    assert page.locator("th:not([scope])").count() == 0


@pytest.mark.skipif(not (Path(__file__).parents[1] / "sample_traces").exists(), reason="no sample traces")
def test_the_sample_opens(visit):
    import traceread

    opened = visit(traceread.analyze(Path(__file__).parents[1] / "sample_traces" / "llama7b" / "before-kineto"))
    opened.draw_everything()
    assert opened.page.locator("a.evidence").count() >= 2
