"""Read-only SQLite to numpy columns in batches: every table once, in file order, memory bounded by the columns kept.

The file is untrusted. It is opened immutable, only its real tables are read (no view, no virtual table, so none of its own
SQL runs), every count it implies is held against its size, and each error of SQLite becomes a CorruptTrace. Where the compiled
reader of pages was built it takes the columns of events from the pages themselves, and SQLite reads what that does not understand.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import numpy.typing as npt

from traceread.errors import CorruptTrace, InputError
from traceread.model import IntColumn
from traceread.readers import pages
from traceread.readers.options import Progress
from traceread.readers.pages import Texts
from traceread.records import record

_BATCH_ROWS = 1 << 9  # so few that their objects stay in the processor's cache
_USUAL_ROW_BYTES = 20
_SMALLEST = -(1 << 63)
_STRIDE = 1 << 40  # beyond the bits of a thread
_MOST_ODD_ROWS = 1000
_SMALLEST_ROW_BYTES = 4  # payload length, row id, record header and cell pointer cannot take less
_STEPS_BETWEEN_CHECKS = 1_000_000  # of SQLite's virtual machine
_STEPS_PER_BYTE = 64  # a scan takes about 60 steps a row of at least four bytes
_REAL_TABLE = re.compile(r"\s*create\s+table\b", re.IGNORECASE)
_DAMAGED = "the file is cut or damaged; copy or export it again"


@record
class Among:
    """A condition on rows: a column, with some bits cleared, is one of these values, or none of them; NULL never is.

    Attributes:
        column: the column.
        values: the values.
        cleared: bits that do not count.
        negated: rows with one of these values are left out.
    """

    column: str
    values: tuple[int, ...]
    cleared: int = 0
    negated: bool = False

    def sql(self) -> str:
        """The condition for SQLite."""
        value = f"({_quoted(self.column)} & ~{self.cleared})" if self.cleared else _quoted(self.column)
        return f"{value} {'NOT ' if self.negated else ''}IN ({', '.join(map(str, self.values))})"

    def holds(self, values: IntColumn) -> npt.NDArray[np.bool_]:
        """For which of these values it holds, where `if_null` stands for NULL."""
        found: npt.NDArray[np.bool_] = np.isin(values & ~self.cleared, self.values)
        return ~found if self.negated else found

    @property
    def if_null(self) -> int:
        """A value for which it does not hold, as it does not for NULL."""
        if self.negated:
            return self.values[0] if self.values else 0  # NOT IN () holds for NULL as well
        values = frozenset(self.values)
        return next(value for value in range(_SMALLEST, -_SMALLEST, _STRIDE) if value & ~self.cleared not in values)


class _Stack:
    """Integer columns that grow by batches, in one piece of memory as long as they have room."""

    def __init__(self, columns: Iterable[str], room: int) -> None:
        self._room = room
        self._columns = {column: np.empty(room, np.int64) for column in columns}
        self._rows = 0

    def add(self, numbers: Mapping[str, IntColumn]) -> None:
        """Copies the rows of a batch behind those that are there."""
        stop = self._rows + _length(numbers)
        if stop > self._room:
            self._room = max(2 * self._room, stop)
            for column, values in self._columns.items():
                self._columns[column] = np.empty(self._room, np.int64)
                self._columns[column][: self._rows] = values[: self._rows]
        for column, values in numbers.items():
            self._columns[column][self._rows : stop] = values
        self._rows = stop

    def columns(self) -> dict[str, IntColumn]:
        """The columns, as long as there are rows."""
        return {column: values[: self._rows] for column, values in self._columns.items()}


def _length(numbers: Mapping[str, IntColumn]) -> int:
    return len(next(iter(numbers.values())))


Label = Callable[[Texts | Sequence[str | None], Mapping[str, IntColumn]], IntColumn]
_Columns = tuple[dict[str, IntColumn], Texts | Sequence[str | None]]


class _NoPages(Exception):
    """SQLite has to read the table."""


@record
class _Pages:
    """The open file beside SQLite's own."""

    file: int
    layout: pages.Layout


@record
class _Stored:
    """How a table is stored: its first page, the place of each column in a row, those with a default, a name of the row id."""

    root: int
    columns: dict[str, int]
    added: frozenset[int]
    rowid: str


