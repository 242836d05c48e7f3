"""The longest idle gaps of a rank, in words: what the GPU waited for, who launched next, and which rows say so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.measurements.classes import Reason, StepClass
from traceread.measurements.idle import Idle
from traceread.measurements.launches import Launches
from traceread.measurements.steps import Steps
from traceread.model import CodeColumn, IntColumn, RangeKind, Trace
from traceread.records import record

_FRAME = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)$")
_NOT_USER_CODE = re.compile(r"(^|/)(torch/|site-packages/|dist-packages/|lib/python[\d.]*/|<frozen |<string>)")
_GARBAGE = re.compile(r"(?<![a-z])(gc|garbage)(?![a-z])", re.IGNORECASE)
_ENCLOSING = 6
_BLOCK = 256
"""Ranges that are skipped together where all of them have ended."""

ROUNDING_NS = 1_000
"""Times of old PyTorch traces are whole microseconds, start and duration rounded each by itself."""


@record
class Cause:
    """A part of a gap with one cause.

    Attributes:
        step_class: the class it counts in.
        reason: why.
        duration_ns: its length.
        recorded: a recorded row says so; else it is inferred.
        names: the rows that say so (the call, range or frame that blocked, or covers the silence).
    """

    step_class: StepClass
    reason: Reason
    duration_ns: int
    recorded: bool
    names: tuple[str, ...]


@record
class Gap:
    """One idle gap of the GPU inside one window.

    Attributes:
        rank, step: where.
        start_ns, end_ns: when.
        causes: its parts, longest first.
        next_activity: what ended the gap, "" if nothing did.
        launch_call: the call that launched it, "" if not recorded.
        thread: name and id of the launching thread, "" if not recorded.
        ranges: annotations and ops open on that thread at the gap's start, outermost first; on the thread that waited, where another did.
        source: innermost Python frame of the user's own code then, "file:line function"; "" without stacks.
    """

    rank: int
    step: str
    start_ns: int
    end_ns: int
    causes: tuple[Cause, ...]
    next_activity: str
    launch_call: str
    thread: str
    ranges: tuple[str, ...]
    source: str

    @property
    def duration_ns(self) -> int:
        """Length of the gap."""
        return self.end_ns - self.start_ns


def longest_gaps(trace: Trace, launches: Launches, steps: Steps, idle: Idle, count: int) -> tuple[Gap, ...]:
    """The `count` longest gaps of the used windows, longest first."""
    used = np.array(steps.used, bool)
    rows = np.flatnonzero(used[idle.window]) if len(idle) else np.empty(0, np.int64)
    if not len(rows):
        return ()
    begins = np.concatenate(
        ([True], (idle.start_ns[rows][1:] != idle.end_ns[rows][:-1]) | (idle.window[rows][1:] != idle.window[rows][:-1]))
    )
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(rows)) - 1
    length = idle.end_ns[rows][last] - idle.start_ns[rows][first]
    longest = intervals.longest(length, count)
    return tuple(_gap(trace, launches, steps, idle, rows[first[i] : last[i] + 1]) for i in longest.tolist())


def _gap(trace: Trace, launches: Launches, steps: Steps, idle: Idle, pieces: npt.NDArray[np.int64]) -> Gap:
    start, end = int(idle.start_ns[pieces[0]]), int(idle.end_ns[pieces[-1]])
    following = int(idle.next_activity[pieces[0]])
    call = int(launches.call[following]) if following >= 0 else -1
    thread = int(launches.thread[following]) if following >= 0 else -1
    if thread < 0:
        thread = steps.step_thread
    causes: dict[tuple[int, int, int], tuple[int, list[str]]] = {}
    for piece in pieces.tolist():
        key = (int(idle.cause[piece]), int(idle.reason[piece]), int(idle.recorded[piece]))
        length, names = causes.get(key, (0, []))
        for name in _piece_names(trace, idle, piece, thread):
            if name not in names and len(names) < _ENCLOSING:
                names.append(name)
        causes[key] = (length + int(idle.end_ns[piece] - idle.start_ns[piece]), names)
    parts = [Cause(StepClass(c), Reason(r), length, bool(recorded), tuple(names)) for (c, r, recorded), (length, names) in causes.items()]
    parts.sort(key=lambda p: (-p.duration_ns, p.step_class))
    main = [piece for piece in pieces.tolist() if idle.cause[piece] == parts[0].step_class]
    waiting, at = waiting_place(trace, idle, main, thread, start)
    return Gap(
        rank=trace.rank,
        step=steps.windows[int(idle.window[pieces[0]])].label,
        start_ns=start,
        end_ns=end,
        causes=tuple(parts),
        next_activity=trace.names[trace.activities.name[following]] if following >= 0 else "",
        launch_call=trace.names[trace.calls.name[call]] if call >= 0 else "",
        thread=thread_title(trace, thread),
        ranges=open_ranges(trace, waiting, at, (RangeKind.ANNOTATION, RangeKind.OP)),
        source=source_line(trace, waiting, at),
    )


def waiting_place(trace: Trace, idle: Idle, pieces: Sequence[int], thread: int, at: int) -> tuple[int, int]:
    """The thread that waited in these rows of `Idle`, and when it did; the given thread and instant if it is the same or not recorded.

    A forward may wait for the GPU on the main thread while what is launched next comes from the backward's.
    """
    for piece in pieces:
        source = int(idle.source[piece])
        if source < 0 or idle.reason[piece] != Reason.HOST_BLOCKED:
            continue
        calls = len(trace.calls)
        rows, row = (trace.calls, source) if source < calls else (trace.ranges, source - calls)
        other, since = int(rows.thread[row]), max(at, int(rows.start_ns[row]))
        if other != thread and _covering(trace, other, since, since + 1, (RangeKind.PYTHON, RangeKind.ANNOTATION, RangeKind.OP)):
            return other, since
    return thread, at


def thread_title(trace: Trace, thread: int) -> str:
    """Name and id of a host thread, "" if unknown."""
    if thread < 0 or thread >= len(trace.threads):
        return ""
    t = trace.threads[thread]
    return f"{t.name} ({t.tid})" if t.name else f"thread {t.tid}"


def _piece_names(trace: Trace, idle: Idle, piece: int, thread: int) -> list[str]:
    source = int(idle.source[piece])
    if source >= len(trace.calls):
        return [trace.names[trace.ranges.name[source - len(trace.calls)]]]
    if source >= 0:
        return [trace.names[trace.calls.name[source]]]
    start, end = int(idle.start_ns[piece]), int(idle.end_ns[piece])
    reason = Reason(int(idle.reason[piece]))
    if reason is Reason.HOST_SILENT:
        covering = _covering(trace, thread, start, end, (RangeKind.PYTHON, RangeKind.ANNOTATION, RangeKind.OS))
        return covering[-1:]
    if reason is Reason.HOST_EXECUTION:
        collection = int(_collections(trace, np.array([start]), np.array([end]))[0])
        return [trace.names[trace.ranges.name[collection]]] if collection >= 0 else []
    return []


def _covering(trace: Trace, thread: int, start: int, end: int, kinds: tuple[RangeKind, ...]) -> list[str]:
    """Names of the ranges of one thread that cover an interval, outermost first."""
    r = trace.ranges
    begun = int(np.searchsorted(r.start_ns, start, side="right"))
    blocks = np.flatnonzero(_latest_ends(trace)[: -(-begun // _BLOCK)] >= end)
    near = (blocks[:, np.newaxis] * _BLOCK + np.arange(_BLOCK)).reshape(-1)
    near = near[: np.searchsorted(near, begun)]
    mine = near[(r.end_ns[near] >= end) & (r.thread[near] == thread)]
    return [trace.names[code] for code, kind in zip(r.name[mine].tolist(), r.kind[mine].tolist(), strict=True) if kind in kinds]


def _latest_ends(trace: Trace) -> IntColumn:
    """The latest end of each block of ranges."""
    if trace not in _known_ends:
        _known_ends[trace] = np.maximum.reduceat(trace.ranges.end_ns, np.arange(0, len(trace.ranges), _BLOCK))
    return _known_ends[trace]


def _collections(trace: Trace, start: IntColumn, end: IntColumn) -> npt.NDArray[np.int64]:
    """For each interval the range of the garbage collection that fills most of it, on any thread, for it stops all of them; -1: none."""
    r, collections = trace.ranges, _collection_ranges(trace)
    if not len(collections):
        return np.full(len(start), -1)
    middle = start + (end - start) // 2  # what fills most of an interval holds its middle
    last = np.searchsorted(r.start_ns[collections], middle, side="right") - 1
    one = collections[np.maximum(last, 0)]
    filled = np.minimum(r.end_ns[one], end) - np.maximum(r.start_ns[one], start)
    return np.where((last >= 0) & (2 * filled >= end - start), one, -1)


def _collection_ranges(trace: Trace) -> npt.NDArray[np.int64]:
    """The annotations and Python frames that are garbage collections."""
    if trace not in _known_collections:
        r = trace.ranges
        named = np.array([_GARBAGE.search(name) is not None for name in trace.names], bool)
        rows = np.flatnonzero(named[r.name]) if named.any() else np.empty(0, np.int64)
        _known_collections[trace] = rows[(r.kind[rows] == RangeKind.ANNOTATION) | (r.kind[rows] == RangeKind.PYTHON)]
    return _known_collections[trace]


def open_ranges(trace: Trace, thread: int, at: int, kinds: tuple[RangeKind, ...]) -> tuple[str, ...]:
    """Names of the ranges of these kinds that are open on a thread at an instant: the innermost few, outermost first."""
    return tuple(_covering(trace, thread, at, at + 1, kinds)[-_ENCLOSING:])


def source_line(trace: Trace, thread: int, at: int) -> str:
    """The innermost Python frame of the user's own code at an instant, "file:line function"; "" without stacks."""
    for name in reversed(_covering(trace, thread, at, at + 1, (RangeKind.PYTHON,))):
        frame = _FRAME.match(name)
        if frame and not _NOT_USER_CODE.search(frame["file"]):
            return f"{frame['file']}:{frame['line']} {frame['function']}"
    return ""


