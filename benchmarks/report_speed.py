"""How long a whole `traceread report` takes and how much memory, from starting Python to the last line.

    python benchmarks/report_speed.py                  the large real traces beside the repository
    python benchmarks/report_speed.py a.json.gz run/   any others
    python benchmarks/report_speed.py --runs 5

The time is the median of the runs, the memory the most that any of them had resident. The processor time beside it tells a slow
program from a busy machine. Exit code 1 if one is not under the bar.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TRACES = Path(__file__).parents[2] / "shared" / "traces" / "kineto"
LARGE_BYTES = 25_000_000
BAR_S = 3.0
BAR_BYTES = 300_000_000


@dataclass(frozen=True)
class Cost:
    """What one input cost."""

    path: Path
    text_bytes: int
    seconds: tuple[float, ...]
    cpu_s: float
    peak_bytes: int

    @property
    def median_s(self) -> float:
        """The middle of the runs."""
        return statistics.median(self.seconds)

    @property
    def passes(self) -> bool:
        """Whether it is under the bar."""
        return self.median_s < BAR_S and self.peak_bytes < BAR_BYTES


def report_once(path: Path) -> tuple[float, float, int]:
    """Seconds, processor seconds and peak resident bytes of one `traceread report`.

    Raises:
        SystemExit: the command failed.
    """
    # The kernel counts the starting process's own peak into the child's, so this one imports next to nothing.
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "traceread", "report", str(path)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"traceread report {path} ended with exit code {process.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def files_of(path: Path) -> list[Path]:
    """The file, or the files of a directory."""
    return sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]


def text_bytes(path: Path) -> int:
    """The size of a file, or of the directory's files, once unpacked."""
    total = 0
    for file in files_of(path):
        if file.suffix != ".gz":
            total += file.stat().st_size
            continue
        from isal import igzip

        with igzip.open(file, "rb") as stream:
            while chunk := stream.read(1 << 20):
                total += len(chunk)
    return total


def large_traces() -> list[Path]:
    """The traces beside the repository of at least LARGE_BYTES of text, largest first.

    Raises:
        SystemExit: they are not there.
    """
    sizes = {path: text_bytes(path) for path in TRACES.rglob("*.json.gz")}
    found = sorted((path for path, size in sizes.items() if size >= LARGE_BYTES), key=lambda path: -sizes[path])
    if not found:
        raise SystemExit(f"there are no traces in {TRACES}; name some: python benchmarks/report_speed.py PATH...")
    return found


def measure(paths: Iterable[Path], runs: int) -> list[Cost]:
    """The cost of every path; each is read once before, so that the disk does not count."""
    costs = []
    for path in paths:
        report_once(path)
        found = [report_once(path) for _ in range(runs)]
        seconds, cpu, peaks = zip(*found, strict=True)
        costs.append(Cost(path, text_bytes(path), seconds, statistics.median(cpu), max(peaks)))
    return costs


def main() -> int:
    """Prints the table; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="timed runs of each (default: 3)")
    args = parser.parse_args()
    costs = measure(args.paths or large_traces(), args.runs)
    width = max(len(cost.path.name) for cost in costs)
    bar = f"under {BAR_S:.0f} s and {BAR_BYTES // 10**6} MB"
    print(f"{'trace':{width}}  {'text':>8}  {'median':>7}  {'slowest':>7}  {'cpu':>7}  {'peak':>7}  {bar}")
    for cost in costs:
        size, peak = f"{cost.text_bytes / 1e6:5.1f} MB", f"{cost.peak_bytes / 1e6:4.0f} MB"
        times = f"{cost.median_s:5.2f} s  {max(cost.seconds):5.2f} s  {cost.cpu_s:5.2f} s"
        print(f"{cost.path.name:{width}}  {size}  {times}  {peak}  {'yes' if cost.passes else 'NO'}")
    return 0 if all(cost.passes for cost in costs) else 1


if __name__ == "__main__":
    sys.exit(main())
