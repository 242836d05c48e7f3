"""Traces that were read before, as memory-mapped columns on disk: `--cache DIR`.

An entry is a directory of .npy files with an index, named after the content of the file it was read from, its name, the limits it
was read with, and the code that read it. It appears whole or not at all, is checked before it is used, and may be deleted at any time.
Whatever is wrong with the cache costs time and a warning, never the report.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt

from traceread import model
from traceread.errors import Notice
from traceread.model import Table, Trace
from traceread.records import record

FORMAT = 1
_INDEX = "index.json"
_TEXT, _ENDS = "names", "names_end"
_RACY_NS = 2_000_000_000
_STALE_S = 86_400
_APART = ("names", "files")
_KINDS: dict[str, Any] = {f.name: get_type_hints(Trace)[f.name] for f in dataclasses.fields(Trace)}
_TABLES: dict[str, type[Table]] = {name: kind for name, kind in _KINDS.items() if isinstance(kind, type) and issubclass(kind, Table)}

Columns = dict[str, npt.NDArray[Any]]


class _Stored(msgspec.Struct, frozen=True):
    """One trace in an index: its plain fields, and the number of the set of columns of each table."""

    plain: dict[str, Any]
    tables: dict[str, int]
    names: int


class _Index(msgspec.Struct, frozen=True):
    """An entry: its traces, and for every column file its checksum."""

    format: int
    traces: list[_Stored]
    checksums: dict[str, int]


class _Seen(msgspec.Struct, frozen=True):
    """A file as it was when its content was hashed."""

    stat: tuple[int, ...]
    hashed_ns: int
    digest: str


class Unusable(Exception):
    """An entry that is not what it should be."""


@record
class Cache:
    """A directory of traces.

    Attributes:
        folder: where it is; made when first written to.
        limits: what else the result of reading depends on.
    """

    folder: Path
    limits: tuple[int, ...] = ()

    def read(self, path: Path, reader: Callable[[], list[Trace]], known: str = "") -> list[Trace]:
        """The traces in a file: as stored, else as read, which are stored then. A warning is on them where the cache fails.

        Args:
            path: the file.
            reader: reads it.
            known: what stands for its content; by default the content does.
        """
        problems: list[str] = []
        try:
            before = () if known else _stat(path)
            entry = self._entry(path, known or _digest(path, before, self.folder / "files"))
        except OSError:
            return reader()  # which says better what is wrong with the file
        try:
            return _load(entry, path)
        except FileNotFoundError:
            pass
        except (Unusable, OSError) as error:
            problems.append(f"the entry of {path.name} is unusable ({_reason(error)}) and is made anew")
            shutil.rmtree(entry, ignore_errors=True)
        traces = reader()
        try:
            if known or _stat(path) == before:  # else it was written to meanwhile, and nobody knows which content this is
                self._store(entry, traces)
        except (OSError, UnicodeError) as error:
            problems.append(f"{path.name} could not be stored ({_reason(error)})")
        notices = tuple(Notice("cache", f"cache {self.folder}: {problem}") for problem in problems)
        return [replace(trace, notices=trace.notices + notices) for trace in traces]

    def _entry(self, path: Path, content: str) -> Path:
        parts = (content, path.name, repr(self.limits), _code())
        return self.folder / hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]

    def _store(self, entry: Path, traces: Sequence[Trace]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in self.folder.glob("*.tmp"):
            with suppress(FileNotFoundError):  # somebody else has just finished it
                if time.time() - old.stat().st_mtime > _STALE_S:  # of a process that was killed
                    shutil.rmtree(old, ignore_errors=True)
        making = Path(tempfile.mkdtemp(prefix=f"{entry.name}.", suffix=".tmp", dir=self.folder))
        try:
            _write(making, traces)
            making.rename(entry)
        except OSError:
            if not entry.is_dir():  # else somebody else was faster
                raise
        finally:
            shutil.rmtree(making, ignore_errors=True)


def _write(folder: Path, traces: Sequence[Trace]) -> None:
    checksums: dict[str, int] = {}
    numbers: dict[int, int] = {}  # tables that traces share are written once

    def write(key: object, columns: Callable[[], Columns]) -> int:
        if id(key) not in numbers:
            numbers[id(key)] = len(numbers)
            for name, values in columns().items():
                file = f"{numbers[id(key)]}.{name}.npy"
                np.save(folder / file, values, allow_pickle=False)
                checksums[file] = _checksum(values)
        return numbers[id(key)]

    stored = []
    for trace in traces:
        plain = {name: getattr(trace, name) for name in _KINDS if name not in _TABLES and name not in _APART}
        tables = {name: write(table, partial(_columns_of, table)) for name in _TABLES for table in [getattr(trace, name)]}
        stored.append(_Stored(msgspec.to_builtins(plain), tables, write(trace.names, partial(_packed, trace.names))))
    (folder / _INDEX).write_bytes(msgspec.json.encode(_Index(FORMAT, stored, checksums)))


def _load(entry: Path, path: Path) -> list[Trace]:
    """The traces of an entry.

    Raises:
        FileNotFoundError: there is no such entry.
        Unusable, OSError: it is damaged.
    """
    if not entry.is_dir():
        raise FileNotFoundError(entry)
    try:
        index = msgspec.json.decode((entry / _INDEX).read_bytes(), type=_Index)
        if index.format != FORMAT:
            raise Unusable(f"format {index.format}")
        return [_trace(entry, index, stored, path) for stored in index.traces]
    except FileNotFoundError as error:
        raise Unusable(f"{Path(str(error.filename)).name} is missing") from None
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError, EOFError) as error:
        raise Unusable(str(error)) from None


def _trace(entry: Path, index: _Index, stored: _Stored, path: Path) -> Trace:
    fields: dict[str, Any] = {name: msgspec.convert(value, _KINDS[name]) for name, value in stored.plain.items()}
    fields |= {name: _table(entry, index, kind, stored.tables[name]) for name, kind in _TABLES.items()}
    return Trace(files=(path,), names=_unpacked(_columns(entry, index, stored.names, (_TEXT, _ENDS))), **fields)


def _table(entry: Path, index: _Index, kind: type[Table], number: int) -> Table:
    fields = {f.name: np.dtype(f.metadata["dtype"]) for f in dataclasses.fields(kind)}
    columns = _columns(entry, index, number, tuple(fields))
    for name, dtype in fields.items():
        if columns[name].dtype != dtype:
            raise Unusable(f"{number}.{name} has the wrong type")
    return kind(**columns)


def _columns(entry: Path, index: _Index, number: int, names: Sequence[str]) -> Columns:
    columns = {}
    for name in names:
        file = f"{number}.{name}.npy"
        # Copy on write: nothing that is done to a column can reach the file.
        values = np.load(entry / file, mmap_mode="c", allow_pickle=False)
        if values.ndim != 1 or _checksum(values) != index.checksums[file]:
            raise Unusable(f"{file} has the wrong checksum")
        columns[name] = values.view(np.ndarray)
    return columns


def _columns_of(table: Table) -> Columns:
    return dict(table.columns())


def _packed(names: Sequence[str]) -> Columns:
    texts = [name.encode("utf-8", "surrogatepass") for name in names]
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, count=len(texts)))
    return {_TEXT: np.frombuffer(b"".join(texts), np.uint8), _ENDS: ends}


def _unpacked(columns: Columns) -> tuple[str, ...]:
    text, ends = columns[_TEXT].tobytes(), columns[_ENDS].tolist()
    return tuple(text[start:end].decode("utf-8", "surrogatepass") for start, end in zip([0, *ends], ends, strict=False))


def _checksum(values: npt.NDArray[Any]) -> int:
    from isal import isal_zlib

    return isal_zlib.crc32(np.ascontiguousarray(values).view(np.uint8).data)


# --- which content -----------------------------------------------------------------------------------------------------------


def _stat(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev


def _digest(path: Path, stat: tuple[int, ...], memory: Path) -> str:
    """The hash of a file's content; from memory if it is as it was when it was hashed, and was not being written to then."""
    note = memory / hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:32]
    try:
        seen = msgspec.json.decode(note.read_bytes(), type=_Seen)
        if seen.stat == stat and seen.hashed_ns - max(stat[1:3]) > _RACY_NS:
            return seen.digest
    except (OSError, msgspec.MsgspecError):
        pass
    hashed_ns = time.time_ns()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        memory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=memory, delete=False) as making:
            making.write(msgspec.json.encode(_Seen(stat, hashed_ns, digest)))
        Path(making.name).replace(note)
    except OSError:
        pass  # the next run hashes again
    return digest


@cache
def _code() -> str:
    """A hash of the code that reads traces, so that no other version's results are taken for its own."""
    result = hashlib.sha256(str(FORMAT).encode())
    here = Path(model.__file__).parent
    for file in sorted([*(here / "readers").iterdir(), here / "model.py"]):
        if file.suffix in (".py", ".so", ".pyd"):
            result.update(file.name.encode() + b"\0" + file.read_bytes())
    return result.hexdigest()


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
