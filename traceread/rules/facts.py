"""Facts of one rank: what rules read.

Times and counts are over the used steps. What a fix takes away goes beyond them: it reaches into the window before the first used
one, with which a replay leads in, so that the first used step begins as all others do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.categories import FAMILIES
from traceread.categories.host import Blocker
from traceread.findings import Evidence
from traceread.intervals import Intervals
from traceread.measurements.classes import Reason, StepClass
from traceread.measurements.collectives import RankCollectives, find_collectives
from traceread.measurements.evidence import IdleNames, open_ranges, ops_around, source_line, thread_title, waiting_place
from traceread.measurements.host_time import HostRows
from traceread.measurements.idle import Idle
from traceread.measurements.kernels import KernelTable
from traceread.measurements.launches import Launches
from traceread.measurements.partition import Busy, Partition
from traceread.measurements.replay import Removal
from traceread.measurements.replay_graph import HostIntervals
from traceread.measurements.steps import Steps
from traceread.model import Category, CodeColumn, IntColumn, RangeKind, Trace
from traceread.records import record
from traceread.rules.losses import Loss, joined
from traceread.units import duration, plural

Mask = npt.NDArray[np.bool_]

WORTH = 100
"""A cause is worth a finding from a hundredth of the step on."""
_PLACES = 3
"""Places shown of a cause, each in another step."""
_SHOWN_NAMES = 4
_LONGEST = 4096
"""Patterns see so many characters of a name: a hostile one costs no more."""
_CLASS_OF = {
    Category.COMPUTE: StepClass.COMPUTE,
    Category.COMMUNICATION: StepClass.EXPOSED_COMMUNICATION,
    Category.COPY: StepClass.EXPOSED_COPY,
}
_BLOCKER_OF = {
    StepClass.DATA_WAIT: Blocker.DATA_WAIT,
    StepClass.HOST_SYNC: Blocker.HOST_SYNC,
    StepClass.ALLOCATION: Blocker.ALLOCATION,
    StepClass.COMPILE: Blocker.COMPILE,
    StepClass.CHECKPOINT: Blocker.CHECKPOINT,
}


@record(eq=False)
class Blocked:
    """Host rows of one name that block the host.

    Attributes:
        title: how they are called: "cudaStreamSynchronize in aten::item", the name of a range; "" for waits without a row.
        rows: rows of the host: calls (position), ranges (number of calls + position); with those that lead in.
        idle: rows of Idle that they are to blame for, with those that lead in.
        loss: the idle time of the used steps, and the host time they take.
        count, ns: number and length of the rows of the used steps.
    """

    title: str
    rows: IntColumn
    idle: IntColumn
    loss: Loss
    count: int
    ns: int


@record(eq=False)
class _Named:
    """Rows of a table with the codes of their names, and which codes these are."""

    rows: IntColumn
    name: CodeColumn
    codes: list[int]

    @classmethod
    def of(cls, rows: IntColumn, name: CodeColumn) -> _Named:
        """These rows of a column of names."""
        return cls(rows, name[rows], intervals.unique(name[rows]).tolist())

    def holding(self, pattern: str, names: Sequence[str]) -> IntColumn:
        """The rows whose name holds the pattern."""
        find = re.compile(pattern).search
        found = [code for code in self.codes if find(names[code][:_LONGEST]) is not None]
        if not found:
            return self.rows[:0]
        wanted = np.zeros(len(names), bool)
        wanted[found] = True
        return self.rows[wanted[self.name]]


@record(eq=False)
class Facts:
    """What is known about one rank.

    Attributes:
        trace: the tables as recorded, classified.
        launches: the launch of each activity.
        steps: windows, and which of them are used.
        partition: class times per window.
        busy: when the GPU was busy.
        idle: idle intervals with their causes.
        idle_names: names of the rows that say why.
        kernels: activity names over the used windows.
        rows: what host rows mean.
        known_collectives: the rank's collectives where they are known already; see `collectives`.
        working: when the launching threads did nothing but execute, calls included, in the steps that are replayed: what a CUDA
            graph would do away with.
    """

    trace: Trace
    launches: Launches
    steps: Steps
    partition: Partition
    busy: Busy
    idle: Idle
    idle_names: IdleNames
    kernels: KernelTable
    rows: HostRows
    known_collectives: RankCollectives | None = None
    working: HostIntervals = field(default_factory=HostIntervals.empty)

    # What is left for the rules that look later

    @cached_property
    def _taken_idle(self) -> Mask:
        return np.zeros(len(self.idle), bool)

    @cached_property
    def _taken_host(self) -> Mask:
        return np.zeros(len(self.rows.start), bool)

    @cached_property
    def _claimed_ns(self) -> IntColumn:
        return np.zeros(len(self.trace.activities), np.int64)

    def claim(self, loss: Loss) -> None:
        """Takes a loss out of the facts: rules that look later see only what is left."""
        self._taken_idle[loss.idle] = True
        self._taken_host[loss.host_rows] = True
        np.add.at(self._claimed_ns, loss.activities, loss.ns)
        np.subtract.at(self.exposed_ns, loss.activities, loss.ns)
        np.maximum(self.exposed_ns, 0, out=self.exposed_ns)
        np.subtract.at(self.lead_in_ns, loss.removal.activities, loss.removal.off_ns)
        np.maximum(self.lead_in_ns, 0, out=self.lead_in_ns)

    # The steps

    @cached_property
    def used(self) -> IntColumn:
        """Positions of the used windows."""
        return np.flatnonzero(np.array(self.steps.used, bool))

    @cached_property
    def windows(self) -> Intervals:
        """The used windows as a set."""
        used = [self.steps.windows[i] for i in self.used.tolist()]
        return intervals.union([w.start_ns for w in used], [w.end_ns for w in used])

    @property
    def step_count(self) -> int:
        """Number of used steps."""
        return len(self.used)

    @cached_property
    def total_ns(self) -> int:
        """Length of the used steps together."""
        return sum(self.steps.windows[i].duration_ns for i in self.used.tolist())

    @cached_property
    def host_windows(self) -> Intervals:
        """The host time in which the used steps are launched."""
        used = [self.steps.windows[i] for i in self.used.tolist()]
        return intervals.union([w.host_start_ns for w in used], [w.host_end_ns for w in used])

    @cached_property
    def _lead_in(self) -> Mask:
        """Which windows a replay goes through beside the used ones."""
        result = np.zeros(len(self.steps.windows), bool)
        if len(self.used):
            result[max(int(self.used[0]) - 1, 0) : int(self.used[-1])] = True
            result[self.used] = False
        return result

    @cached_property
    def _replayed_host(self) -> Intervals:
        """The host time in which the used steps and those that lead in are launched."""
        lead_in = [self.steps.windows[i] for i in np.flatnonzero(self._lead_in).tolist()]
        start = np.concatenate((self.host_windows.start, np.array([w.host_start_ns for w in lead_in], np.int64)))
        end = np.concatenate((self.host_windows.end, np.array([w.host_end_ns for w in lead_in], np.int64)))
        return intervals.union(start, end)

    @property
    def only_first_step(self) -> bool:
        """Whether the only step there is to judge by is the first of the capture, with everything that happens once."""
        return bool(self.steps.fallback) and self.step_count == 1

    def class_ns(self, step_class: StepClass) -> int:
        """Time of a class over the used steps."""
        return int(self.partition.class_ns[self.used, step_class].sum())

    def per_step(self, ns: int) -> int:
        """A sum over the used steps as the mean of one."""
        return (2 * ns + self.step_count) // (2 * self.step_count) if self.step_count else 0

    def worth(self, ns: int) -> bool:
        """Whether a sum over the used steps is at least a hundredth of them."""
        return self.total_ns > 0 and ns * WORTH >= self.total_ns

    # Idle time

    @cached_property
    def _used_rows(self) -> Mask:
        if not len(self.idle):
            return np.zeros(0, bool)
        mine: Mask = np.array(self.steps.used, bool)[self.idle.window]
        return mine

    def idle_rows(self, step_class: StepClass, reasons: Sequence[Reason] = (), *, lead_in: bool = False) -> IntColumn:
        """Rows of Idle in used steps with this class, and with one of these reasons if given; `lead_in`: and what leads in."""
        rows = self._idle_of_class(step_class)
        mine = ~self._taken_idle[rows]
        if not lead_in:
            mine &= self._used_rows[rows]
        if reasons:
            mine &= np.isin(self.idle.reason[rows], [int(r) for r in reasons])
        return rows[mine]

    def _idle_of_class(self, step_class: StepClass) -> IntColumn:
        """Rows of Idle with this class, in used steps and what leads in."""
        if step_class not in self._known_idle:
            rows = np.flatnonzero(self.idle.cause == step_class)
            near = self._lead_in.copy()
            near[self.used] = True
            self._known_idle[step_class] = rows[near[self.idle.window[rows]]]
        return self._known_idle[step_class]

    @cached_property
    def _known_idle(self) -> dict[StepClass, IntColumn]:
        return {}

    def idle_ns(self, rows: IntColumn) -> int:
        """Length of those of these rows of Idle that are in used steps."""
        rows = rows[self._used_rows[rows]]
        return int((self.idle.end_ns[rows] - self.idle.start_ns[rows]).sum())

    @cached_property
    def launching_threads(self) -> list[int]:
        """Threads that launch GPU work, and the step thread."""
        return [int(t) for t in intervals.unique(np.append(self.launches.thread, self.steps.step_thread)) if t >= 0]

    def blocked(self, step_class: StepClass) -> tuple[Blocked, ...]:
        """What blocked the host with this class of idle time, by name, the one with most idle time first.

        Rows that cost nothing are there too: the GPU was busy meanwhile. Idle time whose row is not recorded goes to the wait
        that had just ended, else to an entry without a title.
        """
        if step_class not in self._blocked:
            self._blocked[step_class] = self._find_blocked(step_class)
        left = (self._left(b) for b in self._blocked[step_class])
        return tuple(b for b in left if len(b.rows) or len(b.loss.idle))

    def _left(self, blocked: Blocked) -> Blocked:
        """What no finding has claimed yet."""
        rows = blocked.rows[~self._taken_host[blocked.rows]]
        idle = blocked.idle[~self._taken_idle[blocked.idle]]
        if len(rows) == len(blocked.rows) and len(idle) == len(blocked.idle):
            return blocked
        return self.blocked_rows(blocked.title, rows, idle)

    def blocked_rows(self, title: str, rows: IntColumn, idle: IntColumn) -> Blocked:
        """Host rows and the rows of Idle that they are to blame for; waits without a title go with the host's silence."""
        loss = self.host_loss(rows, idle) if title else self.idle_loss(idle, host_gone=True)
        counted = self._counted(rows)
        return Blocked(title, rows, idle, loss, len(counted), int((self.rows.end[counted] - self.rows.start[counted]).sum()))

    def host_ns(self, rows: IntColumn) -> int:
        """Length of those of these host rows that belong to used steps."""
        counted = self._counted(rows)
        return int((self.rows.end[counted] - self.rows.start[counted]).sum())

    def _counted(self, rows: IntColumn) -> IntColumn:
        """Those of these host rows that count: begun while used steps were launched, else to blame for idle time in them."""
        begun: IntColumn = rows[intervals.holds(self.host_windows, self.rows.start[rows])]
        return begun if len(begun) else rows[self._blamed[rows]]

    @cached_property
    def _blamed(self) -> Mask:
        """Which host rows are to blame for idle time in used steps."""
        result = np.zeros(len(self.rows.start), bool)
        source = self.idle.source[self._used_rows]
        result[source[source >= 0]] = True
        return result

    @cached_property
    def _blocked(self) -> dict[StepClass, tuple[Blocked, ...]]:
        return {}

    def _find_blocked(self, step_class: StepClass) -> tuple[Blocked, ...]:
        host, idle = self.rows, self.idle
        rows = host.blocking[host.blocker[host.blocking] == _BLOCKER_OF[step_class]]
        rows = rows[np.isin(host.thread[rows], self.launching_threads)]
        begun = intervals.holds(self._replayed_host, host.start[rows])
        waiting = self.idle_rows(step_class, lead_in=True)
        source = idle.source[waiting]
        blamed = source[(source >= 0) & (host.blocker[np.maximum(source, 0)] == _BLOCKER_OF[step_class])]
        rows = intervals.either(rows[begun], blamed)
        rows = self._not_inside(rows, _BLOCKER_OF[step_class])
        title_of, titles = self._titles(rows)
        at = np.searchsorted(rows, source)
        known = (source >= 0) & (at < len(rows))
        known[known] = rows[at[known]] == source[known]
        group = np.full(len(waiting), -1)
        group[known] = title_of[at[known]]
        if len(rows) and not known.all():
            by_end = np.argsort(host.end[rows], kind="stable")
            before = np.searchsorted(host.end[rows][by_end], idle.start_ns[waiting], side="right") - 1
            restart = ~known & (before >= 0) & (idle.reason[waiting] == Reason.RESTART_AFTER_WAIT)
            group[restart] = title_of[by_end[before[restart]]]
        found = []
        for code in intervals.unique(np.concatenate((group, title_of))).tolist():
            found.append(self.blocked_rows(titles[code] if code >= 0 else "", rows[title_of == code], waiting[group == code]))
        return tuple(sorted(found, key=lambda b: (-self.idle_ns(b.loss.idle), b.title)))

    def _not_inside(self, rows: IntColumn, blocker: Blocker) -> IntColumn:
        """Those of these host rows that do not stand inside what goes before them, such as a copy inside a checkpoint."""
        kept = np.zeros(len(rows), bool)
        for thread in intervals.unique(self.rows.thread[rows]).tolist():
            mine = self.rows.thread[rows] == thread
            kept[mine] = self.rows.timeline(thread).state_at(self.rows.start[rows[mine]]) == blocker
        return rows[kept]

    def _titles(self, rows: IntColumn) -> tuple[IntColumn, list[str]]:
        """For each host row the position of its title, and the titles."""
        trace, calls = self.trace, len(self.trace.calls)
        call = rows < calls
        name = np.empty(len(rows), np.int64)
        name[call] = trace.calls.name[rows[call]]
        name[~call] = trace.ranges.name[rows[~call] - calls]
        op = np.full(len(rows), -1, np.int64)
        op[call] = ops_around(trace, self.steps, trace.calls.thread[rows[call]], trace.calls.start_ns[rows[call]])
        names, ops, of = intervals.distinct_pairs(name, op)
        titles = [
            trace.names[n] if o < 0 else f"{trace.names[n]} in {trace.names[o]}" for n, o in zip(names.tolist(), ops.tolist(), strict=True)
        ]
        return of, titles

    def _host_time(self, rows: IntColumn, idle: IntColumn) -> HostIntervals:
        """The host time of host rows, and of idle rows on the thread that launched next.

        Rows of a thread that launches nothing (code loading is recorded without its thread) blocked every launching thread.
        """
        thread = self._thread_after(idle)
        launching = self.launching_threads
        stray = rows[~np.isin(self.rows.thread[rows], launching)]
        if len(stray):
            rows = rows[np.isin(self.rows.thread[rows], launching)]
            parts = [HostIntervals(self.rows.start[stray], self.rows.end[stray], np.full(len(stray), t)) for t in launching]
            return joined([Removal(host=self._host_time(rows, idle)), *(Removal(host=p) for p in parts)]).host
        return HostIntervals(
            np.concatenate((self.rows.start[rows], self.idle.start_ns[idle])),
            np.concatenate((self.rows.end[rows], self.idle.end_ns[idle])),
            np.concatenate((self.rows.thread[rows], thread)),
        )

    def _thread_after(self, idle: IntColumn) -> IntColumn:
        """The thread that launched what ends each idle row, the step thread where that is not known."""
        following = self.idle.next_activity[idle]
        known = following >= 0
        thread = np.full(len(idle), self.steps.step_thread, np.int64)
        if known.any():
            thread[known] = self.launches.thread[following[known]]
        return np.where(thread >= 0, thread, self.steps.step_thread)

    def idle_loss(self, rows: IntColumn, *, host_gone: bool = False, names: tuple[str, ...] = ()) -> Loss:
        """The loss of these rows of Idle; `host_gone`: the host time behind them goes with it."""
        removal = Removal(host=self._host_time(rows[:0], rows)) if host_gone else Removal()
        return Loss(idle=rows[self._used_rows[rows]], removal=removal, names=names)

    def host_loss(self, rows: IntColumn, idle: IntColumn) -> Loss:
        """The loss of these rows of Idle, removed with the time of these host rows."""
        return Loss(idle=idle[self._used_rows[idle]], host_rows=rows, removal=Removal(host=self._host_time(rows, idle[:0])))

    def ranges_named(self, pattern: str, kinds: Sequence[RangeKind] = (RangeKind.OP, RangeKind.ANNOTATION)) -> IntColumn:
        """Host rows of the ranges of these kinds whose name holds the pattern, in used steps and what leads in."""
        asked = (pattern, tuple(kinds))
        if asked not in self._ranges_named:
            rows = np.sort(np.concatenate([self._ranges(kind).holding(pattern, self.trace.names) for kind in kinds]), kind="stable")
            begun = intervals.holds(self._replayed_host, self.trace.ranges.start_ns[rows])
            self._ranges_named[asked] = len(self.trace.calls) + rows[begun]
        return self._ranges_named[asked]

    @cached_property
    def _ranges_named(self) -> dict[tuple[str, tuple[RangeKind, ...]], IntColumn]:
        return {}

    def _ranges(self, kind: RangeKind) -> _Named:
        if kind not in self._ranges_of_kind:
            self._ranges_of_kind[kind] = _Named.of(np.flatnonzero(self.trace.ranges.kind == kind), self.trace.ranges.name)
        return self._ranges_of_kind[kind]

    @cached_property
    def _ranges_of_kind(self) -> dict[RangeKind, _Named]:
        return {}

    def calls_named(self, pattern: str) -> IntColumn:
        """Host rows of the calls whose name holds the pattern, in used steps and what leads in."""
        rows = self._calls.holding(pattern, self.trace.names)
        return rows[intervals.holds(self._replayed_host, self.trace.calls.start_ns[rows])]

    @cached_property
    def _calls(self) -> _Named:
        return _Named.of(np.arange(len(self.trace.calls)), self.trace.calls.name)

    @cached_property
    def _activities(self) -> _Named:
        return _Named.of(np.flatnonzero(self.trace.activities.name >= 0), self.trace.activities.name)

    def begun_inside(self, rows: IntColumn, outer: IntColumn) -> Mask:
        """For each of these host rows whether it begins while one of the outer ones is open on its thread; shape of `rows`."""
        result = np.zeros(len(rows), bool)
        for thread in intervals.unique(self.rows.thread[outer]).tolist():
            own = outer[self.rows.thread[outer] == thread]
            these = intervals.union(self.rows.start[own], self.rows.end[own])
            mine = np.flatnonzero(self.rows.thread[rows] == thread)
            at = self.rows.start[rows[mine]]
            result[mine] = intervals.holds(these, at)
        return result

    def idle_inside(self, rows: IntColumn, outer: IntColumn) -> IntColumn:
        """Those of these rows of Idle of which at least half lies within the host rows."""
        these = intervals.union(self.rows.start[outer], self.rows.end[outer])
        start, end = self.idle.start_ns[rows], self.idle.end_ns[rows]
        kept: IntColumn = rows[2 * intervals.covered(these, start, end) >= end - start]
        return kept

    def sources(self, idle: IntColumn) -> IntColumn:
        """The host rows that are recorded as the cause of these rows of Idle."""
        source = self.idle.source[idle]
        return intervals.either(source[source >= 0])

    def meeting(self, rows: IntColumn, idle: IntColumn) -> IntColumn:
        """Those of these host rows that are open in one of these rows of Idle."""
        these = intervals.union(self.idle.start_ns[idle], self.idle.end_ns[idle])
        kept: IntColumn = rows[intervals.covered(these, self.rows.start[rows], self.rows.end[rows]) > 0]
        return kept

    def launched_inside(self, rows: IntColumn) -> Mask:
        """For each activity whether its launch begins while one of these host rows is open on its thread."""
        result = np.zeros(len(self.trace.activities), bool)
        known = self.launches.known
        for thread in intervals.unique(self.rows.thread[rows]).tolist():
            own = rows[self.rows.thread[rows] == thread]
            these = intervals.union(self.rows.start[own], self.rows.end[own])
            mine = np.flatnonzero(known & (self.launches.thread == thread))
            at = self.launches.start_ns[mine]
            result[mine] = intervals.holds(these, at)
        return result

    def before(self, rows: IntColumn, activities: Mask) -> IntColumn:
        """Those of these rows of Idle that end with one of these activities."""
        following = self.idle.next_activity[rows]
        keep: IntColumn = rows[(following >= 0) & activities[np.maximum(following, 0)]] if len(activities) else rows[:0]
        return keep

    # Busy time

    @property
    def exposed_ns(self) -> IntColumn:
        """For each activity its time in used steps that counts in the class of its category and is still unclaimed, each instant once."""
        return self._exposed[0]

    @property
    def lead_in_ns(self) -> IntColumn:
        """The same in the windows that lead in."""
        return self._exposed[1]

    @cached_property
    def _exposed(self) -> tuple[IntColumn, IntColumn]:
        a = self.trace.activities
        lead_in = [self.steps.windows[i] for i in np.flatnonzero(self._lead_in).tolist()]
        within = (self.windows, intervals.union([w.start_ns for w in lead_in], [w.end_ns for w in lead_in]))
        result = (np.zeros(len(a), np.int64), np.zeros(len(a), np.int64))
        hiding = {
            Category.COMPUTE: intervals.EMPTY,
            Category.COMMUNICATION: self.busy.compute,
            Category.COPY: self.busy.compute_or_communication,
        }
        for category, under in hiding.items():
            rows = np.flatnonzero(a.category == category)
            if not len(rows):
                continue
            start, end = a.start_ns[rows], a.end_ns[rows]
            first = np.maximum(start, intervals.reach_per_group(start, end, np.zeros(len(rows), np.int64)))
            last = np.maximum(first, end)
            for ns, windows in zip(result, within, strict=True):
                if len(windows.start):
                    near = np.flatnonzero((first < windows.end[-1]) & (last > windows.start[0]))
                    ns[rows[near]] = intervals.covered(intervals.subtract(windows, under), first[near], last[near])
        return result

    @cached_property
    def collectives(self) -> RankCollectives:
        """Communication kernels with their operation, group and sizes."""
        return self.known_collectives or find_collectives(self.trace, self.launches, self.steps)

    @cached_property
    def phases(self) -> npt.NDArray[np.int8]:
        """For each activity the phase of the step that launched it, see `rules.phases.phases`."""
        from traceread.rules.phases import phases

        return phases(self).astype(np.int8)

    def is_family(self, *families: str) -> Mask:
        """Which activities belong to these families."""
        wanted = np.array([f in families for f in FAMILIES], bool)
        return wanted[self.trace.activities.family]

    def is_named(self, pattern: str) -> Mask:
        """Which activities have a name that holds the pattern."""
        mine = np.zeros(len(self.trace.activities), bool)
        mine[self._activities.holding(pattern, self.trace.names)] = True
        return mine

    def work_loss(self, activities: Mask, *, names: tuple[str, ...] = ()) -> Loss:
        """The loss of communication or copies that nothing hides; a fix takes their exposed time, or lets them run beside other work."""
        rows, near = self._with_lead_in(activities)
        if not len(rows):
            return Loss()
        a = self.trace.activities
        alone = a.end_ns[near] - a.start_ns[near] - intervals.covered(self.busy.compute, a.start_ns[near], a.end_ns[near])
        claimed = self._claimed_ns[near]
        return Loss(
            activities=rows,
            ns=self.exposed_ns[rows],
            removal=Removal(activities=near, off_ns=np.maximum(alone - claimed, 0)),
            beside=Removal(activities=near, beside=True),
            names=names,
        )

    def kernel_loss(self, activities: Mask, keep_permille: int | IntColumn = 0, *, names: tuple[str, ...] = ()) -> Loss:
        """The loss of compute kernels that could take only so many thousandths of their time."""
        rows, near = self._with_lead_in(activities)
        if not len(rows):
            return Loss()
        gone = np.broadcast_to(1000 - np.asarray(keep_permille), len(activities))
        off = (self.exposed_ns[near] + self.lead_in_ns[near]) * gone[near] // 1000
        return Loss(
            activities=rows, ns=self.exposed_ns[rows] * gone[rows] // 1000, removal=Removal(activities=near, off_ns=off), names=names
        )

    def _with_lead_in(self, activities: Mask) -> tuple[IntColumn, IntColumn]:
        """Those of these activities that have time left in used steps, and those that have some there or in what leads in."""
        rows = np.flatnonzero(activities)
        counts = self.exposed_ns[rows] > 0
        return rows[counts], rows[counts | (self.lead_in_ns[rows] > 0)]

    def count(self, activities: Mask) -> int:
        """How many of these activities a used step has in the mean."""
        a = self.trace.activities
        return self.per_step(int(intervals.holds(self.windows, a.start_ns[activities]).sum()))

    # What a loss amounts to

    def losses_ns(self, loss: Loss) -> tuple[tuple[StepClass, int], ...]:
        """The mean time per step that a loss takes from each class, in the order of the classes."""
        sums: dict[StepClass, int] = {}
        cause = self.idle.cause[loss.idle]
        for code in intervals.unique(cause).tolist():
            sums[StepClass(code)] = self.idle_ns(loss.idle[cause == code])
        category = self.trace.activities.category[loss.activities]
        for code in intervals.unique(category).tolist():
            step_class = _CLASS_OF[Category(code)]
            sums[step_class] = sums.get(step_class, 0) + int(loss.ns[category == code].sum())
        return tuple((c, self.per_step(sums[c])) for c in sorted(sums))

    def loss_total_ns(self, loss: Loss) -> int:
        """The time over all used steps that a loss takes."""
        return self.idle_ns(loss.idle) + int(loss.ns.sum())

    def steps_struck(self, loss: Loss) -> int:
        """In how many of the used steps a loss occurs."""
        windows = [self.idle.window[loss.idle].astype(np.int64), self._window_of_time(self.trace.activities.start_ns[loss.activities])]
        if not len(loss.idle) and not len(loss.activities):
            windows = [self._window_of_host(loss.host_rows)]
        return len(np.intersect1d(intervals.unique(np.concatenate(windows)), self.used, assume_unique=True))

    def steps_phrase(self, loss: Loss) -> str:
        """In which steps a loss occurs: "in every step", "in 2 of 5 steps", "in the capture"."""
        struck, count = self.steps_struck(loss), self.step_count
        if count == 1:
            return "in the one step" if self.steps.name else "in the capture"
        return "in every step" if struck == count else f"in {struck} of {count} steps"

    @property
    def a_step(self) -> str:
        """What follows a mean: " a step", or "" where the capture names no steps."""
        return " a step" if self.steps.name else ""

    def mean(self, ns: int) -> str:
        """The mean of a sum over the used steps: "12.0 ms a step"."""
        return f"{duration(self.per_step(ns))}{self.a_step}"

    @property
    def in_the_mean(self) -> str:
        """What follows a mean of what need not be in every step: " in the mean", or "" of a single step or capture."""
        return " in the mean" if self.step_count > 1 else ""

    @property
    def all_steps(self) -> str:
        """What counts are over: "5 steps", "the capture"."""
        return plural(self.step_count, "step") if self.steps.name else "the capture"

    def _window_of_time(self, at: IntColumn) -> IntColumn:
        ends = np.array([w.end_ns for w in self.steps.windows], np.int64)
        window: IntColumn = np.searchsorted(ends, at, side="right")
        return window

    def _window_of_host(self, rows: IntColumn) -> IntColumn:
        starts = np.array([w.host_start_ns for w in self.steps.windows], np.int64)
        window: IntColumn = np.searchsorted(starts, self.rows.start[rows], side="right") - 1
        return window

    def evidence(self, loss: Loss) -> tuple[Evidence, ...]:
        """The longest places of a loss, each in another step.

        Idle stretches that follow each other closely are one place: after a wait the GPU may run dry between many short kernels.
        """
        a, host = self.trace.activities, self.rows
        first, last, idle = self._runs(np.sort(loss.idle))
        kinds = [
            ("idle", first, idle, self.idle.window[first].astype(np.int64)),
            ("activity", loss.activities, loss.ns, self._window_of_time(a.start_ns[loss.activities])),
        ]
        if not len(loss.idle) and not len(loss.activities):
            rows = loss.host_rows[np.isin(self._window_of_host(loss.host_rows), self.used)]
            kinds = [("host", rows, host.end[rows] - host.start[rows], self._window_of_host(rows))]
        places = [
            (int(length[i]), int(window[i]), kind, int(rows[i])) for kind, rows, length, window in kinds for i in _longest(length, window)
        ]
        shown: dict[int, Evidence] = {}
        for _, at, kind, row in sorted(places, key=lambda p: (-p[0], p[1], p[3])):
            if at not in shown and len(shown) < _PLACES and 0 <= at < len(self.steps.windows):
                place = self._place(kind, row, at, loss.names)
                shown[at] = replace(place, end_ns=int(self.idle.end_ns[last[np.searchsorted(first, row)]])) if kind == "idle" else place
        return tuple(sorted(shown.values(), key=lambda e: e.start_ns))

    def _runs(self, rows: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
        """First and last of idle rows of one window that are no further apart than the one before is long, and their idle time."""
        start, end, window = self.idle.start_ns[rows], self.idle.end_ns[rows], self.idle.window[rows]
        apart = (window[1:] != window[:-1]) | (start[1:] - end[:-1] > end[:-1] - start[:-1])
        first = np.concatenate((np.zeros(min(len(rows), 1), np.int64), np.flatnonzero(apart) + 1))
        last = np.append(first[1:], len(rows))[: len(first)] - 1
        idle = np.add.reduceat(end - start, first) if len(first) else np.zeros(0, np.int64)
        return rows[first], rows[last], idle

    def _place(self, kind: str, row: int, window: int, more: tuple[str, ...]) -> Evidence:
        trace, a = self.trace, self.trace.activities
        names: list[str] = []
        if kind == "idle":
            start, end = int(self.idle.start_ns[row]), int(self.idle.end_ns[row])
            launching = int(self._thread_after(np.array([row]))[0])
            thread, at = waiting_place(trace, self.idle, [row], launching, start)
            code = int(self.idle_names.code[row])
            names += [self.idle_names.names[code]] if code >= 0 else []
            following = int(self.idle.next_activity[row])
            if following >= 0:
                names.append(trace.names[a.name[following]])
        elif kind == "activity":
            start, end = int(a.start_ns[row]), int(a.end_ns[row])
            thread = int(self.launches.thread[row])
            at = int(self.launches.start_ns[row])
            names.append(trace.names[a.name[row]])
        else:
            start, end = int(self.rows.start[row]), int(self.rows.end[row])
            thread = int(self.rows.thread[row])
            at = start
            names.append(self._row_name(row))
        around = open_ranges(trace, thread, at, (RangeKind.ANNOTATION, RangeKind.OP)) if thread >= 0 else ()
        labels = {w.label for w in self.steps.windows}
        names += [n for n in reversed(around) if n not in labels]
        return Evidence(
            rank=trace.rank,
            step=self.steps.windows[window].label,
            start_ns=start,
            end_ns=end,
            thread=thread_title(trace, thread),
            names=tuple(dict.fromkeys((*names, *more)))[:_SHOWN_NAMES],
            source=source_line(trace, thread, at) if thread >= 0 else "",
        )

    def _row_name(self, row: int) -> str:
        calls = len(self.trace.calls)
        code = int(self.trace.calls.name[row] if row < calls else self.trace.ranges.name[row - calls])
        return self.trace.names[code]


def _longest(length: IntColumn, window: npt.NDArray[np.integer]) -> list[int]:
    """Positions of the longest row of each window, of the windows whose longest is longest."""
    windows, of = intervals.distinct(window)
    most = np.full(len(windows), np.iinfo(np.int64).min)
    np.maximum.at(most, of, length)
    longest = np.flatnonzero(length == most[of])
    longest = longest[np.argsort(-length[longest], kind="stable")]
    _, first = np.unique(of[longest], return_index=True)
    return [int(i) for i in longest[np.sort(first)[:_PLACES]]]
