"""Results as CSV: one row per smallest thing counted, whole ns, names that a spreadsheet takes for text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from traceread.report import RankReport, Report

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def report_csv(report: Report) -> str:
    """One row per rank, window and class: rank, step, class, duration_ns, share, used."""
    rows = (
        (row["rank"], row["step"], name, ns, _share(ns, row["end_ns"] - row["start_ns"]), int(row["used"]))
        for row in report.partition.to_dict()
        for name, ns in row["classes"].items()
    )
    return csv_text(("rank", "step", "class", "duration_ns", "share", "used"), rows)


def kernels_csv(rank: RankReport, by: str, limit: int) -> str:
    """One row per name or family, summed over the used steps: rank, name, category, family, count, total_ns, exposed_ns, share."""
    every = rank.kernels.by_family() if by == "family" else rank.kernels.rows
    rows = (
        (rank.rank, k.name, k.category, k.family, k.count, k.total_ns, k.exposed_ns, _share(k.exposed_ns, rank.kernels.window_ns))
        for k in (every[:limit] if limit else every)
    )
    return csv_text(("rank", "name", "category", "family", "count", "total_ns", "exposed_ns", "share"), rows)


def ranks_csv(report: Report) -> str:
    """One row per rank and window, used or not: rank, step, used, duration_ns and the parts of its exposed communication in ns."""
    table = report.rank_table
    rows = ((line.rank, label, int(used), *numbers) for r, line in enumerate(table.lines) for label, used, *numbers in table.windows(r))
    return csv_text(("rank", "step", "used", "duration_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_not_split_ns"), rows)


def collectives_csv(report: Report) -> str:
    """One row per rank and collective; the columns of `RankTable.collectives_frame`."""
    frame = report.rank_table.collectives_frame()
    return csv_text(list(frame.columns), frame.itertuples(index=False, name=None))


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.6f}" if whole else ""


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A heading and rows as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([harmless(cell) for cell in row] for row in rows)
    return out.getvalue().encode("utf-8", "replace").decode("utf-8")


def harmless(cell: object) -> object:
    """A text that a spreadsheet would run as a formula gets an apostrophe in front."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
