"""Writes docs/images/page.png: the report page of the sample, as a browser shows it.

    pip install -e ".[browser]" && python docs/screenshots.py

Needs Chromium; run it in the repository's root after changing what the page looks like.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import traceread
from traceread.reporters.page import render_page

IMAGES = Path(__file__).parent / "images"
SAMPLE = "sample_traces/llama7b/before-kineto"


def main() -> None:
    """Opens the page and takes the picture."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "report.html"
        path.write_text(render_page(traceread.analyze(SAMPLE)), "utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 700}, color_scheme="light")
        page.goto(path.as_uri())
        page.locator("#fix-list .main-svg").first.wait_for()
        page.screenshot(path=IMAGES / "page.png")
        page.locator("#timeline").scroll_into_view_if_needed()
        page.locator("#timeline .main-svg").first.wait_for()
        page.locator("#timeline").screenshot(path=IMAGES / "timeline.png")
        browser.close()


if __name__ == "__main__":
    main()
