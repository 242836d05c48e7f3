"""Nsight Systems exports made wrong: small generated ones and cut-outs of real ones, changed by SQL and then byte by byte."""

from __future__ import annotations

import random
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

from traceread.readers.nsys_export import EVENTS

_ROWS_KEPT = 12
_READ = (
    *EVENTS, "StringIds", "ThreadNames", "PROCESSES", "META_DATA_EXPORT", "EXPORT_META_DATA", "DIAGNOSTIC_EVENT", "TARGET_INFO_GPU",
    "TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_SYSTEM_ENV", "TARGET_INFO_SESSION_START_TIME", "ANALYSIS_DETAILS", "MPI_RANKS",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
)  # fmt: skip

VALUES: list[object] = [
    None, 0, -1, 1, 7, 2**31, 2**32 - 1, 2**53, 2**62, 2**63 - 1, -(2**63), 1.5, 1e300, float("inf"), 10**18, -(10**18),
    366 * 86_400 * 10**9, 59, 60, 75, "", "7", "text", "1e3", b"", b"\x00\xff", b"x" * 300, "x" * 3000, "\x00", "\x1b[2J", "<script>",
    "ProfilerStep#1", "aten::mm, seq = 1, op_id = 99999999999999999999", "nccl:all_reduce", "cudaLaunchKernel_v7000",
    "cudaGraphLaunch_v10000", "RANK=3", "3.99.1", "4.0.0", "x.y",
]  # fmt: skip
TYPES = ("TEXT", "BLOB", "REAL", "INTEGER", "NUMERIC", "", "INTEGER DEFAULT 7", "TEXT DEFAULT 'x'")


def generated() -> list[bytes]:
    """Exports of the builder that the tests use, of every age."""
    from nsys_builder import SCHEMAS, NsysExport

    def export(utc: int | None = 1_700_000_000_000_000_000) -> NsysExport:
        x = NsysExport(utc=utc)
        for step in range(2):
            t = step * 1_000_000
            x.nvtx(t, t + 900_000, f"step {step}")
            x.nvtx(t + 5_000, t + 60_000, f"aten::mm, seq = {step}", registered=bool(step))
            x.launch(t + 10_000, t + 40_000, t + 400_000, "gemm", correlation=3 * step + 1)
            x.call(t + 50_000, t + 60_000, "cudaMemcpyAsync_v3020", correlation=3 * step + 2)
            x.copy(t + 410_000, t + 430_000, correlation=3 * step + 2)
            x.memset(t + 440_000, t + 441_000, correlation=3 * step + 3)
            x.sync(t + 70_000, t + 420_000, "stream", correlation=3 * step + 9)
            x.os_call(t + 1_000, t + 2_000).overhead(t + 3_000, t + 4_000, "Buffer Flush")
        x.graph(1_500_000, 1_600_000, correlation=40).event(5, 1).thread_name("main").gpu(0, ordinal=0)
        return x.environment("RANK=3", "WORLD_SIZE=8").system("Hostname", "node1").diagnostic("odd").collected(3_000_000)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "export.sqlite")
        return [_serialized(export(utc).write(path, schema)) for schema in SCHEMAS for utc in (1_700_000_000_000_000_000, None)]


def cut_outs(folder: Path) -> list[bytes]:
    """The first rows of every table that is read of the real exports in a folder; none where there is no such folder."""
    return [_serialized(path) for path in sorted(folder.glob("**/*.sqlite"))]


