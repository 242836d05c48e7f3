"""Host side of an Nsight Systems export: API calls, NVTX and MPI ranges, OS calls, the profiler's own rows, and their threads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from traceread.intervals import unique
from traceread.model import (
    NOT_RECORDED,
    ByteColumn,
    Calls,
    CodeColumn,
    FlagColumn,
    IntColumn,
    RangeKind,
    Ranges,
    Table,
    Thread,
    column,
)
from traceread.readers.nsys_export import (
    MPI,
    NO_END,
    NVTX,
    OS_RUNTIME,
    OVERHEAD,
    RUNTIME,
    THREAD_BITS,
    UNNAMED,
    Export,
    Rows,
    distinct,
    in_order,
    of_processes,
    pid_of,
    process_of,
    processes_of,
    stacked,
)
from traceread.readers.pages import NameKind, Texts, distinct_names
from traceread.readers.sqlite import Among
from traceread.records import record

_VERSION_SUFFIX = re.compile(r"_v\d{4,}$")  # cudaLaunchKernel_v7000, but not cuGetProcAddress_v2

# NVTX_EVENTS.eventType. Categories (33), marks (34) and domain ends (76) say nothing about time spent.
_THREAD_NAME, _PUSH_POP, _START_END, _NVTXT_PUSH_POP, _NVTXT_START_END, _DOMAIN = 39, 59, 60, 70, 71, 75
_NVTX_TYPES = (_THREAD_NAME, _PUSH_POP, _START_END, _NVTXT_PUSH_POP, _NVTXT_START_END, _DOMAIN)

# What torch's emit_nvtx appends to the name of an operator (torch/csrc/profiler/util.cpp, getNvtxStr).
_OP_SUFFIX = re.compile(
    r", (?:seq = \d+(?:, op_id = \d+)?|op_id = \d+)(?:, sizes = .*)?(?:, input_op_ids = .*)?$",
    re.DOTALL,
)

# ENUM_CUPTI_OVERHEAD_TYPE, in Kineto's words. Types 0 and 1 say "unknown": the name decides.
_OVERHEADS = {
    2: ("Driver Compiler", RangeKind.LOADING),
    3: ("Buffer Flush", RangeKind.PROFILER),
    4: ("Instrumentation", RangeKind.PROFILER),
    5: ("Resource", RangeKind.PROFILER),
    6: ("Runtime Triggered Module Loading", RangeKind.LOADING),
    7: ("Lazy Function Loading", RangeKind.LOADING),
    8: ("Command Buffer Full", RangeKind.QUEUE_FULL),
}
# Rows that say neither what they were nor that anybody waited for them.
_MEANINGLESS = re.compile(r"(unknown|dlclose\b.*)", re.IGNORECASE)
_LOADING_NAME = re.compile(r"dlm?open\b|compil|\bJIT\b|lazy|(module|library|function) load", re.IGNORECASE)
_QUEUE_FULL_NAME = re.compile(r"command buffer full", re.IGNORECASE)


@record(eq=False)
class CallRows(Table):
    """Runtime and driver calls of all processes."""

    start_ns: IntColumn = column("int64", "ns", "start")
    end_ns: IntColumn = column("int64", "ns", "end")
    thread: IntColumn = column("int64", "", "global thread id")
    name: CodeColumn = column("int32", "", "code of the name")
    correlation: IntColumn = column("int64", "", "correlation id")


@record(eq=False)
class RangeRows(Table):
    """Host ranges of all processes."""

    start_ns: IntColumn = column("int64", "ns", "start")
    end_ns: IntColumn = column("int64", "ns", "end; the start while open is 1")
    thread: IntColumn = column("int64", "", "global thread id")
    name: CodeColumn = column("int32", "", "code of the name")
    kind: ByteColumn = column("uint8", "", "RangeKind")
    open: FlagColumn = column("int8", "", "1: no end recorded")


def calls(export: Export) -> CallRows:
    """All runtime and driver calls: both live in one table (eventClass 0 and 1, others where backtraces are on)."""
    rows = export.rows(RUNTIME, {"globalTid": -1, "correlationId": NOT_RECORDED, "nameId": -1})
    name = export.codes(rows["nameId"], lambda text: _VERSION_SUFFIX.sub("", text))
    return CallRows(rows["start"], rows["end"], rows["globalTid"], name, rows["correlationId"])


Rows_ = TypeVar("Rows_", CallRows, RangeRows)


class _Labels:
    """Names of NVTX ranges as numbers: twice the code of the name, plus one if it is an operator of emit_nvtx.

    The suffix of an operator, unique to each call, is cut off before anything is kept.
    """

    def __init__(self, export: Export) -> None:
        self._export = export
        self._known: dict[str, int] = {}

    def of(self, text: str | None) -> int:
        """The label of a name, -1 for None."""
        if not isinstance(text, str):
            return -1
        label = self._known.get(text)
        if label is None:
            suffix = _OP_SUFFIX.search(text)
            if suffix is not None:
                return 2 * self._export.code(text[: suffix.start()]) + 1
            label = self._known[text] = 2 * self._export.code(text)
        return label

    def _of_kind(self, name: str, kind: int) -> int:
        if kind == NameKind.NONE:
            return -1
        return 2 * self._export.code(name) + 1 if kind == NameKind.OPERATOR else self.of(name)

    def column(self, texts: Texts | Sequence[str | None], beside: Mapping[str, IntColumn]) -> IntColumn:
        """Labels of these names; where a text is None the string with the "textId" beside it counts (NVTX registered strings)."""
        if isinstance(texts, Texts):
            found = distinct_names(texts)
            labels = np.array(list(map(self._of_kind, found.names, found.kinds)), np.int64)[found.of]
        else:
            labels = np.fromiter(map(self.of, texts), np.int64, count=len(texts))
        by_id = np.flatnonzero(labels < 0)
        if len(by_id):
            keys, position = distinct(beside["textId"][by_id])
            strings = self._export.db.strings("StringIds", keys)
            labels[by_id] = np.array([self.of(strings.get(key, UNNAMED)) for key in keys.tolist()], np.int64)[position]
        return labels


@record(eq=False)
class _NvtxRows(Table):
    """The rows of NVTX_EVENTS that name something or last."""

    start_ns: IntColumn = column("int64", "ns", "start")
    end_ns: IntColumn = column("int64", "ns", "end; the start while open is 1")
    kind: IntColumn = column("int64", "", "eventType")
    thread: IntColumn = column("int64", "", "global thread id")
    domain: IntColumn = column("int64", "", "domain, numbered anew in each process")
    label: IntColumn = column("int64", "", "label of the text")
    open: FlagColumn = column("int8", "", "1: no end recorded")


def nvtx(export: Export, calls: CallRows, processes: Sequence[int]) -> tuple[RangeRows, dict[int, str]]:
    """Ranges of NVTX and MPI of these processes (of all, if none is given), and the names NVTX gave to threads.

    Ranges of NCCL's own tracing are left out where they tell what its channels did on the GPU (see _on_gpu).
    """
    rows = _nvtx_rows(export, processes)
    names = {thread: name for thread, _, name in _named(export, rows, _THREAD_NAME)}
    is_range = np.isin(rows.kind, (_PUSH_POP, _START_END, _NVTXT_PUSH_POP, _NVTXT_START_END))
    rows = rows.take(is_range & ~_on_gpu(rows, _named(export, rows, _DOMAIN), calls))
    kind = np.where(rows.label % 2 == 1, np.uint8(RangeKind.OP), np.uint8(RangeKind.ANNOTATION))
    ranges = RangeRows(rows.start_ns, rows.end_ns, rows.thread, (rows.label // 2).astype(np.int32), kind, rows.open)
    return stacked(RangeRows, [ranges, *(_mpi(export, table, processes) for table in MPI)]), names


def _nvtx_rows(export: Export, processes: Sequence[int]) -> _NvtxRows:
    columns = {"start": NO_END, "end": NO_END, "eventType": 0, "textId": -1, "globalTid": -1, "domainId": 0}
    where = [Among("eventType", _NVTX_TYPES), *of_processes(processes)]
    rows = export.clocked(export.db.integers(NVTX, columns, where, "text", _Labels(export).column))
    is_open = rows["open"].astype(np.int8)
    return _NvtxRows(rows["start"], rows["end"], rows["eventType"], rows["globalTid"], rows["domainId"], rows["label"], is_open)


def _named(export: Export, rows: _NvtxRows, kind: int) -> list[tuple[int, int, str]]:
    """Thread, domain and text of the rows of this eventType."""
    rows = rows.take(rows.kind == kind)
    texts = [export.names[label // 2] for label in rows.label.tolist()]
    return list(zip(rows.thread.tolist(), rows.domain.tolist(), texts, strict=True))


def _on_gpu(rows: _NvtxRows, domains: Sequence[tuple[int, int, str]], calls: CallRows) -> npt.NDArray[np.bool_]:
    """Which rows of a domain of NCCL tell about the GPU: those on threads that never call CUDA, in a process that does.

    Tracing by NCCL itself (nsys 2025.6 and later) writes what its channels did as ranges with GPU times. What NCCL writes on
    a thread that calls CUDA is a host range.
    """
    calling = unique(calls.thread)
    processes = frozenset(processes_of(calling))
    asked = sorted({(thread & ~THREAD_BITS, domain) for thread, domain, name in domains if name.upper().startswith("NCCL")})
    found = np.zeros(len(rows), bool)
    elsewhere = ~np.isin(rows.thread, calling) if asked else found
    for process, domain in asked:
        if process in processes:
            found |= elsewhere & (process_of(rows.thread) == process) & (rows.domain == domain)
    return found


def _mpi(export: Export, table: str, processes: Sequence[int]) -> RangeRows:
    """MPI calls. Older exports hold them as NVTX ranges of a domain MPI, so they are annotations here too."""
    rows = export.rows(table, {"globalTid": -1, "textId": -1}, of_processes(processes), end_may_be_null=True)
    return _ranges(rows, export.codes(rows["textId"]), RangeKind.ANNOTATION)


def os_calls(export: Export, calls: CallRows, ranges: RangeRows, processes: Sequence[int]) -> RangeRows:
    """OS runtime calls of the threads that matter: those with calls or ranges, and the main threads.

    Helper threads sit in poll, epoll_wait and sem_timedwait all day: tens of millions of rows that explain nothing, because no
    idle GPU is ever charged to a thread that launches nothing. SQLite drops them, so they never become Python objects.
    """
    threads = threads_of(calls, ranges)
    threads = threads[np.isin(process_of(threads), processes)]
    main = [process | (process >> 24) & THREAD_BITS for process in processes]
    where = [Among("globalTid", tuple(sorted({*threads.tolist(), *main})))]
    if "eventClass" in export.db.columns(OS_RUNTIME):
        where.append(Among("eventClass", (31, 32), negated=True))  # they mark that tracing of OS calls started and finished
    rows = export.rows(OS_RUNTIME, {"globalTid": -1, "nameId": -1}, where)
    return _ranges(rows, export.codes(rows["nameId"]), RangeKind.OS)


def overheads(export: Export, processes: Sequence[int]) -> RangeRows:
    """Rows of the profiler's overhead: its own work, and the loading of code and full queues that it noticed on the way.

    The type column came with schema 3.24; without it, and where it says unknown, the name decides.
    """
    found = []
    for table in OVERHEAD:
        rows = export.rows(table, {"globalTid": -1, "nameId": -1, "overheadType": 0}, of_processes(processes))
        types = np.where(np.isin(rows["overheadType"], list(_OVERHEADS)), rows["overheadType"], 0)
        keys, position = distinct(np.maximum(rows["nameId"], -1) * 16 + types)
        strings = export.db.strings("StringIds", unique(keys // 16))
        named = [_overhead(strings.get(key // 16), key % 16) for key in keys.tolist()]
        names = np.array([export.code(name) for name, _ in named], np.int32)
        kind = np.array([-1 if kind is None else kind for _, kind in named], np.int16)[position]
        every = _ranges(rows, names[position], np.maximum(kind, 0).astype(np.uint8))
        found.append(every.take(np.flatnonzero(kind >= 0)))
    return stacked(RangeRows, found)


def _overhead(name: str | None, kind: int) -> tuple[str, RangeKind | None]:
    """What an overhead row is called and what it is; None for a row that does not say."""
    if kind in _OVERHEADS:
        label, meaning = _OVERHEADS[kind]
        return name or label, meaning
    if name is None or _MEANINGLESS.fullmatch(name):
        return name or UNNAMED, None
    if _QUEUE_FULL_NAME.search(name):
        return name, RangeKind.QUEUE_FULL
    return name, RangeKind.LOADING if _LOADING_NAME.search(name) else RangeKind.PROFILER


def _ranges(rows: Rows, name: CodeColumn, kind: RangeKind | ByteColumn) -> RangeRows:
    kinds = np.full(len(name), kind, np.uint8)
    return RangeRows(rows["start"], rows["end"], rows["globalTid"], name, kinds, rows["open"].astype(np.int8))


def thread_names(export: Export, threads: IntColumn) -> dict[int, str]:
    """The names the system gave to these threads; the table also lists every other thread of the machine."""
    rows = export.db.integers("ThreadNames", {"nameId": -1, "priority": 0, "globalTid": -1})
    order = np.argsort(rows["priority"], kind="stable")
    order = order[np.isin(rows["globalTid"][order], threads)]
    codes = export.codes(rows["nameId"][order])
    return {thread: export.names[code] for thread, code in zip(rows["globalTid"][order].tolist(), codes.tolist(), strict=True)}


def threads_of(calls: CallRows, ranges: RangeRows) -> IntColumn:
    """The global thread ids in these tables, each once."""
    return unique(np.concatenate((unique(calls.thread), unique(ranges.thread))))


def _of_process(rows: Rows_, process: int) -> Rows_:
    """The rows of one process; the table itself, not a copy, where all are."""
    mine = process_of(rows.thread) == process
    return rows if mine.all() else rows.take(mine)


def host_side(process: int, calls: CallRows, ranges: RangeRows, names: dict[int, str]) -> tuple[tuple[Thread, ...], Calls, Ranges]:
    """Threads, calls and ranges of one process; thread columns become positions in the threads."""
    calls, ranges = _of_process(calls, process), _of_process(ranges, process)
    ids = threads_of(calls, ranges)
    threads = tuple(Thread(pid_of(key), key & THREAD_BITS, names.get(key, "")) for key in ids.tolist())
    call_thread, range_thread = (np.searchsorted(ids, table.thread).astype(np.int32) for table in (calls, ranges))
    own_calls = Calls(calls.start_ns, calls.end_ns, call_thread, calls.name, calls.correlation)
    own_ranges = Ranges(ranges.start_ns, ranges.end_ns, range_thread, ranges.name, ranges.kind, ranges.open)
    return threads, in_order(own_calls, longest_first=True), in_order(own_ranges, longest_first=True)
