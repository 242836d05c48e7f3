"""The database of reports: one SQLite file, one row per report, written in one statement.

SQLite locks the file while a row is written, so any number of jobs may append at once; a writer that is killed leaves no half row. The
journal is SQLite's default one and not the write-ahead log, which is not safe on network file systems. docs/history.md has the schema.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from traceread.errors import InputError, SelectionError
from traceread.history.entry import Entry, Family
from traceread.history.trend import History

if TYPE_CHECKING:
    from sqlite_utils import Database

SCHEMA = 1
"""PRAGMA user_version; columns are added, never renamed."""

_PATIENCE_S = 60.0

COLUMNS: Mapping[str, type] = {
    "id": int,
    "key": str,
    "job": str,
    "commit_id": str,
    "captured_at": str,
    "appended_at": str,
    "title": str,
    "source": str,
    "traceread": str,
    "gpu": str,
    "gpus": int,
    "ranks": int,
    "workload": str,
    "steps": int,
    "step_median_ns": int,
    "step_mean_ns": int,
    "step_max_ns": int,
    "critical_rank": int,
    "slowest_rank": int,
    "slowest_rank_ns": int,
    "median_rank_ns": int,
    "tokens_per_s": float,
    "mfu": float,
    "mfu_convention": str,
    "hfu": float,
    "class_ns": str,
    "rank_ns": str,
    "families": str,
    "findings": str,
    "stack": str,
}
"""Columns of the table `reports`; the last five are JSON."""

_VIEWS = {
    "classes": """
select reports.id as report_id, job, commit_id, captured_at, class.key as class, class.value as mean_ns
from reports, json_each(reports.class_ns) as class""",
    "rank_steps": """
select reports.id as report_id, job, commit_id, captured_at, cast(rank.key as integer) as rank, rank.value as mean_ns
from reports, json_each(reports.rank_ns) as rank""",
    "kernel_families": """
select reports.id as report_id, job, commit_id, captured_at, json_extract(family.value, '$.category') as category,
  json_extract(family.value, '$.family') as family,
  json_extract(family.value, '$.step_ns') as step_ns,
  json_extract(family.value, '$.launches') as launches
from reports, json_each(reports.families) as family""",
    "findings_found": """
select reports.id as report_id, job, commit_id, captured_at, json_extract(finding.value, '$.rule') as rule,
  json_extract(finding.value, '$.title') as title,
  json_extract(finding.value, '$.loss_ns') as loss_ns,
  json_extract(finding.value, '$.saving_ns') as saving_ns
