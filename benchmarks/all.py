"""Every number of docs/performance.md, one after the other, on inputs that are made on the way: an hour on two processors, 20 GB of disk.

    python benchmarks/all.py trace.json.gz small.json.gz middle.json.gz > numbers.md

The first trace is made large; the others, of about 2 and 35 MB of text, are read as they are, to see what starting takes. Each part
can be run by itself: kineto_speed.py, nsys_speed.py, ranks_speed.py, sweeps.py.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """Runs the parts; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("large", help="a PyTorch trace of some 25 MB of text")
    parser.add_argument("small", nargs="+", help="PyTorch traces for the time to start")
    parser.add_argument("--work", type=Path, default=Path("benchmark-work"), metavar="DIR", help="where inputs are made, and left")
    args = parser.parse_args()
    export, trace = args.work / "nsys", args.work / "kineto"
    for folder, kind in ((export, "nsys"), (trace, "kineto")):
        if not folder.exists():
            simulate = ["simulate", "llama7b", "--format", kind, "--ranks", "8", "--write", "0", "--no-truth", "-q", "-o", str(folder)]
            subprocess.run([sys.executable, "-m", "traceread", *simulate], check=True)
    work = ["--work", str(args.work)]
    parts = [
        ("Starting", ["kineto_speed.py", *args.small, "--start-up", "--rounds", "9", *work]),
        ("A trace of 400 MB", ["kineto_speed.py", args.large, "--rounds", "5", *work]),
        ("Threads", ["kineto_speed.py", args.large, "--threads", "--rounds", "3", *work]),
        ("Sizes", ["kineto_speed.py", args.large, "--sizes", "25M", "400M", "5G", "--gz", "--rounds", "2", *work]),
        ("Nsight Systems", ["nsys_speed.py", str(export / "report_rank0.sqlite"), "--rounds", "2", *work]),
        ("Ranks", ["ranks_speed.py", *work]),
        ("Activities", ["sweeps.py", str(trace / "rank0.pt.trace.json.gz")]),
    ]
    failed = 0
    for title, command in parts:
        print(f"\n### {title}\n\n{time.strftime('%H:%M')}, load {os.getloadavg()[0]:.1f}", flush=True)
        failed |= subprocess.run([sys.executable, str(HERE / command[0]), *command[1:]]).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
