"""Steps of several ranks re-timed together: a collective goes on when everybody it needs has come (section 7 of the time model)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from traceread.measurements.clocks import Clocks
from traceread.measurements.collectives import ROOTED, SYMMETRIC
from traceread.measurements.matching import Matches
from traceread.measurements.replay import ERROR_LIMIT, Join, Program, Removal, Replay, mean_saving, replay_error
from traceread.measurements.replay_graph import ReplayGraph
from traceread.measurements.replay_host import NEVER
from traceread.measurements.waiting import Split, Waiting
from traceread.model import Operation
from traceread.records import record

LARGEST_JOB = 250_000
"""With more activities on all ranks together, the slowest rank is replayed alone."""

PASSES = 30
"""Ranks that wait for each other in a circle are re-timed again until nothing changes, at most so often."""

JobRemoval = Mapping[int, Removal]
"""What a fix takes away on each rank."""

Ends = tuple[list[int], list[int]]


@record(eq=False)
class JobGraph:
    """The graphs of ranks that are replayed together.

    Attributes:
        graphs: by rank.
        joins: for each rank what meets whom, by row of its work.
        expected: for each gate how many have to come.
        critical: the rank whose steps are counted.
    """

    graphs: Mapping[int, ReplayGraph]
    joins: Mapping[int, Mapping[int, Join]]
    expected: tuple[int, ...]
    critical: int


def alone(graph: ReplayGraph) -> JobGraph:
    """One rank by itself: its collectives take as long as they took."""
    return JobGraph({graph.rank: graph}, {graph.rank: {}}, (), graph.rank)


def job_graph(
    graphs: Mapping[int, ReplayGraph],
    labels: Mapping[int, Sequence[str]],
    critical: int,
    matches: Matches,
    clocks: Clocks,
    waiting: Waiting,
) -> JobGraph:
    """The ranks that can be replayed together with the critical one, joined by their collectives; else that one alone.

    Args:
        graphs: by rank; the critical rank's is there.
        labels: for each rank the labels of its replayed windows; only ranks with the same ones go together.
        critical: the rank whose steps are counted.
        matches: which collectives of the ranks belong together.
        clocks: how far the ranks' clocks are apart.
        waiting: how long each waited.
    """
    position = {r.rank: i for i, r in enumerate(matches.ranks)}
    reference = {rank: clocks.reference[position[rank]] for rank in graphs if rank in position}
    mine = {
        rank: graph
        for rank, graph in graphs.items()
        if labels[rank] == labels[critical] and rank in reference and reference[rank] == reference.get(critical)
    }
    if len(mine) < 2 or sum(len(g.work) for g in mine.values()) > LARGEST_JOB:
        return alone(graphs[critical])
    joins, expected = _Gates(mine, position, matches, clocks, waiting).joins()
    return JobGraph(mine, joins, expected, critical) if expected else alone(graphs[critical])


class _Gates:
    """Makes a gate of every set of activities that have to meet; those of which a member is not in the graphs are left as they were."""

    def __init__(
        self, graphs: Mapping[int, ReplayGraph], position: Mapping[int, int], matches: Matches, clocks: Clocks, waiting: Waiting
    ) -> None:
        self._matches, self._waiting = matches, waiting
        self._rank = np.array([r.rank for r in matches.ranks], np.int64)[matches.rank_of]
        self._row = np.full(len(matches.meeting), -1)
        self._ahead = np.zeros(len(matches.meeting), np.int64)
        self._expected: list[int] = []
        self._arrives: dict[int, list[int]] = {}
        self._passes: dict[int, int] = {}
        self._ranks = tuple(graphs)
        start = matches.column("start_ns")
        for rank, graph in graphs.items():
            own = slice(int(matches.first[position[rank]]), int(matches.first[position[rank] + 1]))
            activity = matches.ranks[position[rank]].collectives.activity
            rows = np.full(int(max(graph.work.activity.max(initial=0), activity.max(initial=0))) + 1, -1)
            rows[graph.work.activity] = np.where(graph.work.node >= 0, np.arange(len(graph.work)), -1)
            self._row[own] = rows[activity]
            self._ahead[own] = clocks.offsets[position[rank]].ahead(start[own])

    def joins(self) -> tuple[dict[int, dict[int, Join]], tuple[int, ...]]:
        """For each rank its joins by row of its work, and how many come to each gate."""
        self._meetings()
        self._exchanges()
        length = self._matches.column("end_ns") - self._matches.column("start_ns") - self._waiting.wait_ns
        result: dict[int, dict[int, Join]] = {rank: {} for rank in self._ranks}
        for member in {*self._arrives, *self._passes}:
            result[int(self._rank[member])][int(self._row[member])] = Join(
                arrives=tuple(self._arrives.get(member, ())),
                passes=self._passes.get(member, -1),
                ahead_ns=int(self._ahead[member]),
                transfer_ns=int(length[member]),
            )
        return result, tuple(self._expected)

    def _gate(self, come: Sequence[int], go: Sequence[int]) -> None:
        """A gate to which some rows come and for which some rows wait."""
        for row in come:
            self._arrives.setdefault(row, []).append(len(self._expected))
        for row in go:
            self._passes[row] = len(self._expected)
        self._expected.append(len(come))

    def _meetings(self) -> None:
        """Operations of whole groups: everybody waits for all, for the root, or the root for all."""
        matches = self._matches
        operation, root = matches.column("operation"), matches.column("root")
        met = np.flatnonzero((matches.meeting >= 0) & (self._waiting.split == Split.SPLIT))
        order = met[np.argsort(matches.meeting[met], kind="stable")]
        for members in np.split(order, np.flatnonzero(np.diff(matches.meeting[order])) + 1):
            rows = members.tolist()
            if len(rows) < 2 or (self._row[members] < 0).any():
                continue
            what = Operation(int(operation[rows[0]]))
            if what in SYMMETRIC or what is Operation.SEND_RECV:
                self._gate(rows, rows)
            elif what in ROOTED:
                at_root = [row for row in rows if self._rank[row] == root[row]]
                others = [row for row in rows if row not in at_root]
                collecting = what in (Operation.REDUCE, Operation.GATHER)
                if at_root and others:
                    self._gate(others if collecting else at_root, at_root if collecting else others)

    def _exchanges(self) -> None:
        """Sends and receives: each waits for all that are at its other ends."""
        matches = self._matches
        others: dict[int, list[int]] = {}
        for one, other in zip(matches.sender.tolist(), matches.receiver.tolist(), strict=True):
            others.setdefault(one, []).append(other)
            others.setdefault(other, []).append(one)
        for row, ends in others.items():
            split = self._waiting.split[[row, *ends]] == Split.SPLIT
            if split.all() and (self._row[[row, *ends]] >= 0).all() and row not in self._passes:
                self._gate(list(dict.fromkeys(ends)), [row])


class JobReplay:
    """Re-times the ranks of a job together and counts the critical rank's steps.

    Attributes:
        job: what is replayed.
    """

    def __init__(self, job: JobGraph) -> None:
        self.job = job
        self._ranks = {rank: Replay(graph, job.joins[rank]) for rank, graph in job.graphs.items()}

    @property
    def graph(self) -> ReplayGraph:
        """The critical rank's graph."""
        return self.job.graphs[self.job.critical]

    @property
    def measured_ns(self) -> list[int]:
        """Length of each replayed window of the critical rank that counts."""
        return self._ranks[self.job.critical].measured_ns

    @cached_property
    def step_ns(self) -> list[int]:
        """The same as the unchanged replay has them."""
        return self.steps_without(())

    @property
    def error(self) -> float:
        """How far the unchanged replay is from what was measured: summed absolute differences of the steps over their length."""
        return replay_error(self.step_ns, self.measured_ns)

    @property
    def trusted(self) -> bool:
        """Whether the error is small enough for predictions."""
        return 1000 * self.error <= ERROR_LIMIT

    def saving(self, removals: Sequence[JobRemoval]) -> int:
        """Mean ns per step of the critical rank that go with all of these; negative where the step gets longer."""
        return mean_saving(self.step_ns, self.steps_without(removals))

    def steps_without(self, removals: Sequence[JobRemoval]) -> list[int]:
        """The length of each window of the critical rank that counts, with all of these taken away."""

        def programs() -> dict[int, Program]:
            return {rank: replay.program([r[rank] for r in removals if rank in r]) for rank, replay in self._ranks.items()}

        run = _Run(self.job)
        result = run.blocking(programs())
        for _ in range(PASSES if run.circular else 0):
            before = list(run.latest)
            result = run.again(programs())
            if run.latest == before:
                break
        end, node_end = result[self.job.critical]
        return self._ranks[self.job.critical].windows(np.array(end[:-1], np.int64), node_end)


