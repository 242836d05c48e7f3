"""A large Nsight Systems export out of a small one: its rows again and again, later each time, under new ids.

    traceread simulate llama7b --format nsys --ranks 8 --write 0 -o small
    python benchmarks/replicate_nsys.py small/report_rank0.sqlite large.sqlite --kernels 5000000 --calls 12000000
    python benchmarks/replicate_nsys.py small/report_rank0.sqlite large.sqlite --kernels 5000000 --nvtx 11000000

Tables, columns and the links between rows stay as they are; sequence numbers in the names of operators go on, so that names are as
many as in a long capture. `--calls` fills up with calls of a few ns as PyTorch makes between launches, `--nvtx` with small ranges
inside the recorded ones; where it says fewer than there would be, the shortest are left out.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from pathlib import Path

KERNEL, CALL, RANGE = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
TIMES = ("start", "end", "timestamp", "rawTimestamp")
IDS = ("correlationId", "eventSyncId", "eventId", "rangeId")
OPERATORS = 1_000_000  # more than the small export has
FILLER = "cudaStreamIsCapturing_v10000"


class Replica:
    """A large export that is being written beside the small one it is made of.

    Attributes:
        period_ns: how much later each copy is.
        first_ns: when the first call or kernel begins; what begins earlier is not repeated.
        moves: how much larger its ids are, by column.
        steps: how many steps it has.
    """

    def __init__(self, source: Path, target: Path) -> None:
        target.unlink(missing_ok=True)
        self.db = sqlite3.connect(target, isolation_level=None)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -200000"):
            self.db.execute(f"PRAGMA {pragma}")
        self.db.execute("ATTACH ? AS small", (str(source),))
        self.columns = {}
        for name, sql in self.db.execute("SELECT name, sql FROM small.sqlite_master WHERE type = 'table'").fetchall():
            self.db.execute(sql)
            self.columns[name] = [row[1] for row in self.db.execute(f'PRAGMA small.table_info("{name}")')]
        spans = [self.db.execute(f'SELECT min(start), max(end) FROM small."{name}"').fetchone() for name in (KERNEL, CALL)]
        self.first_ns, last = min(start for start, _ in spans), max(end for _, end in spans)
        self.period_ns = (last - self.first_ns) // 1000 * 1000 + 1_000_000
        self.moves = {id: 1 + max(self._largest(name, id) for name, columns in self.columns.items() if id in columns) for id in IDS}
        named = self.db.execute("SELECT count(DISTINCT text) FROM small.NVTX_EVENTS WHERE text LIKE 'ProfilerStep#%'").fetchone()
        self.steps = max(1, named[0])

    def _largest(self, table: str, column: str) -> int:
        found = self.db.execute(f'SELECT max("{column}") FROM small."{table}"').fetchone()[0]
        return found if isinstance(found, int) else 0

    def count(self, table: str) -> int:
        """Rows of a table of the small export."""
        return int(self.db.execute(f'SELECT count(*) FROM small."{table}"').fetchone()[0]) if table in self.columns else 0

    def write(self, copies: int, calls: int, ranges: int) -> None:
        """All tables; `calls` and `ranges` are how many rows are added to every copy of those tables, or left out of it."""
        moving = {
            name for name, columns in self.columns.items() if set(columns) & {*TIMES[:3]} and set(columns) & {"start", "correlationId"}
        }
        self.db.execute("BEGIN")
        for name in self.columns:
            if name not in moving or name == "TARGET_INFO_SESSION_START_TIME":
                self.db.execute(f'INSERT INTO main."{name}" SELECT * FROM small."{name}"')
        filler = self._name_of_filler() if calls else 0
        for name in sorted(moving):
            rows = f'SELECT * FROM small."{name}"'
            if name == CALL and calls:
                rows = self._with_calls(calls, filler)
            elif name == RANGE and ranges > 0:
                rows = self._with_ranges(ranges)
            elif name == RANGE and ranges < 0:
                kept = self.count(RANGE) + ranges
                rows = (
                    f'SELECT * FROM (SELECT * FROM small."{name}" ORDER BY end IS NOT NULL, end - start DESC LIMIT {kept}) ORDER BY start'
                )
            self.db.execute(f"CREATE TEMP TABLE one AS {rows}")
            shifted = ", ".join(self._shifted(column) for column in self.columns[name])
            repeated = f"(:k = 0 OR start >= {self.first_ns})" if "start" in self.columns[name] else "1"
            for copy in range(copies):
                self.db.execute(f'INSERT INTO main."{name}" SELECT {shifted} FROM one WHERE {repeated} ORDER BY rowid', {"k": copy})
            self.db.execute("DROP TABLE one")
        self.db.execute("COMMIT")
        self.db.close()

    def _shifted(self, column: str) -> str:
        if column in TIMES:
            return f'"{column}" + :k * {self.period_ns}'
        if column in IDS:
            return f'CASE WHEN "{column}" > 0 THEN "{column}" + :k * {self.moves[column]} ELSE "{column}" END'
        if column == "text":
            cases = [
                _numbered(mark, by) for mark, by in ((", seq = ", OPERATORS), (", op_id = ", OPERATORS), ("ProfilerStep#", self.steps))
            ]
            return f"CASE {' '.join(cases)} ELSE text END"
        return f'"{column}"'

    def _name_of_filler(self) -> int:
        key = 1 + int(self.db.execute("SELECT max(id) FROM main.StringIds").fetchone()[0])
        self.db.execute("INSERT INTO main.StringIds (id, value) VALUES (?, ?)", (key, FILLER))
        return key

    def _with_calls(self, more: int, name: int) -> str:
        """The calls of the small export and `more` tiny ones after them, in order of time."""
        columns = self.columns[CALL]
        tiny = {"start": "end + 2 * n", "end": "end + 2 * n + 1", "nameId": str(name), "correlationId": "0"}
        mine = ", ".join(f'"{c}"' for c in columns)
        theirs = ", ".join(f'{tiny.get(c, chr(34) + c + chr(34))} AS "{c}"' for c in columns)
        each = -(-more // self.count(CALL))
        return (
            f"WITH RECURSIVE times(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM times WHERE n < {each}), "
            f'extra AS (SELECT {theirs} FROM small."{CALL}", times LIMIT {more}) '
            f'SELECT {mine} FROM (SELECT {mine} FROM small."{CALL}" UNION ALL SELECT {mine} FROM extra) ORDER BY start'
        )

    def _with_ranges(self, more: int) -> str:
        """The ranges of the small export and `more` short ones at the start of them, in order of time."""
        columns = self.columns[RANGE]
        short = {"end": "min(end, start + n)"}
        mine = ", ".join(f'"{c}"' for c in columns)
        theirs = ", ".join(f'{short.get(c, chr(34) + c + chr(34))} AS "{c}"' for c in columns)
        each = -(-more // self.count(RANGE))
        return (
            f"WITH RECURSIVE times(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM times WHERE n < {each}), "
            f'extra AS (SELECT {theirs} FROM small."{RANGE}", times WHERE end > start LIMIT {more}) '
            f'SELECT {mine} FROM (SELECT {mine} FROM small."{RANGE}" UNION ALL SELECT {mine} FROM extra) ORDER BY start'
        )


def _numbered(mark: str, by: int) -> str:
    """SQL for texts that hold a mark and a number behind it: what follows the number is cut."""
    end = f"instr(text, '{mark}') + {len(mark)}"
    return f"WHEN instr(text, '{mark}') THEN substr(text, 1, {end} - 1) || (cast(substr(text, {end}) AS INTEGER) + :k * {by})"


def replicate(source: Path, target: Path, kernels: int, calls: int = 0, ranges: int | None = None) -> None:
    """Writes an export with at least so many kernels, about so many calls where that is more than there would be, and so many ranges."""
    replica = Replica(source, target)
    copies = -(-kernels // replica.count(KERNEL))
    more_calls = max(0, calls // copies - replica.count(CALL))
    more_ranges = 0 if ranges is None else ranges // copies - replica.count(RANGE)
    replica.write(copies, more_calls, more_ranges)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="a small export of one rank")
    parser.add_argument("target", type=Path, help="the large one; replaced if it exists")
    parser.add_argument("--kernels", type=int, default=5_000_000)
    parser.add_argument("--calls", type=int, default=0)
    parser.add_argument("--nvtx", type=int, help="default: as many as there would be")
    args = parser.parse_args(argv)
    replicate(args.source, args.target, args.kernels, args.calls, args.nvtx)
    print(f"{args.target}: {args.target.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