def _serialized(path: Path) -> bytes:
    """A database in memory, of which only the first rows of what is read are kept."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as stored:
        content = stored.serialize()
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.deserialize(content)
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if name not in _READ:
                db.execute(f'DROP TABLE "{name}"')
            elif name != "StringIds":
                db.execute(f'DELETE FROM "{name}" WHERE rowid NOT IN (SELECT rowid FROM "{name}" LIMIT {_ROWS_KEPT})')
        named = [
            f'SELECT "{column}" FROM "{table}"'
            for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (_, column, *_) in db.execute(f'PRAGMA table_info("{table}")').fetchall()
            if column in ("nameId", "textId", "demangledName", "shortName", "mangledName")
        ]
        if named:
            db.execute(f"DELETE FROM StringIds WHERE id NOT IN ({' UNION '.join(f'SELECT * FROM ({s}) WHERE 1' for s in named)})")
        db.execute("PRAGMA page_size = 1024")
        db.execute("VACUUM")
        return bytes(db.serialize())


class Mutator:
    """Makes inputs of exports; the same random numbers make the same input."""

    def __init__(self, seeds: list[bytes]) -> None:
        self.seeds = seeds

    def make(self, rng: random.Random) -> bytes:
        """The bytes of one file."""
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
            db.deserialize(rng.choice(self.seeds))
            db.execute("PRAGMA journal_mode = OFF")
            db.execute("BEGIN")
            for _ in range(rng.choice((0, 1, 1, 2, 3, 5))):
                with suppress(sqlite3.Error, OverflowError):
                    _change(db, rng)
            with suppress(sqlite3.Error):  # a change may have broken the database itself
                db.execute("COMMIT")
            content = bytes(db.serialize())
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            content = _damage(content, rng)
        return content


def _change(db: sqlite3.Connection, rng: random.Random) -> None:
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    if not tables:
        return
    table = rng.choice(tables)
    columns = [(name, kind) for _, name, kind, *_ in db.execute(f'PRAGMA table_info("{table}")')]
    column, _ = rng.choice(columns)
    some = f"WHERE rowid % {rng.choice((1, 2, 3, 5))} = 0"
    how = rng.randrange(16)
    if how == 0:
        db.execute(f'DROP TABLE "{table}"')
    elif how == 1:
        db.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    elif how == 2:
        other = rng.choice(columns)[0] if rng.random() < 0.5 else column + "_V2"
        db.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{other}"')
    elif how == 3:
        db.execute(f'ALTER TABLE "{table}" RENAME TO "{rng.choice((*_READ, table + "_V2", table.lower()))}"')
    elif how == 4:
        db.execute(f'ALTER TABLE "{table}" ADD COLUMN "{rng.choice(("start", "end", "value", "graphNodeId", "x"))}" {rng.choice(TYPES)}')
    elif how == 5:
        kinds = [rng.choice(TYPES) if rng.random() < 0.3 else kind for _, kind in columns]
        declared = ", ".join(f'"{name}" {kind}' for (name, _), kind in zip(columns, kinds, strict=True))
        end = rng.choice(("", "", " STRICT", f', PRIMARY KEY("{column}")', f', PRIMARY KEY("{column}")'))
        db.execute(f'ALTER TABLE "{table}" RENAME TO old')
        db.execute(f'CREATE TABLE "{table}" ({declared}{end if end[:1] == "," else ""}){"" if end[:1] == "," else end}')
        db.execute(f'INSERT OR IGNORE INTO "{table}" SELECT * FROM old')
        db.execute("DROP TABLE old")
    elif how == 6:
        db.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}" LIMIT 8')
    elif how == 7:
        db.execute(f'DELETE FROM "{table}" {some}')
    elif how == 8:
        db.execute(f'INSERT INTO "{table}" ("{column}") VALUES (?)', [rng.choice(VALUES)])
    elif how == 9:
        db.execute(f'UPDATE "{table}" SET "{column}" = "{rng.choice(columns)[0]}" {some}')
    elif how == 10:
        db.execute(f'UPDATE "{table}" SET "{column}" = "{column}" + ? {some}', [rng.choice((1, -1, 2**24, 2**48, 2**62, 10**9))])
    elif how == 11:
        index = rng.choice(("INDEX", "UNIQUE INDEX"))
        db.execute(f'CREATE {index} odd{rng.randrange(99)} ON "{table}" ("{column}")')
    else:
        db.execute(f'UPDATE "{table}" SET "{column}" = ? {some}', [rng.choice(VALUES)])


def _damage(content: bytes, rng: random.Random) -> bytes:
    how = rng.randrange(5)
    at = rng.randrange(len(content) + 1) if how > 1 else rng.randrange(min(len(content), 1024) + 1)
    if how == 4:
        return content[:at]
    return content[:at] + bytes(rng.randrange(256) for _ in range(rng.choice((1, 1, 2, 4)))) + content[at + 1 :]
