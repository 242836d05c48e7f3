"""An open Nsight Systems export: its strings as codes, its clock, and its ids.

Ids are 64 bits: hardware 8, virtual machine 8, process 24, thread 24, lowest last. The id of a process is that of its threads
with the last 24 bits cleared. Timestamps count from the start of the session and may be negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from traceread.errors import CorruptTrace, UnsupportedSchema
from traceread.intervals import unique
from traceread.model import Activities, Calls, CodeColumn, IntColumn, Ranges, Table
from traceread.readers.sqlite import Among, Database

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX = "NVTX_EVENTS"
MPI = ("MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS")
OS_RUNTIME = "OSRT_API"
OVERHEAD = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
EVENTS = (KERNEL, MEMCPY, MEMSET, GRAPH_TRACE, RUNTIME, NVTX, *MPI, OS_RUNTIME, *OVERHEAD)
"""Every table of events that is read."""

THREAD_BITS = 0xFFFFFF
NO_PROCESS = -1 & ~THREAD_BITS
"""The id of a process that is not recorded."""
NO_END = -(1 << 62)
"""Stands for an `end` that is NULL."""
LONGEST_NS = 366 * 86_400 * 10**9
"""No capture is a year away from the start of its session."""
UNNAMED = "unknown"
REEXPORT = "nsys export --type sqlite --force-overwrite true -o FILE.sqlite FILE.nsys-rep"

_LATEST_EPOCH_NS = 1 << 62

T = TypeVar("T", bound=Table)
Ordered = TypeVar("Ordered", Activities, Calls, Ranges)
Rows = dict[str, npt.NDArray[Any]]


class Export:
    """An open export.

    Attributes:
        db: the database.
        names: string of each code given out so far.
        base_ns: what to add to a timestamp: the start of the session since the epoch, 0 where it is not recorded.
        odd_rows: rows met so far whose times are impossible.
    """

    def __init__(self, db: Database) -> None:
        self.db = db
        self.names: list[str] = []
        self.odd_rows = 0
        self._codes: dict[str, int] = {}
        self._room = db.size + (1 << 20)
        started = [row[0] for row in db.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)) if isinstance(row[0], int)]
        self.base_ns = started[0] if started and 0 < started[0] < _LATEST_EPOCH_NS else 0

    def code(self, text: str) -> int:
        """The code of a string, a new one if it is new."""
        code = self._codes.get(text)
        if code is None:
            self._room -= len(text)
            if self._room < 0:
                raise CorruptTrace(f"{self.db.path}: more text than the file holds", REEXPORT)
            code = self._codes[text] = len(self.names)
            self.names.append(text)
        return code

    def codes(self, ids: IntColumn, rename: Callable[[str], str] = str) -> CodeColumn:
        """Codes of the strings behind these ids of StringIds, each renamed first."""
        keys, position = distinct(ids)
        strings = self.db.strings("StringIds", keys)
        table = np.array([self.code(rename(strings.get(key, UNNAMED))) for key in keys.tolist()], np.int32)
        return table[position]

    def rows(self, table: str, columns: dict[str, int], where: Sequence[Among] = (), end_may_be_null: bool = False) -> Rows:
        """Columns of a table of events, `start` and `end` among them, in the clock of the trace.

        Rows with impossible times are dropped, ends before the start are set to it; both are counted.
        """
        if self.db.has(table) and not {"start", "end"} <= self.db.columns(table):
            raise UnsupportedSchema(f"{self.db.path}: table {table} has no start and end", REEXPORT, "unsupported-schema")
        end = {"end": NO_END if end_may_be_null else 0}
        return self.clocked(self.db.integers(table, {"start": NO_END} | end | columns, where))

    def clocked(self, columns: Rows) -> Rows:
        """The same columns with `start` and `end` in the clock of the trace, without the rows whose times are impossible.

        The columns given are overwritten.
        """
        start, end = columns["start"], columns["end"]
        possible = (start > -LONGEST_NS) & (start < LONGEST_NS) & (((end > -LONGEST_NS) & (end < LONGEST_NS)) | (end == NO_END))
        if not possible.all():
            self.odd_rows += int(len(possible) - possible.sum())
            columns = {name: values[possible] for name, values in columns.items()}
            start, end = columns["start"], columns["end"]
        is_open = end == NO_END
        self.odd_rows += int(((end < start) & ~is_open).sum())
        np.maximum(start, end, out=end)
        start += self.base_ns  # in place, for these are the longest columns there are
        end += self.base_ns
        return columns | {"open": is_open.view(np.int8)}


def process_of(ids: IntColumn) -> IntColumn:
    """Global process ids of these global thread ids."""
    return ids & ~THREAD_BITS


def processes_of(threads: IntColumn) -> list[int]:
    """Global process ids of these global thread ids, each once; not those that were not recorded."""
    return [process for process in unique(process_of(unique(threads))).tolist() if process != NO_PROCESS]


def pid_of(process: int) -> int:
    """The process id as the system counts."""
    return process >> 24 & THREAD_BITS  # masked: the hardware byte may make the id negative


def of_processes(processes: Sequence[int]) -> list[Among]:
    """The condition that keeps the rows of these processes; none if none is given."""
    return [Among("globalTid", tuple(processes), cleared=THREAD_BITS)] if processes else []


def distinct(ids: IntColumn) -> tuple[IntColumn, IntColumn]:
    """The distinct ids in order, and the position of each id among them."""
    if not len(ids):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    low, high = int(ids.min()), int(ids.max())
    if high - low > 4 * len(ids) + (1 << 20):
        values, positions = np.unique(ids, return_inverse=True)
        return values, positions
    present = np.zeros(high - low + 1, bool)  # ten times faster than sorting millions of rows for some hundred names
    present[ids - low] = True
    values = np.flatnonzero(present)
    position = np.empty(len(present), np.int64)
    position[values] = np.arange(len(values))
    return values + low, position[ids - low]


def stacked(kind: type[T], tables: Iterable[T]) -> T:
    """One table with the rows of all, in their order."""
    with_rows = [table for table in tables if len(table)]
    if len(with_rows) == 1:
        return with_rows[0]
    columns = [dict(table.columns()) for table in with_rows or [kind.empty()]]
    return kind(**{name: np.concatenate([c[name] for c in columns]) for name in columns[0]})


def in_order(table: Ordered, longest_first: bool) -> Ordered:
    """The table by start, then by end or by falling end; rows that agree in both stay in the order of the file."""
    end = -table.end_ns if longest_first else table.end_ns
    rising = np.diff(table.start_ns)
    if ((rising > 0) | ((rising == 0) & (np.diff(end) >= 0))).all():
        return table
    return table.take(np.lexsort((end, table.start_ns)))
