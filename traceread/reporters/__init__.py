"""Results as text, markdown, JSON, CSV and HTML."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from traceread.errors import OutputError

if TYPE_CHECKING:
    from traceread.report import Report
    from traceread.reporters.document import Document

FORMATS = ("text", "markdown", "json", "html", "csv")

_EXTENSIONS = {
    ".txt": "text",
    ".md": "markdown",
    ".markdown": "markdown",
    ".json": "json",
    ".html": "html",
    ".htm": "html",
    ".csv": "csv",
}


def format_of(path: Path) -> str:
    """The format an output file's extension names.

    Raises:
        OutputError: it names none.
    """
    found = _EXTENSIONS.get(path.suffix.lower())
    if found is None:
        raise OutputError(
            f"{path}: the extension {path.suffix or '(none)'} names no format",
            f"use one of {', '.join(_EXTENSIONS)}, or say which with -f {'|'.join(FORMATS)}",
        )
    return found


def render(report: Report, format: str) -> str:
    """The report as text in one of `FORMATS`.

    Raises:
        OutputError: no such format.
    """
    if format == "json":
        from traceread.reporters.json import report_dict, to_json

        return to_json(report_dict(report))
    if format == "csv":
        from traceread.reporters.csv import report_csv

        return report_csv(report)
    if format == "html":
        from traceread.reporters.page import render_page

        return render_page(report)
    from traceread.reporters.answer import report_document

    return render_document(report_document(report), format)


def render_document(document: Document, format: str) -> str:
    """A document as plain text, markdown or a page of HTML.

    Raises:
        OutputError: no such format.
    """
    if format == "text":
        from traceread.reporters.text import render_text

        return render_text(document)
    if format == "markdown":
        from traceread.reporters.markdown import render_markdown

        return render_markdown(document)
    if format == "html":
        from traceread.reporters.html import render_html

        return render_html(document)
    raise OutputError(f"no format {format!r} here", f"formats are: {', '.join(FORMATS)}")


def save_report(report: Report, path: Path) -> Path:
    """Writes the report in the format the extension names and returns the path.

    Raises:
        OutputError: the extension names no format, or the file cannot be written; what was there before is kept.
    """
    from traceread.reporters.files import write_text

    return write_text(path, render(report, format_of(path)))
