"""What results look like as the last line of a notebook cell: bounded, escaped, never an exception."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

from traceread.names import clean, path_title, shorten
from traceread.reporters.document import Column, Document, Paragraph, Table

if TYPE_CHECKING:
    from traceread.findings import Finding
    from traceread.measurements.kernels import KernelTable
    from traceread.measurements.ranks import RankTable
    from traceread.measurements.step_timeline import StepTimeline
    from traceread.model import Profile, Trace
    from traceread.report import PartitionTable, RankReport, Report
    from traceread.rules.fix_list import FixList

ROWS = 10
"""Rows of a table and entries of a list that are shown."""


def report_html(report: Report) -> str:
    """Headline, classes, ranks, gaps and warnings of a report."""

    def document() -> Document:
        from traceread.reporters.answer import report_document

        return report_document(report, gaps=3)

    return safe_html(report, document)


def partition_html(table: PartitionTable) -> str:
    """The first windows with the shares of their classes."""

    def document() -> Document:
        from traceread.reporters.ranks import class_cells, class_columns, own_columns
        from traceread.units import duration, unit_for

        windows = [(r, i, w) for r in table.ranks for i, w in enumerate(r.steps.windows)]
        own = own_columns([r.partition.class_ns[i].tolist() for r, i, _ in windows], 12)
        unit = unit_for(max((w.duration_ns for _, _, w in windows), default=0))
        rows = tuple(
            (
                f"{r.rank}",
                shorten(w.label, 40),
                "yes" if r.steps.used[i] else "no",
                duration(w.duration_ns, unit),
                *class_cells(r.partition.class_ns[i].tolist(), own),
            )
            for r, i, w in windows[: ROWS + 1]
        )
        columns = (Column("rank", right=True), Column("step"), Column("used"), Column("length", right=True), *class_columns(own))
        more = len(windows) - ROWS
        note = f"and {more} more windows: .to_frame()" if more > 0 else ""
        return Document((repr(table)[1:-1],), (Table(columns, rows[:ROWS], note=note),))

    return safe_html(table, document)


def ranks_html(table: RankTable) -> str:
    """A line per rank: who waits, who is waited for."""

    def document() -> Document:
        from traceread.reporters.waiting import rank_blocks

        return Document((repr(table)[1:-1],), rank_blocks(table))

    return safe_html(table, document)


def profile_html(profile: Profile) -> str:
    """A line per rank of what was loaded."""

    def document() -> Document:
        rows = tuple(
            (f"{t.rank}", t.rank_source, t.device.name or "not named", *(f"{len(table):,}" for table in (t.activities, t.calls, t.ranges)))
            for t in profile.traces[:ROWS]
        )
        more = len(profile.traces) - ROWS
        columns = (
            Column("rank", right=True),
            Column("known from"),
            Column("GPU"),
            Column("GPU rows", right=True),
            Column("calls", right=True),
            Column("ranges", right=True),
        )
        heading = (path_title(profile.title, 60), repr(profile)[1:-1])
        return Document(heading, (Table(columns, rows, note=f"and {more} more ranks" if more > 0 else ""),))

    return safe_html(profile, document)


def rank_html(rank: RankReport) -> str:
    """One rank: its windows with the shares of their classes."""

    def document() -> Document:
        from traceread.reporters.windows import windows_table

        table = windows_table([rank], several=False) if rank.steps.windows else Paragraph("No GPU work was recorded.")
        return Document((repr(rank)[1:-1],), (table,))

    return safe_html(rank, document)


def fix_list_html(fixes: FixList) -> str:
    """What to change first."""

    def document() -> Document:
        from traceread.reporters.fixes import listing_of

        listing = listing_of(fixes)
        return Document((repr(fixes)[1:-1],), (listing or Paragraph("No rule found a cause of at least 1 % of the step."),))

    return safe_html(fixes, document)


def finding_html(finding: Finding) -> str:
    """One finding: what, why, how to check, what to change, where."""

    def document() -> Document:
        from traceread.reporters.fixes import finding_blocks

        return Document((finding.rule, finding.confidence), finding_blocks(finding))

    return safe_html(finding, document)


def kernels_html(kernels: KernelTable) -> str:
    """The first kernels and copies by total time."""

    def document() -> Document:
        from traceread.reporters.kernels import kernel_table

        table = kernel_table(kernels, "name", ROWS) if kernels.rows else Paragraph("No GPU work in the used steps.")
        return Document((repr(kernels)[1:-1],), (table,))

    return safe_html(kernels, document)


def timeline_html(timeline: StepTimeline) -> str:
    """The lanes of a timeline with their rows; `.plot()` draws them."""

    def document() -> Document:
        rows = tuple((lane.kind.name.lower(), shorten(lane.title, 60), f"{lane.rows:,}") for lane in timeline.lanes)
        columns = (Column("lane"), Column("of"), Column("rows", right=True))
        return Document((repr(timeline)[1:-1],), (Table(columns, rows, note=".plot() draws them"),))

    return safe_html(timeline, document)


def trace_html(trace: Trace) -> str:
    """The tables of one rank with their number of rows."""

    def document() -> Document:
        tables = (("activities", trace.activities), ("calls", trace.calls), ("ranges", trace.ranges), ("stream_waits", trace.stream_waits))
        rows = tuple((name, f"{len(table):,}", ", ".join(column for column, _ in table.columns())) for name, table in tables)
        return Document((repr(trace)[1:-1],), (Table((Column("table"), Column("rows", right=True), Column("columns", grows=True)), rows),))

    return safe_html(trace, document)


def safe_html(result: object, document: Callable[[], Document]) -> str:
    """The document as HTML, or the text form of the result where that fails: a notebook must show something."""
    try:
        from traceread.reporters.html import html_fragment

        return html_fragment(document(), ROWS)
    except Exception:
        try:
            text = repr(result)
        except Exception:
            text = f"<{type(result).__name__}>"
        return f"<pre>{escape(clean(text))}</pre>"
