"""Where did the training step go? Exact step decomposition from PyTorch and Nsight Systems traces.

profile = traceread.load("run/")
report = traceread.analyze(profile)
report.partition.to_frame()
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceread.errors import Notice, TracereadError

if TYPE_CHECKING:  # imported when first asked for, by __getattr__: `traceread --help` must not pay for numpy
    from traceread.comparison import ReportDiff
    from traceread.comparison.side import Side
    from traceread.config import Config
    from traceread.engine import Workers
    from traceread.model import Category, Profile, Trace
    from traceread.readers.options import ReadOptions
    from traceread.report import Report
    from traceread.run import Described
    from traceread.selection import StepRange

__all__ = [
    "Category",
    "Notice",
    "Profile",
    "Report",
    "ReportDiff",
    "Trace",
    "TracereadError",
    "__version__",
    "analyze",
    "diff",
    "load",
]

__version__ = "0.1.0"


def load(
    path: str | Path | Sequence[str | Path],
    *,
    source: str | None = None,
    ranks: Collection[int] | None = None,
    config: Config | str | Path | None = None,
    options: ReadOptions | None = None,
) -> Profile:
    """The captured ranks in a file, several files, a directory or a glob, classified.

    Args:
        path: where the traces are; a directory is read without its subdirectories.
        source: "kineto" or "nsys" where a directory holds both.
        ranks: only these ranks.
        config: a Config or the path of a traceread.toml; by default the one beside the traces.
        options: limits and progress of reading.

    Raises:
        TraceNotFound, UnknownFormat, UnsupportedSchema, CorruptTrace, LimitExceeded: the input cannot be used.
        SelectionError: a rank that is not there.
        ConfigError: traceread.toml cannot be understood.
    """
    from dataclasses import replace

    from traceread.categories import Patterns, classify
    from traceread.readers.discover import load_traces
    from traceread.readers.options import ReadOptions

    paths = _paths(path)
    settings = _config(config, paths)
    patterns = Patterns.load(settings.kernels)
    profile = load_traces(paths, source=source, ranks=ranks, options=options or ReadOptions())
    return replace(profile, traces=tuple(classify(trace, patterns) for trace in profile.traces))


def analyze(
    profile: Profile | str | Path | Sequence[str | Path],
    *,
    steps: str | None = None,
    step_range: str | None = None,
    config: Config | str | Path | None = None,
    run: Described | str | Path | Mapping[str, Any] | None = None,
    source: str | None = None,
    ranks: Collection[int] | None = None,
    options: ReadOptions | None = None,
    workers: Workers | None = None,
    keep_going: bool = False,
    details: bool = True,
) -> Report:
    """The report of a profile, or of the traces at a path.

    With a path no more than one rank is held at a time by each process that reads, so it does for any number of ranks.

    Args:
        profile: what `load` returned, or what it would take.
        steps: "12:17", a half-open range over the steps' own numbers; by default all but the first and partial ones.
        step_range: regular expression for the names of step ranges, "infer" or "none".
        config: a Config or the path of a traceread.toml; by default the one beside the traces.
        run: what the traces do not say about the job: the path of a run.json, or its fields; fields win over the file.
        source: "kineto" or "nsys" where a directory holds both; this and what follows only with a path.
        ranks: only these ranks.
        options: limits and progress of reading.
        workers: who reads the ranks of a path: this process (the default), several, or a Dask cluster.
        keep_going: report without the ranks of a path that cannot be read; `report.notices` says which.
        details: without them there are no timeline and no ranges of the user, and kernels do not say which operator launches them.

    Raises:
        ConfigError: run.json cannot be understood.
        SelectionError: `steps` or `step_range` matches nothing.
        WorkerLost, ClusterError: who read a rank ended without an answer.
        as `load`, when given a path.
    """
    from traceread.analysis_options import AnalysisOptions
    from traceread.measurements.steps import StepOptions
    from traceread.model import Profile

    paths = [file for trace in profile for file in trace.files] if isinstance(profile, Profile) else _paths(profile)
    settings = _config(config, paths)
    analysis = AnalysisOptions(
        step_options=StepOptions(step_range or settings.step_pattern, settings.micro_steps),
        host_names=settings.host_names,
        steps=None if steps is None else _parsed(steps),
        described=_described(run, paths, settings),
        details=details,
    )
    from traceread.readers.options import ReadOptions

    read = options or ReadOptions()
    if isinstance(profile, Profile):
        from traceread.report import analyze_profile

        return analyze_profile(profile, analysis, read.scanning_threads)
    from traceread.engine import Workers
    from traceread.job import Request, analyze_job

    return analyze_job(
        Request(
            paths=paths,
            source=source,
            ranks=None if ranks is None else frozenset(ranks),
            read=read,
            kernels=settings.kernels,
            analysis=analysis,
            workers=workers or Workers(),
            keep_going=keep_going,
            version=__version__,
        )
    )


def _parsed(steps: str) -> StepRange:
    from traceread.selection import parse_steps

    return parse_steps(steps)


def _paths(given: str | Path | Sequence[str | Path]) -> list[str | Path]:
    return [given] if isinstance(given, (str, Path)) else list(given)


def diff(
    before: Report | Profile | Side | str | Path | Sequence[str | Path],
    after: Report | Profile | Side | str | Path | Sequence[str | Path],
    *,
    steps: str | None = None,
    step_range: str | None = None,
    allow_mismatch: Collection[str] = (),
    declared: Mapping[str, tuple[str, str]] | None = None,
) -> ReportDiff:
    """What changed between two captures, per step: class by class, kernel by kernel, with what the steps can show.

    Args:
        before: a report, a profile, the path of traces, or of a report saved as JSON.
        after: the same of the other side.
        steps: "12:17", for sides that are not reports yet.
        step_range: as for `analyze`, for sides that are not reports yet.
        allow_mismatch: compare keys that may differ, such as "torch"; docs/diff.md lists them.
        declared: values of compare keys that neither side records, before and after.

    Raises:
        ComparisonError: a side is empty, has no GPU work or is truncated, or one counts steps and the other does not.
        as `analyze`, for sides that are not reports yet.
    """
    from traceread.comparison import compare
    from traceread.comparison.side import Side, is_saved, read_saved, side_of
    from traceread.report import Report

    def side(given: Report | Profile | Side | str | Path | Sequence[str | Path]) -> Side:
        if isinstance(given, Side):
            return given
        if isinstance(given, (str, Path)) and is_saved(Path(given)):
            return read_saved(Path(given))
        return side_of(given if isinstance(given, Report) else analyze(given, steps=steps, step_range=step_range))

    return compare(side(before), side(after), allow_mismatch, declared)


def _described(run: Described | str | Path | Mapping[str, Any] | None, paths: Sequence[str | Path], settings: Config) -> Described:
    from traceread.run import Described, find_run, read_run, run_of, run_of_config
    from traceread.runs.account import find_account

    files = [Path(p) for p in paths]
    of_config = run_of_config(settings.model, settings.path)
    if isinstance(run, (str, Path)):
        described = read_run(Path(run)).over(of_config)
    else:
        given = run if isinstance(run, Described) else run_of(run or {}, "the caller")
        described = given.over(find_run(files)).over(of_config)
    return described.over(find_account(files, described))


def _config(config: Config | str | Path | None, paths: Sequence[str | Path]) -> Config:
    from traceread.config import Config, find_config, load_config

    if isinstance(config, Config):
        return config
    return find_config([Path(p) for p in paths]) if config is None else load_config(Path(config))


_LAZY = {
    "Category": "traceread.model",
    "Profile": "traceread.model",
    "Report": "traceread.report",
    "ReportDiff": "traceread.comparison",
    "Trace": "traceread.model",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        from importlib import import_module

        globals()[name] = found = getattr(import_module(_LAZY[name]), name)
        return found
    raise AttributeError(f"module 'traceread' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
