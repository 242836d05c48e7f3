"""Documents as text for a terminal or a file."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from traceread.names import clean, shorten
from traceread.records import record
from traceread.reporters.document import Bar, Block, Cell, Document, Listing, Name, Paragraph, Table, Tone

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

_BAR = 20
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_FIXED = "\ue000"  # stands for a space at which no line may end; rich breaks lines at every space of Unicode
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[nmµ]?s|[KMGT]iB)(?![^\W_]))|(?<=<) (?=\d)|(?<=>) (?=\d)|(?<=×) (?=\d)")
_TRAILING = re.compile(r"(?: |\x1b\[[0-9;]*m)+$")
_STYLES = {Tone.PLAIN: "", Tone.STRONG: "bold", Tone.FAINT: "dim", Tone.WARNING: "yellow"}
_BAR_STYLES = {
    "compute": "green",
    "exposed_communication": "magenta",
    "exposed_copy": "blue",
    "unattributed": "bright_black",
    "other": "bright_black",
}
_ASCII = str.maketrans({"·": "-", "…": "~", "×": "x", "–": "-", "›": ">", "µ": "u", "\N{REPLACEMENT CHARACTER}": "?"})
"""One character for one, so that columns stay where they are."""


@record
class Screen:
    """What text is written to.

    Attributes:
        width: characters to a line.
        fancy: a terminal that shows colours and block characters.
        unicode: it can write more than ASCII.
    """

    width: int = 100
    fancy: bool = False
    unicode: bool = True


def render_text(document: Document, screen: Screen = Screen()) -> str:  # noqa: B008 - a record, which nobody changes
    """The document as lines of at most `screen.width` characters, ending in a newline."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out,
        width=screen.width,
        height=25,  # means nothing here, but without it the terminal is asked for its size again and again
        force_terminal=screen.fancy,
        color_system="standard" if screen.fancy else None,
        no_color=not screen.fancy,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    _print_heading(console, document.heading)
    for block in document.blocks:
        console.print()
        _print_block(console, block, screen)
    lines = out.getvalue().replace(_FIXED, " ").split("\n")
    text = "\n".join(_TRAILING.sub(lambda end: end[0].replace(" ", ""), line) for line in lines[:-1]) + "\n"
    return text if screen.unicode else text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(_BEFORE_UNIT.sub(_FIXED, clean(text)), style=style)


def _print_heading(console: Console, parts: tuple[str, ...]) -> None:
    """The parts, never broken within unless one alone is too long for a line."""
    line = ""
    for i, part in enumerate(parts):
        part = clean(part) + (" ·" if i < len(parts) - 1 else "")
        if line and len(line) + 1 + len(part) > console.width:
            console.print(_text(line, "bold cyan"))
            line = ""
        line = f"{line} {part}".lstrip()
    console.print(_text(line, "bold cyan"))


def _print_block(console: Console, block: Block, screen: Screen) -> None:
    if isinstance(block, Paragraph):
        console.print(_text(block.text, _STYLES[block.tone]))
    elif isinstance(block, Listing):
        _print_listing(console, block)
    else:
        _print_table(console, block, screen)


def _print_listing(console: Console, listing: Listing) -> None:
    from rich.table import Table as Grid

    console.print(_text(listing.title, "bold"))
    grid = Grid.grid(padding=(0, 1))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for number, lines in enumerate(listing.entries, 1):
        mark = f" {number}" if listing.numbered else " -"
        grid.add_row(mark, _text(lines[0], _STYLES[listing.tone]))
        for line in lines[1:]:
            grid.add_row("", _indented(line))
    console.print(grid)
    if listing.note:
        console.print(_text(f" {listing.note}", "dim"))


def _indented(line: str) -> RenderableType:
    """A line "why: …" with what follows the word kept to the right of it."""
    from rich.table import Table as Grid

    word, colon, rest = line.partition(": ")
    if not colon or len(word) > 8:
        return _text(line)
    inner = Grid.grid(padding=(0, 1))
    inner.add_column(width=6, no_wrap=True, style="dim")
    inner.add_column(overflow="fold")
    inner.add_row(_text(word), _text(rest))
    return inner


def _print_table(console: Console, table: Table, screen: Screen) -> None:
    from rich.table import Table as Grid

    if table.title:
        console.print(_text(table.title, "bold"))
    rows = [*table.rows, *([table.total] if table.total else [])]
    free = _free_width(table, rows, screen)
    grid = Grid.grid(padding=(0, 2, 0, 0))
    for column in table.columns:
        grid.add_column(justify="right" if column.right else "left", no_wrap=not column.grows, overflow="fold")
    if any(c.title for c in table.columns):
        grid.add_row(*(_text(_lead(i) + c.title, "dim") for i, c in enumerate(table.columns)))
    for row in rows:
        style = "bold" if row is table.total else ""
        grid.add_row(*(_cell(cell, i, free, screen, style) for i, cell in enumerate(row)))
    console.print(grid)
    if table.note:
        console.print(_text(f" {table.note}", "dim"))


def _lead(position: int) -> str:
    return " " if position == 0 else ""


def _free_width(table: Table, rows: list[tuple[Cell, ...]], screen: Screen) -> int:
    """The width left for the column that grows."""
    taken = 0
    for i, column in enumerate(table.columns):
        if not column.grows:
            taken += 2 + max([len(_lead(i) + column.title), *(len(_lead(i)) + _width(row[i], screen) for row in rows)])
    return max(screen.width - taken - 2, 16)


def _width(cell: Cell, screen: Screen) -> int:
    return len(_bar(cell, screen)) if isinstance(cell, Bar) else len(clean(cell.text if isinstance(cell, Name) else cell))


def _bar_width(screen: Screen) -> int:
    return _BAR if screen.width >= 90 else 12


def _cell(cell: Cell, position: int, free: int, screen: Screen, style: str) -> Text:
    if isinstance(cell, Bar):
        return _text(_bar(cell, screen), _BAR_STYLES.get(cell.kind, "red"))
    if isinstance(cell, Name):
        from traceread.names import kernel_title

        return _text(_lead(position) + shorten(kernel_title(cell.text), free), style)
    return _text(_lead(position) + cell, style)


def _bar(bar: Bar, screen: Screen) -> str:
    """The share as block characters, or number signs where those do not print; anything above zero shows."""
    width = _bar_width(screen)
    eighths = (16 * width * bar.part + bar.whole) // (2 * bar.whole) if bar.whole else 0
    if bar.part > 0:
        eighths = max(eighths, 1)
    if screen.fancy and screen.unicode:
        return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    return "#" * max((eighths + 4) // 8, 1 if eighths else 0)
