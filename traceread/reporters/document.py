"""What every format shows: headings, sentences, tables and lists, before anybody decides how they look.

A document is made once from a result and rendered by text, markdown, html and notebook alike, so that none of them says more
or less than another. Strings in it may hold recorded names as they are; renderers clean and escape them.
"""

from __future__ import annotations

from enum import StrEnum

from traceread.records import record


class Tone(StrEnum):
    """How a block is meant."""

    PLAIN = "plain"
    STRONG = "strong"
    FAINT = "faint"
    WARNING = "warning"


@record
class Bar:
    """A share drawn as a bar: `part` of `whole`; `kind` is the key of the class or category it stands for."""

    part: int
    whole: int
    kind: str


@record
class Name:
    """A recorded name: where there is no room its middle is left out."""

    text: str


Cell = str | Bar | Name


@record
class Column:
    """A column of a table.

    Attributes:
        title: its heading, may be empty.
        right: numbers: aligned right, never broken.
        grows: takes the width that is left; its text wraps.
    """

    title: str = ""
    right: bool = False
    grows: bool = False


@record
class Table:
    """Rows of cells under columns; `total` is a last row set apart, `note` a line below."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    total: tuple[Cell, ...] | None = None
    note: str = ""


@record
class Paragraph:
    """Sentences."""

    text: str
    tone: Tone = Tone.PLAIN


@record
class Listing:
    """Entries under a title, each a first line and further lines; `numbered` ones are ranked."""

    title: str
    entries: tuple[tuple[str, ...], ...]
    numbered: bool = False
    tone: Tone = Tone.PLAIN
    note: str = ""


Block = Table | Paragraph | Listing


@record
class Document:
    """A heading (its parts are joined by dots) and blocks."""

    heading: tuple[str, ...]
    blocks: tuple[Block, ...]
