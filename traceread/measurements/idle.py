"""Why the GPU was idle: every idle nanosecond of every window gets one cause (section 5 of the time model)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.categories.host import Blocker, CallRole, HostNames
from traceread.intervals import Intervals
from traceread.measurements.classes import HOST_CLASSES, Reason, StepClass
from traceread.measurements.host_time import EXECUTING, SILENT, HostRows, Timeline, host_rows
from traceread.measurements.launches import Launches
from traceread.measurements.steps import BETWEEN_CAPTURES, Steps, WindowKind
from traceread.model import (
    Activities,
    ActivityKind,
    ByteColumn,
    CodeColumn,
    CopyKind,
    FlagColumn,
    IntColumn,
    RangeKind,
    Table,
    Trace,
    column,
)
from traceread.records import record

SHORT_DISPATCH_NS = 5_000
"""A queued gap up to this long is dispatch in any trace."""
LONGEST_DISPATCH_NS = 100_000
"""A longer one is not, however usual: medians of real traces are below 3 µs, and holes where rows are missing can be usual too."""
SLOW_CALL_NS = 1_000_000
"""A launch call longer than this is slow; the first launch of a kernel that slow loads code."""
SILENCE_NS = 1_000_000
"""Longer stretches without a call, an op or a frame edge are no evidence of launching."""
INPUT_SILENCE_NS = 100_000
"""Silence from this length on, before a step's first copy to the device, is taken for the fetch of its batch."""
DRAIN_NS = 20_000
"""A wait that ended at most this long before the queue ran dry let it run dry."""

_WAITS = (Blocker.CHECKPOINT, Blocker.DATA_WAIT, Blocker.HOST_SYNC)
_CLASS_OF = {
    Blocker.CHECKPOINT: StepClass.CHECKPOINT,
    Blocker.DATA_WAIT: StepClass.DATA_WAIT,
    Blocker.HOST_SYNC: StepClass.HOST_SYNC,
    Blocker.ALLOCATION: StepClass.ALLOCATION,
    Blocker.COMPILE: StepClass.COMPILE,
}


@record(eq=False)
class Idle(Table):
    """Idle intervals of the device with their cause, sorted; those of a window sum to its idle time."""

    start_ns: IntColumn = column("int64", "ns", "start of the interval")
    end_ns: IntColumn = column("int64", "ns", "end of the interval")
    window: CodeColumn = column("int32", "", "position in Steps.windows")
    gap_ns: IntColumn = column("int64", "ns", "length of the whole idle gap it is part of")
    cause: ByteColumn = column("uint8", "", "StepClass")
    reason: ByteColumn = column("uint8", "", "Reason")
    recorded: FlagColumn = column("int8", "", "1: a recorded row says so, 0: inferred")
    next_activity: IntColumn = column("int64", "", "position of the activity that ends the gap, -1: none")
    source: IntColumn = column("int64", "", "row that blocked the host: call, or number of calls + range; -1: none")


@record(eq=False)
class _Gaps:
    """Idle gaps of the device, clipped to windows, with the launch of the activity that ends each."""

    start: IntColumn
    end: IntColumn
    window: IntColumn
    next: IntColumn  # position of the activity, -1: none
    known: npt.NDArray[np.bool_]  # its launch is recorded
    l0: IntColumn
    l1: IntColumn
    threads: tuple[IntColumn, IntColumn, IntColumn]  # launching thread, thread of the last activity before, step thread

    def __len__(self) -> int:
        return len(self.start)


@record(eq=False)
class _Pieces:
    """Parts of gaps: `gap` is the position of the gap they belong to."""

    start: IntColumn
    end: IntColumn
    gap: IntColumn

    def __len__(self) -> int:
        return len(self.start)

    def where(self, keep: npt.NDArray[np.bool_]) -> _Pieces:
        return _Pieces(self.start[keep], self.end[keep], self.gap[keep])

    def sorted(self) -> _Pieces:
        order = np.argsort(self.start, kind="stable")
        return _Pieces(self.start[order], self.end[order], self.gap[order])

    @staticmethod
    def joined(parts: list[_Pieces]) -> _Pieces:
        if not parts:
            none = np.empty(0, np.int64)
            return _Pieces(none, none, none)
        return _Pieces(
            np.concatenate([p.start for p in parts]), np.concatenate([p.end for p in parts]), np.concatenate([p.gap for p in parts])
        )


