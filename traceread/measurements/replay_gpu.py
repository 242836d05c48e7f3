"""The GPU side of the dependency graph: what each activity had to wait for, and how long after it it began."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.categories.host import CallRole, HostNames
from traceread.measurements.idle import SHORT_DISPATCH_NS
from traceread.measurements.launches import Launches
from traceread.measurements.replay_host import NEVER, HostProgram, Nodes
from traceread.model import Activities, CodeColumn, FlagColumn, IntColumn, Table, Trace, column
from traceread.records import record

_CLOCK_NS = 2_000
"""Times of different streams agree this well: programmatic launches and rounded clocks overlap a little."""
_STREAM_WAIT = re.compile(r"^(?:cuda|hip|cu)StreamWaitEvent")
_LONG_LATENCY_NS = 50_000
"""A kernel that begins later after its launch than this waited for something else, even if it does not show."""
_LOOK_BACK = 16
"""Candidates that are looked at for what a stream, or a call, waited for."""


@record(eq=False)
class Work(Table):
    """Activities in the order of the nodes that launch them; the first ones ran before the program and keep their times."""

    activity: CodeColumn = column("int32", "", "position in Trace.activities")
    node: IntColumn = column("int64", "", "node that launches it, -1: launched before the program")
    length_ns: IntColumn = column("int64", "ns", "its length")
    latency_ns: IntColumn = column("int64", "ns", "it begins no earlier than so long after its launch; NEVER: no launch record")
    before: CodeColumn = column("int32", "", "row of the activity before it on its stream, -1: none")
    pause_ns: IntColumn = column("int64", "ns", "it begins no earlier than so long after the end of that one")


@record(eq=False)
class Edges(Table):
    """An activity waits for one of another stream."""

    source: IntColumn = column("int64", "", "row of Work that is waited for")
    target: IntColumn = column("int64", "", "row of Work that waits")
    pause_ns: IntColumn = column("int64", "ns", "it begins no earlier than so long after the end of the source")
    recorded: FlagColumn = column("int8", "", "1: a recorded wait, 0: read off the times")


@record(eq=False)
class Waits(Table):
    """A node waits for an activity."""

    node: IntColumn = column("int64", "", "the node")
    source: IntColumn = column("int64", "", "row of Work that it waits for")
    pause_ns: IntColumn = column("int64", "ns", "the call returns so long after the end of the source")
    waited: FlagColumn = column("int8", "", "1: it did wait; 0: it would have, had the source ended later")


def order_work(trace: Trace, launches: Launches, program: HostProgram, until_ns: int) -> Work:
    """The activities of the program and those before it that it may have waited for, without waits between streams.

    What has no launch record and nothing of the program before it on its stream keeps its times, like what ran before.
    """
    a = trace.activities
    node = program.node_of
    begin = int(program.nodes.start_ns[0])
    earlier = np.flatnonzero((node < 0) & np.where(launches.known, launches.start_ns < program.start_ns, a.end_ns <= begin))
    recent = earlier[a.end_ns[earlier] > begin]
    loose = np.flatnonzero((node < 0) & ~launches.known & (a.end_ns > begin) & (a.start_ns < until_ns))
    before = intervals.unique(np.concatenate((recent, _last_of_streams(a, earlier))))
    rows = np.concatenate((np.flatnonzero(node >= 0), before, loose))
    node = _with_loose(a, rows, node, loose)
    rows = rows[np.lexsort((a.end_ns[rows], a.start_ns[rows], node[rows]))]
    return Work(
        activity=rows.astype(np.int32),
        node=node[rows],
        length_ns=(a.end_ns - a.start_ns)[rows],
        latency_ns=np.zeros(len(rows), np.int64),
        before=_before_on_stream(a, rows).astype(np.int32),
        pause_ns=np.zeros(len(rows), np.int64),
    )


def _last_of_streams(a: Activities, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Of these activities the one that ends last on each stream."""
    order = rows[np.lexsort((a.end_ns[rows], a.stream[rows]))]
    return order[np.append(a.stream[order][1:] != a.stream[order][:-1], True)] if len(order) else order


def _with_loose(a: Activities, rows: npt.NDArray[np.int64], node: IntColumn, loose: npt.NDArray[np.int64]) -> IntColumn:
    """The node of each activity; one without launch record belongs to the node of the one before it on its stream."""
    if not len(loose):
        return node
    order = rows[np.lexsort((a.start_ns[rows], a.stream[rows]))]
    given = np.where(node[order] >= 0, np.arange(len(order)), -1)
    at = np.maximum.accumulate(given)
    same = (at >= 0) & (a.stream[order[np.maximum(at, 0)]] == a.stream[order])
    follow = np.isin(order, loose) & same
    node = node.copy()
    node[order[follow]] = node[order[at[follow]]]
    return node