class Database:
    """One open SQLite file: which real tables it has, and their columns as numpy arrays."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, size: int, progress: Progress | None = None, pages: _Pages | None = None
    ) -> None:
        self.path = path
        self.size = size
        self._pages = pages
        self._connection = connection
        self._progress = progress
        self._rows_done = 0
        self._rows_expected = 0
        self._steps = 0
        self._refuse_cut()
        connection.set_progress_handler(self._too_many_steps, _STEPS_BETWEEN_CHECKS)
        listed = self._fetch("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        self._names = {name for name, sql in listed if isinstance(name, str) and isinstance(sql, str) and _REAL_TABLE.match(sql)}
        self._columns: dict[str, frozenset[str]] = {}

    @property
    def names(self) -> frozenset[str]:
        """The names of all real tables."""
        return frozenset(self._names)

    def has_rows(self, name: str) -> bool:
        """Whether there is such a table with something in it."""
        table = self.table(name)
        return table is not None and bool(self._fetch(f"SELECT 1 FROM {_quoted(table)} LIMIT 1"))  # noqa: S608 - a name of its own, quoted

    def count(self, name: str) -> int:
        """How many rows a table has, 0 if there is none."""
        return sum(len(batch) for batch in self._batches(name, ["NULL"], ""))

    def table(self, name: str) -> str | None:
        """The table of this name, or of its highest `name_V<n>`, None if there is none."""
        if name in self._names:
            return name
        suffixed = re.compile(re.escape(name) + r"_V(\d{1,3})", re.IGNORECASE)
        versions = [(int(match[1]), match[0]) for match in map(suffixed.fullmatch, self._names) if match]
        return max(versions)[1] if versions else None

    def has(self, name: str) -> bool:
        """Whether there is such a table, with or without rows."""
        return self.table(name) is not None

    def columns(self, name: str) -> frozenset[str]:
        """Names of the table's columns; empty if there is no such table."""
        table = self.table(name)
        if table is None:
            return frozenset()
        if table not in self._columns:
            described = self._fetch(f"PRAGMA table_info({_quoted(table)})")
            self._columns[table] = frozenset(row[1] for row in described)
        return self._columns[table]

    def expect(self, names: Sequence[str]) -> None:
        """Count the rows that reading these tables will take, so that progress can be told in bytes of the file."""
        self._rows_expected += sum(map(self._last_row, names))

    def read_all(self) -> None:
        """Tell that nothing more of the file will be read."""
        if self._progress is not None:
            self._progress(self.size, self.size)

    def integers(
        self, name: str, columns: Mapping[str, int], where: Sequence[Among] = (), text: str | None = None, label: Label | None = None
    ) -> dict[str, IntColumn]:
        """Integer columns of a table in file order; a missing column, and NULL, read as the default given for it.

        A missing table gives empty columns.

        Args:
            name: the table.
            columns: their names and defaults.
            where: conditions on existing columns.
            text: a text column, of which `label` makes the integer column "label".
            label: called with some thousand texts and the integer columns beside them.
        """
        for batches in (self._from_pages, self._from_sqlite):
            stack = _Stack([*columns, *(["label"] if label else [])], min(self._last_row(name), self.size // _USUAL_ROW_BYTES))
            with suppress(_NoPages):
                for numbers, texts in batches(name, columns, text, where):
                    stack.add({**numbers, "label": label(texts, numbers)} if label else numbers)
                return stack.columns()
        raise AssertionError("SQLite reads every table, or says why not")

    def _from_sqlite(self, name: str, integers: Mapping[str, int], text: str | None, where: Sequence[Among]) -> Iterator[_Columns]:
        """Batches of a table by SQLite."""
        for batch in self._batches(name, self._expressions(name, integers, text), _all_of(where)):
            yield self._columns_of(name, integers, text, batch)

    def _expressions(self, name: str, integers: Mapping[str, int], text: str | None) -> list[str]:
        present = self.columns(name)
        expressions = [f"ifnull({_quoted(c)}, {default})" if c in present else str(default) for c, default in integers.items()]
        return expressions if text is None else [*expressions, _quoted(text) if text in present else "NULL"]

    def _columns_of(self, name: str, integers: Mapping[str, int], text: str | None, batch: Sequence[tuple[Any, ...]]) -> _Columns:
        """Rows as SQLite gives them, as columns."""
        if text is None:
            flat = self._numbers(name, chain.from_iterable(batch), len(batch) * len(integers)).reshape(len(batch), -1)
            return {column: flat[:, i] for i, column in enumerate(integers)}, ()
        *by_column, texts = zip(*batch, strict=True)
        return {column: self._numbers(name, values, len(batch)) for column, values in zip(integers, by_column, strict=True)}, texts

    def _from_pages(self, name: str, integers: Mapping[str, int], text: str | None, where: Sequence[Among]) -> Iterator[_Columns]:
        """The same from the pages of the table; raises _NoPages, at once or later, where SQLite has to read it all."""
        stored = self._stored(name)
        conditions = [f"where {w.column}" for w in where]
        here = [c for c in integers if c in self.columns(name)]
        if self._pages is None or stored is None or not {*here, *(w.column for w in where)} <= set(stored.columns):
            raise _NoPages
        if text is not None and (text not in stored.columns or not self._pages.layout.utf8):
            raise _NoPages
        wanted: list[tuple[int, str, int | None]] = [(stored.columns[c], c, integers[c]) for c in here]
        wanted += [(stored.columns[w.column], key, w.if_null) for w, key in zip(where, conditions, strict=True)]
        wanted += [] if text is None else [(stored.columns[text], "", None)]
        wanted.sort()
        columns = [pages.Wanted(position, if_null, position in stored.added) for position, _, if_null in wanted]
        keys = [key for _, key, if_null in wanted if if_null is not None]
        self._steps = odd = 0
        try:
            for batch in pages.batches(self._pages.file, self._pages.layout, stored.root, columns):
                if isinstance(batch, pages.Batch):
                    numbers, texts = dict(zip(keys, batch.integers, strict=True)), batch.texts
                    rows = batch.integers.shape[1]
                    self._report(rows)
                    if where:
                        kept = np.logical_and.reduce([w.holds(numbers[key]) for w, key in zip(where, conditions, strict=True)])
                        numbers, texts = {key: values[kept] for key, values in numbers.items()}, texts and texts.take(kept)
                        rows = int(kept.sum())
                    yield {c: numbers[c] if c in numbers else np.full(rows, d, np.int64) for c, d in integers.items()}, texts or ()
                elif (odd := odd + 1) <= _MOST_ODD_ROWS:
                    yield from self._odd_row(name, integers, text, where, f"{stored.rowid} = {batch}")
                else:
                    raise _NoPages
        except (pages.NotUnderstood, OSError):
            raise _NoPages from None

    def _odd_row(self, name: str, integers: Mapping[str, int], text: str | None, where: Sequence[Among], row: str) -> Iterator[_Columns]:
        """One row that the reader of pages does not understand, if the conditions hold; raises _NoPages if SQLite does not find it."""
        expressions = [f"ifnull({_all_of(where) or 1}, 0)", *self._expressions(name, integers, text)]
        found = list(chain.from_iterable(self._batches(name, expressions, row)))
        if len(found) != 1:
            raise _NoPages
        if found[0][0]:
            yield self._columns_of(name, integers, text, [found[0][1:]])

    def _stored(self, name: str) -> _Stored | None:
        """How the rows of a table are stored; None where that is not plain."""
        table = self.table(name)
        if table is None or self._pages is None:
            return None
        described = self._fetch(f"PRAGMA table_xinfo({_quoted(table)})")
        roots = self._fetch(f"SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = {_literal(table)}")  # noqa: S608
        names = {str(column).lower() for _, column, *_ in described}
        rowid = next((alias for alias in ("rowid", "_rowid_", "oid") if alias not in names), None)
        if rowid is None or len(roots) != 1 or not isinstance(roots[0][0], int) or any(hidden for *_, hidden in described):
            return None
        # The one INTEGER PRIMARY KEY is the row id and not in the row.
        columns = {column: cid for cid, column, kind, _, _, key, _ in described if not (key and str(kind).upper() == "INTEGER")}
        added = frozenset(cid for cid, _, _, _, default, _, _ in described if default is not None)
        return _Stored(roots[0][0], columns, added, rowid)

    def _last_row(self, name: str) -> int:
        table = self.table(name)
        if table is None:
            return 0
        last = self._fetch(f"SELECT max(rowid) FROM {_quoted(table)}")[0][0]  # noqa: S608 - a name of its own, quoted
        return min(last, self.size) if isinstance(last, int) else 0

    def rows(self, name: str, columns: Sequence[str], where: str = "") -> list[tuple[Any, ...]]:
        """All rows of a small table, values as SQLite holds them; a missing column reads as None."""
        present = self.columns(name)
        expressions = [_quoted(column) if column in present else "NULL" for column in columns]
        return list(chain.from_iterable(self._batches(name, expressions, where)))

    def batches(self, name: str, columns: Sequence[str], where: str = "") -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a table of any size in the order of the file, some hundred at a time; only columns that it has."""
        return self._batches(name, [_quoted(column) for column in columns], where)

    def strings(self, name: str, ids: IntColumn) -> dict[int, str]:
        """Text of these ids from a table (id, value); ids it does not hold are left out."""
        found: dict[int, str] = {}
        if not {"id", "value"} <= self.columns(name):
            return found
        for start in range(0, len(ids), 500):
            among = ",".join(map(str, ids[start : start + 500].tolist()))
            for batch in self._batches(name, ['"id"', '"value"'], f'"id" IN ({among})', by_key=True):
                found.update((key, value) for key, value in batch if isinstance(value, str))
        if sum(map(len, found.values())) > self.size:
            raise CorruptTrace(f"{self.path}: table {name} claims more text than the file holds", _DAMAGED)
        return found

    def _batches(self, name: str, expressions: Sequence[str], where: str, by_key: bool = False) -> Iterator[list[tuple[Any, ...]]]:
        table = self.table(name)
        if table is None:
            return
        # NOT INDEXED: an index somebody added must not change the order, nor be trusted to agree with the table.
        source = _quoted(table) if by_key else f"{_quoted(table)} NOT INDEXED"
        query = f"SELECT {', '.join(expressions)} FROM {source}" + (f" WHERE {where}" if where else "")  # noqa: S608 - quoted names
        self._steps = 0
        total = 0
        with self._damage(name):
            cursor = self._connection.execute(query)
            while batch := list(islice(cursor, _BATCH_ROWS)):
                total += len(batch)
                if total > self.size // _SMALLEST_ROW_BYTES:
                    raise CorruptTrace(f"{self.path}: table {name} claims more rows than the file can hold", _DAMAGED)
                if not by_key:
                    self._report(len(batch))
                yield batch

    def _numbers(self, name: str, values: Iterable[object], count: int) -> IntColumn:
        try:
            return np.fromiter(values, np.int64, count=count)
        except (TypeError, ValueError, OverflowError):
            raise CorruptTrace(f"{self.path}: table {name} holds text where numbers belong", _DAMAGED) from None

    def _report(self, rows: int) -> None:
        self._rows_done += rows
        if self._progress is not None and self._rows_expected:
            self._progress(self.size * min(self._rows_done, self._rows_expected) // self._rows_expected, self.size)

    def _fetch(self, query: str) -> list[tuple[Any, ...]]:
        self._steps = 0
        with self._damage("sqlite_master"):
            return self._connection.execute(query).fetchmany(self.size // _SMALLEST_ROW_BYTES + 1)

    def _refuse_cut(self) -> None:
        """Raises if the file is shorter than its header says: SQLite itself would read the missing part of a page as zeros."""
        pages, page_size = (self._fetch(f"PRAGMA {name}")[0][0] for name in ("page_count", "page_size"))
        if self.size < pages * page_size:
            raise CorruptTrace(f"{self.path}: the file is cut: {self.size} of {pages * page_size} bytes are there", _DAMAGED)

    def _too_many_steps(self) -> int:
        self._steps += _STEPS_BETWEEN_CHECKS
        return self._steps > 10_000_000 + _STEPS_PER_BYTE * self.size

    @contextmanager
    def _damage(self, table: str) -> Iterator[None]:
        """Turns what SQLite says about the file into a CorruptTrace; its message may quote the file, so only known parts are kept."""
        try:
            yield
        except sqlite3.DataError:
            raise CorruptTrace(f"{self.path}: a value in table {table} is larger than the file can hold", _DAMAGED) from None
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            reason = re.split(r"[:(]", str(error))[0].strip() if isinstance(error, sqlite3.Error) else "undecodable text"
            raise CorruptTrace(f"{self.path}: cannot read table {table}: {reason}", _DAMAGED) from None


@contextmanager
def opened(
    path: Path, *, named: Path | None = None, max_value_bytes: int = 256 << 20, progress: Progress | None = None, compiled: bool = True
) -> Iterator[Database]:
    """The SQLite file at path, opened read-only and immutable; closed at the end. Messages call it `named`, if given.

    Raises InputError when the system refuses the file, CorruptTrace when SQLite does.
    """
    try:
        size = path.stat().st_size
        # immutable=1: no lock, no journal, no -wal or -shm file is looked for or made (exports lie on read-only and network drives).
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{named or path}: cannot be opened: {reason}", f"ls -l {quote(str(named or path))}") from None
    try:
        # Not every exporter writes UTF-8: time zone names come in the machine's own encoding.
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(1 << 20, min(max_value_bytes, size)))
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        with _pragmas_as_corrupt(named or path):
            for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0", "temp_store = MEMORY"):
                connection.execute(f"PRAGMA {pragma}")
        with _opened_pages(path, size, compiled) as own:
            yield Database(named or path, connection, size, progress, own)
    finally:
        connection.close()


@contextmanager
def _opened_pages(path: Path, size: int, compiled: bool) -> Iterator[_Pages | None]:
    """The file once more, for the reader of pages; None where that cannot be used."""
    if not compiled or not pages.is_available():
        yield None
        return
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        yield None
        return
    try:
        layout = pages.layout(os.pread(file, pages.HEADER_BYTES, 0), size)
        yield None if layout is None else _Pages(file, layout)
    finally:
        os.close(file)


@contextmanager
def _pragmas_as_corrupt(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise CorruptTrace(f"{path}: not a readable SQLite file: {error}", _DAMAGED) from None


def _all_of(conditions: Sequence[Among]) -> str:
    return " AND ".join(condition.sql() for condition in conditions)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
