"""An Nsight Systems export in, a fresh one out that holds the tables and columns listed here and nothing else.

The database is written anew: pages of a file that rows were deleted from still hold them. Strings are those that kept rows use.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from traceread.errors import OutputError
from traceread.readers import nsys_collectives, nsys_job
from traceread.readers.nsys_export import (
    GRAPH_TRACE,
    KERNEL,
    MEMCPY,
    MEMSET,
    MPI,
    NVTX,
    OS_RUNTIME,
    OVERHEAD,
    RUNTIME,
    THREAD_BITS,
)
from traceread.readers.nsys_waits import CUDA_EVENT, SYNCHRONIZATION
from traceread.readers.options import DEFAULTS, ReadOptions
from traceread.readers.sqlite import Database, opened
from traceread.scrub.texts import Texts

Row = Sequence[Any]

_GPU = "start end deviceId contextId greenContextId streamId correlationId globalPid graphNodeId"
_HOST = "start end globalTid"

# Tables of numbers, in the order in which they are written. Columns that end in Id or Name and mean a string are listed below.
_TABLES = {
    KERNEL: f"{_GPU} demangledName shortName graphId gridX gridY gridZ blockX blockY blockZ registersPerThread staticSharedMemory "
    "dynamicSharedMemory localMemoryPerThread launchType",
    MEMCPY: f"{_GPU} bytes copyKind srcKind dstKind srcDeviceId dstDeviceId copyCount",
    MEMSET: f"{_GPU} bytes value memKind",
    GRAPH_TRACE: f"{_GPU} graphId graphExecId",
    RUNTIME: f"{_HOST} eventClass correlationId nameId returnValue",
    SYNCHRONIZATION: f"{_GPU} syncType deprecatedSyncType eventId eventSyncId",
    CUDA_EVENT: "timestamp deviceId contextId streamId correlationId globalPid eventId eventSyncId",
    OVERHEAD[0]: f"{_HOST} nameId overheadType returnValue",
    OVERHEAD[1]: f"{_HOST} eventClass correlationId nameId overheadType",
    OS_RUNTIME: f"{_HOST} eventClass nameId returnValue nestingLevel",
    **dict.fromkeys(MPI, f"{_HOST} textId"),
    "MPI_RANKS": "globalTid rank",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid numMultiprocessors",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs systemClockNs",
    "ANALYSIS_DETAILS": "globalVid duration startTime stopTime",
}  # fmt: skip
_STRING_COLUMNS = frozenset(("demangledName", "shortName", "nameId", "textId"))
_GPUS = (
    "vmId id isDiscrete l2CacheSize totalMemory memoryBandwidth clockRate smCount cuDevice computeMajor computeMinor smMajor smMinor "
    "threadsPerWarp asyncEngines maxWarpsPerSm maxBlocksPerSm maxThreadsPerBlock maxShmemPerSm maxRegistersPerSm"
)
_GPU_NAMES = ("name", "chipName")
_NVTX = "start end eventType rangeId category color globalTid endGlobalTid textId domainId"
_SCHEMA = "domainId schemaId idx flags type offset"
_NAME_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_VERSION = re.compile(r"\d[\w.+-]{0,39}|NVIDIA Nsight Systems")
_OWNERS = re.compile(r"(?:^|[\n\0\s;])(HOSTNAME|HOST|SLURMD_NODENAME|USER|LOGNAME|SLURM_JOB_USER|HOME)=([^\n\0\s;]*)")
_ACCOUNTS = ("USER", "LOGNAME", "SLURM_JOB_USER")
_AT_ONCE = 1 << 11


def learn(path: Path, texts: Texts, options: ReadOptions = DEFAULTS) -> None:
    """Lets `texts` learn hosts and accounts of an export.

    Raises:
        InputError, CorruptTrace: it cannot be read.
    """
    with opened(path, max_value_bytes=options.max_event_bytes) as db:
        for name, value in _system(db):
            if name == "Hostname":
                texts.learn(hosts=[value])
            if name == "DeviceEnvironment":
                _learn_from_environment(value, texts)
        for table, column in (("StringIds", "value"), (NVTX, "text")):
            if column in db.columns(table):
                for batch in db.batches(table, [column], f"\"{column}\" GLOB '*[/\\]*'"):
                    texts.learn_from(text for (text,) in batch if isinstance(text, str))


def _learn_from_environment(environment: str, texts: Texts) -> None:
    for variable, value in _OWNERS.findall(environment):
        if variable == "HOME":
            texts.learn_from([value])
        elif variable in _ACCOUNTS:
            texts.learn(users=[value])
        else:
            texts.learn(hosts=[value])


def write(path: Path, target: Path, texts: Texts, removed: Counter[str], options: ReadOptions = DEFAULTS) -> None:
    """Writes the export anew into a file that does not exist; counts by kind what was left out.

    Raises:
        InputError, CorruptTrace: it cannot be read.
        OutputError: the database cannot be written.
    """
    with opened(path, max_value_bytes=options.max_event_bytes) as db:
        try:
            with closing(sqlite3.connect(target, isolation_level=None)) as connection:
                for pragma in ("journal_mode = OFF", "synchronous = OFF", "secure_delete = ON", "locking_mode = EXCLUSIVE"):
                    connection.execute(f"PRAGMA {pragma}")
                connection.execute("BEGIN")
                _Copy(db, connection, texts, removed).all()
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise OutputError(f"cannot write {target}: {error}", "choose a place with more room") from None


class _Copy:
    """The tables of an open export, written to a connection."""

    def __init__(self, db: Database, connection: sqlite3.Connection, texts: Texts, removed: Counter[str]) -> None:
        self._db = db
        self._connection = connection
        self._texts = texts
        self._removed = removed
        self._strings: set[int] = set()
        self._processes: set[int] = set()

    def all(self) -> None:
        """Copies what is kept of every table."""
        db = self._db
        for table, columns in _TABLES.items():
            self._numbers(table, columns.split())
        self._gpus()
        self._nvtx()
        self._schema_entries()
        self._thread_names()
        self._diagnostics()
        self._environment()
        for table in _NAME_TABLES:
            if db.has(table):
                pairs = db.rows(table, ("name", "value"))
                kept = [(n, v) for n, v in pairs if str(n).startswith("EXPORT_") and isinstance(v, str) and _VERSION.fullmatch(v)]
                self._removed["settings and metadata"] += len(pairs) - len(kept)
                self._table(table, {"name": "TEXT", "value": "TEXT"}, kept)
        self._string_table()
        self._count_the_rest()

    def _table(self, name: str, columns: dict[str, str], rows: Iterable[Row]) -> None:
        """Writes a table; an `id` is its key, as in every export."""
        declared = ", ".join(f'"{c}" {kind}' for c, kind in columns.items())
        self._connection.execute(f'CREATE TABLE "{name}" ({declared})')
        marks = ", ".join("?" * len(columns))
        self._connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)  # noqa: S608 - a name of this module

    def _present(self, table: str, columns: Iterable[str]) -> list[str]:
        there = self._db.columns(table)
        return [column for column in columns if column in there]

    def _numbers(self, table: str, columns: Sequence[str]) -> None:
        """A table of integers; NULL for whatever is none."""
        there = self._present(table, columns)
        if there:
            self._table(table, dict.fromkeys(there, "INTEGER"), self._integer_rows(table, there))

    def _integer_rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        strings = [i for i, column in enumerate(columns) if column in _STRING_COLUMNS]
        owners = [i for i, column in enumerate(columns) if column in ("globalTid", "globalPid")]
        for batch in self._db.batches(table, columns):
            rows = [tuple(map(_integer, row)) for row in batch]
            self._strings.update(key for row in rows for i in strings if (key := row[i]) is not None)
            self._processes.update(owner & ~THREAD_BITS for row in rows for i in owners if (owner := row[i]) is not None)
            yield from rows

    def _gpus(self) -> None:
        there = self._present("TARGET_INFO_GPU", (*_GPU_NAMES, *_GPUS.split()))
        if there:
            kinds = {column: "TEXT" if column in _GPU_NAMES else "INTEGER" for column in there}
            keep = [self._text if column in _GPU_NAMES else _integer for column in there]
            rows = [[function(value) for function, value in zip(keep, row, strict=True)] for row in self._db.rows("TARGET_INFO_GPU", there)]
            self._table("TARGET_INFO_GPU", kinds, rows)

    def _text(self, value: object) -> str | None:
        return self._texts.clean(value) if isinstance(value, str) else None

    def _nvtx(self) -> None:
        there = self._present(NVTX, (*_NVTX.split(), "text", "binaryData"))
        if there:
            kinds = {c: {"text": "TEXT", "binaryData": "BLOB"}.get(c, "INTEGER") for c in there}
            self._table(NVTX, kinds, self._nvtx_rows(there))

    def _nvtx_rows(self, columns: Sequence[str]) -> Iterator[Row]:
        payload = nsys_collectives.payload_fields(self._db)
        functions: dict[str, Callable[[object], object]] = {
            "text": self._text,
            "binaryData": lambda blob: nsys_collectives.only_known_fields(blob, payload),
        }
        keep = [functions.get(column, _integer) for column in columns]
        text_id, thread = (columns.index(c) if c in columns else None for c in ("textId", "globalTid"))
        for batch in self._db.batches(NVTX, columns):
            for row in batch:
                kept = tuple(function(value) for function, value in zip(keep, row, strict=True))
                if text_id is not None and isinstance(key := kept[text_id], int):
                    self._strings.add(key)
                if thread is not None and isinstance(owner := kept[thread], int):
                    self._processes.add(owner & ~THREAD_BITS)
                yield kept

    def _schema_entries(self) -> None:
        table = nsys_collectives.SCHEMA_ENTRIES
        there = self._present(table, ("name", *_SCHEMA.split()))
        if "name" in there:
            rows = (row for row in self._db.rows(table, there) if row[0] in nsys_collectives.FIELD_NAMES)
            kinds = {column: "TEXT" if column == "name" else "INTEGER" for column in there}
            self._table(table, kinds, [(name, *map(_integer, numbers)) for name, *numbers in rows])

    def _thread_names(self) -> None:
        """Of the processes that kept rows belong to: the table lists every thread of the machine."""
        there = self._present("ThreadNames", ("nameId", "priority", "globalTid"))
        if not {"nameId", "globalTid"} <= set(there):
            return
        thread, name = there.index("globalTid"), there.index("nameId")
        kept = []
        for batch in self._db.batches("ThreadNames", there):
            for row in batch:
                if (
                    all(type(v) is int or v is None for v in row)
                    and row[thread] is not None
                    and row[thread] & ~THREAD_BITS in self._processes
                ):
                    kept.append(row)
                    self._strings.update(() if row[name] is None else (row[name],))
                else:
                    self._removed["threads of other processes"] += 1
        self._table("ThreadNames", dict.fromkeys(there, "INTEGER"), kept)

    def _diagnostics(self) -> None:
        """That records are missing, in sentences that are known."""
        if not self._db.has("DIAGNOSTIC_EVENT"):
            return
        rows = self._db.rows("DIAGNOSTIC_EVENT", ("severity", "text", "globalPid"))
        kept = [(severity, loss, _integer(process)) for severity, text, process in rows if (loss := nsys_job.loss_of(text))]
        self._removed["diagnostic texts"] += len(rows) - len(kept)
        self._table(
            "DIAGNOSTIC_EVENT", {"severity": "INTEGER", "text": "TEXT", "globalPid": "INTEGER"}, [r for r in kept if _integer(r[0])]
        )

    def _environment(self) -> None:
        """A stand-in for the host's name, and rank and size of the job; nothing else of the environment."""
        kept = []
        for name, value in _system(self._db):
            if name == "Hostname" and value == nsys_job.host(self._db):
                kept.append((name, self._texts.host(value)))
            elif name == "DeviceEnvironment":
                told = nsys_job.told_by_environment(value)
                kept.append((name, "\n".join(f"{variable}={_device_list(text)}" for variable, text in told.items())))
            else:
                self._removed["settings and metadata"] += 1
                continue
            self._removed["environments"] += name == "DeviceEnvironment"
        if self._db.has(nsys_job.SYSTEM):
            self._table(nsys_job.SYSTEM, {"name": "TEXT", "value": "TEXT"}, kept)

    def _string_table(self) -> None:
        if not self._db.has("StringIds"):
            return
        used = np.array(sorted(self._strings), np.int64)
        self._connection.execute('CREATE TABLE "StringIds" ("id" INTEGER NOT NULL PRIMARY KEY, "value" TEXT)')
        kept = 0
        for at in range(0, len(used), _AT_ONCE):
            found = self._db.strings("StringIds", used[at : at + _AT_ONCE])
            kept += len(found)
            rows = ((key, self._texts.clean(text)) for key, text in sorted(found.items()))
            self._connection.executemany('INSERT INTO "StringIds" VALUES (?, ?)', rows)
        self._removed["strings that no kept row uses"] += self._db.count("StringIds") - kept

    def _count_the_rest(self) -> None:
        written = {row[0] for row in self._connection.execute("SELECT name FROM sqlite_master")}
        others = {name for name in self._db.names - written if not name.startswith("ENUM_")}
        self._removed["tables"] += sum(map(self._db.has_rows, others))


def _integer(value: object) -> int | None:
    return value if type(value) is int else None


def _system(db: Database) -> list[tuple[str, str]]:
    """The named texts that nsys wrote about the machine."""
    rows = db.rows(nsys_job.SYSTEM, ("name", "value"))
    return [(name, value) for name, value in rows if isinstance(name, str) and isinstance(value, str)]


def _device_list(text: str) -> str:
    """Numbers as they are; of ids of GPUs only that they are ids."""
    return text if re.fullmatch(r"[\d,-]*", text) else ",".join(f"GPU{i}" for i, _ in enumerate(text.split(",")))
