"""The answer: every rank's partition, idle causes and kernels, and what they say about the job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from traceread import intervals
from traceread.analysis_options import AnalysisOptions
from traceread.categories import Patterns, classify
from traceread.errors import MissingData, Notice, SelectionError
from traceread.findings import Finding, Skipped
from traceread.measurements.blame import Cause, share_out
from traceread.measurements.classes import CLASSES, StepClass
from traceread.measurements.collectives import RankCollectives, find_collectives
from traceread.measurements.efficiency import Efficiency, RankWork, StepTimes, measure_efficiency, measure_work
from traceread.measurements.evidence import Gap, IdleNames, longest_gaps, name_idle
from traceread.measurements.health import check_health, without_impossible
from traceread.measurements.host_summary import HostSummary, sum_host
from traceread.measurements.host_time import host_rows
from traceread.measurements.idle import Idle, explain_idle
from traceread.measurements.kernel_ops import launching_ops
from traceread.measurements.kernels import KernelTable, sum_kernels
from traceread.measurements.launches import Launches, find_launches
from traceread.measurements.pace import launch_pace
from traceread.measurements.partition import Busy, Partition, divide, find_busy, intervals_frame
from traceread.measurements.range_times import RangeTime, sum_ranges
from traceread.measurements.rank_facts import RankFacts
from traceread.measurements.ranks import RankTable, compare_ranks
from traceread.measurements.reconciliation import ExposedParts
from traceread.measurements.replay_graph import HostIntervals, build_graph
from traceread.measurements.replay_job import JobGraph, job_graph
from traceread.measurements.step_timeline import StepTimeline, choose_window, draw_step
from traceread.measurements.steps import Steps, StepSource, WindowKind, find_steps
from traceread.measurements.waiting import ExposedSplit
from traceread.model import Capability, Device, Profile, Trace
from traceread.records import record
from traceread.rules import Facts, load_rules
from traceread.rules.fix_list import FixList, make_fix_list
from traceread.rules.inspection import Inspection, inspect_rank
from traceread.rules.job import JobFacts, check_job
from traceread.rules.what_if import WhatIf, answer
from traceread.run import Described
from traceread.selection import StepRange

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    import pandas as pd
    from plotly.graph_objects import Figure

FORMAT = 1
"""Version of the JSON; fields are added, never renamed."""

LEAST_WAITING = "least waiting for the other ranks"
LONGEST_STEP = "longest step"
"""How the critical rank was chosen."""

_GAPS_KEPT = 20
_ROWS_FOR_TWO = (100_000, 4_000_000)
"""Rows of a rank for which a second thread is worth it: fewer are done before, and of more the memory of two at work is too much."""
_T = TypeVar("_T")


@record(eq=False)
class RankReport:
    """What was found out about one rank.

    Attributes:
        rank, rank_source, device, host, files, source, versions, recorded, world_size: as on the trace.
        steps: its windows, which of them are used, and why others are not.
        partition: class times per window.
        busy, idle: the intervals behind the partition.
        idle_names: the rows that say why, for each row of `idle`.
        kernels: activity names over the used windows.
        gaps: the longest idle gaps of the used windows with their evidence.
        notices: warnings about this rank.
        outside_ns, busy_ns: GPU busy time outside the step windows, and all of it.
        counts: rows read: activities, calls, ranges, stream_waits.
        first_ns: the earliest start of all rows.
        collectives: its communication kernels, and what is recorded about them.
        launch_pace_ns: median time from launch to launch, -1 if unknown.
        ranges: the user's own ranges over the used windows, if they were asked for.
        host_summary: what the host rows say, only where there is no GPU work.
        inspection: what it contributes to the fix list.
        timeline: one typical used step as bars on lanes; None where there is no GPU work, or where it was not asked for.
        work: what it contributes to efficiency.
    """

    rank: int
    rank_source: str
    device: Device
    host: str | None
    files: tuple[Path, ...]
    source: str
    versions: dict[str, str]
    recorded: frozenset[Capability]
    world_size: int | None
    steps: Steps
    partition: Partition
    busy: Busy
    idle: Idle
    idle_names: IdleNames
    kernels: KernelTable
    gaps: tuple[Gap, ...]
    notices: tuple[Notice, ...]
    outside_ns: int
    busy_ns: int
    counts: dict[str, int]
    first_ns: int
    collectives: RankCollectives
    launch_pace_ns: int
    ranges: tuple[RangeTime, ...]
    host_summary: HostSummary | None = None
    inspection: Inspection = field(default_factory=Inspection)
    timeline: StepTimeline | None = None
    work: RankWork = field(default_factory=RankWork)

    def used_rows(self, labels: Collection[str] | None = None) -> list[int]:
        """Positions of the used windows, of those with these labels if given."""
        wanted = None if labels is None else frozenset(labels)
        return [
            i
            for i, (window, used) in enumerate(zip(self.steps.windows, self.steps.used, strict=True))
            if used and (wanted is None or window.label in wanted)
        ]

    @property
    def facts(self) -> RankFacts:
        """What the comparison of ranks needs of this one."""
        own = (self.rank, self.world_size, self.steps, self.partition, self.busy, self.idle, self.idle_names, self.kernels)
        return RankFacts(*own, self.collectives, self.gaps, self.launch_pace_ns)

    def __repr__(self) -> str:
        used = len(self.used_rows())
        return f"<RankReport rank {self.rank}, {used} of {len(self.steps.windows)} windows used, {self.device.name or 'unknown device'}>"

    def _repr_html_(self) -> str:
        from traceread.reporters.notebook import rank_html

        return rank_html(self)

    def intervals(self) -> pd.DataFrame:
        """The rank's time as intervals with one class each: rank, step, start_ns, end_ns, duration_ns, class.

        They tile the windows in order; grouped by step and class they give the partition.
        """
        return intervals_frame(self.rank, self.steps, self.busy, self.idle)


@record
class Summary:
    """The job in a few numbers, over the steps that are used on every loaded rank.

    Attributes:
        critical_rank: the rank the class times are of.
        critical_by: how it was chosen: LEAST_WAITING, or LONGEST_STEP where waiting is not known.
        steps: labels of the steps summarised.
        step_ns: length of each of them on the critical rank.
        class_ns: mean ns per step of each class on the critical rank, in the order of CLASSES; they sum to `mean_ns`.
        hidden_communication_ns, hidden_copy_ns: means per step, beside the classes.
        rank_mean_ns: mean step of every rank, in order of rank.
        exposed_wait_ns, exposed_transfer_ns, exposed_not_split_ns: what its exposed communication consists of, mean per step; they
            add up to that class.
        waiting_is_lower_bound: ranks that it waits for are not loaded.
    """

    critical_rank: int
    critical_by: str
    steps: tuple[str, ...]
    step_ns: tuple[int, ...]
    class_ns: tuple[int, ...]
    hidden_communication_ns: int
    hidden_copy_ns: int
    rank_mean_ns: tuple[tuple[int, int], ...]
    exposed_wait_ns: int = 0
    exposed_transfer_ns: int = 0
    exposed_not_split_ns: int = 0
    waiting_is_lower_bound: bool = False

    @property
    def mean_ns(self) -> int:
        """Mean step, rounded to ns; what the class times sum to."""
        return sum(self.class_ns)

    @property
    def median_ns(self) -> int:
        """Median step."""
        return median(self.step_ns)

    @property
    def max_ns(self) -> int:
        """Slowest step."""
        return max(self.step_ns)

    @property
    def min_ns(self) -> int:
        """Fastest step."""
        return min(self.step_ns)

    @property
    def uneven_ns(self) -> int:
        """Mean minus median where they differ by more than 2 % of the median, else 0."""
        difference = self.mean_ns - self.median_ns
        return difference if 50 * abs(difference) > self.median_ns else 0

    @property
    def skew(self) -> tuple[int, int]:
        """Slowest rank's mean step and the median rank's; their quotient is the skew."""
        means = [mean for _, mean in self.rank_mean_ns]
        return max(means), median(means)

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON builtins."""
        slowest, middle = self.skew
        mean = self.mean_ns
        return {
            "critical_rank": self.critical_rank,
            "critical_by": self.critical_by,
            "steps": list(self.steps),
            "step_ns": {"median": self.median_ns, "mean": mean, "min": self.min_ns, "max": self.max_ns},
            "class_ns": dict(zip(CLASSES, self.class_ns, strict=True)),
            "shares": {name: ns / mean if mean else 0.0 for name, ns in zip(CLASSES, self.class_ns, strict=True)},
            "hidden_communication_ns": self.hidden_communication_ns,
            "hidden_copy_ns": self.hidden_copy_ns,
            "exposed_wait_ns": self.exposed_wait_ns,
            "exposed_transfer_ns": self.exposed_transfer_ns,
            "exposed_not_split_ns": self.exposed_not_split_ns,
            "waiting_is_lower_bound": self.waiting_is_lower_bound,
            "skew": {"max_over_median": slowest / middle if middle else 1.0},
        }