def _cut(pieces: _Pieces, at: IntColumn) -> tuple[_Pieces, IntColumn]:
    """The pieces cut at sorted instants, and for each part the number of instants at or before its start."""
    first = np.searchsorted(at, pieces.start, side="right")
    stop = np.searchsorted(at, pieces.end, side="left")
    counts = np.maximum(stop - first, 0) + 1
    if (counts == 1).all():
        return pieces, first
    of = np.repeat(np.arange(len(pieces)), counts)
    segment = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    begins, ends = segment == first[of], segment == np.maximum(stop, first)[of]
    start = np.where(begins, pieces.start[of], at[np.maximum(segment - 1, 0)])
    end = np.where(ends, pieces.end[of], at[np.minimum(segment, len(at) - 1)])
    return _Pieces(start, end, pieces.gap[of]), segment


def _split(pieces: _Pieces, by: Intervals) -> tuple[_Pieces, _Pieces]:
    """The parts of the pieces inside and outside a set of intervals."""
    if not len(by.start):
        return pieces.where(np.zeros(len(pieces), bool)), pieces
    edges = np.empty(2 * len(by.start), np.int64)
    edges[0::2], edges[1::2] = by
    parts, segment = _cut(pieces, edges)
    inside = segment % 2 == 1
    return parts.where(inside), parts.where(~inside)


class _Verdicts:
    """Collects pieces with their cause."""

    def __init__(self, gaps: _Gaps) -> None:
        self._gaps = gaps
        self._rows: list[tuple[npt.NDArray[np.integer[Any]], ...]] = []

    def add(
        self,
        pieces: _Pieces,
        cause: StepClass | npt.NDArray[np.int64],
        reason: Reason | npt.NDArray[np.int64],
        *,
        recorded: npt.NDArray[np.bool_] | None = None,
        source: IntColumn | None = None,
    ) -> None:
        count = len(pieces)
        if not count:
            return
        reasons = np.broadcast_to(np.asarray(reason, np.uint8), count)
        if recorded is None:
            recorded = _RECORDED[reasons]
        self._rows.append(
            (
                pieces.start,
                pieces.end,
                pieces.gap,
                np.broadcast_to(np.asarray(cause, np.uint8), count),
                reasons,
                np.asarray(recorded, np.int8),
                np.full(count, -1) if source is None else source,
            )
        )

    def table(self) -> Idle:
        if not self._rows:
            return Idle.empty()
        start, end, gap, cause, reason, recorded, source = (np.concatenate(c) for c in zip(*self._rows, strict=True))
        order = np.argsort(start, kind="stable")
        order = order[end[order] > start[order]]
        gaps, gap = self._gaps, gap[order]
        return Idle(
            start_ns=start[order],
            end_ns=end[order],
            window=gaps.window[gap],
            gap_ns=(gaps.end - gaps.start)[gap],
            cause=cause[order],
            reason=reason[order],
            recorded=recorded[order],
            next_activity=gaps.next[gap],
            source=source[order],
        )


_RECORDED = np.array([r.recorded for r in Reason], bool)


