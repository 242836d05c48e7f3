"""A capture for ui.perfetto.dev and chrome://tracing: its events as recorded, and tracks of what was found out.

Per rank there are tracks for steps, classes, idle causes and the evidence of each finding; ranks stand on one clock. Events go
through memory some thousands at a time, so neither memory nor time grows faster than the capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from traceread.errors import MissingData
from traceread.model import Profile
from traceread.report import RankReport, Report
from traceread.reporters.files import replacing
from traceread.reporters.perfetto.document import Clocks, Output, Processes
from traceread.reporters.perfetto.recorded import copied_events, table_events
from traceread.reporters.perfetto.spans import spans_of
from traceread.reporters.perfetto.tracks import track_events


def export_perfetto(report: Report, path: Path, profile: Profile | None = None, *, only_used: bool = False) -> Path:
    """The path, now holding the annotated capture: gzip where its name ends in .gz.

    Args:
        report: of the ranks to export.
        path: where to write.
        profile: the tables the report was made from; a capture of Nsight Systems needs them, PyTorch traces are copied from their files.
        only_used: cut to the time of the used steps.

    Raises:
        MissingData: `profile` is missing.
        InputError: a trace cannot be read again.
        OutputError: the file cannot be written.
    """
    traces = {trace.rank: trace for trace in profile} if profile is not None else {}
    if report.source != "kineto" and {r.rank for r in report.ranks} - set(traces):
        raise MissingData("an nsys capture is exported from its tables", "give the profile too: export_perfetto(report, path, profile)")
    clocks, processes = Clocks(report), Processes()
    with replacing(path) as file, Output(file, packed=path.suffix == ".gz") as output:
        for rank in report.ranks:
            output.write(track_events(report, rank, clocks, processes, only_used))
        if report.source == "kineto":
            for ranks in _by_files(report.ranks):
                for trace_file in ranks[0].files:
                    output.write(copied_events(trace_file, ranks[0].rank, clocks, processes, spans_of(ranks, only_used)))
        else:
            for rank in report.ranks:
                output.write(table_events(traces[rank.rank], rank.rank, clocks, processes, spans_of([rank], only_used)))
        output.write(processes.descriptions())
        output.finish(report, clocks.left_out)
    return path


def _by_files(ranks: Sequence[RankReport]) -> list[list[RankReport]]:
    """The ranks by the files they come from: a process with several GPUs writes one file."""
    groups: dict[tuple[Path, ...], list[RankReport]] = {}
    for rank in ranks:
        groups.setdefault(rank.files, []).append(rank)
    return list(groups.values())
