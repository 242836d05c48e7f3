"""Large tables of a SQLite file straight from its pages, where the compiled reader of pages was built: batches of numpy columns.

It is an optional extension of this package, as the scanner of events is; without it, or with TRACEREAD_PURE_PYTHON=1, SQLite reads
everything: the same columns, more slowly. What it does not understand SQLite reads too, row by row or from there on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from traceread.readers.scanner import PURE_PYTHON
from traceread.records import record

try:
    from traceread.readers import _pages
except ImportError:  # not built: no compiler when the package was installed
    _HERE = False
else:
    _HERE = True

if TYPE_CHECKING:
    from traceread.model import IntColumn

HEADER_BYTES = 100
_UTF8 = 1
_ROWS = 1 << 16
_TEXT_BYTES = 4 << 20
_LARGEST_WINDOW = 1 << 20


def is_available() -> bool:
    """Whether the compiled reader of pages was built and is not turned off."""
    return _HERE and hasattr(os, "preadv") and os.environ.get(PURE_PYTHON, "") in ("", "0")


def in_use() -> str:
    """What reads the large tables of Nsight Systems exports here, in words for people."""
    if is_available():
        return "compiled reader of pages"
    if not _HERE:
        return "SQLite (the compiled reader of pages was not built)"
    return f"SQLite ({PURE_PYTHON} is set)" if os.environ.get(PURE_PYTHON) else "SQLite"


@record
class Layout:
    """What the header of a file says about its pages.

    Attributes:
        page_bytes, usable_bytes: size of a page, and how much of it holds data.
        pages: how many there are.
        utf8: whether texts are UTF-8.
    """

    page_bytes: int
    usable_bytes: int
    pages: int
    utf8: bool


@record
class Wanted:
    """A column that is wanted.

    Attributes:
        position: in the table.
        if_null: what stands for NULL; None for a text.
        added: rows that end before the column have another value than NULL.
    """

    position: int
    if_null: int | None
    added: bool = False


@record(eq=False)
class Texts:
    """One text, or none, per row.

    Attributes:
        data: texts in UTF-8.
        start, end: for each row where its text is in there; end -1: none.
    """

    data: npt.NDArray[np.uint8]
    start: IntColumn
    end: IntColumn

    def __len__(self) -> int:
        return len(self.end)

    def take(self, kept: npt.NDArray[np.bool_]) -> Texts:
        """The texts of some rows."""
        return Texts(self.data, self.start[kept], self.end[kept])


@record(eq=False)
class Batch:
    """Some rows, in memory that the next ones overwrite.

    Attributes:
        integers: one row per integer column.
        texts: the text column, if one was wanted.
    """

    integers: npt.NDArray[np.int64]
    texts: Texts | None


class NameKind(IntEnum):
    """What a text is as the name of an NVTX range."""

    NONE = 0
    NAME = 1
    OPERATOR = 2  # a name to which emit_nvtx has added what is unique to a call
    ODD = 3  # to be looked at otherwise


@record(eq=False)
class Names:
    """The different names in a column of texts.

    Attributes:
        kinds: for each the NameKind.
        names: each name without the suffix of an operator, "" if there is none.
        of: for each row the position of its name.
    """

    kinds: list[int]
    names: list[str]
    of: npt.NDArray[np.int32]


class NotUnderstood(Exception):
    """The table is not what it should be: SQLite has to read it on."""


def layout(header: bytes, size: int) -> Layout | None:
    """What the first bytes of a file of this size say; None where pages cannot be read."""
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 1 << 16 if page_bytes == 1 else page_bytes
    if len(header) < HEADER_BYTES or page_bytes < 512 or page_bytes & (page_bytes - 1):
        return None
    usable = page_bytes - header[20]
    encoding = int.from_bytes(header[56:60], "big")
    return Layout(page_bytes, usable, min(size // page_bytes, (1 << 32) - 2), encoding == _UTF8) if usable >= 480 else None


def batches(file: int, layout: Layout, root: int, columns: Sequence[Wanted]) -> Iterator[Batch | int]:
    """The rows of a table in order, some ten thousand at a time; a row id for each row that is not understood.

    Args:
        file: descriptor of the open file.
        layout: of its pages.
        root: first page of the table.
        columns: what is wanted, in order of position; at most one text.

    Raises:
        NotUnderstood: it is no ordinary table, or damaged.
        OSError: the file cannot be read.
    """
    try:
        leaves = _pages.Leaves(
            root,
            layout.page_bytes,
            layout.usable_bytes,
            layout.pages,
            [c.position for c in columns],
            [c.if_null is None for c in columns],
            [c.if_null or 0 for c in columns],
            [c.added for c in columns],
        )
    except ValueError:  # its first page is not in the file
        raise NotUnderstood from None
    with_text = any(c.if_null is None for c in columns)
    integers = np.empty((len(columns) - with_text, _ROWS), np.int64)
    ends = np.empty(_ROWS if with_text else 0, np.int64)
    text = np.empty(_TEXT_BYTES if with_text else 1, np.uint8)
    window = _Window(file, layout)
    rows = used = 0
    while True:
        how, rows, used, number = leaves.fill(window.data, window.first, integers, ends, text, rows, used)
        if how == _pages.PAGE:
            window.move(number)
            continue
        if rows:
            start = np.maximum.accumulate(np.concatenate(([0], ends[: rows - 1]))) if with_text else ends
            yield Batch(integers[:, :rows], Texts(text, start, ends[:rows]) if with_text else None)
        rows = used = 0
        if how == _pages.DONE:
            return
        if how == _pages.TABLE:
            raise NotUnderstood
        if how == _pages.ROW:
            yield number


def distinct_names(texts: Texts) -> Names:
    """The names of NVTX ranges; few where the texts are many."""
    rows = len(texts)
    first, cut = np.empty(rows, np.int64), np.empty(rows, np.int64)
    kind, of = np.empty(rows, np.uint8), np.empty(rows, np.int32)
    slots = np.zeros(1 << (2 * rows + 1).bit_length(), np.int32)
    count = _pages.names(texts.data, texts.start, texts.end, first, cut, kind, of, slots)
    starts = texts.start[first[:count]].tolist()
    return Names(
        kind[:count].tolist(),
        [texts.data[a:b].tobytes().decode("utf-8", "replace") for a, b in zip(starts, cut[:count].tolist(), strict=True)],
        of,
    )


class _Window:
    """Some pages of the file in memory: as many at once as turn out to be the table's.

    Attributes:
        data: the pages.
        first: number of the first of them.
    """

    def __init__(self, file: int, layout: Layout) -> None:
        self.data = np.empty(0, np.uint8)
        self.first = 1
        self._file, self._layout = file, layout
        self._buffer = np.empty(max(_LARGEST_WINDOW, layout.page_bytes), np.uint8)
        self._pages = 1

    def move(self, page: int) -> None:
        """Reads the pages from this one on."""
        held = len(self.data) // self._layout.page_bytes
        # The tables of an export lie beside each other: what stands between the pages of one is read for nothing.
        near = 0 <= page - self.first - held <= held // 2
        most = len(self._buffer) // self._layout.page_bytes
        self._pages = min(2 * self._pages, most) if near else max(self._pages // 2, 1)
        begin = (page - 1) * self._layout.page_bytes
        wanted = self._buffer[: self._pages * self._layout.page_bytes]
        filled = os.preadv(self._file, [wanted.data], begin)
        self.data, self.first = wanted[: filled - filled % self._layout.page_bytes], page
        if not len(self.data):
            raise NotUnderstood
