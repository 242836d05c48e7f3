"""Every window of every rank, used or not, as a document."""

from __future__ import annotations

from collections.abc import Sequence

from traceread.measurements.steps import WindowKind
from traceread.names import shorten
from traceread.report import RankReport, Report
from traceread.reporters.document import Cell, Column, Document, Paragraph, Table, Tone
from traceread.reporters.headline import heading
from traceread.reporters.ranks import class_cells, class_columns, own_columns
from traceread.units import duration, unit_for


def windows_document(report: Report) -> Document:
    """A line per window in order of rank and time: length, whether it is used and why not, shares of its classes."""
    if not any(r.steps.windows for r in report.ranks):
        return Document(heading(report), (Paragraph("No GPU work was recorded, so there are no step windows.", Tone.STRONG),))
    return Document(heading(report), (windows_table(report.ranks, len(report.ranks) > 1),))


def windows_table(ranks: Sequence[RankReport], several: bool) -> Table:
    """A line per window of ranks of which at least one has windows; with a column for the rank where there are several in the job."""
    own = own_columns([row for r in ranks for row in r.partition.class_ns.tolist()], 6 if several else 7)
    unit = unit_for(max(w.duration_ns for r in ranks for w in r.steps.windows))
    rows: list[tuple[Cell, ...]] = []
    for r in ranks:
        notes = _notes(r)
        for i, window in enumerate(r.steps.windows):
            shares = class_cells(r.partition.class_ns[i].tolist(), own)
            rank = (f"{r.rank}",) if several else ()
            rows.append((*rank, duration(window.duration_ns, unit), *shares, f"{shorten(window.label, 60)}{notes.get(i, '')}"))
    columns = (
        *((Column("rank", right=True),) if several else ()),
        Column("length", right=True),
        *class_columns(own),
        Column("window", grows=True),
    )
    return Table(columns, tuple(rows))


def why_not_used(rank: RankReport) -> dict[int, str]:
    """For each window that is not used the reason."""
    reasons = dict(rank.steps.excluded)
    return {
        i: reasons.get(i) or ("between steps" if window.kind is WindowKind.BETWEEN else "not selected")
        for i, (window, used) in enumerate(zip(rank.steps.windows, rank.steps.used, strict=True))
        if not used
    }


def _notes(rank: RankReport) -> dict[int, str]:
    notes = {}
    for i, reason in why_not_used(rank).items():
        notes[i] = ": not used" if rank.steps.windows[i].kind is WindowKind.BETWEEN else f": not used, {reason}"
    for i in rank.used_rows():
        if rank.steps.windows[i].partial:
            notes[i] = f": used although {rank.steps.windows[i].partial}"
    return notes
