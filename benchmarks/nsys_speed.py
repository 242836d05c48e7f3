"""traceread beside pandas.read_sql on a large Nsight Systems export, in one run on one machine: time, memory, ratios.

    traceread simulate llama7b --format nsys --ranks 8 --write 0 -o small
    python benchmarks/nsys_speed.py small/report_rank0.sqlite

Exports with 5 million kernels, 12 million API calls and a million NVTX ranges, a tenth of that, and the same with 10 million ranges
more are made of the small one in --work, where they are left for the next run. pandas reads the very columns that traceread asks
for, table by table, and makes nothing of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kineto_speed import Cost, best, cost_of, versions

HERE = Path(__file__).parent
KERNELS, CALLS, RANGES, MORE_RANGES = 5_000_000, 12_000_000, 1_000_000, 10_000_000

_READ = "import sys\nfrom pathlib import Path\nfrom traceread.readers import nsys\nnsys.read(Path(sys.argv[1]))"
_COLUMNS = """
import json, sys
from pathlib import Path
from traceread.readers import nsys, sqlite
read, asked = sqlite.Database.integers, {}
def noted(db, name, columns, where=(), text=None, label=None):
    here = [c for c in (*columns, *([text] if text else [])) if c in db.columns(name)]
    asked.setdefault(db.table(name), {}).update(dict.fromkeys(here))
    return read(db, name, columns, where, text, label)
sqlite.Database.integers = noted
nsys.read(Path(sys.argv[1]))
print(json.dumps([[table, list(columns)] for table, columns in asked.items() if table and columns]))
"""
_PANDAS = """
import json, sqlite3, sys
import pandas as pd
db = sqlite3.connect(sys.argv[1])
queries = ["SELECT " + ", ".join(f'"{c}"' for c in columns) + f' FROM "{table}"' for table, columns in json.loads(sys.argv[2])]
frames = [pd.read_sql(query, db) for query in queries]
"""


def made(source: Path, work: Path, name: str, *options: str) -> Path:
    """A large export of the small one, made once."""
    path = work / name
    if not path.exists():
        subprocess.run([sys.executable, str(HERE / "replicate_nsys.py"), str(source), str(work / "partial"), *options], check=True)
        (work / "partial").rename(path)
    return path


def rows_of(export: Path) -> str:
    """How many rows the large tables have, in words."""
    code = (
        "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\n"
        "for t in ('CUPTI_ACTIVITY_KIND_KERNEL', 'CUPTI_ACTIVITY_KIND_RUNTIME', 'NVTX_EVENTS'):\n"
        "    print(f'{db.execute(f\"SELECT count(*) FROM {t}\").fetchone()[0] / 1e6:.1f}')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(export)], check=True, capture_output=True, text=True)
    return "{} M kernels, {} M calls, {} M NVTX ranges".format(*done.stdout.split())


def row(way: str, cost: Cost, ours: Cost) -> str:
    """A line of the table."""
    ratios = f"{cost.wall_s / ours.wall_s:.1f} × | {cost.cpu_s / ours.cpu_s:.1f} ×"
    return f"| {way} | {cost.wall_s:.1f} | {cost.cpu_s:.1f} | {cost.peak_bytes / 1e6:.0f} | {ratios} |"


def compare(export: Path, columns: str, rounds: int, with_pandas: bool) -> None:
    """Prints what reading this export takes, and the whole report."""
    python = sys.executable
    ways: dict[str, tuple[Sequence[str], bool]] = {
        "reading with traceread": ([python, "-c", _READ, str(export)], False),
        "the same, without compiled code": ([python, "-c", _READ, str(export)], True),
        "traceread report": ([python, "-m", "traceread", "report", str(export)], False),
    }
    if with_pandas:
        ways["pandas.read_sql, the same columns"] = ([python, "-c", _PANDAS, str(export), columns], False)
    costs: dict[str, list[Cost]] = {way: [] for way in ways}
    for number in range(rounds):
        for way, (command, pure) in ways.items():
            if number == 0 or (not pure and "pandas" not in way):
                costs[way].append(cost_of(command, pure=pure))
    found = {way: best(list_of) for way, list_of in costs.items()}
    print(f"\n{export.name}: {rows_of(export)}, {export.stat().st_size / 1e6:.0f} MB, load {os.getloadavg()[0]:.1f}\n")
    print("| way | wall s | CPU s | peak MB | slower than reading with traceread, wall | CPU |\n|---|---|---|---|---|---|")
    for way, cost in found.items():
        print(row(way, cost, found["reading with traceread"]), flush=True)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="a small export of one rank")
    parser.add_argument("--work", type=Path, default=Path("benchmark-work"), metavar="DIR", help="where exports are made")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="rounds; the best of each way is printed")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    print(versions(None, "numpy", "pandas"))
    asked = subprocess.run([sys.executable, "-c", _COLUMNS, str(args.source)], check=True, capture_output=True, text=True).stdout
    print(f"tables read: {', '.join(f'{table} ({len(columns)} columns)' for table, columns in json.loads(asked))}")
    for name, parts, ranges in (("tenth", 10, RANGES), ("large", 1, RANGES), ("ranges", 1, RANGES + MORE_RANGES)):
        rows = (("--kernels", KERNELS), ("--calls", CALLS), ("--nvtx", ranges))
        options = [text for option, number in rows for text in (option, str(number // parts))]
        export = made(args.source, args.work, f"{name}.sqlite", *options)
        compare(export, asked, args.rounds, name == "large")


if __name__ == "__main__":
    main()
