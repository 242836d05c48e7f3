"""Read-only SQLite to numpy columns in batches: every table once, in file order, memory bounded by the columns kept.

The file is untrusted. It is opened immutable, only its real tables are read (no view, no virtual table, so none of its own
SQL runs), every count it implies is held against its size, and each error of SQLite becomes a CorruptTrace.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from traceread.errors import CorruptTrace, InputError
from traceread.model import IntColumn
from traceread.readers.options import Progress

MAGIC = b"SQLite format 3\0"

_BATCH_ROWS = 1 << 14
_SMALLEST_ROW_BYTES = 4  # payload length, row id, record header and cell pointer cannot take less
_STEPS_BETWEEN_CHECKS = 1_000_000  # of SQLite's virtual machine
_STEPS_PER_BYTE = 64  # a scan takes about 60 steps a row of at least four bytes
_REAL_TABLE = re.compile(r"\s*create\s+table\b", re.IGNORECASE)
_DAMAGED = "the file is cut or damaged; copy or export it again"


class Database:
    """One open SQLite file: which real tables it has, and their columns as numpy arrays."""

    def __init__(self, path: Path, connection: sqlite3.Connection, size: int, progress: Progress | None) -> None:
        self.path = path
        self.size = size
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
        for name in names:
            table = self.table(name)
            if table is not None:
                last = self._fetch(f"SELECT max(rowid) FROM {_quoted(table)}")  # noqa: S608 - a name of its own, quoted
                self._rows_expected += min(last[0][0] or 0, self.size)

    def read_all(self) -> None:
        """Tell that nothing more of the file will be read."""
        if self._progress is not None:
            self._progress(self.size, self.size)

    def integers(self, name: str, columns: Mapping[str, int], where: str = "") -> dict[str, IntColumn]:
        """Integer columns of a table in file order; a missing column, and NULL, read as the default given for it.

        `where` is SQL over existing columns and constants. A missing table gives empty columns.
        """
        pieces: dict[str, list[IntColumn]] = {column: [np.empty(0, np.int64)] for column in columns}
        for numbers, _ in self.batches(name, columns, (), where):
            for column, values in numbers.items():
                pieces[column].append(values)
        return {column: np.concatenate(pieces.pop(column)) for column in columns}

    def batches(
        self, name: str, integers: Mapping[str, int], texts: Sequence[str], where: str = ""
    ) -> Iterator[tuple[dict[str, IntColumn], dict[str, tuple[str | None, ...]]]]:
        """Integer columns with their defaults and text columns of a table, some thousand rows at a time, in file order."""
        present = self.columns(name)
        expressions = [f"ifnull({_quoted(c)}, {default})" if c in present else str(default) for c, default in integers.items()]
        expressions += [_quoted(column) if column in present else "NULL" for column in texts]
        for batch in self._batches(name, expressions, where):
            if texts:
                by_column = list(zip(*batch, strict=True))
                numbers = {column: self._numbers(name, by_column[i], len(batch)) for i, column in enumerate(integers)}
                yield numbers, dict(zip(texts, by_column[len(integers) :], strict=True))
            else:
                flat = self._numbers(name, chain.from_iterable(batch), len(batch) * len(integers)).reshape(len(batch), -1)
                yield {column: flat[:, i].copy() for i, column in enumerate(integers)}, {}

    def rows(self, name: str, columns: Sequence[str], where: str = "") -> list[tuple[Any, ...]]:
        """All rows of a small table, values as SQLite holds them; a missing column reads as None."""
        present = self.columns(name)
        expressions = [_quoted(column) if column in present else "NULL" for column in columns]
        return list(chain.from_iterable(self._batches(name, expressions, where)))

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
    path: Path, *, named: Path | None = None, max_value_bytes: int = 256 << 20, progress: Progress | None = None
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
        raise InputError(f"{named or path}: cannot be opened: {reason}", f"ls -l {path}") from None
    try:
        # Not every exporter writes UTF-8: time zone names come in the machine's own encoding.
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(1 << 20, min(max_value_bytes, size)))
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        with _pragmas_as_corrupt(named or path):
            for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0", "temp_store = MEMORY"):
                connection.execute(f"PRAGMA {pragma}")
        yield Database(named or path, connection, size, progress)
    finally:
        connection.close()


@contextmanager
def _pragmas_as_corrupt(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise CorruptTrace(f"{path}: not a readable SQLite file: {error}", _DAMAGED) from None


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