@record(eq=False)
class IdleNames:
    """The names of the rows that say why the GPU was idle.

    Attributes:
        names: each once: a call with the op it was made in ("cudaStreamSynchronize in aten::item"), or a range.
        code: for each row of `Idle` the position of its name, -1 where no row says so.
    """

    names: tuple[str, ...]
    code: CodeColumn


def name_idle(trace: Trace, steps: Steps, idle: Idle) -> IdleNames:
    """What the sources of the idle rows are called; blocking calls with the op that made them, host code only if it collects garbage."""
    calls = len(trace.calls)
    source = idle.source.copy()
    executing = np.flatnonzero(idle.reason == Reason.HOST_EXECUTION)
    collection = _collections(trace, idle.start_ns[executing], idle.end_ns[executing])
    source[executing] = np.where(collection >= 0, calls + collection, source[executing])
    is_call = (source >= 0) & (source < calls)
    name = np.full(len(source), -1, np.int64)
    name[is_call] = trace.calls.name[source[is_call]]
    name[source >= calls] = trace.ranges.name[source[source >= calls] - calls]
    blocks = np.zeros(calls, bool)
    blocks[source[is_call & ((idle.cause == StepClass.HOST_SYNC) | (idle.cause == StepClass.ALLOCATION))]] = True
    op = np.full(len(source), -1, np.int64)
    inside = np.flatnonzero(is_call)[blocks[source[is_call]]]
    op[inside] = ops_around(trace, steps, trace.calls.thread[source[inside]], trace.calls.start_ns[source[inside]])
    named, around, pair = intervals.distinct_pairs(name, op)
    titles = [_title(trace, *codes) for codes in zip(named.tolist(), around.tolist(), strict=True)]
    distinct = {title: i for i, title in enumerate(dict.fromkeys(t for t in titles if t))}
    code = np.array([distinct.get(title, -1) for title in titles], np.int32)
    return IdleNames(tuple(distinct), code[pair])


