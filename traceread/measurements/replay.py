"""What a step would take without a cause of its losses: its dependency graph, re-timed (section 7 of the time model)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Generator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.measurements.replay_graph import HostIntervals, ReplayGraph
from traceread.measurements.replay_host import NEVER
from traceread.model import CodeColumn, IntColumn
from traceread.records import record

ERROR_LIMIT = 50
"""Thousandths: above this replay error no saving is predicted."""

_NONE = np.empty(0, np.int64)


@record(eq=False)
class Removal:
    """What a fix takes away.

    Attributes:
        host: host time that goes; a wait of a call that lies wholly in it goes too.
        activities, off_ns: positions in Trace.activities and how much shorter each becomes.
        beside: the activities run beside what follows them on their stream: they keep their length and delay only who waits
            for them ("ideal overlap"); `off_ns` is then not used.
        keep: thousandths of it that stay.
    """

    host: HostIntervals = field(default_factory=HostIntervals.empty)
    activities: IntColumn = field(default_factory=lambda: _NONE)
    off_ns: IntColumn = field(default_factory=lambda: _NONE)
    beside: bool = False
    keep: int = 0

    def __bool__(self) -> bool:
        return len(self.host) > 0 or len(self.activities) > 0

    def within(self, graph: ReplayGraph) -> Removal:
        """The part of it that concerns a graph."""
        host = self.host
        near = (host.end_ns > graph.start_ns) & (host.start_ns < int(graph.spans.end_ns[-1]))
        mine = np.isin(self.activities, graph.work.activity)
        off_ns = self.off_ns[mine] if len(self.off_ns) else self.off_ns
        return replace(self, host=host.take(near), activities=self.activities[mine], off_ns=off_ns)


@record
class Saving:
    """What removing a cause saves per step, in ns.

    Attributes:
        saving_ns: after everything before it in the list was removed.
        alone_ns: by itself.
        overlap_ns: by itself where it runs beside other work instead of going away; None where that is no choice.
    """

    saving_ns: int
    alone_ns: int
    overlap_ns: int | None = None


@record(eq=False)
class _Changes:
    """A removal in terms of the graph.

    Attributes:
        gap_ns, own_ns: what is taken off the host time before each node, and off its call.
        wait_keep: thousandths of each node's waiting that stay.
        length_ns, latency_ns: what is taken off each activity, and off the time from its launch to its start.
        before: the activity before each one on its stream.
    """

    gap_ns: IntColumn
    own_ns: IntColumn
    wait_keep: IntColumn
    length_ns: IntColumn
    latency_ns: IntColumn
    before: CodeColumn


@record
class Join:
    """Where an activity meets those of other ranks. Gates open when everybody expected has come.

    Attributes:
        arrives: gates at which its start counts.
        passes: the gate that it has to wait for before it can go on, -1: none.
        ahead_ns: how far the clock of its rank is ahead of the one on which gates are compared.
        transfer_ns: its length once the gate is open.
    """

    arrives: tuple[int, ...]
    passes: int
    ahead_ns: int
    transfer_ns: int


Program = Generator[tuple[int, int], int, tuple[list[int], list[int]]]
"""Yields (row, start) of an activity that meets others and is sent when it can go on; returns the ends of activities and nodes."""


def replay_error(replayed_ns: Sequence[int], measured_ns: Sequence[int]) -> float:
    """Summed absolute differences of steps over their measured length; 0 without any."""
    whole = sum(measured_ns)
    return sum(abs(a - b) for a, b in zip(replayed_ns, measured_ns, strict=True)) / whole if whole else 0.0


def mean_saving(before_ns: Sequence[int], after_ns: Sequence[int]) -> int:
    """Mean ns by which steps got shorter, rounded down."""
    return (sum(before_ns) - sum(after_ns)) // len(before_ns) if before_ns else 0


class Replay:
    """Re-times the graph of one rank, with things taken away or as it is.

    Attributes:
        graph: the graph.
        measured_ns: length of each replayed window that counts.
    """

    def __init__(self, graph: ReplayGraph, joins: Mapping[int, Join] | None = None) -> None:
        self.graph = graph
        self._joins = joins or {}
        n, w = graph.nodes, graph.work
        threads, thread = intervals.distinct(n.thread)
        self._threads = len(threads)
        self._thread = thread.tolist()
        self._giver = n.giver.tolist()
        first = np.searchsorted(w.node, np.arange(len(n) + 1))
        self._first, self._stop = first[:-1].tolist(), first[1:].tolist()
        self._pause = w.pause_ns.tolist()
        self._edges: dict[int, list[tuple[int, int]]] = {}
        for source, target, pause, _ in zip(*(c.tolist() for _, c in graph.edges.columns()), strict=True):
            self._edges.setdefault(target, []).append((source, pause))
        self._waits: dict[int, list[tuple[int, int]]] = {}
        for node, source, pause, _ in zip(*(c.tolist() for _, c in graph.waits.columns()), strict=True):
            self._waits.setdefault(node, []).append((source, pause))
        self._length = graph.work.length_ns.copy()
        for row, join in self._joins.items():
            self._length[row] = join.transfer_ns
        self.measured_ns: list[int] = (graph.spans.end_ns - graph.spans.start_ns)[graph.spans.used == 1].tolist()

    @cached_property
    def step_ns(self) -> list[int]:
        """The length of each replayed window that counts, as the unchanged replay has it."""
        return self.steps_without(())

    @property
    def error(self) -> float:
        """How far the unchanged replay is from what was measured: summed absolute differences of the steps over their length."""
        return replay_error(self.step_ns, self.measured_ns)

    @property
    def trusted(self) -> bool:
        """Whether the error is small enough for predictions."""
        return 1000 * self.error <= ERROR_LIMIT

    def saving(self, removals: Sequence[Removal]) -> int:
        """Mean ns per step that go with all of these; negative where the step gets longer."""
        return mean_saving(self.step_ns, self.steps_without(removals))

    def steps_without(self, removals: Sequence[Removal]) -> list[int]:
        """The length of each window that counts, with all of these taken away."""
        program = self.program(removals)
        try:
            _, start = next(program)
            while True:  # alone, nobody is waited for
                _, start = program.send(start)
        except StopIteration as stop:
            end, node_end = stop.value
        return self.windows(np.array(end[:-1], np.int64), node_end)

    def program(self, removals: Sequence[Removal]) -> Program:
        """Re-times the rank with these taken away; asks when each activity of `joins` can go on."""
        return self._run(self._changes(removals))

    def _changes(self, removals: Sequence[Removal]) -> _Changes:
        n, w = self.graph.nodes, self.graph.work
        gap, own, length = (np.zeros(len(t), np.int64) for t in (n, n, w))
        wait_keep = np.full(len(n), 1000)
        for keep in sorted({r.keep for r in removals if len(r.host)}):
            tables = [r.host for r in removals if r.keep == keep]
            host = HostIntervals(*(np.concatenate(c) for c in zip(*([c for _, c in t.columns()] for t in tables), strict=True)))
            before, inside = self._host_time_in(host)
            gone = 1000 - keep
            gap += before * gone // 1000
            own += np.minimum(n.own_ns, inside) * gone // 1000
            lasted = n.end_ns - n.start_ns
            wait_keep[(inside >= lasted) & (lasted > 0) & (n.blocks == 1)] = keep
        row_of = np.full(int(w.activity.max(initial=-1)) + 2, -1)
        row_of[w.activity] = np.arange(len(w))
        beside = np.zeros(len(w), bool)
        for removal in removals:
            known = removal.activities < len(row_of) - 1
            row = row_of[removal.activities[known]]
            mine = row >= 0
            if removal.beside:
                beside[row[mine]] = True
            else:
                off = removal.off_ns[known][mine] * (1000 - removal.keep) // 1000
                np.add.at(length, row[mine], off)
        # an activity cannot start before a slow launch call gets to it: what is taken off the call is taken off the latency
        slow = np.where(w.node >= 0, w.latency_ns - self.graph.latency_ns, 0)
        latency = np.minimum(own[np.maximum(w.node, 0)], np.maximum(slow, 0)) if len(n) else np.zeros(len(w), np.int64)
        return _Changes(
            gap_ns=gap,
            own_ns=own,
            wait_keep=wait_keep,
            length_ns=np.minimum(length, self._length),
            latency_ns=latency,
            before=_without(w.before, beside) if beside.any() else w.before,
        )

    def _host_time_in(self, host: HostIntervals) -> tuple[IntColumn, IntColumn]:
        """For each node how much of the host time before it, and of its call, lies in these intervals."""
        n = self.graph.nodes
        before, inside = np.zeros(len(n), np.int64), np.zeros(len(n), np.int64)
        giver = np.where(n.giver >= 0, n.thread[n.giver], -1)
        sets = {t: _of_thread(host, t) for t in intervals.unique(host.thread).tolist()}
        for thread, these in sets.items():
            mine = np.flatnonzero(n.thread == thread)
            inside[mine] = intervals.covered(these, n.start_ns[mine], n.end_ns[mine])
        many = int(n.thread.max(initial=0)) + 2
        pair = n.thread * np.int64(many) + giver + 1  # one number each: pairs are sorted far slower
        for code in intervals.unique(pair).tolist():
            both = [sets[t] for t in {code // many, code % many - 1} if t in sets]
            if both:
                these = intervals.union(np.concatenate([s.start for s in both]), np.concatenate([s.end for s in both]))
                mine = np.flatnonzero(pair == code)
                before[mine] = intervals.covered(these, n.begin_ns[mine], n.start_ns[mine])
        return before, inside

    def _run(self, changes: _Changes) -> Program:
        """The end of every activity (and NEVER behind the last, for "none") and of every node."""
        graph = self.graph
        n, w = graph.nodes, graph.work
        gap = (n.start_ns - n.begin_ns - changes.gap_ns).tolist()
        own = (n.own_ns - changes.own_ns).tolist()
        length = (self._length - changes.length_ns).tolist()
        before, latency, pause = changes.before.tolist(), (w.latency_ns - changes.latency_ns).tolist(), self._pause
        edges, waits, joins, keeps = self._edges, self._waits, self._joins, changes.wait_keep.tolist()
        meets = edges.keys() | joins.keys()
        end = [NEVER] * (len(w) + 1)
        end[: len(graph.fixed_end_ns)] = graph.fixed_end_ns.tolist()
        clock = [graph.start_ns] * self._threads
        node_end: list[int] = []
        queue = sorted(graph.in_flight.tolist())  # when launches end, in order; most end after all earlier ones
        over, depth = 0, graph.depth  # so many of them have made room
        program = zip(self._thread, self._giver, gap, own, self._first, self._stop, strict=True)
        for node, (thread, giver, idle, busy, first, stop) in enumerate(program):
            now = clock[thread]
            if giver < 0:
                now += idle
            elif (handed := node_end[giver] + idle) > now:
                now = handed
            called = now
            if first < stop:
                while len(queue) - over >= depth:
                    if (free := queue[over]) > now:
                        now = free
                    over += 1
                finished = NEVER
                for a in range(first, stop):
                    at = now + latency[a]
                    if (ready := end[before[a]] + pause[a]) > at:
                        at = ready
                    if a in meets:
                        for source, later in edges.get(a, ()):
                            if (ready := end[source] + later) > at:
                                at = ready
                        if a in joins:
                            at = yield a, at
                    end[a] = at = at + length[a]
                    if at > finished:
                        finished = at
                if queue and finished < queue[-1]:
                    insort(queue, finished, over)
                else:
                    queue.append(finished)
            now += busy
            if node in waits:
                back = now
                for source, later in waits[node]:
                    if (ready := end[source] + later) > back:
                        back = ready
                keep = keeps[node]
                now = back if keep == 1000 else called + (back - called) * keep // 1000
            clock[thread] = now
            node_end.append(now)
        return end, node_end

    def windows(self, end: IntColumn, node_end: Sequence[int]) -> list[int]:
        """The lengths of the windows that count, given when everything ends."""
        spans, ends = self.graph.spans, self.graph.ends
        latest = np.full(len(spans), NEVER)
        np.maximum.at(latest, ends.window, end[ends.work])
        instants = [int(spans.start_ns[0])]
        for own, anchor, lead in zip(latest.tolist(), spans.anchor.tolist(), spans.lead_ns.tolist(), strict=True):
            instants.append(max(instants[-1], own, node_end[anchor] + lead if anchor >= 0 else NEVER))
        return [b - a for (a, b), used in zip(pairwise(instants), spans.used.tolist(), strict=True) if used]


def _of_thread(host: HostIntervals, thread: int) -> intervals.Intervals:
    mine = host.thread == thread
    return intervals.union(host.start_ns[mine], host.end_ns[mine])


def _without(before: CodeColumn, beside: npt.NDArray[np.bool_]) -> CodeColumn:
    """The order on the streams where some work does not hold up what follows it, unless that runs beside it too."""
    result = before.copy()
    skip = np.append(beside, False)
    while True:
        over = (result >= 0) & skip[result] & ~beside
        if not over.any():
            return result
        result[over] = before[result[over]]


def prioritise(replay: Replay, removals: Sequence[Removal]) -> list[tuple[int, int]]:
    """Positions of the removals in the order in which they save most, each with its saving after those before it, in ns per step.

    The largest next saving comes first, and is looked for again after each; equal ones keep their order.
    """
    left = list(range(len(removals)))
    chosen: list[int] = []
    result: list[tuple[int, int]] = []
    reached = 0
    while left:
        savings = {i: replay.saving([removals[k] for k in (*chosen, i)]) for i in left}
        best = max(left, key=lambda i: (savings[i], -i))
        result.append((best, savings[best] - reached))
        reached = savings[best]
        chosen.append(best)
        left.remove(best)
    return result
