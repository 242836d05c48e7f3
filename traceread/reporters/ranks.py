"""The ranks of a job side by side."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from traceread.measurements.classes import StepClass
from traceread.measurements.steps import StepSource
from traceread.names import number_list
from traceread.report import RankReport, Report, Summary, shared_out
from traceread.reporters.document import Column, Table
from traceread.units import duration, percent, plural, ratio, unit_for

SHOWN = 8
"""Of more ranks than these only the slowest are shown."""

SHORT = {
    StepClass.COMPUTE: "compute",
    StepClass.EXPOSED_COMMUNICATION: "comm.",
    StepClass.EXPOSED_COPY: "copy",
    StepClass.DATA_WAIT: "data",
    StepClass.HOST_SYNC: "sync",
    StepClass.LAUNCH_BOUND: "launch",
    StepClass.ALLOCATION: "alloc",
    StepClass.COMPILE: "compile",
    StepClass.CHECKPOINT: "ckpt",
    StepClass.PROFILER: "profiler",
    StepClass.QUEUED: "queued",
    StepClass.UNATTRIBUTED: "unattr.",
}
"""Headings of the classes where each is a column."""


def rank_table(report: Report, summary: Summary) -> Table | None:
    """A line per rank: mean step and the shares of its classes; None for one rank."""
    if len(report.ranks) < 2:
        return None
    worked = [r for r in report.ranks if r.steps.windows]
    means = dict(summary.rank_mean_ns)
    shown = worked if len(worked) <= SHOWN else sorted(worked, key=lambda r: (-means[r.rank], r.rank))[: SHOWN - 2]
    classes = {r.rank: mean_classes(r, summary.steps) for r in shown}
    own = own_columns(list(classes.values()), 8)
    unit = unit_for(max(means.values()))
    rows = tuple((f"{r.rank}", duration(means[r.rank], unit), *class_cells(classes[r.rank], own)) for r in shown)
    whole = all(r.steps.source is StepSource.WHOLE_CAPTURE for r in worked)
    length = "capture" if whole else "mean step" if len(summary.steps) > 1 else "step"
    columns = (Column("rank", right=True), Column(length, right=True), *class_columns(own))
    return Table(columns, rows, title="ranks" if len(shown) == len(worked) else "slowest ranks", note=_note(report, summary, shown, unit))


def _note(report: Report, summary: Summary, shown: Sequence[RankReport], unit: tuple[int, str]) -> str:
    slowest, middle = summary.skew
    parts = []
    shown_ranks = {r.rank for r in shown}
    left = [mean for rank, mean in summary.rank_mean_ns if rank not in shown_ranks]
    if left:
        parts.append(f"and {plural(len(left), 'more rank', 'more')}, {duration(min(left), unit)} to {duration(max(left), unit)}")
    parts.append(f"slowest/median {ratio(slowest, middle)}")
    parts += _arrivals(report)
    without = [r.rank for r in report.ranks if not r.steps.windows]
    if without:
        parts.append(f"no GPU work on {'rank' if len(without) == 1 else 'ranks'} {number_list(without)}")
    return "; ".join(parts)


def _arrivals(report: Report) -> list[str]:
    """Which rank comes last to collectives; empty where that is not known."""
    table = report.rank_table
    if not table.split_count:
        return []
    last = max(table.lines, key=lambda line: (line.last, -line.rank))
    clear = sum(line.last for line in table.lines)
    who = f"rank {last.rank} ({last.last} of {last.met} times)" if 2 * last.last > clear else "no rank in particular"
    return [f"last to arrive: {who}", "who waits for whom: traceread ranks"]


def mean_classes(rank: RankReport, labels: Collection[str]) -> tuple[int, ...]:
    """Mean ns per class over the rank's used windows with these labels, of all used ones where it has none of them."""
    rows = rank.used_rows(set(labels)) or rank.used_rows()
    return shared_out(rank.partition.class_ns[rows].sum(axis=0).tolist(), len(rows))


def own_columns(rows: Sequence[Sequence[int]], most: int) -> list[StepClass]:
    """The classes that hold at least 1 % of some row, in table order; the largest where those are too many for a line."""
    own = [c for c in StepClass if any(100 * row[c] >= sum(row) > 0 for row in rows)]
    largest = sorted(own, key=lambda c: (-max(row[c] for row in rows), c))[:most]
    return [c for c in own if c in largest]


def class_columns(own: Sequence[StepClass]) -> tuple[Column, ...]:
    """Headings for `class_cells`."""
    return (*(Column(SHORT[c], right=True) for c in own), Column("other", right=True))


def class_cells(row: Sequence[int], own: Sequence[StepClass]) -> tuple[str, ...]:
    """The shares of the classes that have a column, and of all others together."""
    total = sum(row)
    return (*(percent(row[c], total) for c in own), percent(total - sum(row[c] for c in own), total))