from reports, json_each(reports.findings) as finding""",
}
"""Views that take the JSON columns apart."""


def append(path: Path, entry: Entry) -> bool:
    """Whether the entry is new; one that is there already is not written again. Makes the database where there is none.

    Raises:
        InputError: the file is no history, or cannot be written.
    """
    row = asdict(entry)
    for ours, theirs in _NAMES.items():
        row[theirs] = row.pop(ours)
    for name in _JSON:
        row[name] = json.dumps(row[name], sort_keys=name != "class_ns")
    try:
        with closing(sqlite3.connect(path, timeout=_PATIENCE_S)) as connection:
            db = _prepared(connection, path)
            connection.execute("begin immediate")  # a transaction that reads first and then writes could not wait for other writers
            new = not db.table("reports").count_where("key = ?", [entry.key])
            if new:
                db.table("reports").insert(row, pk="id")
            connection.commit()
            return new
    except sqlite3.Error as error:
        raise _unusable(path, error) from None


def read(path: Path, job: str | None = None) -> History:
    """The reports of one job, in order of time; of the only job there is, where none is named.

    Raises:
        InputError: the file is no history.
        SelectionError: no such job, or several and none named.
    """
    jobs = jobs_in(path)
    if job is None and len(jobs) == 1:
        job = next(iter(jobs))
    if job not in jobs:
        there = f"jobs there are: {', '.join(jobs)}" if jobs else "traceread report PATH --db FILE appends a report"
        said = f"no job {job!r} in {path}" if job is not None else f"{path} holds {len(jobs)} jobs, and none was named"
        raise SelectionError(said, there)
    with closing(_opened(path)) as connection:
        rows = _rows(connection, path, "select * from reports where job = ? order by coalesce(captured_at, appended_at), id", (job,))
    return History(str(job), tuple(_entry(row) for row in rows))


def jobs_in(path: Path) -> dict[str, int]:
    """How many reports of each job there are, by name.

    Raises:
        InputError: the file is no history.
    """
    with closing(_opened(path)) as connection:
        return {row["job"]: row["n"] for row in _rows(connection, path, "select job, count(*) as n from reports group by job order by job")}


_NAMES = {
    "commit": "commit_id",
    "version": "traceread",
    "median_ns": "step_median_ns",
    "mean_ns": "step_mean_ns",
    "max_ns": "step_max_ns",
    "slowest_ns": "slowest_rank_ns",
    "middle_ns": "median_rank_ns",
    "convention": "mfu_convention",
}
"""Attributes of entries whose column has another name: a column says what it is of, and what SQL has no other meaning for."""

_JSON = ("class_ns", "rank_ns", "families", "findings", "stack")


def _prepared(connection: sqlite3.Connection, path: Path) -> Database:
    """The database with its tables; made in one transaction, by whoever comes first."""
    from sqlite_utils import Database

    if _version(connection) != SCHEMA:
        connection.execute("begin immediate")  # from here on nobody else changes what is looked at
        try:
            _refuse_other(connection, path)
            if _version(connection) != SCHEMA:
                for statement in _statements():
                    connection.execute(statement)
                connection.execute(f"pragma user_version = {SCHEMA}")
        except BaseException:
            connection.rollback()
            raise
        connection.commit()
    return Database(connection)


def _version(connection: sqlite3.Connection) -> int:
    [[version]] = connection.execute("pragma user_version").fetchall()
    return int(version)


def _statements() -> list[str]:
    """What makes the tables and views; sqlite-utils writes the SQL of the table, so that its types are its own."""
    from sqlite_utils import Database

    db = Database(memory=True)
    db.table("reports").create(dict(COLUMNS), pk="id", not_null={"key", "job", "appended_at"})
    db.table("reports").create_index(["key"], unique=True)
    db.table("reports").create_index(["job", "captured_at"])
    for name, sql in _VIEWS.items():
        db.create_view(name, sql.strip())
    return [row[0] for row in db.execute("select sql from sqlite_master where sql is not null").fetchall()]


def _refuse_other(connection: sqlite3.Connection, path: Path) -> None:
    """Nothing, if the file is new or a history of this version.

    Raises:
        InputError: it is of a newer version, or something else.
    """
    version = _version(connection)
    tables = {row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")}
    if version > SCHEMA:
        raise InputError(f"{path} was written by a newer traceread", "pip install --upgrade traceread", "no-history")
    if version == 0 and tables:
        raise InputError(
            f"{path} is a database of something else: it holds {', '.join(sorted(tables)[:3])}", "give another file", "no-history"
        )


def _opened(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise InputError(f"there is no history {path}", f"traceread report PATH --db {quote(str(path))}", "no-history")
    connection = sqlite3.connect(f"file:{_uri(path)}?mode=ro", uri=True, timeout=_PATIENCE_S)
    connection.row_factory = sqlite3.Row
    return connection


def _uri(path: Path) -> str:
    from urllib.parse import quote

    return quote(str(path.resolve()))


def _rows(connection: sqlite3.Connection, path: Path, sql: str, values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
    try:
        return connection.execute(sql, values).fetchall()
    except sqlite3.Error as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, error: sqlite3.Error) -> InputError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        held = f"{path} was held by another process for more than {_PATIENCE_S:.0f} s"
        return InputError(held, "run the same command again; nothing in it is lost", "no-history")
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        hint = "make room, or give a place that you may write to; nothing in it is lost"
        return InputError(f"{path} cannot be written or read: {error}", hint, "no-history")
    return InputError(
        f"{path} cannot be used as a history: {error}", "give a file that traceread report --db made, or a new one", "no-history"
    )


def _entry(row: sqlite3.Row) -> Entry:
    value = dict(row)
    del value["id"]
    for ours, theirs in _NAMES.items():
        value[ours] = value.pop(theirs)
    for name in _JSON:
        value[name] = json.loads(value[name])
    value["rank_ns"] = {int(rank): ns for rank, ns in value["rank_ns"].items()}
    value["families"] = tuple(Family(**family) for family in value["families"])
    value["findings"] = tuple(value["findings"])
    return Entry(**{name: value[name] for name in Entry.__dataclass_fields__})
