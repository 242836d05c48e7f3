"""What was found out as plain tables for one's own tools: SQLite, CSV, Parquet. Times are whole ns on each rank's own clock."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from traceread.errors import OutputError
from traceread.measurements.classes import CLASSES, Reason, StepClass
from traceread.measurements.partition import class_intervals
from traceread.records import record
from traceread.report import Report
from traceread.reporters.csv import harmless
from traceread.reporters.files import replacing, replacing_path
from traceread.reporters.windows import why_not_used

Rows = Iterator[dict[str, Any]]
"""Rows of one table, each with its columns."""

_AT_ONCE = 50_000


@record
class TableSource:
    """A table: the types of its columns by name, and the function that gives its rows one after the other."""

    columns: dict[str, type]
    rows: Callable[[Report], Rows]


_TYPES = {"": int, "text": str, "share": float}


def _columns(words: str) -> dict[str, type]:
    """Types by column name, from names separated by spaces: whole numbers unless a type follows the name."""
    pairs = (word.partition(":") for word in words.split())
    return {name: _TYPES[kind] for name, _, kind in pairs}


def _steps(report: Report) -> Rows:
    for r in report.ranks:
        reasons = why_not_used(r)
        for i, w in enumerate(r.steps.windows):
            yield {
                "rank": r.rank,
                "step": w.label,
                "number": w.number if w.number >= 0 else None,
                "start_ns": w.start_ns,
                "end_ns": w.end_ns,
                "duration_ns": w.duration_ns,
                "used": int(r.steps.used[i]),
                "not_used_because": reasons.get(i),
                **{f"{name}_ns": ns for name, ns in zip(CLASSES, r.partition.class_ns[i].tolist(), strict=True)},
                "hidden_communication_ns": int(r.partition.hidden_communication_ns[i]),
                "hidden_copy_ns": int(r.partition.hidden_copy_ns[i]),
            }


def _intervals(report: Report) -> Rows:
    for r in report.ranks:
        labels = [w.label for w in r.steps.windows]
        parts = class_intervals(r.steps, r.busy, r.idle)
        columns = (parts[name].tolist() for name in ("window", "start_ns", "end_ns", "class"))
        for window, start, end, cls in zip(*columns, strict=True):
            yield {
                "rank": r.rank,
                "step": labels[window],
                "start_ns": start,
                "end_ns": end,
                "duration_ns": end - start,
                "class": CLASSES[cls],
            }


def _idle(report: Report) -> Rows:
    for r in report.ranks:
        labels, idle, names = [w.label for w in r.steps.windows], r.idle, r.idle_names
        columns = (idle.window, idle.start_ns, idle.end_ns, idle.cause, idle.reason, idle.recorded, names.code)
        for window, start, end, cause, reason, recorded, code in zip(*(c.tolist() for c in columns), strict=True):
            yield {
                "rank": r.rank,
                "step": labels[window],
                "start_ns": start,
                "end_ns": end,
                "duration_ns": end - start,
                "class": StepClass(cause).key,
                "reason": Reason(reason).text,
                "evidence": "recorded" if recorded else "inferred",
                "name": names.names[code] if code >= 0 else None,
            }


def _kernels(report: Report) -> Rows:
    for r in report.ranks:
        for k in r.kernels.rows:
            yield {
                "rank": r.rank,
                "name": k.name,
                "category": k.category,
                "family": k.family,
                "op": k.op or None,
                "count": k.count,
                "total_ns": k.total_ns,
                "exposed_ns": k.exposed_ns,
                "mean_ns": k.mean_ns,
                "share": k.exposed_ns / r.kernels.window_ns if r.kernels.window_ns else 0.0,
            }


def _collectives(report: Report) -> Rows:
    frame = report.rank_table.collectives_frame()
    names = list(frame.columns)
    for values in zip(*(frame[name].tolist() for name in names), strict=True):
        yield dict(zip(names, values, strict=True))


def _findings(report: Report) -> Rows:
    for number, f in enumerate(report.findings, 1):
        yield {
            "number": number,
            "rule": f.rule,
            "title": f.title,
            "class": None if f.step_class is None else f.step_class.key,
            "confidence": f.confidence,
            "ranks": json.dumps(list(f.ranks)),
            "loss_ns": f.total_loss_ns,
            "saving_ns": f.saving_ns,
            "saving_alone_ns": f.saving_alone_ns,
            "saving_kind": f.saving_kind or None,
            "step_ns_after": f.step_ns_after,
            "mfu_after": f.mfu_after,
            "why": f.why,
            "confirm": f.confirm,
            "change": f.fix,
        }


def _evidence(report: Report) -> Rows:
    for number, f in enumerate(report.findings, 1):
        for e in f.evidence:
            yield {
                "finding": number,
                "rank": e.rank,
                "step": e.step,
                "start_ns": e.start_ns,
                "end_ns": e.end_ns,
                "duration_ns": e.end_ns - e.start_ns,
                "thread": e.thread or None,
                "names": json.dumps(list(e.names)),
                "source": e.source or None,
            }


TABLES: dict[str, TableSource] = {
    "steps": TableSource(
        _columns(
            "rank step:text number start_ns end_ns duration_ns used not_used_because:text "
            + " ".join(f"{name}_ns" for name in CLASSES)
            + " hidden_communication_ns hidden_copy_ns"
        ),
        _steps,
    ),
    "intervals": TableSource(_columns("rank step:text start_ns end_ns duration_ns class:text"), _intervals),
    "idle": TableSource(
        _columns("rank step:text start_ns end_ns duration_ns class:text reason:text evidence:text name:text"),
        _idle,
    ),
    "kernels": TableSource(
        _columns("rank name:text category:text family:text op:text count total_ns exposed_ns mean_ns:share share:share"),
        _kernels,
    ),
    "collectives": TableSource(
        _columns(
            "rank meeting group:text operation:text dtype:text start_ns end_ns stream bytes elements_in elements_out sequence "
            "split:text wait_ns transfer_ns waited_for_rank"
        ),
        _collectives,
    ),
    "findings": TableSource(
        _columns(
            "number rule:text title:text class:text confidence:text ranks:text loss_ns saving_ns saving_alone_ns saving_kind:text "
            "step_ns_after mfu_after:share why:text confirm:text change:text"
        ),
        _findings,
    ),
    "evidence": TableSource(
        _columns("finding rank step:text start_ns end_ns duration_ns thread:text names:text source:text"),
        _evidence,
    ),
}
"""Every table by name."""


def save_sqlite(report: Report, path: Path) -> Path:
    """The path, now a SQLite database with a table for each of TABLES; a database that was there is replaced.

    Raises:
        OutputError: the file cannot be written.
    """
    import sqlite3
    from contextlib import closing

    import sqlite_utils

    try:
        with replacing_path(path) as partial, closing(sqlite3.connect(partial)) as connection:
            database = sqlite_utils.Database(connection)
            for name, table in TABLES.items():
                database.table(name).create(table.columns).insert_all(_encodable(table, report), batch_size=1000)
    except sqlite3.Error as error:
        raise OutputError(f"cannot write {path}: {error}", "choose another place with -o FILE") from None
    return path


def save_csv(report: Report, folder: Path) -> tuple[Path, ...]:
    """The files, one per table, in a folder that is made if it does not exist; names that a spreadsheet would run are made harmless.

    Raises:
        OutputError: a file cannot be written.
    """
    written = []
    for name, table in TABLES.items():
        path = _in(folder, f"{name}.csv")
        with replacing(path) as file:
            text = io.TextIOWrapper(file, "utf-8", newline="")
            writer = csv.DictWriter(text, list(table.columns), lineterminator="\n")
            writer.writeheader()
            writer.writerows({key: harmless(value) for key, value in row.items()} for row in _encodable(table, report))
            text.detach()
        written.append(path)
    return tuple(written)


def save_parquet(report: Report, folder: Path) -> tuple[Path, ...]:
    """The files, one per table, in a folder that is made if it does not exist.

    Raises:
        OutputError: pyarrow is not installed, or a file cannot be written.
    """
    if find_spec("pyarrow") is None:
        raise OutputError("Parquet is written by pyarrow, which is not installed", "pip install pyarrow, or write SQLite: -o tables.sqlite")
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    written = []
    for name, table in TABLES.items():
        path = _in(folder, f"{name}.parquet")
        schema = pa.schema([(column, types[kind]) for column, kind in table.columns.items()])
        with replacing(path) as file, pq.ParquetWriter(file, schema) as writer:
            rows = _encodable(table, report)
            while batch := list(islice(rows, _AT_ONCE)):
                writer.write_table(pa.Table.from_pylist(batch, schema=schema))
        written.append(path)
    return tuple(written)


def _in(folder: Path, name: str) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write to {folder}: {error.strerror or error}", "choose another place with -o FOLDER") from None
    return folder / name


def _encodable(table: TableSource, report: Report) -> Rows:
    """The rows with their columns in order, without lone surrogates, which UTF-8 cannot hold."""
    for row in table.rows(report):
        values = ((name, row.get(name)) for name in table.columns)
        yield {name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value for name, value in values}
