"""From the command line's paths and options to a report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from traceread.readers.options import ReadOptions
    from traceread.report import Report

_PATIENCE_S = 1.0


def load_report(
    args: argparse.Namespace,
    paths: Sequence[str] | None = None,
    prepare: Callable[[], object] | None = None,
    details: bool = False,
) -> Report:
    """The analysis of the traces at `paths` (by default `args.paths`), with a progress bar on stderr where that is a terminal.

    What `prepare` does will be needed afterwards, and may be done while files are read. `details` is that of `traceread.analyze`.

    Raises:
        TracereadError: as `traceread.load` and `traceread.analyze`.
    """
    import traceread
    from traceread.cli.run_options import given
    from traceread.engine import Workers, keep_freed_memory, meanwhile, one_blas_thread
    from traceread.readers.file_parts import head_start

    limits = limits_of(args)
    wanted = list(args.paths if paths is None else paths)
    with ExitStack() as opened:
        begun = None
        if _reads_one_file_here(args, wanted):
            keep_freed_memory()  # before anything is read
            with suppress(OSError):  # who reads it says what is wrong with it
                begun = opened.enter_context(head_start(Path(wanted[0]), limits))
        with one_blas_thread():
            import traceread.job  # now: what it imports is no part of the time that loading takes

        if begun is not None:  # another thread has work already, and whoever imports beside this one is only in its way
            traceread.job.prepare()
            if prepare is not None:
                prepare()
        elif prepare is not None:
            meanwhile(prepare)
        progress = opened.enter_context(LoadProgress(wanted=sys.stderr.isatty() and not args.quiet))
        report = traceread.analyze(
            wanted,
            steps=args.steps,
            step_range=args.step_range,
            config=args.config,
            run=given(args),
            source=args.format,
            ranks=args.ranks if paths is None else None,
            options=replace(limits, cache=args.cache, progress=progress.update, head_start=begun),
            workers=Workers(args.jobs, args.cluster, alone=True),
            keep_going=args.keep_going,
            details=details,
        )
    if args.verbose and not args.quiet:
        for path, reason in report.skipped_files:
            print(f"traceread: skipped {path}: {reason}", file=sys.stderr)
    return report


def _reads_one_file_here(args: argparse.Namespace, paths: Sequence[str]) -> bool:
    """Whether all there is to read is one file, and for this process: not for a cluster, and not if a cache may have it."""
    return len(paths) == 1 and Path(paths[0]).is_file() and args.cluster is None and args.cache is None


def limits_of(args: argparse.Namespace) -> ReadOptions:
    """The limits on files that the options say."""
    from traceread.readers.options import NO_LIMIT, ReadOptions

    limits = ReadOptions().trusting() if args.trust else ReadOptions()
    if args.max_uncompressed:
        limits = replace(limits, max_uncompressed_bytes=args.max_uncompressed, max_unpacked_ratio=NO_LIMIT)
    return limits


class LoadProgress:
    """A progress bar on stderr that appears once loading has taken a second."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._begun = monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> LoadProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int | None) -> None:
        """Shows how much is read; called by the readers."""
        if not self._wanted or monotonic() - self._begun < _PATIENCE_S:
            return
        if self._bar is None:
            self._bar, self._task = _bar()
        if self._task is not None:
            self._bar.update(self._task, completed=done, total=total)


def _bar() -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.start()
    return bar, bar.add_task("reading", total=None)
