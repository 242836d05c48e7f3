"""The documentation as a site, built by Sphinx.

    pip install -e ".[docs]" && sphinx-build -c docs . docs/_build

Pages are the Markdown files that one reads in the repository too. Notebooks are run on the sample traces and stand beside them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

project = "traceread"
author = "the traceread developers"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["README.md", "CHANGELOG.md", "docs/*.md", "sample_traces/README.md"]
html_theme = "furo"
html_title = "traceread"
html_show_copyright = False
templates_path: list[str] = []
myst_heading_anchors = 4
myst_enable_extensions = ["smartquotes"]
suppress_warnings = ["myst.xref_missing", "misc.highlighting_failure"]  # tests/test_docs.py checks every link itself

_PLOTLY = "application/vnd.plotly.v1+json"


def setup(app: Any) -> None:
    """Hooks of the build."""
    app.add_config_value("run_notebooks", True, "html")
    app.connect("source-read", _contents)
    app.connect("html-page-context", _notebook_links)
    app.connect("build-finished", _render_notebooks)


def _contents(app: Any, name: str, source: list[str]) -> None:
    """The order of pages in the side bar: that of the index, which readers of the repository see as a table."""
    if name != root_doc:
        return
    pages = list(dict.fromkeys(re.findall(r"^\| \[[^]]+\]\((\w[\w-]*)\.md\)", source[0], re.MULTILINE)))
    links = [f"{path.stem.replace('_', ' ')} <notebooks/{path.stem}.html>" for path in _notebooks()]
    source[0] += "\n".join(["", "```{toctree}", ":hidden:", "/README", *pages, "/sample_traces/README", "/CHANGELOG", "```", ""])
    source[0] += "\n## Notebooks, as they run on the sample traces\n\n"
    source[0] += "\n".join(f'- <a href="{link.split("<")[1][:-1]}">{link.split(" <")[0]}</a>' for link in links) + "\n"


def _notebook_links(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Links to notebooks lead to their rendered copies."""
    there = rf'href="{"../" * page.count("/")}docs/notebooks/\1.html"'
    if "body" in context:
        context["body"] = re.sub(r'href="[^"]*?(?:_downloads/\w+/|notebooks/)(\w+)\.ipynb"', there, context["body"])


def _notebooks() -> list[Path]:
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


def _render_notebooks(app: Any, error: Exception | None) -> None:
    """Runs every notebook on a copy of the sample traces and writes it as a page; plotly.js lies beside them, once."""
    if error is not None or app.builder.name != "html" or not int(app.config.run_notebooks):
        return
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter
    from plotly.offline import get_plotlyjs

    os.environ |= {"PLOTLY_RENDERER": "plotly_mimetype", "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    export = HTMLExporter(exclude_input_prompt=True, exclude_output_prompt=True, require_js_url="", mathjax_url="", jquery_url="")
    target = Path(app.outdir) / "docs" / "notebooks"
    target.mkdir(parents=True, exist_ok=True)
    (target / "plotly.min.js").write_text(get_plotlyjs(), "utf-8")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "sample_traces", Path(folder) / "sample_traces")
        place = Path(folder) / "notebooks"
        place.mkdir()
        for path in _notebooks():
            notebook = nbformat.read(path, 4)
            if any("import torch\n" in cell.source for cell in notebook.cells) and find_spec("torch") is None:
                notebook.cells.insert(1, nbformat.v4.new_markdown_cell("*Not run for this copy: torch was not there.*"))
            else:
                NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(place)}}).execute()
            _draw_figures(notebook)
            page, _ = export.from_notebook_node(notebook)
            page = page.replace("<head>", '<head><script src="plotly.min.js"></script>', 1)
            page = re.sub(r'href="(\w+)\.ipynb"', r'href="\1.html"', page)
            page = re.sub(r'href="\.\./docs/([\w-]+)\.md(#[\w-]+)?"', r'href="../\1.html\2"', page)
            (target / f"{path.stem}.html").write_text(page, "utf-8")


def _draw_figures(notebook: Any) -> None:
    """Gives every figure among the outputs the few lines of HTML that draw it."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", []) if _PLOTLY in output.get("data", {})]
    for number, output in enumerate(outputs):
        figure = json.dumps(output.data.pop(_PLOTLY)).replace("</", "<\\/")
        output.data["text/html"] = f'<div id="figure-{number}"></div><script>Plotly.newPlot("figure-{number}", {figure})</script>'
