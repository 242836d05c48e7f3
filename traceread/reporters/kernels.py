"""Kernels and copies by name or family as a document."""

from __future__ import annotations

from traceread.measurements.kernels import KernelTable, KernelTime
from traceread.report import RankReport, Report
from traceread.reporters.document import Cell, Column, Document, Name, Paragraph, Table, Tone
from traceread.reporters.headline import heading
from traceread.units import duration, percent, plural, unit_for

LIMIT = 25
"""Rows shown unless asked otherwise."""


def kernels_document(report: Report, rank: RankReport, by: str, limit: int) -> Document:
    """The kernels of one rank per step of its used windows, by "name" or "family", longest first."""
    table = rank.kernels
    if not table.rows:
        return Document(heading(report), (Paragraph(f"rank {rank.rank}: no GPU work in the used steps", Tone.STRONG),))
    steps = max(table.steps, 1)
    of = f" of rank {rank.rank}" if len(report.ranks) > 1 else ""
    per = f"Per step{of}, over {plural(table.steps, 'step')} of {duration(table.window_ns // steps)}{' in the mean' if steps > 1 else ''}"
    whole = "step"
    if not table.counts_steps:
        per, whole = f"Over the capture{of}, {duration(table.window_ns)}", "capture"
    said = Paragraph(f"{per}. Exposed: compute hides communication, both hide copies; share: exposed time of the {whole}.")
    return Document(heading(report), (said, kernel_table(table, by, limit)))


def kernel_table(table: KernelTable, by: str, limit: int) -> Table:
    """A line per "name" or "family" of a table that is not empty, longest first; `limit` 0 shows all."""
    every = table.by_family() if by == "family" else table.rows
    shown = every[:limit] if limit else every
    steps = max(table.steps, 1)
    unit = unit_for(max(r.total_ns for r in shown) // steps)
    columns = (
        Column("share", right=True),
        Column(f"exposed {unit[1]}", right=True),
        Column(f"total {unit[1]}", right=True),
        Column("×", right=True),
        Column("mean", right=True),
        Column("family"),
        Column("kernel or copy", grows=True) if by == "name" else Column("category", grows=True),
    )
    more = len(every) - len(shown)
    note = f"and {plural(more, 'more row')} (--limit 0 shows all)" if more else ""
    return Table(columns, tuple(_row(r, steps, table.window_ns, unit, by) for r in shown), note=note)


def _row(r: KernelTime, steps: int, window_ns: int, unit: tuple[int, str], by: str) -> tuple[Cell, ...]:
    mean = duration(r.total_ns // r.count) if r.count else "n/a"
    numbers = (
        percent(r.exposed_ns, window_ns),
        duration(r.exposed_ns // steps, unit).removesuffix(f" {unit[1]}"),
        duration(r.total_ns // steps, unit).removesuffix(f" {unit[1]}"),
        per_step(r.count, steps),
        mean,
    )
    return (*numbers, r.family, Name(r.name) if by == "name" else r.category)


def per_step(count: int, steps: int) -> str:
    """A count per step, "12" where it divides evenly, else "12.3"."""
    if steps < 1 or count % steps == 0:
        return f"{count // max(steps, 1):,}"
    tenths = (20 * count + steps) // (2 * steps)
    return f"{tenths // 10:,}.{tenths % 10}"