def explain_idle(
    trace: Trace, launches: Launches, steps: Steps, busy: Intervals, host_names: HostNames, rows: HostRows | None = None
) -> Idle:
    """Every idle interval of every window with its cause; together they are the windows minus `busy`.

    Args:
        trace: one rank, classified.
        launches: the launch of each activity.
        steps: the windows.
        busy: union of the device's activities.
        host_names: meanings of calls and ranges.
        rows: calls and ranges with their meanings, where they are known already.
    """
    order = _ending_order(trace, launches)
    gaps = _find_gaps(trace, launches, steps, busy, order)
    verdicts = _Verdicts(gaps)
    rows = host_rows(trace, launches, host_names) if rows is None else rows
    whole = _Pieces(gaps.start, gaps.end, np.arange(len(gaps)))

    profiled, rest = _split(whole, _rows_of_kind(trace, RangeKind.PROFILER))
    verdicts.add(profiled, StepClass.PROFILER, Reason.PROFILER_ROWS)

    known = gaps.known[rest.gap]
    verdicts.add(rest.where(~known), StepClass.UNATTRIBUTED, Reason.NO_LAUNCH_RECORD)
    # Work that starts before its launch by more than the gap is long: what the host did then is recorded as of another time.
    lead = gaps.l0 - trace.activities.start_ns[gaps.next] if len(trace.activities) else gaps.l0
    apart = known & (lead > gaps.end - gaps.start)[rest.gap]
    verdicts.add(rest.where(apart), StepClass.UNATTRIBUTED, Reason.CLOCKS_DISAGREE)
    known &= ~apart

    queued = known & (gaps.l1 <= gaps.start)[rest.gap]
    roles = host_names.call_roles(trace.names, trace.calls.name)
    _judge_queued(trace, launches, gaps, rest.where(queued), (busy, order), rows, roles, verdicts)

    host_end = np.clip(gaps.l0, gaps.start, gaps.end)  # host time before the launch call; [host_end, end) is inside it
    on_host, in_launch = _split_at(rest.where(known & ~queued), host_end)
    _judge_launch(trace, launches, gaps, in_launch, rows, verdicts)
    _judge_host(trace, steps, gaps, on_host, rows, verdicts, _first_input_copy(trace, launches, steps))
    idle = _without_host_causes_where_unknown(verdicts.table(), trace, launches, steps)
    return _without_causes_between_captures(idle, steps)


def _find_gaps(trace: Trace, launches: Launches, steps: Steps, busy: Intervals, order: IntColumn) -> _Gaps:
    if not steps.windows:
        return _gaps_with_launches(trace, launches, order, *(np.empty(0, np.int64),) * 4)
    bounds = np.array([w.start_ns for w in steps.windows] + [steps.windows[-1].end_ns])
    device = intervals.gaps(busy, int(bounds[0]), int(bounds[-1]))
    pieces, _ = _cut(_Pieces(device.start, device.end, np.arange(len(device.start))), intervals.unique(bounds))
    window = np.searchsorted(bounds[1:], pieces.start, side="right")
    step_thread = np.array([w.thread if w.thread >= 0 else steps.step_thread for w in steps.windows])
    return _gaps_with_launches(trace, launches, order, pieces.start, pieces.end, window, step_thread[window])


def _ending_order(trace: Trace, launches: Launches) -> IntColumn:
    """The activities that last, in the order in which they end gaps: by start, ties by launch, stream and correlation."""
    a = trace.activities
    lasting = np.flatnonzero(a.end_ns > a.start_ns)
    launch_order = np.where(launches.known, launches.start_ns, np.iinfo(np.int64).max)[lasting]
    return lasting[intervals.time_order(a.start_ns[lasting], launch_order, a.stream[lasting], a.correlation[lasting])]


def _ended_by(trace: Trace, launches: Launches, order: IntColumn, end: IntColumn) -> tuple[IntColumn, npt.NDArray[np.bool_]]:
    """For each gap the activity that ends it, -1 if none does, and whether its launch is recorded."""
    if not len(order):
        return np.full(len(end), -1), np.zeros(len(end), bool)
    at = np.searchsorted(trace.activities.start_ns[order], end, side="left")
    following = np.where(at < len(order), order[np.minimum(at, len(order) - 1)], -1)
    return following, (following >= 0) & launches.known[following]


def _gaps_with_launches(
    trace: Trace, launches: Launches, order: IntColumn, start: IntColumn, end: IntColumn, window: IntColumn, step_thread: IntColumn
) -> _Gaps:
    """Each gap with the activity that ends it."""
    activities = trace.activities
    following, known = _ended_by(trace, launches, order, end)
    pick = np.where(known, following, 0)
    if not len(activities):
        none = np.full(len(start), -1)
        return _Gaps(start, end, window, none, known, start, end, (none, none, step_thread))
    by_end = np.argsort(activities.end_ns, kind="stable")
    before = np.searchsorted(activities.end_ns[by_end], start, side="right") - 1
    previous_thread = np.where(before >= 0, launches.thread[by_end[np.maximum(before, 0)]], -1)
    return _Gaps(
        start=start,
        end=end,
        window=window,
        next=following,
        known=known,
        l0=launches.start_ns[pick],
        l1=launches.end_ns[pick],
        threads=(np.where(known, launches.thread[pick], -1), previous_thread, step_thread),
    )


