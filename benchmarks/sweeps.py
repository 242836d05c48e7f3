"""How long the measurements and rules take over traces of 1 to 10 million activities: what grows faster than the trace shows here.

    python benchmarks/sweeps.py trace.json.gz
    python benchmarks/sweeps.py trace.json.gz --millions 1 10

The rows of the trace are repeated in memory, later each time, with ids and steps of their own, until there are so many activities.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from traceread import report
from traceread.categories import classify
from traceread.model import Table, Trace
from traceread.readers import discover
from traceread.readers.windows import extent
from traceread.report import AnalysisOptions

STEP = re.compile(r"ProfilerStep#(\d+)")
TIMES = ("start_ns", "end_ns", "time_ns")
IDS = ("correlation", "event_correlation")
STAGES = {
    "launches": "find_launches",
    "steps": "find_steps",
    "busy": "find_busy",
    "host rows": "host_rows",
    "gaps and causes": "explain_idle",
    "partition": "divide",
    "kernels": "sum_kernels",
    "collectives": "find_collectives",
    "replay graph": "build_graph",
    "rules": "inspect_rank",
}
"""What is timed by itself, and its function in `traceread.report`."""


def repeated(trace: Trace, copies: int) -> Trace:
    """The rows of a trace so many times, one after the other."""
    first, last = extent(trace)
    period = last - first + 1
    most = max(int(table.correlation.max(initial=0)) for table in (trace.activities, trace.calls)) + 1
    numbers = {code: int(match[1]) for code, name in enumerate(trace.names) if (match := STEP.fullmatch(name))}
    each = max(numbers.values(), default=0) - min(numbers.values(), default=0) + 1
    names = list(trace.names)
    code_of = np.tile(np.arange(len(names), dtype=np.int32), (copies, 1))
    for copy in range(1, copies):
        for code, number in numbers.items():
            code_of[copy, code] = len(names)
            names.append(f"ProfilerStep#{number + copy * each}")

    def tiled(table: Table) -> Table:
        copy = np.repeat(np.arange(copies), len(table))
        columns = {name: np.tile(values, copies) for name, values in table.columns()}
        for name in TIMES:
            if name in columns:
                columns[name] += copy * period
        for name in IDS:
            if name in columns:
                columns[name][columns[name] > 0] += (copy * most)[columns[name] > 0]
        if "name" in columns:
            columns["name"] = code_of[copy, columns["name"]]
        return type(table)(**columns)

    tables = {f.name: tiled(table) for f in fields(trace) if isinstance(table := getattr(trace, f.name), Table)}
    return replace(trace, names=tuple(names), capture_ns=None, windows_ns=(), **tables)


def timed(trace: Trace) -> dict[str, float]:
    """CPU seconds of every stage of the analysis of a trace, and of all of it."""
    spent = dict.fromkeys(STAGES, 0.0)
    originals = {name: getattr(report, name) for name in STAGES.values()}

    def clocked(stage, function):
        def run(*args, **kwargs):
            begun = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent[stage] += time.process_time() - begun

        return run

    for stage, name in STAGES.items():
        setattr(report, name, clocked(stage, originals[name]))
    begun = time.process_time()
    try:
        report.analyze_trace(trace, AnalysisOptions())
    finally:
        for name, function in originals.items():
            setattr(report, name, function)
    return {**spent, "everything": time.process_time() - begun}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, help="a trace of one rank")
    parser.add_argument("--millions", nargs="+", type=float, default=[1, 2.5, 5, 10], metavar="N", help="millions of activities")
    args = parser.parse_args()
    (source,) = discover.find([args.trace]).sources
    small = classify(discover.read(source)[0])
    wide = min(int(1e6 * millions) for millions in args.millions)
    timed(repeated(small, max(1, wide // len(small.activities) // 4)))  # what happens once is not counted
    found = []
    for millions in args.millions:
        trace = repeated(small, max(1, round(1e6 * millions / len(small.activities))))
        rows = [len(trace.activities), len(trace.calls) + len(trace.ranges)]
        found.append((rows, timed(trace)))
        print(f"{rows[0]:,} activities done, load {os.getloadavg()[0]:.1f}", flush=True)
        del trace
    n = [rows[0] * np.log2(rows[0]) for rows, _ in found]
    print("\n| CPU seconds | " + " | ".join(f"{rows[0] / 1e6:.1f} M" for rows, _ in found) + " | growth ÷ n log n |")
    print("|---|" + "---|" * (len(found) + 1))
    print("| activities; calls and ranges | " + " | ".join(f"{rows[0]:,}; {rows[1]:,}" for rows, _ in found) + " | |")
    for stage in (*STAGES, "everything"):
        seconds = [spent[stage] for _, spent in found]
        growth = seconds[-1] / max(seconds[0], 0.001) / (n[-1] / n[0])
        print(f"| {stage} | " + " | ".join(f"{s:.2f}" for s in seconds) + f" | {growth:.2f} |")


if __name__ == "__main__":
    main()