def _title(trace: Trace, name: int, around: int) -> str:
    if name < 0:
        return ""
    return trace.names[name] if around < 0 else f"{trace.names[name]} in {trace.names[around]}"


def ops_around(trace: Trace, steps: Steps, thread: npt.NDArray[np.int32], at: IntColumn) -> IntColumn:
    """For each instant on a thread the name code of the op or annotation open there, -1 if none or only a step's range.

    Of aten ops that call each other (item calls _local_scalar_dense) it is the outermost: the one the user wrote.
    """
    labels = {w.label for w in steps.windows}
    label = np.array([name in labels for name in trace.names], bool)
    result = np.full(len(at), -1, np.int64)
    for one in intervals.unique(thread).tolist():
        start, ends, code, aten = _ops_of(trace, one)
        mine = np.flatnonzero(thread == one)
        if not len(start):
            continue
        innermost = intervals.last_reaching(ends, np.searchsorted(start, at[mine], side="right") - 1, at[mine] + 1)
        called = np.flatnonzero((innermost >= 0) & aten[innermost])
        while len(called):
            inner = innermost[called]
            above = intervals.last_reaching(ends, inner - 1, _enough(start[inner], ends[0][inner]))
            by_aten = (above >= 0) & aten[above]
            called = called[by_aten]
            innermost[called] = above[by_aten]
        found = innermost >= 0
        names = code[innermost[found]].astype(np.int64)
        names[label[names]] = -1
        result[mine[found]] = names
    return result


