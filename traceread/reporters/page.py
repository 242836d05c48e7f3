"""The report as one page that can be sent: figures, fix list with links into the timeline, tables that sort.

Figures and plotly.js travel compressed inside the page and are unpacked by the browser. A content security policy allows the page's
own scripts by their hashes and nothing else, so that no name of a trace can run, and no request leaves the page.
"""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import TYPE_CHECKING

import traceread
from traceread.figures.theme import template
from traceread.records import record
from traceread.reporters.headline import heading, headline
from traceread.reporters.methods import DEFINITIONS
from traceread.reporters.sections import Fixes, Grid, Plot, Section, Words, key_numbers, make_sections

if TYPE_CHECKING:
    from jinja2 import Environment

    from traceread.report import Report

_POLICY = "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"

Head = tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]]
"""Heading, headline and key numbers of a page."""

PLOTLYJS = ("inline", "cdn")
"""Where the page has plotly.js from: within it, or from cdn.plot.ly when it is opened."""


@record
class Page:
    """What the template fills in.

    Attributes:
        heading, headline, numbers, sections: what is said.
        data: figures as JSON, packed.
        library: plotly.js, packed; "" where it is loaded.
        library_url, library_integrity: where from, and the hash that it must have; "" where it is inlined.
        script: the page's own script.
        policy: the content security policy.
        version, command: what made the page.
    """

    heading: tuple[str, ...]
    headline: tuple[str, ...]
    numbers: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    data: str
    library: str
    library_url: str
    library_integrity: str
    script: str
    policy: str
    version: str
    command: str


def render_page(report: Report, plotlyjs: str = "inline") -> str:
    """The page of a report; `plotlyjs` is one of PLOTLYJS."""
    head = (heading(report), headline(report), key_numbers(report))
    return render_sections(head, make_sections(report), f"traceread report {report.title} -o report.html", plotlyjs)


def render_sections(head: Head, sections: tuple[Section, ...], command: str, plotlyjs: str = "inline") -> str:
    """A page of these sections; `command` is what made it."""
    from plotly.offline import get_plotlyjs, get_plotlyjs_version

    library = get_plotlyjs()
    inline = plotlyjs == "inline"
    url = "" if inline else f"https://cdn.plot.ly/plotly-{get_plotlyjs_version()}.min.js"
    script = resources.files("traceread.reporters").joinpath("templates/report.js").read_text("utf-8")
    scripts = [_hash(script), _hash(library) if inline else url]
    policy = f"default-src 'none'; script-src {' '.join(scripts)}; {_POLICY}"
    page = Page(
        heading=head[0],
        headline=head[1],
        numbers=head[2],
        sections=sections,
        data=_packed(_figures(sections)),
        library=_packed(library) if inline else "",
        library_url=url,
        library_integrity="" if inline else _hash(library).strip("'"),
        script=script,
        policy=policy,
        version=traceread.__version__,
        command=command,
    )
    return _environment().get_template("report.html").render(page=page, definitions=DEFINITIONS)


def _figures(sections: tuple[Section, ...]) -> str:
    """Figures by id, timelines by rank, and the two templates, as JSON."""
    plots = [part for section in sections for part in section.parts if isinstance(part, Plot)]
    single = ",".join(f"{json.dumps(p.id)}:{p.figures['']}" for p in plots if not p.choices)
    several = ",".join(f"{json.dumps(rank)}:{figure}" for p in plots if p.choices for rank, figure in p.figures.items())
    templates = json.dumps({"light": template(False), "dark": template(True)})
    return f'{{"figures":{{{single}}},"timelines":{{{several}}},"templates":{templates}}}'


def _packed(text: str) -> str:
    """The text compressed, as base64: the alphabet of that cannot end a script element."""
    from isal import igzip

    return b64encode(igzip.compress(text.encode("utf-8", "replace"), compresslevel=3, mtime=0)).decode("ascii")


def _hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode('utf-8')).digest()).decode('ascii')}'"


@cache
def _environment() -> Environment:
    from traceread.reporters.html import make_environment

    environment = make_environment()
    for name, kind in (("plot", Plot), ("fixes", Fixes), ("grid", Grid), ("words", Words)):
        environment.tests[name] = lambda part, kind=kind: isinstance(part, kind)
    return environment