@record(eq=False)
class PartitionTable:
    """Every window of every rank with its class times."""

    ranks: tuple[RankReport, ...]
    base_ns: int
    exposed: tuple[ExposedSplit, ...] = ()
    """For each rank how its exposed communication is divided; empty where that was not asked for."""

    def __repr__(self) -> str:
        windows = sum(len(r.steps.windows) for r in self.ranks)
        return f"<PartitionTable {len(self.ranks)} ranks, {windows} windows>"

    def to_dict(self) -> list[dict[str, Any]]:
        """One entry per window in order of rank and time, as in JSON format 1."""
        rows = []
        for r, exposed in zip_longest(self.ranks, self.exposed):
            for i, window in enumerate(r.steps.windows):
                rows.append(
                    {
                        "rank": r.rank,
                        "step": window.label,
                        "start_ns": window.start_ns - self.base_ns,
                        "end_ns": window.end_ns - self.base_ns,
                        "used": r.steps.used[i],
                        "partial": bool(window.partial),
                        "classes": dict(zip(CLASSES, r.partition.class_ns[i].tolist(), strict=True)),
                        "hidden_communication": int(r.partition.hidden_communication_ns[i]),
                        "hidden_copy": int(r.partition.hidden_copy_ns[i]),
                        **_exposed_parts(exposed, i),
                    }
                )
        return rows

    def to_frame(self) -> pd.DataFrame:
        """One row per rank, window and class: rank, step, class, duration_ns, share (of the window, 0 for an empty one), used."""
        import pandas as pd

        rows = [
            (row["rank"], row["step"], name, ns, ns / length if length else 0.0, row["used"])
            for row in self.to_dict()
            for length in [row["end_ns"] - row["start_ns"]]
            for name, ns in row["classes"].items()
        ]
        return pd.DataFrame(rows, columns=["rank", "step", "class", "duration_ns", "share", "used"])

    def plot(self, dark: bool = False) -> Figure:
        """The mean used step of every rank with its classes; of one rank every step."""
        from traceread.figures.partition import plot_ranks, plot_steps

        return plot_ranks(self, dark) if len(self.ranks) > 1 else plot_steps(self, dark=dark)

    def _repr_html_(self) -> str:
        from traceread.reporters.notebook import partition_html

        return partition_html(self)