def _rows_of_kind(trace: Trace, kind: RangeKind) -> Intervals:
    rows = trace.ranges.kind == kind
    return intervals.union(trace.ranges.start_ns[rows], trace.ranges.end_ns[rows])


def _split_at(pieces: _Pieces, instant: IntColumn) -> tuple[_Pieces, _Pieces]:
    """The parts of the pieces before and from one instant per gap."""
    cut = instant[pieces.gap]
    before = _Pieces(pieces.start, np.minimum(pieces.end, cut), pieces.gap)
    after = _Pieces(np.maximum(pieces.start, cut), pieces.end, pieces.gap)
    return before.where(before.end > before.start), after.where(after.end > after.start)


# Point 2: the work was already queued when the GPU ran dry.


def _judge_queued(
    trace: Trace,
    launches: Launches,
    gaps: _Gaps,
    pieces: _Pieces,
    device: tuple[Intervals, IntColumn],
    rows: HostRows,
    roles: ByteColumn,
    verdicts: _Verdicts,
) -> None:
    if not len(pieces):
        return
    length = (gaps.end - gaps.start)[pieces.gap]
    # twice the median keeps an even count's median an integer
    thrice = 3 * _twice_median_queued_gap(trace, launches, *device)
    short = 2 * length <= np.clip(thrice, 2 * SHORT_DISPATCH_NS, 2 * LONGEST_DISPATCH_NS)
    verdicts.add(pieces.where(short), StepClass.QUEUED, Reason.DISPATCH)
    long = pieces.where(~short)
    if not len(long):
        return
    dependent = _waits_for_event(trace, launches, gaps.next, roles)[long.gap]
    verdicts.add(long.where(dependent), StepClass.QUEUED, Reason.DEPENDENCY)
    loading, other = _split(long.where(~dependent), _code_loading(trace, launches, rows))
    verdicts.add(loading, StepClass.COMPILE, Reason.CODE_LOADING, recorded=_touches(loading, _recorded_loading(trace, rows)))
    graph = (roles[launches.call] == CallRole.GRAPH_LAUNCH)[gaps.next[other.gap]]
    verdicts.add(other.where(graph), StepClass.UNATTRIBUTED, Reason.GRAPH_NODES_NOT_RECORDED)
    verdicts.add(other.where(~graph), StepClass.UNATTRIBUTED, Reason.QUEUED_CAUSE_NOT_RECORDED)


