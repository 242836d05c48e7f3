"""From paths to a report, rank by rank, over this process, several, or a cluster.

Who reads a rank classifies and analyses it too and gives back its report; its columns never travel, and are gone before the next
rank is read. Which rank a file holds is known for sure only when all are read. What the ranks are taken for until then is checked
in the end, and those few that turn out to be others are read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from importlib import import_module
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceread.analysis_options import AnalysisOptions
from traceread.categories import Patterns
from traceread.engine import Workers, cpus, map_parts, meanwhile
from traceread.errors import ClusterError, Notice, TracereadError
from traceread.model import Trace
from traceread.readers import discover
from traceread.readers.discover import Found, Source
from traceread.readers.options import ReadOptions
from traceread.readers.windows import outline
from traceread.records import record

if TYPE_CHECKING:  # it takes a tenth of a second, in which files can be read already
    from traceread.report import RankReport, Report

_MOST_NUMBERS = 4096
"""GPUs without a rank in one file."""


@record
class Request:
    """What to make a report of, and how.

    Attributes:
        paths: files, directories, glob patterns and URLs.
        source: "kineto" or "nsys" where both are there.
        ranks: only these.
        read: limits and progress of reading.
        kernels: patterns of the user, as in traceread.toml.
        analysis: how ranks are analysed.
        workers: who reads them.
        keep_going: report without the ranks that cannot be read, and say which.
        version: of traceread; who works for it must have the same.
    """

    paths: Sequence[str | Path]
    source: str | None = None
    ranks: Collection[int] | None = None
    read: ReadOptions = field(default_factory=ReadOptions)
    kernels: Sequence[Mapping[str, Any]] = ()
    analysis: AnalysisOptions = field(default_factory=AnalysisOptions)
    workers: Workers = field(default_factory=Workers)
    keep_going: bool = False
    version: str = ""


@record
class _Task:
    """Sources that belong together, and what whoever reads them must know.

    Attributes:
        sources: what to read; successive captures of one rank are in one task.
        numbers: ranks for traces that state none, in order.
        request: what the job asks for.
    """

    sources: tuple[Source, ...]
    numbers: tuple[int, ...]
    request: Request


@record
class _Done:
    """What comes back.

    Attributes:
        read: the outlines of the traces of each source, as read.
        reports: the wanted ranks, each with the outline that its report was made of.
    """

    read: tuple[tuple[Source, list[Trace]], ...]
    reports: tuple[tuple[Trace, RankReport], ...]


def analyze_job(request: Request) -> Report:
    """The report of the traces at some paths; the same as that of the loaded profile.

    Raises:
        as `traceread.load` and `traceread.analyze`; where a rank cannot be read the message names it.
        WorkerLost, ClusterError: who read a rank ended without an answer.
    """
    found = discover.find(request.paths, source=request.source)
    needed = found.that_may_hold(request.ranks)
    job = _Job(request)
    job.run(_first_tasks(request, needed))
    traces, notices = job.ranked(found)
    if len(needed) < len(found.sources) and discover.not_there(job.wanted, traces):
        # A name may say another rank than the trace itself, so before giving up everything is read.
        job.run(_first_tasks(request, [s for s in found.sources if s not in needed]))
        traces, notices = job.ranked(found)
    if not traces:
        raise next(iter(job.failed.values()))
    profile = discover.profile_of(request.paths, found, traces, [*notices, *job.missing], job.wanted)
    job.run(_tasks_again(request, found, traces, [t for t in profile if job.report_of(t) is None]))
    from traceread.report import join_ranks

    return join_ranks(profile, [job.certain_report_of(trace) for trace in profile], request.analysis)


class _Job:
    """What is known so far.

    Attributes:
        failed: sources that could not be read, with the reason; only where the job keeps going.
    """

    def __init__(self, request: Request) -> None:
        self.failed: dict[Source, TracereadError] = {}
        self._request = request
        self._read: dict[Source, list[Trace]] = {}
        self._reports: dict[int, list[tuple[Trace, RankReport]]] = {}

    @property
    def wanted(self) -> Collection[int] | None:
        """The ranks asked for, without those that are missing."""
        ranks = self._request.ranks
        return None if ranks is None else frozenset(ranks) - {s.rank for s in self.failed}

    @property
    def missing(self) -> list[Notice]:
        """A warning for each source that could not be read."""
        return [Notice("rank-missing", f"not in this report: {error.message}", source.rank) for source, error in self.failed.items()]

    def run(self, tasks: Sequence[_Task]) -> None:
        """Does these tasks, whoever does them.

        Raises:
            TracereadError: one of them failed, and the job does not keep going.
        """
        progress, workers = self._request.read.progress, self._request.workers
        sizes = [sum(source.size for source in task.sources) for task in tasks]
        total = sum(sizes)
        processes = workers.processes(len(tasks), total)
        here = workers.cluster is None and processes == 1
        if here:
            ready = [_with_progress(task, sum(sizes[:i]), size, total) for i, (task, size) in enumerate(zip(tasks, sizes, strict=True))]
        else:
            order = sorted(range(len(tasks)), key=lambda i: -sizes[i])  # the longest first, so that none is left for the end
            tasks, sizes = [tasks[i] for i in order], [sizes[i] for i in order]
            threads = 1 if workers.cluster else max(1, cpus() // processes)
            ready = [_for_others(task, threads) for task in tasks]
        done = 0
        for outcome in map_parts(_analyze_sources, ready, [_name(task) for task in tasks], workers, total):
            if outcome.error is not None:
                if not self._request.keep_going or isinstance(outcome.error, ClusterError):
                    raise outcome.error
                self.failed |= dict.fromkeys(tasks[outcome.position].sources, outcome.error)
                continue
            answer = outcome.answer()
            self._read |= dict(answer.read)
            for trace, report in answer.reports:
                self._reports.setdefault(trace.rank, []).append((trace, report))
            done += sizes[outcome.position]
            if progress is not None and not here:
                progress(done, total)

    def ranked(self, found: Found) -> tuple[list[Trace], list[Notice]]:
        """The outlines of all ranks that were read, and warnings about them together."""
        read = [(source, self._read[source]) for source in found.sources if source in self._read]
        return discover.ranked(read, found.ranks_beside(self._read))

    def report_of(self, trace: Trace) -> RankReport | None:
        """The report of the rank with this outline, None if it was made of another one."""
        return next((report for made_of, report in self._reports.get(trace.rank, ()) if _identity(made_of) == _identity(trace)), None)

    def certain_report_of(self, trace: Trace) -> RankReport:
        """The same where it must be there."""
        report = self.report_of(trace)
        if report is None:
            hint = "read the files of this rank alone, by their names"
            raise TracereadError(f"rank {trace.rank} of {trace.files[0]} was something else when read again", hint, "internal")
        return report


def _identity(trace: Trace) -> tuple[object, ...]:
    """What a report depends on beside the rows."""
    return trace.rank, trace.rank_source, trace.files, trace.pid, trace.device, trace.windows_ns


def _first_tasks(request: Request, sources: Sequence[Source]) -> list[_Task]:
    """Tasks by the ranks that heads and names state; the others are taken for one rank each, in order."""
    stated: dict[int, list[Source]] = {}
    for source in sources:
        if source.rank is not None:
            stated.setdefault(source.rank, []).append(source)
    nameless = [source for source in sources if source.rank is None]
    free = list(islice((n for n in count() if n not in stated), len(nameless) + _MOST_NUMBERS))
    tasks = [_Task(tuple(group), (), request) for group in stated.values()]
    return tasks + [_Task((source,), tuple(free[i : i + _MOST_NUMBERS]), request) for i, source in enumerate(nameless)]


def _tasks_again(request: Request, found: Found, traces: Sequence[Trace], wrong: Iterable[Trace]) -> list[_Task]:
    """Tasks for the ranks that were taken for others, with the numbers that they have."""
    groups: list[set[Path]] = []
    for trace in wrong:
        together = set(trace.files)
        for group in [g for g in groups if g & together]:
            together |= group
            groups.remove(group)
        groups.append(together)
    return [
        _Task(
            tuple(source for source in found.sources if source.path in group),
            tuple(trace.rank for trace in traces if trace.rank_source == "order" and group.issuperset(trace.files)),
            request,
        )
        for group in groups
    ]


def _analyze_sources(task: _Task) -> _Done:
    """What a task asks for; the rows of each rank are dropped before the next is analysed."""
    from traceread import __version__

    request = task.request
    if request.version not in ("", __version__):
        raise ClusterError(f"a worker has traceread {__version__}, this is {request.version}", f"pip install traceread=={request.version}")
    if request.kernels:
        Patterns.load(request.kernels)  # what is wrong with them is said before anything is read
    meanwhile(prepare)
    read = [(source, discover.read(source, request.read)) for source in task.sources]
    from traceread.report import analyze_trace  # now: a part of the files is read while it is imported

    outlines = tuple((source, [outline(trace) for trace in traces]) for source, traces in read)
    traces, _ = discover.ranked(read, numbers=task.numbers)
    del read
    patterns = Patterns.load(request.kernels)
    reports = []
    while traces:
        if request.ranks is not None and traces[0].rank not in request.ranks:
            del traces[0]
            continue
        shape = outline(traces[0])
        # Nobody else holds the trace, so that the analysis may drop what it has made something else of.
        reports.append((shape, analyze_trace(traces.pop(0), request.analysis, request.read.scanning_threads, patterns)))
    return _Done(outlines, tuple(reports))


def prepare() -> None:
    """Imports what analyses, and reads the shipped tables: whoever analyses needs both."""
    from traceread.measurements.peaks import load_gpus
    from traceread.rules import load_rules

    import_module("traceread.report")
    load_rules()
    load_gpus()
    Patterns.load()


def _with_progress(task: _Task, before: int, size: int, total: int) -> _Task:
    """The task with progress told as part of that of all."""
    read = task.request.read
    if read.progress is None:
        return task
    return replace(task, request=replace(task.request, read=replace(read, progress=discover.part_of(read.progress, before, size, total))))


def _for_others(task: _Task, threads: int) -> _Task:
    """The task for another process: nobody to tell of progress, and its share of the CPUs."""
    read = task.request.read
    return replace(task, request=replace(task.request, read=replace(read, progress=None, head_start=None, threads=read.threads or threads)))


def _name(task: _Task) -> str:
    first = task.sources[0]
    return first.path.name if first.rank is None else f"rank {first.rank} ({first.path.name})"
