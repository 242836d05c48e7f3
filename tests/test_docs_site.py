"""The documentation as a site: every page is built without a warning and linked, whatever is in it."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("sphinx", "myst_parser", "furo")), reason='the site needs pip install -e ".[docs]"'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-c", "docs", "-D", "run_notebooks=0", "-d", str(folder / "trees"), "."]
    done = subprocess.run([*command, str(folder / "html")], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_page_is_there(site):
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert {path.stem for path in (site / "docs").glob("*.html")} >= pages
    side_bar = (site / "docs" / "index.html").read_text("utf-8")
    assert all(f'href="{page}.html"' in side_bar for page in pages - {"index"})


def test_links_to_notebooks_lead_to_their_copies(site):
    names = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    index = (site / "docs" / "index.html").read_text("utf-8")
    assert set(re.findall(r'href="notebooks/(\w+)\.html"', index)) == names
    assert 'href="docs/notebooks/first_look.html"' in (site / "README.html").read_text("utf-8")
    assert re.findall(r'href="[^"]*\.ipynb"', (site / "README.html").read_text("utf-8")) == []
