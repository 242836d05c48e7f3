"""The dependency graph of some steps of one rank (section 7 of the time model): what a replay re-times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.categories.host import Blocker, HostNames
from traceread.intervals import Intervals
from traceread.measurements.host_time import EXECUTING, SILENT, HostRows, Timeline
from traceread.measurements.idle import SILENCE_NS, loads_code
from traceread.measurements.launches import Launches
from traceread.measurements.partition import Partition
from traceread.measurements.replay_gpu import Edges, Waits, Work, find_edges, find_waits, order_work, time_work
from traceread.measurements.replay_host import Nodes, host_program
from traceread.measurements.steps import Steps, WindowKind
from traceread.model import ActivityKind, CodeColumn, FlagColumn, IntColumn, RangeKind, Table, Trace, column
from traceread.records import record

COMFORTABLE = 40_000
"""Activities that are replayed together; more steps than that are not needed for a mean."""
LARGEST = 600_000
"""A single step with more activities is not replayed."""


@record(eq=False)
class HostIntervals(Table):
    """Stretches of host time, by thread."""

    start_ns: IntColumn = column("int64", "ns", "start")
    end_ns: IntColumn = column("int64", "ns", "end")
    thread: IntColumn = column("int64", "", "position in Trace.threads")


@record(eq=False)
class Ends(Table):
    """Which work ends which window."""

    work: CodeColumn = column("int32", "", "row of Work")
    window: CodeColumn = column("int32", "", "position among the replayed windows")


@record(eq=False)
class Spans(Table):
    """The replayed windows, in order."""

    window: IntColumn = column("int64", "", "position in Steps.windows")
    start_ns: IntColumn = column("int64", "ns", "measured start")
    end_ns: IntColumn = column("int64", "ns", "measured end")
    used: FlagColumn = column("int8", "", "1: the window counts")
    anchor: IntColumn = column("int64", "", "between steps: node after whose end the next step's range starts; -1: no such end")
    lead_ns: IntColumn = column("int64", "ns", "... and so long after it")


@record(eq=False)
class ReplayGraph:
    """What depends on what in consecutive windows of one rank.

    Attributes:
        rank: the rank.
        nodes, work, edges, waits: the graph.
        ends, spans: how windows end.
        depth, depth_seen: size of the launch queue, and whether the capture shows it.
        start_ns: where the host program begins.
        in_flight: ends of the launches that were unfinished then.
        fixed_end_ns: when the work ended that was launched before the program; it stands first in `work`.
        latency_ns: usual time from a launch to the start of its activity.
        unexplained_ns: pauses of the GPU that nothing in the graph explains; a replay leaves them out.
        working: when each thread did nothing but execute, calls included; without long silence.
    """

    rank: int
    nodes: Nodes
    work: Work
    edges: Edges
    waits: Waits
    ends: Ends
    spans: Spans
    depth: int
    depth_seen: bool
    start_ns: int
    in_flight: IntColumn
    fixed_end_ns: IntColumn
    latency_ns: int
    unexplained_ns: int
    working: HostIntervals

    def __repr__(self) -> str:
        return f"<ReplayGraph rank {self.rank}, {len(self.spans)} windows, {len(self.nodes)} calls, {len(self.work)} activities>"

    @property
    def used_windows(self) -> list[int]:
        """Positions in Steps.windows of the replayed windows that count."""
        return [int(w) for w in self.spans.window[self.spans.used == 1]]


def build_graph(
    trace: Trace, launches: Launches, steps: Steps, partition: Partition, rows: HostRows, host_names: HostNames
) -> ReplayGraph | None:
    """The graph of the used windows of a rank, or of a run of them that is typical; None where they cannot be replayed.

    Windows in which no launch is recorded, or a single one with more than LARGEST activities, cannot be.
    """
    chosen = _choose_windows(steps, partition)
    if chosen is None:
        return None
    first, last = chosen
    program = host_program(trace, launches, steps, rows, first, last)
    if program is None:
        return None
    windows = steps.windows[first : last + 1]
    nodes = program.nodes
    work = order_work(trace, launches, program, windows[-1].end_ns)
    edges = find_edges(trace, launches, nodes, work)
    timed = time_work(trace, launches, nodes, work, edges, host_names)
    work = timed.work
    waits = find_waits(trace, nodes, work)
    return ReplayGraph(
        rank=trace.rank,
        nodes=_with_own_time(nodes, waits),
        work=work,
        edges=timed.edges,
        waits=waits,
        ends=_ends(trace, steps, work, first, last),
        spans=_spans(steps, nodes, first, last),
        depth=program.depth,
        depth_seen=program.depth_seen,
        start_ns=program.start_ns,
        in_flight=program.in_flight,
        fixed_end_ns=trace.activities.end_ns[work.activity[work.node < 0]],
        latency_ns=timed.latency_ns,
        unexplained_ns=timed.unexplained_ns,
        working=working_time(trace, launches, intervals.unique(nodes.thread).tolist(), rows, program.start_ns, windows[-1].end_ns),
    )


def _with_own_time(nodes: Nodes, waits: Waits) -> Nodes:
    """The nodes in which a blocking call that waited for nothing on the GPU lasts as long as it did."""
    waited = np.zeros(len(nodes), bool)
    waited[waits.node[waits.waited == 1]] = True
    alone = (nodes.blocks == 1) & ~waited
    return nodes.replace(own_ns=np.where(alone, nodes.end_ns - nodes.start_ns, nodes.own_ns))


def _choose_windows(steps: Steps, partition: Partition) -> tuple[int, int] | None:
    """The first and last window to replay.

    All from the first to the last used one if they are few enough; else the run of them whose classes are closest to the mean. The
    window before leads in, uncounted: what a fix lets the host gain in one step shows in the next.
    """
    used = np.flatnonzero(steps.used)
    if not len(used):
        return None
    count = np.bincount(steps.window_of[steps.window_of >= 0], minlength=len(steps.windows))
    first, last = int(used[0]), int(used[-1])
    if int(count[first : last + 1].sum()) <= COMFORTABLE:
        return _led_in(first, count), last
    before = np.concatenate(([0], np.cumsum(count)))
    start = np.arange(len(used))
    stop = np.maximum(np.searchsorted(before[used + 1], before[used] + COMFORTABLE, side="right"), start + 1)
    few = before[used[stop - 1] + 1] - before[used] <= LARGEST
    if not few.any():
        return None
    total = np.concatenate((np.zeros((1, partition.class_ns.shape[1]), np.int64), np.cumsum(partition.class_ns[used], axis=0)))
    distance = np.abs((total[stop] - total[start]) / (stop - start)[:, None] - total[-1] / len(used)).sum(axis=1)
    best = int(np.argmin(np.where(few, distance, np.inf)))
    return _led_in(int(used[best]), count), int(used[stop[best] - 1])


def _led_in(first: int, count: npt.NDArray[np.int64]) -> int:
    """The window before the first one, if something was launched for it and it is not large."""
    return first - 1 if first and 0 < count[first - 1] <= COMFORTABLE else first


def _ends(trace: Trace, steps: Steps, work: Work, first: int, last: int) -> Ends:
    """The work that ends each window: its kernels and graphs, all its work only if it has none (section 4, point 2)."""
    window = steps.window_of[work.activity]
    kind = trace.activities.kind[work.activity]
    mine = (window >= first) & (window <= last) & (work.node >= 0)
    kernel = mine & ((kind == ActivityKind.KERNEL) | (kind == ActivityKind.GRAPH))
    has_kernel = np.zeros(len(steps.windows), bool)
    has_kernel[window[kernel]] = True
    rows = np.flatnonzero(kernel | (mine & ~has_kernel[np.maximum(window, 0)]))
    return Ends(rows.astype(np.int32), (window[rows] - first).astype(np.int32))


def _spans(steps: Steps, nodes: Nodes, first: int, last: int) -> Spans:
    """The windows; one between steps ends no earlier than the next step's range starts, which the node before it leads to."""
    rows = []
    for i in range(first, last + 1):
        window = steps.windows[i]
        anchor, lead = -1, 0
        if window.kind is WindowKind.BETWEEN and i < last:
            begin = steps.windows[i + 1].host_start_ns
            before = np.flatnonzero((nodes.thread == steps.windows[i + 1].thread) & (nodes.end_ns <= begin))
            if len(before):
                anchor = int(before[-1])
                lead = begin - int(nodes.end_ns[anchor])
        rows.append((i, window.start_ns, window.end_ns, int(steps.used[i]), anchor, lead))
    return Spans.from_rows(rows)