class _Run:
    """The gates while the ranks run.

    Attributes:
        latest: the latest arrival at each gate so far.
        circular: ranks waited for each other in a circle; what they waited for was then taken as known so far.
    """

    def __init__(self, job: JobGraph) -> None:
        self._job = job
        self.latest = [NEVER] * len(job.expected)
        self.circular = False

    def blocking(self, programs: Mapping[int, Program]) -> dict[int, Ends]:
        """Runs every rank as far as the gates let it, until all have ended."""
        missing = list(self._job.expected)
        result: dict[int, Ends] = {}
        sleeping: dict[int, tuple[Join, int]] = {}
        waiters: dict[int, list[int]] = {}
        awake: deque[tuple[int, int | None]] = deque((rank, None) for rank in programs)
        while awake or sleeping:
            if not awake:  # collectives of several streams were launched in different orders
                self.circular = True
                awake.extend((rank, self._go_on(join, start)) for rank, (join, start) in sleeping.items())
                sleeping.clear()
            rank, answer = awake.popleft()
            while True:
                try:
                    row, start = programs[rank].send(answer)  # type: ignore[arg-type]
                except StopIteration as stop:
                    result[rank] = stop.value
                    break
                join = self._job.joins[rank][row]
                for gate in join.arrives:
                    self.latest[gate] = max(self.latest[gate], start - join.ahead_ns)
                    missing[gate] -= 1
                    for other in waiters.pop(gate, ()) if not missing[gate] else ():
                        if other in sleeping and sleeping[other][0].passes == gate:
                            awake.append((other, self._go_on(*sleeping.pop(other))))
                if join.passes >= 0 and missing[join.passes] > 0:
                    sleeping[rank] = (join, start)
                    waiters.setdefault(join.passes, []).append(rank)
                    break
                answer = self._go_on(join, start)
        return result

    def again(self, programs: Mapping[int, Program]) -> dict[int, Ends]:
        """Runs every rank to its end, with the arrivals of the last time where the others have not come yet."""
        before, now, come = self.latest, [NEVER] * len(self.latest), [0] * len(self.latest)
        result: dict[int, Ends] = {}
        for rank, program in programs.items():
            answer: int | None = None
            while True:
                try:
                    row, start = program.send(answer)  # type: ignore[arg-type]
                except StopIteration as stop:
                    result[rank] = stop.value
                    break
                join = self._job.joins[rank][row]
                for gate in join.arrives:
                    now[gate] = max(now[gate], start - join.ahead_ns)
                    come[gate] += 1
                answer = start
                if join.passes >= 0:
                    complete = come[join.passes] == self._job.expected[join.passes]
                    answer = max(start, (now if complete else before)[join.passes] + join.ahead_ns)
        self.latest = now
        return result

    def _go_on(self, join: Join, start: int) -> int:
        """When an activity can go on, on its own rank's clock."""
        return max(start, self.latest[join.passes] + join.ahead_ns) if join.passes >= 0 else start