def _twice_median_queued_gap(trace: Trace, launches: Launches, busy: Intervals, order: IntColumn) -> int:
    """Twice the median length of the device's gaps whose next activity was already launched; 0 if there are none."""
    start, end = busy.end[:-1], busy.start[1:]
    following, known = _ended_by(trace, launches, order, end)
    lengths = (end - start)[known & (launches.end_ns[following] <= start)]
    if not len(lengths):
        return 0
    middle = ((len(lengths) - 1) // 2, len(lengths) // 2)
    return int(np.partition(lengths, middle)[list(middle)].sum())


def _waits_for_event(trace: Trace, launches: Launches, following: IntColumn, roles: ByteColumn) -> npt.NDArray[np.bool_]:
    """For each gap whether, since its next activity's stream got its previous activity, a wait or a host function was put before it.

    Waits are recorded with their stream. Host functions are not: one that the launching thread enqueued meanwhile counts. What was
    put before a graph launch has been waited for when its first node runs, so it does not hold up the other nodes.
    """
    result = np.zeros(len(following), bool)
    waits, activities, calls = trace.stream_waits, trace.activities, trace.calls
    functions = np.flatnonzero(roles == CallRole.HOST_FUNCTION)
    if not len(waits) and not len(functions):
        return result
    launched = np.flatnonzero((following >= 0) & launches.known[following] & _first_of_launch(activities, launches)[following])
    for stream in intervals.unique(activities.stream[following[launched]]).tolist():
        mine = launched[activities.stream[following[launched]] == stream]
        own = launches.start_ns[following[mine]]
        launch = np.sort(launches.start_ns[(activities.stream == stream) & launches.known])
        earlier = np.searchsorted(launch, own, side="left") - 1
        previous = np.where(earlier >= 0, launch[np.maximum(earlier, 0)], np.iinfo(np.int64).min)
        result[mine] = _any_between(np.sort(waits.time_ns[waits.stream == stream]), previous, own)
        thread = launches.thread[following[mine]]
        for one in intervals.unique(thread).tolist() if len(functions) else ():
            on_thread = thread == one
            times = np.sort(calls.start_ns[functions[calls.thread[functions] == one]])
            result[mine[on_thread]] |= _any_between(times, previous[on_thread], own[on_thread])
    return result


def _first_of_launch(activities: Activities, launches: Launches) -> npt.NDArray[np.bool_]:
    """For each activity whether it is the first that its launch call started."""
    order = np.lexsort((activities.start_ns, launches.call))
    call = launches.call[order]
    first = np.zeros(len(order), bool)
    first[order] = np.concatenate(([True], call[1:] != call[:-1]))[: len(order)]
    return first


def _any_between(times: IntColumn, start: IntColumn, end: IntColumn) -> npt.NDArray[np.bool_]:
    """For each `[start, end)` whether it holds one of the sorted times."""
    held: npt.NDArray[np.bool_] = np.searchsorted(times, end, side="left") > np.searchsorted(times, start, side="left")
    return held


def _code_loading(trace: Trace, launches: Launches, rows: HostRows) -> Intervals:
    """When the process loaded code: recorded rows and calls that load it, and slow first launches of a kernel."""
    recorded = _recorded_loading(trace, rows)
    first = loads_code(trace, launches)
    return intervals.union(
        np.concatenate((recorded.start, launches.start_ns[first])), np.concatenate((recorded.end, launches.end_ns[first]))
    )


def _recorded_loading(trace: Trace, rows: HostRows) -> Intervals:
    """When a recorded row says that code was loaded: the profiler's loading rows, and calls that load modules or libraries."""
    calls = rows.blocker[: len(trace.calls)] == Blocker.COMPILE
    says = np.concatenate((calls, trace.ranges.kind == RangeKind.LOADING))
    return intervals.union(rows.start[says], rows.end[says])


def loads_code(trace: Trace, launches: Launches) -> npt.NDArray[np.bool_]:
    """For each activity whether its launch is the first of its kernel name in the process and takes over a millisecond."""
    activities = trace.activities
    kernels = np.flatnonzero((activities.kind == ActivityKind.KERNEL) & launches.known)
    latest_first = kernels[np.argsort(launches.start_ns[kernels], kind="stable")[::-1]]
    first = np.full(len(trace.names) + 1, -1)  # the last one for names not recorded
    first[activities.name[latest_first]] = latest_first
    result = np.zeros(len(activities), bool)
    result[first[first >= 0]] = True
    return result & (launches.end_ns - launches.start_ns > SLOW_CALL_NS)


def _touches(pieces: _Pieces, by: Intervals) -> npt.NDArray[np.bool_]:
    return intervals.covered(by, pieces.start, pieces.end) > 0


# Point 3: inside the launch call.


def _judge_launch(trace: Trace, launches: Launches, gaps: _Gaps, pieces: _Pieces, rows: HostRows, verdicts: _Verdicts) -> None:
    if not len(pieces):
        return
    following = gaps.next[pieces.gap]
    call = launches.call[following]
    slow_first = loads_code(trace, launches)
    loads = slow_first[following]
    blocking = ~loads & (trace.activities.kind[following] == ActivityKind.MEMCPY) & (rows.blocker[call] == Blocker.HOST_SYNC)
    special, after = _split_at(pieces.where(loads | blocking), gaps.l1)  # once the call has returned it is latency again
    call = launches.call[gaps.next[special.gap]]
    loading = slow_first[gaps.next[special.gap]]
    in_call = intervals.covered(_rows_of_kind(trace, RangeKind.LOADING), gaps.l0[special.gap], gaps.l1[special.gap]) > 0
    verdicts.add(special.where(loading), StepClass.COMPILE, Reason.CODE_LOADING, recorded=in_call[loading], source=call[loading])
    verdicts.add(special.where(~loading), StepClass.HOST_SYNC, Reason.BLOCKING_COPY, source=call[~loading])

    other = _Pieces.joined([pieces.where(~loads & ~blocking), after])
    slow = (gaps.l1 - gaps.l0)[other.gap] > SLOW_CALL_NS
    reason = np.where(slow, Reason.SLOW_CALL, Reason.LAUNCH_LATENCY)
    verdicts.add(other, StepClass.LAUNCH_BOUND, reason, source=launches.call[gaps.next[other.gap]])


# Points 4 to 6: the host had not launched yet.


def _judge_host(
    trace: Trace, steps: Steps, gaps: _Gaps, pieces: _Pieces, rows: HostRows, verdicts: _Verdicts, first_input_copy: IntColumn
) -> None:
    executing: list[_Pieces] = []
    rest = pieces
    for level in gaps.threads:  # the launching thread; while it has nothing open the next one
        rest, done = _judge_by_thread(rest, level, rows, verdicts)
        executing.append(done)
    rest = _touching_joined(rest)
    for level in gaps.threads:
        rest = _cut_by_thread(rest, level, rows)

    length = rest.end - rest.start
    of_step = np.array([w.kind is WindowKind.STEP for w in steps.windows], bool)[gaps.window[rest.gap]]
    input_wait = of_step & (length >= INPUT_SILENCE_NS) & (rest.end <= first_input_copy[gaps.window[rest.gap]])
    verdicts.add(rest.where(input_wait), StepClass.DATA_WAIT, Reason.SILENT_BEFORE_INPUT_COPY)
    silent = ~input_wait & (length > SILENCE_NS)
    verdicts.add(rest.where(silent), StepClass.UNATTRIBUTED, Reason.HOST_SILENT)
    executing.append(rest.where(~input_wait & ~silent))
    _judge_execution(gaps, _Pieces.joined(executing).sorted(), rows, verdicts)


def _judge_by_thread(pieces: _Pieces, level: IntColumn, rows: HostRows, verdicts: _Verdicts) -> tuple[_Pieces, _Pieces]:
    """Judges what blocked the threads of one level; returns the parts in which they were silent, and executing."""
    silent: list[_Pieces] = []
    executing: list[_Pieces] = []
    thread = level[pieces.gap]
    for one in intervals.unique(thread).tolist():
        mine = pieces.where(thread == one)
        timeline: Timeline | None = rows.timeline(one) if one >= 0 else None
        if timeline is None:
            silent.append(mine)
            continue
        parts, segment = _cut(mine, timeline.at)
        state = timeline.state[segment]
        for blocker, cause in _CLASS_OF.items():
            blocked = state == blocker
            verdicts.add(parts.where(blocked), cause, Reason.HOST_BLOCKED, source=timeline.source[segment[blocked]])
        silent.append(parts.where(state == SILENT))
        executing.append(parts.where(state == EXECUTING))
    return _Pieces.joined(silent), _Pieces.joined(executing)


def _touching_joined(pieces: _Pieces) -> _Pieces:
    """The pieces with those of one gap that touch made one."""
    if not len(pieces):
        return pieces
    p = pieces.sorted()
    begins = np.concatenate(([True], (p.start[1:] != p.end[:-1]) | (p.gap[1:] != p.gap[:-1])))
    at = np.flatnonzero(begins)
    return _Pieces(p.start[at], p.end[np.append(at[1:], len(p)) - 1], p.gap[at])


def _cut_by_thread(pieces: _Pieces, level: IntColumn, rows: HostRows) -> _Pieces:
    """The pieces cut where a Python frame of their thread begins or ends."""
    thread = level[pieces.gap]
    return _Pieces.joined(
        [
            _cut(pieces.where(thread == one), rows.frame_edges(one) if one >= 0 else np.empty(0, np.int64))[0]
            for one in intervals.unique(thread).tolist()
        ]
    )


def _judge_execution(gaps: _Gaps, pieces: _Pieces, rows: HostRows, verdicts: _Verdicts) -> None:
    """The drain rule: a wait that let the queue run dry is charged for the restart, up to the time it had lasted."""
    if not len(pieces):
        return
    blocker, budget = _drains(gaps, rows, intervals.unique(pieces.gap))
    length = pieces.end - pieces.start
    total = np.cumsum(length)
    # gaps and pieces are in order of time, so the pieces of a gap stand together: what the earlier ones of the gap took
    first_of_gap = np.searchsorted(pieces.gap, pieces.gap, side="left")
    taken = total - length - (total - length)[first_of_gap]
    charged = np.clip(budget[pieces.gap] - taken, 0, length)
    cut = pieces.start + charged
    restart = _Pieces(pieces.start, cut, pieces.gap)
    cause = np.array([_CLASS_OF.get(Blocker(b), StepClass.LAUNCH_BOUND) for b in range(len(_CLASS_OF))] + [StepClass.LAUNCH_BOUND])
    keep = charged > 0
    which = np.minimum(blocker[pieces.gap], len(_CLASS_OF))[keep]
    verdicts.add(restart.where(keep), cause[which], Reason.RESTART_AFTER_WAIT)
    rest = _Pieces(cut, pieces.end, pieces.gap)
    verdicts.add(rest.where(charged < length), StepClass.LAUNCH_BOUND, Reason.HOST_EXECUTION)


def _drains(gaps: _Gaps, rows: HostRows, wanted: IntColumn) -> tuple[IntColumn, IntColumn]:
    """For each gap the kind of wait during which the queue ran dry (Blocker.NONE if none) and how much restart it may own.

    The wait stands on the host thread of that instant. One that covers the gap's start goes before one that has just ended,
    then the kinds in order, then the longest. A wait cannot delay a launch by more than it lasted, so what it already owns of
    the gap counts.
    """
    blocker = np.full(len(gaps), int(Blocker.NONE))
    budget = np.zeros(len(gaps), np.int64)
    for covering in (True, False):
        passed = np.ones(len(wanted), bool)  # the threads before this one had nothing open at that instant
        for level in gaps.threads:
            for one in intervals.unique(level[wanted[passed]]).tolist():
                if one < 0:
                    continue
                for wait in _WAITS:
                    mine = wanted[passed & (level[wanted] == one) & (blocker[wanted] == Blocker.NONE)]
                    hit, start, end = _wait_at(*rows.waits(one, wait), gaps.start[mine], covering)
                    own = np.maximum(np.minimum(end, gaps.end[mine]) - np.maximum(start, gaps.start[mine]), 0)
                    blocker[mine[hit]] = wait
                    budget[mine[hit]] = (end - start - own)[hit]
            passed &= _silent(gaps.start[wanted] if covering else gaps.start[wanted] - 1, level[wanted], rows)
    return blocker, budget


def _wait_at(start: IntColumn, end: IntColumn, at: IntColumn, covering: bool) -> tuple[npt.NDArray[np.bool_], IntColumn, IntColumn]:
    """For each instant whether a wait covers it (else: ended shortly before), and that wait."""
    if not len(start):
        return np.zeros(len(at), bool), at, at
    if covering:  # rows are in order of start: the first that reaches beyond the instant began first
        i = np.minimum(np.searchsorted(np.maximum.accumulate(end), at, side="right"), len(start) - 1)
        return (start[i] <= at) & (at < end[i]), start[i], end[i]
    order = np.lexsort((-start, end))
    i = order[np.maximum(np.searchsorted(end[order], at, side="right") - 1, 0)]
    return (end[i] <= at) & (end[i] >= at - DRAIN_NS), start[i], end[i]


def _silent(at: IntColumn, thread: IntColumn, rows: HostRows) -> npt.NDArray[np.bool_]:
    """For each instant whether its thread has nothing open then; true where there is no thread."""
    silent = np.ones(len(at), bool)
    for one in intervals.unique(thread).tolist():
        if one >= 0:
            mine = thread == one
            silent[mine] = rows.timeline(one).state_at(at[mine]) == SILENT
    return silent


def _first_input_copy(trace: Trace, launches: Launches, steps: Steps) -> IntColumn:
    """For each window the launch of its first host-to-device copy; the least integer if there is none."""
    none = np.iinfo(np.int64)
    first = np.full(max(len(steps.windows), 1), none.max)
    copies = (trace.activities.kind == ActivityKind.MEMCPY) & (trace.activities.copy_kind == CopyKind.HOST_TO_DEVICE)
    copies &= steps.window_of >= 0
    np.minimum.at(first, steps.window_of[copies], launches.start_ns[copies])
    return np.where(first == none.max, none.min, first)


# What cannot be known.


def launch_share(trace: Trace, launches: Launches, steps: Steps) -> tuple[IntColumn, IntColumn]:
    """For each window the GPU time whose launch is recorded and all GPU time, summed over activities in ns."""
    start = np.array([w.start_ns for w in steps.windows], np.int64)
    end = np.array([w.end_ns for w in steps.windows], np.int64)
    known = launches.known
    a = trace.activities
    return _time_in(a.start_ns[known], a.end_ns[known], start, end), _time_in(a.start_ns, a.end_ns, start, end)


def _time_in(start: IntColumn, end: IntColumn, window_start: IntColumn, window_end: IntColumn) -> IntColumn:
    """For each window the summed length of the intervals' parts inside it."""
    if not len(start):
        return np.zeros(len(window_start), np.int64)
    base = int(start.min())  # keeps the running sums of times small
    starts, ends = np.sort(start - base, kind="stable"), np.sort(end - base, kind="stable")  # which is quick where they nearly are
    sum_starts, sum_ends = np.append(0, np.cumsum(starts)), np.append(0, np.cumsum(ends))

    def up_to(t: IntColumn) -> IntColumn:
        t = np.maximum(t - base, 0)
        begun, over = np.searchsorted(starts, t), np.searchsorted(ends, t)
        spent: IntColumn = (t * begun - sum_starts[begun]) - (t * over - sum_ends[over])
        return spent

    return up_to(window_end) - up_to(window_start)


def _without_host_causes_where_unknown(idle: Idle, trace: Trace, launches: Launches, steps: Steps) -> Idle:
    """No host cause in windows with launches for less than 90 % of the GPU time, or with activities for less than 90 % of the launches."""
    if not len(idle):
        return idle
    known, total = launch_share(trace, launches, steps)
    lacking = np.array([w.lacks_kernels for w in steps.windows], bool)
    unknown = (10 * known < 9 * total) | lacking
    if not unknown.any():
        return idle
    host = np.isin(idle.cause, [int(c) for c in HOST_CLASSES]) & unknown[idle.window]
    reason = np.where(lacking, Reason.KERNELS_NOT_RECORDED, Reason.LAUNCHES_NOT_RECORDED)[idle.window]
    return idle.replace(
        cause=np.where(host, StepClass.UNATTRIBUTED, idle.cause),
        reason=np.where(host, reason, idle.reason),
        source=np.where(host, -1, idle.source),
        recorded=np.where(host, 1, idle.recorded),
    )


def _without_causes_between_captures(idle: Idle, steps: Steps) -> Idle:
    """Between two captures of a rank nothing was recorded, so no cause is named."""
    unseen = np.array([w.label == BETWEEN_CAPTURES and w.kind is WindowKind.BETWEEN for w in steps.windows], bool)
    if not unseen.any():
        return idle
    rows = unseen[idle.window]
    return idle.replace(
        cause=np.where(rows, StepClass.UNATTRIBUTED, idle.cause),
        reason=np.where(rows, Reason.BETWEEN_CAPTURES, idle.reason),
        source=np.where(rows, -1, idle.source),
        recorded=np.where(rows, 1, idle.recorded),
    )