def working_time(trace: Trace, launches: Launches, threads: Sequence[int], rows: HostRows, start: int, end: int) -> HostIntervals:
    """When these threads did nothing but execute.

    They are not blocked, load no code, are not held up by the profiler, and silent for no longer than SILENCE_NS.
    """
    found = [(np.empty(0, np.int64),) * 3]
    first = loads_code(trace, launches)
    profiler = trace.ranges.kind == RangeKind.PROFILER
    other = intervals.union(
        np.concatenate((launches.start_ns[first], trace.ranges.start_ns[profiler])),
        np.concatenate((launches.end_ns[first], trace.ranges.end_ns[profiler])),
    )
    for thread in threads:
        begin, stop, state = _states(rows.timeline(thread), start, end)
        silent = Intervals(begin[state == SILENT], stop[state == SILENT])
        if len(silent.start):
            frames = rows.frame_edges(thread)
            silent = _pieces(silent, frames[slice(*np.searchsorted(frames, (start, end)).tolist())])
        brief = silent.end - silent.start <= SILENCE_NS
        execute = state == EXECUTING
        these = intervals.union(np.concatenate((begin[execute], silent.start[brief])), np.concatenate((stop[execute], silent.end[brief])))
        these = intervals.subtract(these, other)
        found.append((these.start, these.end, np.full(len(these.start), thread)))
    return HostIntervals(*(np.concatenate(c) for c in zip(*found, strict=True)))


