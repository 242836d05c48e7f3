"""The host side of the dependency graph: launches and waits of every thread, in the order in which they were made."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.categories.host import Blocker
from traceread.measurements.host_time import HostRows
from traceread.measurements.launches import Launches
from traceread.measurements.steps import Steps, launched_before_capture
from traceread.model import CodeColumn, FlagColumn, IntColumn, Table, Trace, column
from traceread.records import record

NEVER = -(1 << 61)
"""Earlier than any time."""
HAND_OVER_NS = 50_000
"""A thread that is silent for at least this long may have waited for another thread."""
DEFAULT_DEPTH = 1_024
"""Launches that a CUDA stream's queue holds; assumed where the capture never shows a full queue."""
OWN_WAIT_NS = 10_000
"""A blocking call takes no more than this by itself; what it lasts longer it waits."""
_USUAL_CALL_NS = 10_000
"""A launch takes no longer by itself, whatever the calls say that may have waited."""
_LONG_CALL_NS = 20_000
_RELEASE_NS = 20_000
"""A launch call that waited for room returns so soon after the room came."""


@record(eq=False)
class Nodes(Table):
    """Calls that launch or wait, in order of their start: the host program. One that stands inside another is part of it."""

    start_ns: IntColumn = column("int64", "ns", "start of the call")
    end_ns: IntColumn = column("int64", "ns", "end of the call")
    thread: CodeColumn = column("int32", "", "position in Trace.threads")
    call: CodeColumn = column("int32", "", "position of the call in Trace.calls")
    begin_ns: IntColumn = column("int64", "ns", "start of the host time before it: end of the node before it, or of the giver")
    giver: CodeColumn = column("int32", "", "node of another thread that handed over, -1: none")
    own_ns: IntColumn = column("int64", "ns", "its length without waiting, for the GPU or for room in the queue")
    held: FlagColumn = column("int8", "", "1: it waited for room in the launch queue")
    blocks: FlagColumn = column("int8", "", "1: a blocking call")


@record(eq=False)
class HostProgram:
    """The nodes and what belongs to them.

    Attributes:
        nodes: the host program.
        node_of: for each activity of the trace the node that launches it, -1 where it is launched outside the program.
        depth: launched, unfinished launches that the queue holds.
        depth_seen: whether the capture shows a full queue.
        start_ns: where the program begins.
        in_flight: when the launches end that were made before the program and were unfinished when it began; sorted.
    """

    nodes: Nodes
    node_of: IntColumn
    depth: int
    depth_seen: bool
    start_ns: int
    in_flight: IntColumn


def host_program(trace: Trace, launches: Launches, steps: Steps, rows: HostRows, first: int, last: int) -> HostProgram | None:
    """The host program of the windows `first` to `last`; None if nothing was launched for them."""
    launched = np.flatnonzero((steps.window_of >= first) & (steps.window_of <= last))
    if not len(launched):
        return None
    begin, end = steps.windows[first].host_start_ns, steps.windows[last].host_end_ns
    calls = trace.calls
    blocking = rows.blocker[: len(calls)] == Blocker.HOST_SYNC
    threads = intervals.unique(np.append(launches.thread[launched], steps.step_thread))
    waits = np.flatnonzero(blocking & (calls.start_ns >= begin) & (calls.start_ns < end))
    waits = waits[np.isin(calls.thread[waits], threads)]
    chosen = intervals.either(launches.call[launched], waits)
    start, stop = calls.start_ns[chosen].copy(), calls.end_ns[chosen].copy()
    place = np.searchsorted(chosen, launches.call[launched])  # a launch may be the union of several calls
    np.minimum.at(start, place, launches.start_ns[launched])
    np.maximum.at(stop, place, launches.end_ns[launched])

    outer = _outermost(start, stop, calls.thread[chosen])
    kept = np.flatnonzero(outer == np.arange(len(chosen)))
    order = kept[np.lexsort((calls.thread[chosen][kept], start[kept]))]
    node_at = np.full(len(chosen), -1)
    node_at[order] = np.arange(len(order))
    node_of = np.full(len(trace.activities), -1)
    node_of[launched] = node_at[outer[place]]
    blocks = np.zeros(len(order), bool)
    np.logical_or.at(blocks, node_at[outer], blocking[chosen])

    thread, call = calls.thread[chosen][order], chosen[order]
    start, stop = start[order], stop[order]
    origin = max(begin, int(start[0])) if begin <= int(np.iinfo(np.int64).min) else begin
    origin = min(origin, int(start[0]))
    before = _before_on_thread(thread)
    since = np.where(before >= 0, stop[before], origin)
    giver = _givers(start, stop, thread, since, rows)
    in_flight = _in_flight(trace, launches, origin)
    depth, seen, held = _queue(trace, launched, node_of, start, stop, blocks, in_flight)
    nodes = Nodes(
        start_ns=start,
        end_ns=stop,
        thread=thread,
        call=call.astype(np.int32),
        begin_ns=np.where(giver >= 0, stop[giver], since),
        giver=giver.astype(np.int32),
        own_ns=_own_time(trace, call, start, stop, held, blocks),
        held=held.astype(np.int8),
        blocks=blocks.astype(np.int8),
    )
    return HostProgram(nodes, node_of, depth, seen, origin, in_flight)