def _before_on_stream(a: Activities, rows: npt.NDArray[np.int64]) -> IntColumn:
    """For each row the row that its stream had to finish first, -1 if none.

    It is the one that starts before it; where that one still runs (branches of a graph on one stream), the latest that is over.
    """
    start, end = a.start_ns[rows], a.end_ns[rows]
    _, stream = intervals.distinct(a.stream[rows])
    by_start = np.lexsort((np.arange(len(rows)), start, stream))
    before = np.full(len(rows), -1)
    same = stream[by_start][1:] == stream[by_start][:-1]
    before[by_start[1:][same]] = by_start[:-1][same]
    overlaps = np.flatnonzero((before >= 0) & (end[before] > start + SHORT_DISPATCH_NS))
    if len(overlaps):
        by_end = np.lexsort((end, stream))
        span = int(end.max() - end.min()) + int(max(start.max() - end.max(), 0)) + 2
        base = min(int(end.min()), int(start.min()))
        keys = stream[by_end] * (2 * span) + (end[by_end] - base)
        at = np.searchsorted(keys, stream[overlaps] * (2 * span) + (start[overlaps] - base), side="right") - 1
        found = by_end[np.maximum(at, 0)]
        fits = (at >= 0) & (stream[found] == stream[overlaps])
        before[overlaps] = np.where(fits, found, -1)
    return np.where(before < np.arange(len(rows)), before, -1)  # what was launched later cannot have been waited for


def find_edges(trace: Trace, launches: Launches, nodes: Nodes, work: Work) -> Edges:
    """Waits of streams for activities of other streams: those recorded, else those that wait calls give away.

    What was not over when the waiting activity began cannot have been waited for and is left out.
    """
    edges = _recorded_waits(trace, launches, work) if len(trace.stream_waits) else _waits_by_call(trace, nodes, work)
    a = trace.activities
    late = a.start_ns[work.activity[edges.target]] - a.end_ns[work.activity[edges.source]]
    edges = edges.take(late >= -_CLOCK_NS)
    _, first = np.unique(edges.target * (1 << 32) + edges.source, return_index=True)
    return edges.take(np.sort(first))


def _edges(source: IntColumn, target: IntColumn, recorded: bool) -> Edges:
    keep = (source >= 0) & (target >= 0) & (source < target)
    return Edges(source[keep], target[keep], np.zeros(int(keep.sum()), np.int64), np.full(int(keep.sum()), int(recorded)))


def _recorded_waits(trace: Trace, launches: Launches, work: Work) -> Edges:
    """The first activity launched on a stream after its wait waits for the last one launched on the event's stream before its record.

    Where that stream is not recorded, it is the last one launched on any other.
    """
    waits, calls = trace.stream_waits, trace.calls
    by_id = np.argsort(calls.correlation, kind="stable")
    ids = calls.correlation[by_id]
    at = np.minimum(np.searchsorted(ids, waits.event_correlation), max(len(ids) - 1, 0))
    known = (waits.event_correlation > 0) & (ids[at] == waits.event_correlation) if len(ids) else np.zeros(len(waits), bool)
    record_ns = np.where(known, calls.start_ns[by_id[at]] if len(ids) else 0, waits.time_ns)
    stream = trace.activities.stream[work.activity]
    launched = launches.start_ns[work.activity]
    has_launch = launches.known[work.activity]
    sources, targets = [], []
    streams, events, _ = intervals.distinct_pairs(waits.stream, waits.event_stream)
    for one, of in zip(streams.tolist(), events.tolist(), strict=True):
        mine = np.flatnonzero((waits.stream == one) & (waits.event_stream == of))
        own = np.flatnonzero((stream == one) & has_launch)
        other = np.flatnonzero((stream != one) & ((stream == of) | (of < 0)) & has_launch)
        if not len(own) or not len(other):
            continue
        own, other = own[np.argsort(launched[own], kind="stable")], other[np.argsort(launched[other], kind="stable")]
        after = np.searchsorted(launched[own], waits.time_ns[mine], side="left")
        latest = np.searchsorted(launched[other], record_ns[mine], side="left") - 1
        fits = (after < len(own)) & (latest >= 0)
        targets.append(own[after[fits]])
        sources.append(other[latest[fits]])
    return _edges(np.concatenate([*sources, np.empty(0, np.int64)]), np.concatenate([*targets, np.empty(0, np.int64)]), recorded=True)


