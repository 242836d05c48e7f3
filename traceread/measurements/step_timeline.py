"""One step of one rank as bars on lanes, reduced to what a screen can show; every merged bar says what it stands for.

The first lane has the classes of the partition, then come the GPU's streams, then the host threads that launch. Rows shorter than
a length that depends on how many there are, and that begin in the same stretch of that length, become one bar. Nothing is left
out without a count.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.categories.host import Blocker
from traceread.measurements.classes import CLASSES, StepClass
from traceread.measurements.evidence import IdleNames, thread_title
from traceread.measurements.host_time import HostRows
from traceread.measurements.idle import Idle
from traceread.measurements.launches import Launches
from traceread.measurements.partition import Busy, class_intervals
from traceread.measurements.queue_depth import QueueDepth, find_queue_depth
from traceread.measurements.steps import Steps
from traceread.model import Category, CodeColumn, IntColumn, RangeKind, Table, Trace, column
from traceread.records import record

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

PLAIN = len(CLASSES)
"""The class of a host row that blocks nothing."""

_CLASS_BARS, _STREAM_BARS, _HOST_BARS = 400, 1200, 800
_FINEST = 8192
_STREAMS, _THREADS = 10, 3
_LONGEST_NAME = 512

_OF_CATEGORY = {
    Category.COMPUTE: StepClass.COMPUTE,
    Category.COMMUNICATION: StepClass.EXPOSED_COMMUNICATION,
    Category.COPY: StepClass.EXPOSED_COPY,
}
_OF_BLOCKER = {
    Blocker.CHECKPOINT: StepClass.CHECKPOINT,
    Blocker.DATA_WAIT: StepClass.DATA_WAIT,
    Blocker.HOST_SYNC: StepClass.HOST_SYNC,
    Blocker.ALLOCATION: StepClass.ALLOCATION,
    Blocker.COMPILE: StepClass.COMPILE,
}


class LaneKind(IntEnum):
    """What the bars of a lane are."""

    CLASSES = 0  # the partition: every nanosecond in one class
    STREAM = 1  # activities of one stream
    RANGES = 2  # outermost annotations of one host thread, and frames that block it
    OPS = 3  # outermost framework ops of one host thread
    CALLS = 4  # runtime and OS calls of one host thread


@record
class Lane:
    """One line of the timeline.

    Attributes:
        kind: what its bars are.
        title: "stream 7", or name and id of the host thread.
        rows: recorded rows that its bars stand for.
    """

    kind: LaneKind
    title: str
    rows: int


@record(eq=False)
class Bars(Table):
    """Bars in order of lane and start; those of a lane do not overlap unless its rows do."""

    start_ns: IntColumn = column("int64", "ns", "start")
    end_ns: IntColumn = column("int64", "ns", "end")
    lane: CodeColumn = column("int32", "", "position in StepTimeline.lanes")
    cls: npt.NDArray[np.uint8] = column("uint8", "", "StepClass, PLAIN for host rows that block nothing")
    name: CodeColumn = column("int32", "", "position in StepTimeline.names: of the longest row in it")
    rows: IntColumn = column("int64", "", "recorded rows it stands for")
    busy_ns: IntColumn = column("int64", "ns", "their time together; less than its length where they leave gaps")


@record(eq=False)
class StepTimeline:
    """One window of one rank, drawn.

    Attributes:
        rank, step: which.
        start_ns, end_ns: the window.
        lanes, bars, names: what is shown; bars refer to the other two by position.
        merged_ns: rows shorter than this may be merged, per kind of lane: classes, streams, host; 0 where every row has its own bar.
        streams_left, threads_left: streams and launching threads without a lane.
        rows_left: recorded rows of the window on them.
        depth: the launch queue over the window.
    """

    rank: int
    step: str
    start_ns: int
    end_ns: int
    lanes: tuple[Lane, ...]
    bars: Bars
    names: tuple[str, ...]
    merged_ns: tuple[int, int, int]
    streams_left: int
    threads_left: int
    rows_left: int
    depth: QueueDepth

    def __repr__(self) -> str:
        return f"<StepTimeline rank {self.rank}, {self.step}, {len(self.lanes)} lanes, {len(self.bars)} bars>"

    def _repr_html_(self) -> str:
        from traceread.reporters.notebook import timeline_html

        return timeline_html(self)

    def plot(self, dark: bool = False) -> Figure:
        """Streams and host threads over the time of the step, and the launch queue."""
        from traceread.figures.timeline import plot_timeline

        return plot_timeline(self, dark=dark)


@record(eq=False)
class _Rows:
    """Rows of several lanes, to be merged: sorted by (lane, start)."""

    start: IntColumn
    end: IntColumn
    lane: npt.NDArray[np.int64]
    cls: npt.NDArray[np.int64]
    name: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)


def choose_window(steps: Steps, labels: Collection[str] = ()) -> int:
    """The used window to show, -1 if there is none: the one named most often in `labels`, and of those nearest to the median length."""
    used = [i for i, (w, keep) in enumerate(zip(steps.windows, steps.used, strict=True)) if keep and w.duration_ns > 0]
    if not used:
        return -1
    lengths = sorted(steps.windows[i].duration_ns for i in used)
    middle = lengths[(len(lengths) - 1) // 2]
    named = list(labels)
    return min(used, key=lambda i: (-named.count(steps.windows[i].label), abs(steps.windows[i].duration_ns - middle), i))


def draw_step(
    trace: Trace, launches: Launches, steps: Steps, busy: Busy, idle: Idle, idle_names: IdleNames, rows: HostRows, window: int
) -> StepTimeline:
    """The timeline of the window at this position of `steps.windows`."""
    w = steps.windows[window]
    start, end = w.start_ns, w.end_ns
    names = _Names(trace.names, idle_names.names)
    mine = np.flatnonzero(idle.window == window)
    own, own_code = idle.take(mine), idle_names.code[mine]
    classes = _class_rows(steps, busy, own, own_code, window, names)
    streams, stream_lanes, streams_left, activities_left = _stream_rows(trace, start, end)
    host, host_lanes, threads_left, host_left = _host_lanes(trace, launches, steps, rows, start, end)
    parts, merged = [], []
    for part, most, at in ((classes, _CLASS_BARS, 0), (streams, _STREAM_BARS, 1), (host, _HOST_BARS, 1 + len(stream_lanes))):
        bars, below = _reduce(part, start, end - start, most, tiles=at == 0)
        parts.append(bars.replace(lane=bars.lane + at))
        merged.append(below)
    bars = Bars(**{name: np.concatenate([getattr(p, name) for p in parts]) for name, _ in Bars.empty().columns()})
    codes, at_name = np.unique(bars.name, return_inverse=True)
    return StepTimeline(
        rank=trace.rank,
        step=w.label,
        start_ns=start,
        end_ns=end,
        lanes=(Lane(LaneKind.CLASSES, "GPU", len(classes)), *stream_lanes, *host_lanes),
        bars=bars.replace(name=at_name.astype(np.int32)),
        names=tuple(names.text(code) for code in codes.tolist()),
        merged_ns=(merged[0], merged[1], merged[2]),
        streams_left=streams_left,
        threads_left=threads_left,
        rows_left=activities_left + host_left,
        depth=find_queue_depth(trace, launches, start, end),
    )


class _Names:
    """Names of the trace, then those of idle rows, under one numbering; -1 has none."""

    def __init__(self, recorded: Sequence[str], idle: Sequence[str]) -> None:
        self._recorded, self._idle = recorded, idle

    def of_idle(self, code: CodeColumn) -> npt.NDArray[np.int64]:
        return np.where(code >= 0, code.astype(np.int64) + len(self._recorded), -1)

    def text(self, code: int) -> str:
        if code < 0:
            return ""
        at = code - len(self._recorded)
        return (self._recorded[code] if at < 0 else self._idle[at])[:_LONGEST_NAME]


def _class_rows(steps: Steps, busy: Busy, idle: Idle, code: CodeColumn, window: int, names: _Names) -> _Rows:
    """The partition of one window; idle pieces carry the name of the row behind them."""
    alone = replace(steps, windows=(steps.windows[window],))
    parts = class_intervals(alone, busy, idle.replace(window=np.zeros(len(idle), np.int32)))
    name = np.full(len(parts["class"]), -1, np.int64)
    is_idle = parts["class"] > StepClass.EXPOSED_COPY  # in order of time, as the rows of Idle are
    name[is_idle] = names.of_idle(code)
    return _Rows(parts["start_ns"], parts["end_ns"], np.zeros(len(name), np.int64), parts["class"].astype(np.int64), name)


def _stream_rows(trace: Trace, start: int, end: int) -> tuple[_Rows, tuple[Lane, ...], int, int]:
    """The activities of a window on the streams with most of its time, in order of stream."""
    a = trace.activities
    inside = np.flatnonzero((a.end_ns > start) & (a.start_ns < end))
    first, last = np.maximum(a.start_ns[inside], start), np.minimum(a.end_ns[inside], end)
    streams, of, count = np.unique(a.stream[inside], return_inverse=True, return_counts=True)
    time = np.zeros(len(streams), np.int64)
    np.add.at(time, of, last - first)
    shown = np.sort(np.lexsort((streams, -time))[:_STREAMS])
    lane = np.full(len(streams), -1)
    lane[shown] = np.arange(len(shown))
    lanes = tuple(Lane(LaneKind.STREAM, f"stream {streams[i]}", int(count[i])) for i in shown.tolist())
    cls = np.array([_OF_CATEGORY.get(Category(c), StepClass.COMPUTE) if c in list(Category) else StepClass.COMPUTE for c in range(256)])
    rows = _sorted(first, last, lane[of], cls[a.category[inside]], a.name[inside].astype(np.int64))
    return rows, lanes, len(streams) - len(shown), int((lane[of] < 0).sum())


def _host_lanes(
    trace: Trace, launches: Launches, steps: Steps, rows: HostRows, start: int, end: int
) -> tuple[_Rows, tuple[Lane, ...], int, int]:
    """The host rows of a window on the threads that launch most, and on the step thread."""
    inside = launches.known & (launches.start_ns < end) & (launches.end_ns > start)
    count = np.bincount(launches.thread[inside], minlength=len(trace.threads)) if len(trace.threads) else np.zeros(0, np.int64)
    if 0 <= steps.step_thread < len(count):
        count[steps.step_thread] += 1 + count.max()  # the first, whatever it launches
    launching = [int(t) for t in np.lexsort((np.arange(len(count)), -count)) if count[t] > 0]
    parts: list[_Rows] = []
    lanes: list[Lane] = []
    labels = {w.label for w in steps.windows}
    for thread in launching[:_THREADS]:
        for kind, part in _host_rows(trace, rows, rows.open_between(thread, start, end), labels):
            if len(part):
                lanes.append(Lane(kind, thread_title(trace, thread), len(part)))
                parts.append(replace(part, lane=np.full(len(part), len(lanes) - 1)))
    left = launching[_THREADS:]
    rows_left = sum(len(rows.open_between(thread, start, end)) for thread in left)
    joined = _Rows(*(np.concatenate([np.empty(0, np.int64), *(getattr(p, name) for p in parts)]) for name in _FIELDS))
    return (
        replace(joined, start=np.maximum(joined.start, start), end=np.minimum(joined.end, end)),
        tuple(lanes),
        len(left),
        rows_left,
    )


_FIELDS = ("start", "end", "lane", "cls", "name")


def _host_rows(trace: Trace, rows: HostRows, mine: npt.NDArray[np.int64], labels: set[str]) -> list[tuple[LaneKind, _Rows]]:
    """Of the host rows of one thread the outermost of each kind; step ranges are left out, they cover everything."""
    calls = len(trace.calls)
    is_call = mine < calls
    of = np.maximum(mine - calls, 0)
    name = np.where(is_call, trace.calls.name[np.where(is_call, mine, 0)] if calls else -1, -1).astype(np.int64)
    kind = np.full(len(mine), -1)
    if len(trace.ranges):
        name = np.where(is_call, name, trace.ranges.name[of])
        kind = np.where(is_call, -1, trace.ranges.kind[of])
    blocker = rows.blocker[mine]
    cls = np.full(len(mine), PLAIN)
    for which, step_class in _OF_BLOCKER.items():
        cls[blocker == which] = step_class
    step_codes = np.array([c for c in intervals.unique(name[kind == RangeKind.ANNOTATION]).tolist() if trace.names[c] in labels], np.int64)
    frames = (kind == RangeKind.PYTHON) & (blocker != Blocker.NONE)
    other = np.isin(kind, (RangeKind.ANNOTATION, RangeKind.PROFILER, RangeKind.LOADING, RangeKind.QUEUE_FULL))
    kinds = (
        (LaneKind.RANGES, (other | frames) & ~np.isin(name, step_codes)),
        (LaneKind.OPS, kind == RangeKind.OP),
        (LaneKind.CALLS, is_call | (kind == RangeKind.OS)),
    )
    found = []
    for lane_kind, which in kinds:
        part = mine[which]
        order = np.lexsort((-rows.end[part], rows.start[part]))
        kept = order[_outermost(rows.start[part][order], rows.end[part][order])]
        these = np.flatnonzero(which)[kept]
        zero = np.zeros(len(these), np.int64)
        found.append((lane_kind, _Rows(rows.start[mine[these]], rows.end[mine[these]], zero, cls[these], name[these])))
    return found


def _outermost(start: IntColumn, end: IntColumn) -> npt.NDArray[np.bool_]:
    """Which intervals, sorted by (start, -end), begin after all earlier ones have ended; those without length do not count."""
    if not len(start):
        return np.zeros(0, bool)
    before = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]))
    result: npt.NDArray[np.bool_] = (start >= before) & (end > start)
    return result


def _sorted(
    start: IntColumn, end: IntColumn, lane: npt.NDArray[np.int64], cls: npt.NDArray[np.int64], name: npt.NDArray[np.int64]
) -> _Rows:
    """The rows that have a lane, sorted by lane and start."""
    keep = np.flatnonzero((lane >= 0) & (end > start))
    order = keep[np.lexsort((end[keep], start[keep], lane[keep]))]
    return _Rows(start[order], end[order], lane[order], cls[order], name[order])


def _reduce(rows: _Rows, start: int, length: int, most: int, *, tiles: bool) -> tuple[Bars, int]:
    """At most about `most` bars for these rows, and the length below which rows were merged, 0 if none were.

    With `tiles`, where rows leave no gaps, a merged bar becomes one bar per class, side by side, so that lengths stay exact.
    """
    groups, bars = (_tiling_groups, _bars_of_classes) if tiles else (_groups, _bars)
    below, columns = 0, _FINEST
    while True:
        group = groups(rows, start, below) if below else np.arange(len(rows))
        if columns < 2 or not len(group) or int(group[-1]) < most:  # a group becomes a bar at least
            found = bars(rows, group)
            if len(found) <= most or columns < 2:
                return found, below if len(found) < len(rows) else 0
        below = -(-length // columns)
        columns = columns * 2 // 3


def _groups(rows: _Rows, start: int, below: int) -> npt.NDArray[np.int64]:
    """For each row the number of the bar it goes into: short ones of a lane that begin in the same stretch of time share one."""
    if not len(rows):
        return np.empty(0, np.int64)
    long = rows.end - rows.start >= below
    bucket = (rows.start - start) // below
    begins = long[1:] | long[:-1] | (bucket[1:] != bucket[:-1]) | (rows.lane[1:] != rows.lane[:-1])
    return np.concatenate(([0], np.cumsum(begins)))


def _tiling_groups(rows: _Rows, start: int, below: int) -> npt.NDArray[np.int64]:
    """For each row the number of the group it goes into, where rows tile.

    Short rows go with the long row before them, and a long row goes on with the one before it if it has the same class: a stretch
    of compute with pauses too short to be seen is one group. Of short rows a group holds less than two times `below`.
    """
    if not len(rows):
        return np.empty(0, np.int64)
    length = rows.end - rows.start
    long = length >= below
    stretch = np.cumsum(np.where(long, 0, length)) // below
    last = np.maximum.accumulate(np.where(long, np.arange(len(rows)), -1))
    before = np.concatenate(([-1], last[:-1]))
    goes_on = (before >= 0) & (rows.cls == rows.cls[before])
    begins = np.where(long, ~goes_on, False)[1:] | (stretch[1:] != stretch[:-1])
    return np.concatenate(([0], np.cumsum(begins)))


def _bars(rows: _Rows, group: npt.NDArray[np.int64]) -> Bars:
    """A bar per group, in the class with most of its time."""
    if not len(rows):
        return Bars.empty()
    count = int(group[-1]) + 1
    length = rows.end - rows.start
    first = np.searchsorted(group, np.arange(count))
    busy = np.add.reduceat(length, first)
    by_class = np.zeros((count, PLAIN + 1), np.int64)
    np.add.at(by_class, (group, rows.cls), length)
    return Bars(
        start_ns=rows.start[first],
        end_ns=np.maximum.reduceat(rows.end, first),
        lane=rows.lane[first].astype(np.int32),
        cls=by_class.argmax(axis=1).astype(np.uint8),
        name=rows.name[_longest(length, group)].astype(np.int32),
        rows=np.bincount(group, minlength=count),
        busy_ns=busy,
    )


def _bars_of_classes(rows: _Rows, group: npt.NDArray[np.int64]) -> Bars:
    """A bar per class for each group of rows that tile, side by side in order of class; their lengths are the classes' times."""
    if not len(rows):
        return Bars.empty()
    count = int(group[-1]) + 1
    length = rows.end - rows.start
    key = group * (PLAIN + 1) + rows.cls
    order = np.lexsort((np.arange(len(key)), key))
    keys, first = np.unique(key[order], return_index=True)
    time = np.add.reduceat(length[order], first)
    of = keys // (PLAIN + 1)
    begin = rows.start[np.searchsorted(group, np.arange(count))]
    reached = np.cumsum(time) - time
    start = begin[of] + reached - reached[np.searchsorted(of, of, side="left")]
    in_key = np.searchsorted(keys, key)
    return Bars(
        start_ns=start,
        end_ns=start + time,
        lane=np.zeros(len(keys), np.int32),
        cls=(keys % (PLAIN + 1)).astype(np.uint8),
        name=rows.name[_longest(length, in_key)].astype(np.int32),
        rows=np.bincount(in_key, minlength=len(keys)),
        busy_ns=time,
    )


def _longest(length: IntColumn, group: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each group the position of its longest row, the first of equals."""
    order = np.lexsort((np.arange(len(length)), -length, group))
    first: npt.NDArray[np.int64] = order[np.searchsorted(group[order], np.arange(int(group.max()) + 1))]
    return first
