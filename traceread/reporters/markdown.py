"""Documents as GitHub-flavoured markdown."""

from __future__ import annotations

import re

from traceread.names import clean, kernel_title, shorten
from traceread.reporters.document import Bar, Block, Cell, Document, Listing, Name, Paragraph, Table, Tone

_SPECIAL = re.compile(r"([\\`*_\[\]|~$])")
_AT_START = re.compile(r"^(\s*)([-+=#])")
_LIST_NUMBER = re.compile(r"^(\s*\d+)([.)](?:\s|$))")
_NAME_WIDTH = 100
_BAR = 20


def render_markdown(document: Document) -> str:
    """The document as markdown; recorded names cannot break out of their cell or become HTML."""
    parts = [f"# {_text(' · '.join(document.heading))}", *(_block(block) for block in document.blocks)]
    return "\n\n".join(parts) + "\n"


def _text(text: str) -> str:
    """Text with everything that means something in markdown or HTML escaped."""
    escaped = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = _SPECIAL.sub(r"\\\1", escaped)
    return _LIST_NUMBER.sub(r"\1\\\2", _AT_START.sub(r"\1\\\2", escaped))


def _block(block: Block) -> str:
    if isinstance(block, Paragraph):
        return f"**{_text(block.text)}**" if block.tone is Tone.STRONG else _text(block.text)
    return _listing(block) if isinstance(block, Listing) else _table(block)


def _listing(listing: Listing) -> str:
    lines = []
    for number, entry in enumerate(listing.entries, 1):
        mark = f"{number}." if listing.numbered else "-"
        indent = " " * (len(mark) + 1)
        lines.append(f"{mark} " + f"\\\n{indent}".join(_text(line) for line in entry))
    note = f"\n\n{_text(listing.note)}" if listing.note else ""
    return f"## {_text(listing.title)}\n\n" + "\n".join(lines) + note


def _table(table: Table) -> str:
    rows = [*table.rows, *([table.total] if table.total else [])]
    lines = [
        _row([column.title for column in table.columns]),
        "|" + "|".join("---:" if column.right else "---" for column in table.columns) + "|",
        *(_row(row) for row in rows),
    ]
    title = f"## {_text(table.title)}\n\n" if table.title else ""
    note = f"\n\n{_text(table.note)}" if table.note else ""
    return title + "\n".join(lines) + note


def _row(cells: tuple[Cell, ...] | list[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(cell: Cell) -> str:
    if isinstance(cell, Bar):
        length = (2 * _BAR * cell.part + cell.whole) // (2 * cell.whole) if cell.whole else 0
        return "█" * max(length, 1 if cell.part else 0)
    return _text(shorten(kernel_title(cell.text), _NAME_WIDTH) if isinstance(cell, Name) else cell)