def _waits_by_call(trace: Trace, nodes: Nodes, work: Work) -> Edges:
    """Where only the calls were recorded: what is launched next on the thread waits for the latest work of another stream that was over."""
    codes = [code for code, name in enumerate(trace.names) if _STREAM_WAIT.match(name)]
    calls = np.flatnonzero(np.isin(trace.calls.name, codes))
    first = np.full(len(nodes), -1)
    rows = np.flatnonzero(work.node >= 0)
    first[work.node[rows][::-1]] = rows[::-1]
    targets, times = [], []
    for one in intervals.unique(nodes.thread).tolist():
        mine = np.flatnonzero((nodes.thread == one) & (first >= 0))
        asked = calls[trace.calls.thread[calls] == one]
        at = np.searchsorted(nodes.start_ns[mine], trace.calls.start_ns[asked], side="left")
        fits = at < len(mine)
        targets.append(first[mine[at[fits]]])
        times.append(trace.calls.start_ns[asked[fits]])
    target = np.concatenate([*targets, np.empty(0, np.int64)])
    when = np.concatenate([*times, np.empty(0, np.int64)])
    a = trace.activities
    stream, start, end = a.stream[work.activity], a.start_ns[work.activity], a.end_ns[work.activity]
    launched = np.where(work.node >= 0, nodes.start_ns[np.maximum(work.node, 0)], NEVER)
    source = np.full(len(target), -1)
    for one in intervals.unique(stream[target]).tolist():
        mine = np.flatnonzero(stream[target] == one)
        other = np.flatnonzero(stream != one)  # in order of launch, as all work is
        if not len(other):
            continue
        at = np.searchsorted(launched[other], when[mine], side="left") - 1
        for _ in range(_LOOK_BACK):
            open_ = (source[mine] < 0) & (at >= 0)
            candidate = other[np.maximum(at, 0)]
            over = open_ & (end[candidate] <= start[target[mine]])
            source[mine[over]] = candidate[over]
            at -= 1
    return _edges(source, target, recorded=False)


@record(eq=False)
class TimedWork:
    """Work and edges with their pauses.

    Attributes:
        work, edges: the tables.
        latency_ns: the usual time from a launch to the start of its activity on an idle GPU.
        unexplained_ns: pauses that nothing explains.
    """

    work: Work
    edges: Edges
    latency_ns: int
    unexplained_ns: int


def time_work(trace: Trace, launches: Launches, nodes: Nodes, work: Work, edges: Edges, host_names: HostNames) -> TimedWork:
    """The work and its edges with the pauses between cause and effect.

    A pause is what was measured where it decided the start; elsewhere it is what is usual, as far as the times allow. Where
    all causes were long over, the start is taken to follow whatever ended just then on another stream, if anything did. The
    rest stays out of the pauses: the replay then starts such work earlier than it ran, which is its error.
    """
    a = trace.activities
    start, end = a.start_ns[work.activity], a.end_ns[work.activity]
    moves = work.node >= 0
    node = np.maximum(work.node, 0)
    launched = np.where(nodes.held[node] == 1, nodes.end_ns[node] - nodes.own_ns[node], nodes.start_ns[node])
    known = moves & launches.known[work.activity]
    far = np.iinfo(np.int64).max
    since_launch = np.where(known, start - launched, far)
    since_before = np.where(work.before >= 0, start - end[work.before], far)
    since_source = start[edges.target] - end[edges.source]
    nearest = np.minimum(since_launch, since_before)
    np.minimum.at(nearest, edges.target, since_source)

    idle = known & (since_launch <= nearest) & (since_launch <= _LONG_LATENCY_NS)
    queued = moves & (since_before <= since_launch) & (since_before >= 0) & (since_before <= SHORT_DISPATCH_NS)
    latency = int(np.median(since_launch[idle])) if idle.any() else SHORT_DISPATCH_NS
    pause = int(np.median(since_before[queued])) if queued.any() else 0
    unexplained = np.where(moves & (nearest < far) & (nearest > SHORT_DISPATCH_NS), nearest, 0)
    by_launch = since_launch <= nearest
    unexplained[by_launch & (since_launch <= _LONG_LATENCY_NS)] = 0
    graph = (host_names.call_roles(trace.names, trace.calls.name[nodes.call]) == CallRole.GRAPH_LAUNCH)[node]
    unexplained[graph & (work.before >= 0) & (work.node[work.before] == work.node)] = 0  # nodes of a graph keep their distance

    late = np.flatnonzero(unexplained)
    source = _ended_just_then(trace, work, late)
    found = source >= 0
    more = _edges(source[found], late[found], recorded=False)
    edges = Edges(*(np.concatenate(pair) for pair in zip((c for _, c in edges.columns()), (c for _, c in more.columns()), strict=True)))
    unexplained[late[found]] = 0
    unexplained[by_launch] = 0  # nothing else is known to have held it: its launch took that long
    since_source = start[edges.target] - end[edges.source]
    np.minimum.at(nearest, edges.target, since_source)

    def paused(since: IntColumn, usual: int, of: IntColumn) -> IntColumn:
        decides = (since <= nearest[of]) & (unexplained[of] == 0)
        result: IntColumn = np.where(decides, since, np.minimum(since, usual))
        return result

    rows = np.arange(len(work))
    timed = work.replace(
        latency_ns=np.where(known, paused(since_launch, latency, rows), NEVER),
        pause_ns=np.where(work.before >= 0, paused(since_before, pause, rows), 0),
    )
    return TimedWork(timed, edges.replace(pause_ns=paused(since_source, pause, edges.target)), latency, int(unexplained.sum()))