def _outermost(start: IntColumn, end: IntColumn, thread: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """For each call the position of the one of its thread that it stands in, itself if there is none."""
    order = np.lexsort((-end, start, thread))
    reach = intervals.reach_per_group(start[order], end[order], thread[order].astype(np.int64))
    first = np.concatenate(([True], thread[order][1:] != thread[order][:-1]))
    top = first | (start[order] >= reach)
    result = np.empty(len(start), np.int64)
    result[order] = order[np.maximum.accumulate(np.where(top, np.arange(len(order)), 0))]
    return result


def _before_on_thread(thread: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """For each node the one before it on its thread, -1 if none."""
    order = np.argsort(thread, kind="stable")
    before = np.full(len(thread), -1)
    same = thread[order][1:] == thread[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def _givers(start: IntColumn, end: IntColumn, thread: npt.NDArray[np.int32], since: IntColumn, rows: HostRows) -> npt.NDArray[np.int64]:
    """For each node the node of another thread whose end it waited for, -1 if it was its own thread's turn.

    A thread waited for another one when it had been silent for long and the other one launched last: backward() waits for the
    autograd thread, the autograd thread for the next backward().
    """
    giver = np.full(len(start), -1)
    threads = intervals.unique(thread)
    if len(threads) < 2:
        return giver
    for one in threads.tolist():
        mine = np.flatnonzero((thread == one) & (start - since >= HAND_OVER_NS))
        others = np.flatnonzero(thread != one)
        if not len(mine):
            continue
        by_end = others[np.argsort(end[others], kind="stable")]
        at = np.searchsorted(end[by_end], start[mine], side="right") - 1
        mine, at = mine[at >= 0], at[at >= 0]
        latest = by_end[at]
        silent = rows.silence(one, int(since.min()), int(end.max()))
        if not len(silent.start):
            continue
        at = np.searchsorted(silent.start, end[latest], side="left") - 1
        quiet_since = np.maximum(silent.start[np.maximum(at, 0)], since[mine])
        waited = (at >= 0) & (end[latest] <= silent.end[np.maximum(at, 0)]) & (end[latest] - quiet_since >= HAND_OVER_NS)
        waited &= (start[latest] >= quiet_since) & (latest < mine)
        giver[mine[waited]] = latest[waited]
    return giver


def _in_flight(trace: Trace, launches: Launches, origin: int) -> IntColumn:
    """Sorted ends of the launches made before an instant that were unfinished then; those before the capture left no call."""
    running = trace.activities.end_ns > origin
    earlier = launches.known & (launches.start_ns < origin) & running
    calls, of = np.unique(launches.call[earlier], return_inverse=True)
    ends = np.full(len(calls), np.iinfo(np.int64).min)
    np.maximum.at(ends, of, trace.activities.end_ns[earlier])
    capture = [(start, end) for start, end in trace.windows_ns if start <= origin < end] or [(NEVER, -NEVER)]
    inside = (trace.activities.start_ns >= capture[0][0]) & (trace.activities.start_ns < capture[0][1])
    unrecorded = launched_before_capture(trace, launches, inside) & running
    return np.sort(np.concatenate((ends, trace.activities.end_ns[unrecorded])))


def _queue(
    trace: Trace,
    launched: npt.NDArray[np.int64],
    node_of: IntColumn,
    start: IntColumn,
    end: IntColumn,
    blocks: npt.NDArray[np.bool_],
    before: IntColumn,
) -> tuple[int, bool, npt.NDArray[np.bool_]]:
    """How many unfinished launches the queue holds, whether that was seen, and which launch calls waited for room.

    A call that takes long while as many launches are unfinished as ever, and returns when one of them ends, is held by a full
    queue.
    """
    none = np.iinfo(np.int64).min
    last = np.full(len(start), none)
    np.maximum.at(last, node_of[launched], trace.activities.end_ns[launched])
    launching = last > none
    ends = np.sort(np.concatenate((last[launching], before)))
    made = np.cumsum(launching) - launching + len(before)
    unfinished = made - np.searchsorted(ends, start, side="right")
    lasted = end - start
    plain = launching & ~blocks
    held = np.zeros(len(start), bool)
    if not plain.any():
        return DEFAULT_DEPTH, False, held
    ceiling = int(unfinished[plain].max())
    free = lasted[plain & (unfinished < ceiling - ceiling // 4)]  # these found room
    usual = min(int(np.median(free)), _USUAL_CALL_NS) if len(free) else _USUAL_CALL_NS
    long = plain & (lasted > max(4 * usual, _LONG_CALL_NS))
    over = np.searchsorted(ends, end, side="right") - 1
    released = (over >= 0) & (end - ends[np.maximum(over, 0)] <= usual + _RELEASE_NS)
    high = long & (unfinished >= ceiling - max(1, ceiling // 50))
    full = high & released
    if ceiling < 4 or int(full.sum()) < 3 or 2 * int(full.sum()) < int(high.sum()):
        return max(DEFAULT_DEPTH, ceiling + 1), False, held
    return ceiling, True, full


def _own_time(
    trace: Trace, call: IntColumn, start: IntColumn, end: IntColumn, held: npt.NDArray[np.bool_], blocks: npt.NDArray[np.bool_]
) -> IntColumn:
    """The length of each call without its waiting: held ones take what their kind usually takes, blocking ones a little."""
    lasted = end - start
    own = np.where(blocks, np.minimum(lasted, OWN_WAIT_NS), lasted)
    name = trace.calls.name[call]
    for code in intervals.unique(name[held]).tolist():
        same = name == code
        free = lasted[same & ~held]
        usual = min(int(np.median(free)), _USUAL_CALL_NS) if len(free) else _USUAL_CALL_NS // 2
        own[same & held] = np.minimum(lasted[same & held], usual)
    return own
