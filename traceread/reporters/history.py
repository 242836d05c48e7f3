"""A history as a document, JSON and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import traceread
from traceread.history import Entry, History
from traceread.names import clean, shorten
from traceread.reporters import render_document
from traceread.reporters.csv import csv_text
from traceread.reporters.document import Bar, Cell, Column, Document, Listing, Paragraph, Table, Tone
from traceread.reporters.notebook import safe_html
from traceread.units import duration, percent, plural, unit_for

FORMAT = 1
"""Version of the JSON; fields are added, never renamed."""

REPORTS = 20
"""Reports shown, the latest ones."""


def history_document(history: History) -> Document:
    """Everything `traceread history` shows of one job."""
    last = history.last
    heading = (
        clean(history.job),
        plural(len(history.entries), "report"),
        clean(last.workload),
        f"{_day(history.entries[0])} – {_day(last)}",
    )
    questions = tuple((f"{a.question} {a.text}",) for a in history.answers)
    tone = Tone.WARNING if history.alerts else Tone.PLAIN
    blocks = (Paragraph(_headline(history), Tone.STRONG), Listing("four questions", questions, tone=tone), _table(history))
    return Document(heading, blocks)


def _headline(history: History) -> str:
    if not history.alerts:
        return f"Nothing to look at: a step takes {duration(history.last.median_ns)}."
    return f"Look at {' and '.join(_TITLES[a.key] for a in history.alerts)}: a step takes {duration(history.last.median_ns)}."


_TITLES = {"step": "the step time", "mfu": "MFU", "skew": "the ranks", "clocks": "clocks"}


def _table(history: History) -> Table:
    shown = history.entries[-REPORTS:]
    unit = unit_for(max(e.median_ns for e in shown))
    most = max(e.median_ns for e in shown)
    rows = tuple(_row(history, e, unit, most) for e in shown)
    left = len(history.entries) - len(shown)
    numbers = tuple(Column(title, right=True) for title in ("median step", "slowest", "MFU", "skew"))
    note = f"and {plural(left, 'earlier report')}: --json has them" if left else ""
    return Table((Column("when"), Column("commit"), *numbers, Column(), Column("", grows=True)), rows, note=note)


def _row(history: History, e: Entry, unit: tuple[int, str], most: int) -> tuple[Cell, ...]:
    mfu = "" if e.mfu is None else percent(round(e.mfu * 10**9), 10**9)
    skew = f"{e.skew:.3f}" if e.ranks > 1 else ""
    said = [] if e.workload == history.last.workload else [f"other workload: {clean(e.workload)}"]
    if e in history.baseline:
        said.append("baseline")
    bar = Bar(e.median_ns, most, "compute")
    return (
        _day(e),
        shorten(clean(e.commit or ""), 12),
        duration(e.median_ns, unit),
        duration(e.max_ns, unit),
        mfu,
        skew,
        bar,
        ", ".join(said),
    )


def _day(e: Entry) -> str:
    return e.at[:16].replace("T", " ")


def jobs_document(histories: Sequence[History], path: str) -> Document:
    """A line per job of a database that holds several."""
    rows = tuple(
        (
            clean(h.job),
            f"{len(h.entries):,}",
            _day(h.last),
            duration(h.last.median_ns),
            "" if h.last.mfu is None else percent(round(h.last.mfu * 10**9), 10**9),
            ", ".join(_TITLES[a.key] for a in h.alerts) or "nothing to look at",
        )
        for h in histories
    )
    columns = (Column("job"), *(Column(t, right=True) for t in ("reports", "latest", "step", "MFU")), Column("look at", grows=True))
    return Document((path, plural(len(histories), "job")), (Table(columns, rows, note="one job: --job NAME"),))


# Other formats.


def history_dict(history: History) -> dict[str, Any]:
    """The history, format 1."""
    return {
        "format": FORMAT,
        "traceread": traceread.__version__,
        "job": history.job,
        "workload": history.last.workload,
        "alert_share": history.alert,
        "answers": [a.to_dict() for a in history.answers],
        "baseline": [e.key for e in history.baseline],
        "reports": [_entry(e) for e in history.entries],
    }


def _entry(e: Entry) -> dict[str, Any]:
    return {
        "key": e.key,
        "commit": e.commit,
        "captured_at": e.captured_at,
        "appended_at": e.appended_at,
        "title": e.title,
        "workload": e.workload,
        "steps": e.steps,
        "step_ns": {"median": e.median_ns, "mean": e.mean_ns, "max": e.max_ns},
        "class_ns": dict(e.class_ns),
        "critical_rank": e.critical_rank,
        "skew": {"max_over_median": e.skew, "slowest_rank": e.slowest_rank},
        "tokens_per_s": e.tokens_per_s,
        "mfu": e.mfu,
        "hfu": e.hfu,
        "findings": [dict(f) for f in e.findings],
    }


def history_csv(history: History) -> str:
    """One row per report: at, job, commit, workload, steps, median_ns, mean_ns, max_ns, mfu, skew."""
    rows = (
        (
            e.at,
            e.job,
            e.commit or "",
            e.workload,
            e.steps,
            e.median_ns,
            e.mean_ns,
            e.max_ns,
            "" if e.mfu is None else e.mfu,
            f"{e.skew:.6f}",
        )
        for e in history.entries
    )
    return csv_text(("at", "job", "commit", "workload", "steps", "median_ns", "mean_ns", "max_ns", "mfu", "skew"), rows)


def render_history(history: History, format: str) -> str:
    """The history as text in one of the formats of reports.

    Raises:
        OutputError: no such format.
    """
    if format == "json":
        from traceread.reporters.json import to_json

        return to_json(history_dict(history))
    return history_csv(history) if format == "csv" else render_document(history_document(history), format)


def history_html(history: History) -> str:
    """The history for a notebook cell."""
    return safe_html(history, lambda: history_document(history))