def _ended_just_then(trace: Trace, work: Work, rows: npt.NDArray[np.int64]) -> IntColumn:
    """For each of these rows the one of another stream, launched earlier, that ended just before it began; -1 if none did."""
    a = trace.activities
    start, end, stream = a.start_ns[work.activity], a.end_ns[work.activity], a.stream[work.activity]
    by_end = np.argsort(end, kind="stable")
    at = np.searchsorted(end[by_end], start[rows], side="right") - 1
    source = np.full(len(rows), -1)
    for _ in range(_LOOK_BACK):
        candidate = by_end[np.maximum(at, 0)]
        fits = (source < 0) & (at >= 0) & (start[rows] - end[candidate] <= 2 * SHORT_DISPATCH_NS)
        fits &= (stream[candidate] != stream[rows]) & (candidate < rows)
        source[fits] = candidate[fits]
        at -= 1
    return source


def find_waits(trace: Trace, nodes: Nodes, work: Work) -> Waits:
    """What the blocking calls waited for: of the work launched before them what ended last while they lasted.

    A call that did not wait may have to in a replay: a device synchronisation for all streams, another one for the latest work
    of its own thread. An event synchronisation that did not wait says nothing.
    """
    a = trace.activities
    end = a.end_ns[work.activity]
    blocks = np.flatnonzero(nodes.blocks)
    if not len(blocks) or not len(work):
        return Waits.empty()
    by_end = np.argsort(end, kind="stable")
    at = np.searchsorted(end[by_end], nodes.end_ns[blocks], side="right") - 1
    source = np.full(len(blocks), -1)
    for _ in range(_LOOK_BACK):
        candidate = by_end[np.maximum(at, 0)]
        fits = (source < 0) & (at >= 0) & (work.node[candidate] <= blocks) & (end[candidate] > nodes.start_ns[blocks])
        source[fits] = candidate[fits]
        at -= 1
    waited = source >= 0
    pause = nodes.end_ns[blocks] - end[source]
    usual = int(np.median(pause[waited])) if waited.any() else 0
    rows = [(blocks[waited], source[waited], pause[waited], np.ones(int(waited.sum()), np.int64))]
    free = blocks[~waited]
    names = [trace.names[code] for code in trace.calls.name[nodes.call[free]].tolist()]
    device = np.array(["Device" in n or "Ctx" in n or n.endswith(("Free", "MemFree", "MemFree_v2")) for n in names], bool)
    event = np.array(["Event" in n for n in names], bool)
    for node in free[device].tolist():
        latest = _latest_of_streams(a.stream[work.activity], work.node, node)
        rows.append((np.full(len(latest), node), latest, _clipped(nodes, end, node, latest, usual), np.zeros(len(latest), np.int64)))
    others = free[~device & ~event]
    of_thread = np.where(work.node >= 0, nodes.thread[np.maximum(work.node, 0)], -1)
    for node in others.tolist():
        stop = int(np.searchsorted(work.node, node, side="right"))
        back = np.flatnonzero(of_thread[max(stop - 64, 0) : stop] == nodes.thread[node])
        if len(back):
            latest = np.array([max(stop - 64, 0) + int(back[-1])])
            rows.append((np.array([node]), latest, _clipped(nodes, end, node, latest, usual), np.zeros(1, np.int64)))
    return Waits(*(np.concatenate(c) for c in zip(*rows, strict=True)))


def _latest_of_streams(stream: IntColumn, node_of: IntColumn, node: int) -> npt.NDArray[np.int64]:
    """The row launched last on each stream before a node."""
    stop = int(np.searchsorted(node_of, node, side="right"))
    window = stream[max(stop - 4_096, 0) : stop]
    _, first = np.unique(window[::-1], return_index=True)
    return np.sort(stop - 1 - first)


def _clipped(nodes: Nodes, end: IntColumn, node: int, source: npt.NDArray[np.int64], usual: int) -> IntColumn:
    """The usual pause between the end of work and the return of a call, as far as the call's times allow it."""
    pause: IntColumn = np.minimum(usual, nodes.end_ns[node] - end[source])
    return pause
