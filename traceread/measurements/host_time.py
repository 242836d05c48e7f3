"""What each host thread was doing: blocked by what, executing, or silent (section 5 of the time model, points 4 and 5)."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.categories.host import Blocker, HostNames
from traceread.intervals import Intervals
from traceread.measurements.launches import Launches
from traceread.model import ActivityKind, IntColumn, RangeKind, Trace
from traceread.records import record

EXECUTING = 100
"""State of a thread with a call or op open that is no blocker."""

SILENT = 101
"""State of a thread with nothing open."""


@record(eq=False)
class Timeline:
    """The state of one thread over time: `state[i]` holds from `at[i-1]` to `at[i]`, before the first and after the last too.

    Attributes:
        at: sorted instants at which the state may change.
        state: Blocker, EXECUTING or SILENT; one longer than `at`.
        source: row of the call (row) or range (number of calls + row) that blocks, -1 if none.
    """

    at: IntColumn
    state: npt.NDArray[np.uint8]
    source: npt.NDArray[np.int64]

    def state_at(self, when: IntColumn) -> npt.NDArray[np.uint8]:
        """The state at each instant; shape of `when`."""
        return self.state[np.searchsorted(self.at, when, side="right")]


@record(eq=False)
class HostRows:
    """Calls and ranges of a trace together, each with what it means, grouped by thread.

    Rows are numbered: calls first, then ranges.
    """

    trace: Trace
    start: IntColumn
    end: IntColumn
    thread: npt.NDArray[np.int32]
    blocker: npt.NDArray[np.uint8]
    opens: npt.NDArray[np.bool_]
    """Calls, ops and garbage collection: while one is open the thread executes."""
    frame: npt.NDArray[np.bool_]
    """Python frames: their edges show that the host is alive."""

    @cached_property
    def _thread_rows(self) -> dict[int, npt.NDArray[np.int64]]:
        return {}

    @cached_property
    def _anywhere(self) -> npt.NDArray[np.int64]:
        """Code loading that was recorded without its thread: it may have blocked any of them."""
        nameless = np.array([t.pid < 0 for t in self.trace.threads], bool)
        if not nameless.any():
            return np.empty(0, np.int64)
        return np.flatnonzero((self.blocker != Blocker.NONE) & (self.thread >= 0) & nameless[np.maximum(self.thread, 0)])

    def of_thread(self, thread: int) -> npt.NDArray[np.int64]:
        """Rows of one thread."""
        if thread not in self._thread_rows:
            rows = np.flatnonzero(self.thread == thread)
            # half the memory of what is kept of long traces
            self._thread_rows[thread] = rows.astype(np.int32) if len(self.thread) < 1 << 31 else rows
        return self._thread_rows[thread]

    def open_between(self, thread: int, start: int, end: int) -> npt.NDArray[np.int64]:
        """Rows of one thread that are open at some time between two instants."""
        rows, calls = self.of_thread(thread), len(self.trace.calls)
        begun = []
        for first, stop in ((0, calls), (calls, len(self.start))):  # calls and ranges are in order of start
            bounds = (first, first + int(np.searchsorted(self.start[first:stop], end)))
            begun.append(rows[slice(*np.searchsorted(rows, np.array(bounds, rows.dtype)).tolist())])
        own = np.concatenate(begun)
        return own[self.end[own] > start]

    @cached_property
    def _blocking_rows(self) -> dict[int, npt.NDArray[np.int64]]:
        return {}

    def _blocking(self, thread: int) -> npt.NDArray[np.int64]:
        """Rows of one thread that block it for some time."""
        if thread not in self._blocking_rows:
            rows = self.blocking[self.thread[self.blocking] == thread]
            self._blocking_rows[thread] = rows[self.end[rows] > self.start[rows]]
        return self._blocking_rows[thread]

    @cached_property
    def blocking(self) -> npt.NDArray[np.int64]:
        """Rows that block their thread, also those without length."""
        return np.flatnonzero(self.blocker != Blocker.NONE)

    @cached_property
    def _timelines(self) -> dict[int, Timeline]:
        return {}

    def timeline(self, thread: int) -> Timeline:
        """The states of one thread; blockers win in order of their priority, then open calls and ops."""
        if thread not in self._timelines:
            self._timelines[thread] = self._timeline(thread)
        return self._timelines[thread]

    def _timeline(self, thread: int) -> Timeline:
        rows = np.concatenate((self._blocking(thread), self._anywhere))
        parts: list[tuple[int, Intervals, npt.NDArray[np.int64]]] = []
        for blocker in (b for b in Blocker if b is not Blocker.NONE):
            parts.append((blocker, *self._merged(rows[self.blocker[rows] == blocker])))
        parts.append((EXECUTING, self._executing(thread), np.empty(0, np.int64)))
        parts = [part for part in parts if len(part[1].start)]
        if not parts:
            return Timeline(np.empty(0, np.int64), np.full(1, SILENT, np.uint8), np.full(1, -1))
        at = intervals.edges(these for _, these, _ in parts)
        state = np.full(len(at) + 1, SILENT, np.uint8)
        source = np.full(len(at) + 1, -1, self.of_thread(thread).dtype)
        for code, these, rows_of in reversed(parts):
            first = np.searchsorted(at, these.start)
            count = np.searchsorted(at, these.end) - first
            inside = np.repeat(first - np.cumsum(count) + count + 1, count) + np.arange(int(count.sum()))
            state[inside] = code
            source[inside] = np.repeat(rows_of, count) if len(rows_of) else -1
        return Timeline(at, state, source)

    @cached_property
    def _known_executing(self) -> dict[int, Intervals]:
        return {}

    def _executing(self, thread: int) -> Intervals:
        """When one thread has a call or op open: of the calls, of the ranges, then of both, since each are in order of time."""
        if thread not in self._known_executing:
            rows = self.of_thread(thread)
            rows = rows[self.opens[rows]]
            calls = int(np.searchsorted(rows, rows.dtype.type(len(self.trace.calls))))
            parts = [intervals.union(self.start[part], self.end[part]) for part in (rows[:calls], rows[calls:])]
            self._known_executing[thread] = intervals.union(*map(np.concatenate, zip(*parts, strict=True)))
        return self._known_executing[thread]

    def silence(self, thread: int, start: int, end: int) -> Intervals:
        """When one thread has no call and no op open and nothing of its own blocks it, between two instants."""
        executing, rows = self._executing(thread), self._blocking(thread)
        begins, ends = np.concatenate((executing.start, self.start[rows])), np.concatenate((executing.end, self.end[rows]))
        return intervals.gaps(intervals.union(begins, ends), start, end)

    def _merged(self, rows: npt.NDArray[np.int64]) -> tuple[Intervals, npt.NDArray[np.int64]]:
        """The union of these rows and, for each interval of it, the row that begins it."""
        rows = rows[intervals.time_order(self.start[rows], -self.end[rows])]
        rows = rows[self.end[rows] > self.start[rows]]
        these = intervals.union(self.start[rows], self.end[rows])
        return these, rows[np.searchsorted(self.start[rows], these.start, side="left")]

    def waits(self, thread: int, blocker: Blocker) -> tuple[IntColumn, IntColumn]:
        """Start and end of each wait of one kind on one thread, in order of start; they may nest."""
        rows = self._blocking(thread)
        rows = rows[self.blocker[rows] == blocker]
        rows = rows[np.argsort(self.start[rows], kind="stable")]
        return self.start[rows], self.end[rows]

    def frame_edges(self, thread: int) -> IntColumn:
        """Sorted instants at which a Python frame of one thread begins or ends."""
        if thread not in self._known_frame_edges:
            rows = self._frames[self.thread[self._frames] == thread]
            self._known_frame_edges[thread] = intervals.unique(np.concatenate((self.start[rows], self.end[rows])))
        return self._known_frame_edges[thread]

    @cached_property
    def _known_frame_edges(self) -> dict[int, IntColumn]:
        return {}

    @cached_property
    def _frames(self) -> npt.NDArray[np.int64]:
        return np.flatnonzero(self.frame)


def host_rows(trace: Trace, launches: Launches, host_names: HostNames) -> HostRows:
    """Calls and ranges of a trace with their meanings; calls that launch a pageable copy block the host.

    The tables of `HostRows.trace` are views of its rows: who goes on with that trace and drops the given one has the times once.
    """
    calls, ranges, activities = trace.calls, trace.ranges, trace.activities
    call_blocker = host_names.call_blockers(trace.names, calls.name)
    executes = host_names.ranges_execute(trace.names, ranges.name, ranges.kind)
    pageable = launches.call[(activities.kind == ActivityKind.MEMCPY) & (activities.pageable == 1) & launches.known]
    call_blocker[pageable] = np.minimum(call_blocker[pageable], Blocker.HOST_SYNC)
    start, end = np.concatenate((calls.start_ns, ranges.start_ns)), np.concatenate((calls.end_ns, ranges.end_ns))
    thread, n = np.concatenate((calls.thread, ranges.thread)), len(calls)
    return HostRows(
        trace=replace(
            trace,
            calls=calls.replace(start_ns=start[:n], end_ns=end[:n], thread=thread[:n]),
            ranges=ranges.replace(start_ns=start[n:], end_ns=end[n:], thread=thread[n:]),
        ),
        start=start,
        end=end,
        thread=thread,
        blocker=np.concatenate((call_blocker, host_names.range_blockers(trace.names, ranges.name, ranges.kind))),
        opens=np.concatenate((np.ones(len(calls), bool), (ranges.kind == RangeKind.OP) | executes)),
        frame=np.concatenate((np.zeros(len(calls), bool), ranges.kind == RangeKind.PYTHON)),
    )