_Ops = tuple[IntColumn, list[IntColumn], CodeColumn, npt.NDArray[np.bool_]]
# asked for again and again, and forgotten with the trace
_known_ops: WeakKeyDictionary[Trace, dict[int, _Ops]] = WeakKeyDictionary()
_known_ends: WeakKeyDictionary[Trace, IntColumn] = WeakKeyDictionary()
_known_collections: WeakKeyDictionary[Trace, npt.NDArray[np.int64]] = WeakKeyDictionary()


def _ops_of(trace: Trace, thread: int) -> _Ops:
    """Start, maxima of the ends, name code and whether it is one of aten, of the ops and annotations of a thread in order."""
    known = _known_ops.setdefault(trace, {})
    if thread not in known:
        r = trace.ranges
        rows = np.flatnonzero((r.thread == thread) & ((r.kind == RangeKind.OP) | (r.kind == RangeKind.ANNOTATION)))
        start, end, code = r.start_ns[rows], r.end_ns[rows], r.name[rows]
        aten = np.array([name.startswith("aten::") for name in trace.names], bool)[code]
        known[thread] = (start, intervals.maxima_of(end), code, aten)
    return known[thread]


def parents_of(start: IntColumn, end: IntColumn) -> IntColumn:
    """For each range, sorted by (start, -end), the position of the nearest earlier one that holds it, -1 if none.

    A range that reaches out of another by no more than ROUNDING_NS, and lies inside for the larger part, is held by it: where times are
    rounded, such as to whole microseconds, a child may seem to end after its parent.
    """
    enough = _enough(start, end)
    parent = np.arange(len(end)) - 1
    shorter = np.flatnonzero(end[:-1] < enough[1:]) + 1  # those that the one before does not hold
    while len(shorter):  # what lies between a range and its candidate ends earlier, and so does what lies before a shorter candidate
        above = parent[parent[shorter]]
        parent[shorter] = above
        shorter = shorter[(above >= 0) & (end[above] < enough[shorter])]
    return parent


def _enough(start: IntColumn, end: IntColumn) -> IntColumn:
    """For each range the instant before which nothing that holds it ends."""
    return np.maximum(end - ROUNDING_NS, start + (end - start + 1) // 2)


@record
class IdleReason:
    """Idle time of one class with one reason and one name, over some windows.

    Attributes:
        step_class: the class it counts in.
        reason: why.
        recorded: a recorded row says so; else it is inferred.
        name: what the row is called, "" if there is none.
        total_ns: the time.
        count: in so many idle intervals.
    """

    step_class: StepClass
    reason: Reason
    recorded: bool
    name: str
    total_ns: int
    count: int


def sum_reasons(idle: Idle, names: IdleNames, windows: Sequence[int]) -> tuple[IdleReason, ...]:
    """Why the GPU was idle in these windows, in order of class and then longest first; sums to their idle time exactly."""
    asked = np.zeros(max(windows, default=-1) + 1 + int(idle.window.max(initial=0)), bool)
    asked[list(windows)] = True
    rows = np.flatnonzero(asked[idle.window])
    if not len(rows):
        return ()
    shape = (len(StepClass), len(Reason), 2, len(names.names) + 1)
    keys = np.ravel_multi_index((idle.cause[rows], idle.reason[rows], idle.recorded[rows], names.code[rows] + 1), shape)
    groups, of = intervals.distinct(keys)
    count = np.bincount(of)
    total = np.zeros(len(groups), np.int64)
    np.add.at(total, of, (idle.end_ns - idle.start_ns)[rows])
    reasons = [
        IdleReason(StepClass(c), Reason(r), bool(recorded), names.names[code - 1] if code else "", ns, n)
        for c, r, recorded, code, ns, n in zip(*(part.tolist() for part in (*np.unravel_index(groups, shape), total, count)), strict=True)
    ]
    return tuple(sorted(reasons, key=lambda x: (x.step_class, -x.total_ns, x.name)))