def _exposed_parts(exposed: ExposedSplit | None, window: int) -> dict[str, int | None]:
    """Exposed communication of one window, divided; waiting and transfer are None where nothing of it is split."""
    if exposed is None:
        return {}
    wait, transfer, rest = (int(column[window]) for column in (exposed.wait_ns, exposed.transfer_ns, exposed.not_split_ns))
    split = bool(wait or transfer or not rest)
    return {"exposed_wait": wait if split else None, "exposed_transfer": transfer if split else None, "exposed_not_split": rest}


@record(eq=False)
class Report:
    """The analysis of a profile.

    Attributes:
        source: "kineto" or "nsys".
        title: how the input is called.
        base_ns: what the times of the JSON count from.
        ranks: one report per rank, in order.
        notices: warnings about the capture as a whole; `all_notices` has those of the ranks too.
        skipped_files: files beside the traces that are not part of the profile, with the reason.
        described: what is known about the job beside the traces.
    """

    source: str
    title: str
    base_ns: int
    ranks: tuple[RankReport, ...]
    notices: tuple[Notice, ...]
    skipped_files: tuple[tuple[Path, str], ...]
    described: Described = field(default_factory=Described)

    def __repr__(self) -> str:
        summary = self.summary
        if summary is None:
            return f"<Report {len(self.ranks)} ranks, no GPU work, {self.source}>"
        from traceread.units import duration

        return f"<Report {len(self.ranks)} ranks, {len(summary.steps)} steps of {duration(summary.median_ns)}, {self.source}>"

    @property
    def partition(self) -> PartitionTable:
        """Every window of every rank with its class times."""
        return PartitionTable(self.ranks, self.base_ns, self.rank_table.exposed)

    @cached_property
    def rank_table(self) -> RankTable:
        """The ranks together: waiting and transfer, clocks, who is late and why."""
        return compare_ranks([r.facts for r in self.ranks])

    @property
    def all_notices(self) -> tuple[Notice, ...]:
        """Warnings about the capture and about its ranks."""
        of_efficiency = () if self.efficiency is None else self.efficiency.notices
        of_job = (*self.rank_table.notices, *self._compared[2], *of_efficiency)
        return self.notices + of_job + tuple(n for r in self.ranks for n in r.notices)

    @property
    def world_size(self) -> int | None:
        """Ranks of the job as recorded, None if not recorded."""
        sizes = [r.world_size for r in self.ranks if r.world_size is not None]
        return max(sizes) if sizes else None

    @cached_property
    def summary(self) -> Summary | None:
        """The job in a few numbers; None where no GPU work was recorded."""
        return summarise(self.ranks, self.rank_table)

    @cached_property
    def fix_list(self) -> FixList:
        """What to change first, and what it saves on the slowest rank."""
        summary = self.summary
        if summary is None:
            return FixList()
        critical = summary.critical_rank
        compared, not_compared, _ = self._compared
        found = make_fix_list(
            {r.rank: r.inspection for r in self.ranks},
            critical,
            summary.mean_ns,
            len(self.rank(critical).used_rows()),
            job=self._job_graph,
            class_ns=summary.class_ns,
            compared=compared,
            not_compared=not_compared,
            counts_steps=self.counts_steps,
        )
        return found if self.efficiency is None else found.with_mfu(self.efficiency.mfu_at)

    @cached_property
    def efficiency(self) -> Efficiency | None:
        """How much of the hardware the job uses, by its critical rank; None where no GPU work was recorded."""
        summary = self.summary
        if summary is None:
            return None
        times = StepTimes(dict(zip(StepClass, summary.class_ns, strict=True)), summary.hidden_communication_ns)
        critical = self.rank(summary.critical_rank)
        devices = [r.device for r in self.ranks if r.steps.windows]
        return measure_efficiency(self.described, times, critical.work, devices, self.world_size, self._exposed_parts(summary))

    def _exposed_parts(self, summary: Summary) -> ExposedParts | None:
        """How the critical rank's exposed communication divides; None where it is not told apart."""
        if summary.exposed_not_split_ns or not self.rank_table.comparable:
            return None
        table = self.rank_table
        position = [r.rank for r in self.ranks].index(summary.critical_rank)
        mine = table.matches.rank_of[table.charges.row] == position
        known = int(table.charges.exposed_ns[mine & (table.charges.cause != Cause.UNEXPLAINED)].sum())
        waited = table.lines[position].wait_ns
        imbalance = summary.exposed_wait_ns * known // waited if waited else 0
        return ExposedParts(summary.exposed_transfer_ns, summary.exposed_wait_ns - imbalance, imbalance)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The fix list: findings in the order in which they save most."""
        return self.fix_list.findings

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Rules that could not look on any rank, with what they lacked."""
        return self.fix_list.skipped

    def what_if(self, question: str) -> WhatIf:
        """What a step would take if some classes took less, such as "data_wait=0,exposed_communication=50%".

        Raises:
            SelectionError: the question cannot be understood, or names a class that cannot be taken away.
            MissingData: the steps cannot be replayed.
        """
        summary = self.summary
        if summary is None:
            raise MissingData(f"no GPU work was recorded in {self.title}", "traceread info says what to record")
        inspections = {r.rank: r.inspection for r in self.ranks}
        return answer(inspections, summary.critical_rank, summary.mean_ns, question, self._job_graph)

    @cached_property
    def _compared(self) -> tuple[list[Finding], list[Skipped], list[Notice]]:
        """What the rules that compare ranks say."""
        summary = self.summary
        if summary is None:
            return [], [], []
        critical = self.rank(summary.critical_rank)
        job = JobFacts(critical.rank, critical.inspection, [r.facts for r in self.ranks], self.rank_table)
        return check_job(job, load_rules()[0])

    @cached_property
    def _job_graph(self) -> JobGraph | None:
        """The ranks that are replayed together; None where the critical one cannot be replayed."""
        summary = self.summary
        graphs = {r.rank: r.inspection.graph for r in self.ranks if r.inspection.graph is not None}
        if summary is None or summary.critical_rank not in graphs:
            return None
        labels = {r: [self.rank(r).steps.windows[w].label for w in g.spans.window.tolist()] for r, g in graphs.items()}
        table = self.rank_table
        return job_graph(graphs, labels, summary.critical_rank, table.matches, table.clocks, table.waiting)

    @property
    def counts_steps(self) -> bool:
        """Whether ranks were divided into steps; else each is one window, the whole capture."""
        return not any(r.steps.source is StepSource.WHOLE_CAPTURE for r in self.ranks)

    def rank(self, rank: int) -> RankReport:
        """The report of one rank.

        Raises:
            SelectionError: no such rank; the message lists those there are.
        """
        for r in self.ranks:
            if r.rank == rank:
                return r
        raise SelectionError(f"no rank {rank} in {self.title}", f"ranks there are: {', '.join(str(r.rank) for r in self.ranks)}")

    def intervals(self, rank: int | None = None) -> pd.DataFrame:
        """The intervals of one rank (the only one if there is one) with their class; see RankReport.intervals."""
        return (self.ranks[0] if rank is None and len(self.ranks) == 1 else self.rank(0 if rank is None else rank)).intervals()

    def plot(self, dark: bool = False) -> Figure:
        """The timeline of a typical step of the critical rank, with the evidence of the fix list; without GPU work an empty figure."""
        from traceread.figures.timeline import plot_report

        return plot_report(self, dark)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON builtins, format 1."""
        from traceread.reporters.json import report_dict

        return report_dict(self)

    def save(self, path: str | Path) -> Path:
        """Writes the report in the format its extension names (.json, .md, .txt, .csv, .html) and returns the path.

        Raises:
            OutputError: unknown extension, or the file cannot be written; what was there before is kept.
        """
        from traceread.reporters import save_report

        return save_report(self, Path(path))

    def _repr_html_(self) -> str:
        from traceread.reporters.notebook import report_html

        return report_html(self)


def analyze_trace(trace: Trace, options: AnalysisOptions, threads: int = 1, patterns: Patterns | None = None) -> RankReport:
    """The report of one rank; needs nothing from the others.

    Args:
        trace: its trace.
        options: how it is analysed.
        threads: with several, some parts are worked out beside others.
        patterns: what its kernels are; None: the trace says it already.

    Raises:
        SelectionError: the step pattern or selection matches nothing.
    """
    trace, left_out = without_impossible(trace)
    with _helper(len(trace.activities) + len(trace.calls) + len(trace.ranges), threads) as helper:
        classified = _beside(helper, lambda: trace if patterns is None else classify(trace, patterns))
        launches = find_launches(trace)
        steps = find_steps(trace, launches, options.step_options, options.host_names)
        if options.steps is not None:
            steps = select_steps(steps, options.steps, trace.rank)
        trace = classified()
        busy = find_busy(trace)
        # by name: whoever looks later takes the trace that there is then, and nobody holds this one
        gpu_parts = _beside(helper, lambda: _without_host(trace, launches, steps, busy))
        rows = host_rows(trace, launches, options.host_names)
        trace = rows.trace
        idle = explain_idle(trace, launches, steps, busy.any, options.host_names, rows)
        partition, idle_names = divide(steps, busy, idle), name_idle(trace, steps, idle)
        kernels, collectives, pace_ns = gpu_parts()
        graph = build_graph(trace, launches, steps, partition, rows, options.host_names)
        working = HostIntervals.empty() if graph is None else graph.working
        facts = Facts(trace, launches, steps, partition, busy, idle, idle_names, kernels, rows, collectives, working)
        work = _beside(helper, lambda: measure_work(trace, launches, steps, kernels, collectives, facts.phases))
        infer = options.step_options.pattern == "infer"
        health = _beside(helper, lambda: check_health(trace, launches, steps, busy, idle, infer=infer))
        gaps = _beside(helper, lambda: longest_gaps(trace, launches, steps, idle, _GAPS_KEPT))
        inspection = inspect_rank(facts, graph, load_rules()[0])
    shown = choose_window(steps, [e.step for f in inspection.found.findings for e in f.evidence])
    step_windows = [w for w in steps.windows if w.kind is not WindowKind.BETWEEN]
    inside = intervals.covered(
        busy.any, np.array([w.start_ns for w in step_windows], np.int64), np.array([w.end_ns for w in step_windows], np.int64)
    )
    return RankReport(
        rank=trace.rank,
        rank_source=trace.rank_source,
        device=trace.device,
        host=trace.host,
        files=trace.files,
        source=trace.source,
        versions=trace.versions,
        recorded=trace.recorded,
        world_size=trace.world_size,
        partition=partition,
        busy=busy,
        idle=idle,
        idle_names=idle_names,
        kernels=kernels.with_ops(launching_ops(trace, launches, steps)) if options.details else kernels,
        ranges=sum_ranges(trace, launches, steps) if options.details else (),
        gaps=gaps(),
        notices=trace.notices + left_out + health() + inspection.found.notices,
        outside_ns=busy.any.total - int(inside.sum()),
        busy_ns=busy.any.total,
        counts={name: len(getattr(trace, name)) for name in ("activities", "calls", "ranges", "stream_waits")},
        first_ns=min((int(t.start_ns[0]) for t in (trace.activities, trace.calls, trace.ranges) if len(t)), default=0),
        collectives=collectives,
        launch_pace_ns=pace_ns,
        steps=replace(steps, window_of=np.empty(0, np.int64)),
        host_summary=None if len(trace.activities) else sum_host(trace),
        inspection=inspection,
        work=work(),
        timeline=draw_step(trace, launches, steps, busy, idle, idle_names, rows, shown) if options.details and shown >= 0 else None,
    )


def _without_host(trace: Trace, launches: Launches, steps: Steps, busy: Busy) -> tuple[KernelTable, RankCollectives, int]:
    """What does not depend on the causes of idle time."""
    return sum_kernels(trace, steps, busy), find_collectives(trace, launches, steps), launch_pace(trace, launches, steps)


@contextmanager
def _helper(rows: int, threads: int) -> Iterator[ThreadPoolExecutor | None]:
    """A thread beside this one where that is worth it; for many rows memory matters more, and two need more than one."""
    if threads < 2 or not _ROWS_FOR_TWO[0] <= rows <= _ROWS_FOR_TWO[1]:
        yield None
        return
    from concurrent.futures import ThreadPoolExecutor  # a small trace needs none

    with ThreadPoolExecutor(1) as helper:
        yield helper


def _beside(helper: ThreadPoolExecutor | None, part: Callable[[], _T]) -> Callable[[], _T]:
    """What returns the result of a part, to be asked once: the helper is at work on it, or without one it is done then."""
    return part if helper is None else helper.submit(part).result


def analyze_profile(profile: Profile, options: AnalysisOptions, threads: int = 1) -> Report:
    """The report of all ranks of a profile."""
    return join_ranks(profile, [analyze_trace(trace, options, threads) for trace in profile.traces], options)


def join_ranks(profile: Profile, of_ranks: Sequence[RankReport], options: AnalysisOptions) -> Report:
    """The report of a profile from those of its ranks, in order; its tables are not looked at."""
    ranks = tuple(of_ranks)
    first = min((r.first_ns for r in ranks), default=0)
    return Report(
        source=profile.source,
        title=profile.title,
        base_ns=first - first % 10**9,
        ranks=ranks,
        notices=profile.notices + _differences(ranks) + load_rules()[1] + options.described.notices,
        skipped_files=profile.skipped,
        described=options.described,
    )


def _differences(ranks: Sequence[RankReport]) -> tuple[Notice, ...]:
    """Warnings where the ranks do not fit together."""
    notices = []
    sizes = {r.world_size: r.rank for r in reversed(ranks) if r.world_size is not None}
    if len(sizes) > 1:
        named = ", ".join(f"rank {rank} of {size}" for size, rank in sorted(sizes.items()))
        notices.append(
            Notice("different-jobs", f"the files are of jobs of different size ({named}); what is said of the ranks together is void")
        )
    with_work = [r for r in ranks if r.steps.windows]
    if not with_work:
        return tuple(notices)
    if len({r.steps.source for r in with_work}) > 1:
        without = ", ".join(str(r.rank) for r in with_work if r.steps.source is StepSource.WHOLE_CAPTURE)
        notices.append(
            Notice("different-steps", f"ranks {without} have no step ranges although others have; they cannot be compared step by step")
        )
    elif len(with_work) > 1 and not common_labels(with_work):
        notices.append(Notice("different-steps", "the ranks have no used step in common; the summary is over each rank's own steps"))
    return tuple(notices)


def select_steps(steps: Steps, wanted: StepRange, rank: int) -> Steps:
    """The steps with only those selected used.

    Raises:
        SelectionError: nothing is selected; the message lists the step numbers there are.
    """
    chosen = tuple(w.kind is WindowKind.STEP and wanted.holds(w.number) for w in steps.windows)
    if not any(chosen):
        numbers = [str(w.number) for w in steps.windows if w.kind is WindowKind.STEP]
        there = f"steps there are: {', '.join(numbers[:40])}" if numbers else "the capture names no steps; try --step-range infer"
        raise SelectionError(f"--steps {wanted} selects no step of rank {rank}", there)
    excluded = tuple((i, "not selected") for i, w in enumerate(steps.windows) if w.kind is WindowKind.STEP and not chosen[i])
    return replace(steps, used=chosen, excluded=excluded, fallback="")


def common_labels(ranks: Sequence[RankReport]) -> list[str]:
    """Labels of the steps used on every rank, in order of the first rank."""
    common = set.intersection(*({r.steps.windows[i].label for i in r.used_rows()} for r in ranks))
    return [r_label for i in ranks[0].used_rows() if (r_label := ranks[0].steps.windows[i].label) in common]


def summarise(ranks: Sequence[RankReport], table: RankTable) -> Summary | None:
    """The job's summary; None where no rank has a window."""
    with_work = [r for r in ranks if r.steps.windows]
    if not with_work:
        return None
    labels = common_labels(with_work) or None
    rows = {r.rank: r.used_rows(labels) for r in with_work}
    means = tuple((r.rank, _rounded_mean([r.steps.windows[i].duration_ns for i in rows[r.rank]])) for r in with_work)
    position = table.least_waiting([rows.get(r.rank, []) for r in ranks])
    slowest = max(with_work, key=lambda r: (sum(r.steps.windows[i].duration_ns for i in rows[r.rank]) / len(rows[r.rank]), -r.rank))
    critical = slowest if position is None else ranks[position]
    mine = rows[critical.rank]
    lengths = tuple(critical.steps.windows[i].duration_ns for i in mine)
    class_ns = shared_out(critical.partition.class_ns[mine].sum(axis=0).tolist(), len(mine))
    exposed = table.exposed[ranks.index(critical)]
    parts = np.array([[int(column[mine].sum()) for column in (exposed.wait_ns, exposed.transfer_ns, exposed.not_split_ns)]], np.int64)
    wait, transfer, not_split = share_out(np.array([class_ns[StepClass.EXPOSED_COMMUNICATION]]), parts)[0].tolist()
    return Summary(
        critical_rank=critical.rank,
        critical_by=LONGEST_STEP if position is None else LEAST_WAITING,
        steps=tuple(critical.steps.windows[i].label for i in mine),
        step_ns=lengths,
        class_ns=class_ns,
        hidden_communication_ns=_rounded_mean(critical.partition.hidden_communication_ns[mine].tolist()),
        hidden_copy_ns=_rounded_mean(critical.partition.hidden_copy_ns[mine].tolist()),
        rank_mean_ns=means,
        exposed_wait_ns=wait,
        exposed_transfer_ns=transfer,
        exposed_not_split_ns=not_split,
        waiting_is_lower_bound=table.lines[ranks.index(critical)].lower_bound,
    )


def shared_out(totals: Sequence[int], count: int) -> tuple[int, ...]:
    """Totals / count in whole ns that sum to the rounded mean of the sum (largest remainder, earlier entries first)."""
    target = (2 * sum(totals) + count) // (2 * count)
    parts = [total // count for total in totals]
    by_remainder = sorted(range(len(totals)), key=lambda i: (-(totals[i] % count), i))
    for i in by_remainder[: target - sum(parts)]:
        parts[i] += 1
    return tuple(parts)


def _rounded_mean(values: Sequence[int]) -> int:
    return (2 * sum(values) + len(values)) // (2 * len(values)) if values else 0


def median(values: Sequence[int]) -> int:
    """The middle value; of an even number of values the mean of the two in the middle, rounded up to ns."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle] + 1) // 2


def largest_loss(summary: Summary) -> StepClass | None:
    """The class that costs the step most beside computing; None if nothing does."""
    losses = [(ns, -c) for c, ns in zip(StepClass, summary.class_ns, strict=True) if c is not StepClass.COMPUTE and ns > 0]
    return StepClass(-max(losses)[1]) if losses else None
