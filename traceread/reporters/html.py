"""Documents as HTML: a fragment for notebooks, a page for files."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from traceread.figures.theme import COLORS, NEUTRAL
from traceread.names import clean, kernel_title, shorten
from traceread.reporters.document import Bar, Document, Listing, Name, Paragraph

if TYPE_CHECKING:
    from jinja2 import Environment

_NAME_WIDTH = 100


def render_html(document: Document) -> str:
    """A page of its own that shows the document; nothing in it is loaded from elsewhere."""
    return _environment().get_template("page.html").render(document=document)


def html_fragment(document: Document, rows: int) -> str:
    """An element with its own scoped style for a notebook cell; of each table and list at most so many rows are shown."""
    return _environment().get_template("document.html").render(document=document, rows=rows)


@cache
def _environment() -> Environment:
    return make_environment()


def make_environment() -> Environment:
    """Templates with everything that blocks of documents need; names are escaped."""
    from jinja2 import Environment, PackageLoader

    environment = Environment(loader=PackageLoader("traceread.reporters"), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.globals |= {"colors": {c.key: color for c, color in COLORS.items()}, "neutral": NEUTRAL}
    environment.filters["clean"] = clean
    environment.filters["kernel"] = lambda name: shorten(kernel_title(name), _NAME_WIDTH)
    environment.tests["bar"] = lambda cell: isinstance(cell, Bar)
    environment.tests["name"] = lambda cell: isinstance(cell, Name)
    environment.tests["paragraph"] = lambda block: isinstance(block, Paragraph)
    environment.tests["listing"] = lambda block: isinstance(block, Listing)
    return environment