def _states(timeline: Timeline, start: int, end: int) -> tuple[IntColumn, IntColumn, npt.NDArray[np.uint8]]:
    """Start, end and state of the pieces of a thread's time between two instants."""
    first, last = np.searchsorted(timeline.at, (start + 1, end)).tolist()
    edges = np.concatenate(([start], timeline.at[first:last], [end]))
    return edges[:-1], edges[1:], timeline.state[first : last + 1]


def _pieces(these: Intervals, at: npt.NDArray[np.int64]) -> Intervals:
    """The intervals, which do not overlap, cut at instants and where they touch."""
    if not len(at):
        return Intervals(these.start[these.end > these.start], these.end[these.end > these.start])
    edges = np.sort(np.concatenate((these.start, these.end, at)))
    edges = edges[np.append(True, np.diff(edges) > 0)]
    inside = intervals.covered(intervals.union(these.start, these.end), edges[:-1], edges[1:]) > 0
    return Intervals(edges[:-1][inside], edges[1:][inside])


def blocked_by(nodes: Nodes, rows: HostRows, blocker: Blocker, start: int, end: int) -> HostIntervals:
    """When the launching threads were blocked by this, and by nothing that goes before it."""
    found = [(np.empty(0, np.int64),) * 3]
    for thread in intervals.unique(nodes.thread).tolist():
        begin, stop, state = _states(rows.timeline(thread), start, end)
        mine = (state == blocker) & (stop > begin)
        found.append((begin[mine], stop[mine], np.full(int(mine.sum()), thread)))
    return HostIntervals(*(np.concatenate(c) for c in zip(*found, strict=True)))
