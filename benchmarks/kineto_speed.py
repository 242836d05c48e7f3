"""traceread beside other ways to read a PyTorch trace, in one run on one machine: time, memory, ratios.

    python benchmarks/kineto_speed.py trace.json.gz               400 MB made of this trace, by every way there is
    python benchmarks/kineto_speed.py trace.json.gz --rounds 3    the best of three rounds; HolisticTraceAnalysis once
    python benchmarks/kineto_speed.py trace.json.gz --sizes 100M 400M 5G --gz
                                                                  traceread alone, over sizes, plain and gzip
    python benchmarks/kineto_speed.py trace.json.gz --start-up    traceread on small traces beside `import numpy`

Inputs are made by replicate.py in --work, where they are left for the next run. HolisticTraceAnalysis runs in an environment of its own,
which is made in --work the first time (pip install HolisticTraceAnalysis orjson); without it and without orjson their lines are missing.
Every way is a process of its own from its start to its end, imports included; memory is the most that was resident.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
_ORJSON = "import os, sys, orjson; events = orjson.loads(open(sys.argv[1], 'rb').read()); os._exit(0)"  # freeing it all is not counted
WAYS = {
    "traceread report": ["{python}", "-m", "traceread", "report", "{trace}"],
    "traceread report, pure Python": ["{python}", "-m", "traceread", "report", "{trace}"],
    "orjson.loads alone": ["{other}", "-c", _ORJSON, "{trace}"],
    "HolisticTraceAnalysis": ["{other}", "{here}/hta_breakdown.py", "{trace}"],
}
"""Command line of each way."""
OURS = "traceread report"
PURE = "traceread report, pure Python"
SLOWEST = "HolisticTraceAnalysis"
SIZES = {"K": 10**3, "M": 10**6, "G": 10**9}


@dataclass(frozen=True)
class Cost:
    """What one process took.

    Attributes:
        wall_s: from its start to its end.
        cpu_s: of all its threads, user and system.
        peak_bytes: the most that was resident.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int


def cost_of(command: Sequence[str], *, pure: bool = False) -> Cost:
    """The cost of a command.

    Raises:
        SystemExit: it failed.
    """
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "TRACEREAD_PURE_PYTHON")}
    if pure:
        env["TRACEREAD_PURE_PYTHON"] = "1"
    # The kernel counts the starting process's own peak into the child's, so this one imports next to nothing.
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def best(costs: Sequence[Cost]) -> Cost:
    """The shortest times, the largest peak: what others do on the machine only ever adds."""
    return Cost(min(cost.wall_s for cost in costs), min(cost.cpu_s for cost in costs), max(cost.peak_bytes for cost in costs))


def made(source: Path, work: Path, size: str, suffix: str = ".json") -> Path:
    """A trace of about this size made of another one, made once."""
    path = work / f"{source.name.partition('.')[0]}-{size}{suffix}"
    if not path.exists():
        partial = path.with_name(f"partial-{path.name}")
        subprocess.run([sys.executable, str(HERE / "replicate.py"), str(source), str(partial), "--size", size], check=True)
        partial.rename(path)
    return path


def text_size(path: Path) -> tuple[int, int]:
    """Bytes of text and number of events of a trace."""
    code = (
        "import sys, re\nfrom isal import igzip\nn = b = 0\n"
        "f = igzip.open(sys.argv[1]) if sys.argv[1].endswith('.gz') else open(sys.argv[1], 'rb')\n"
        "while t := f.read(1 << 24):\n    b += len(t)\n    n += t.count(b'\"ph\"')\nprint(b, n)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
    size, events = done.stdout.split()
    return int(size), int(events)


def other_python(work: Path) -> Path | None:
    """The interpreter of the environment with HolisticTraceAnalysis and orjson, made the first time; None where that fails."""
    python = work / "others" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(work / "others")], check=True)
        installed = subprocess.run([str(python), "-m", "pip", "install", "-q", "HolisticTraceAnalysis", "orjson"])
        if installed.returncode:
            print("HolisticTraceAnalysis cannot be installed here; its lines are missing")
    works = subprocess.run([str(python), "-c", "import hta, orjson"], capture_output=True).returncode == 0
    return python if works else None


def versions(other: Path | None, *packages: str) -> str:
    """What was measured, and on what."""
    code = "import importlib.metadata as m, sys\nfor p in sys.argv[1:]: print(p, m.version(p))"
    lines = [f"Python {platform.python_version()}, {cpus()} CPUs, {time.strftime('%d %B %Y')}"]
    ours = [sys.executable, "-c", code, *(packages or ("numpy", "msgspec", "isal"))]
    lines.append(", ".join(subprocess.run(ours, capture_output=True, text=True, check=True).stdout.split("\n")).strip(", "))
    if other is not None:
        theirs = [str(other), "-c", code, "HolisticTraceAnalysis", "orjson", "pandas"]
        lines.append(", ".join(subprocess.run(theirs, capture_output=True, text=True, check=True).stdout.split("\n")).strip(", "))
    reads = subprocess.run(
        [sys.executable, "-c", "from traceread.readers import scanner; print(scanner.in_use())"], capture_output=True, text=True
    )
    lines.append(f"traceread reads with: {reads.stdout.strip()}")
    return "; ".join(lines)


def cpus() -> int:
    """How many CPUs may be used."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(trace: Path, other: Path | None, rounds: int) -> None:
    """Prints every way's cost on one trace."""
    size, events = text_size(trace)
    commands = {
        way: [part.format(python=sys.executable, other=other, trace=trace, here=HERE) for part in command]
        for way, command in WAYS.items()
        if other is not None or "{other}" not in command
    }
    costs: dict[str, list[Cost]] = {way: [] for way in commands}
    cost_of(commands[OURS])  # the disk does not count, nor does the first compilation of modules
    for number in range(rounds):
        for way, command in commands.items():
            if number == 0 or way != SLOWEST:
                costs[way].append(cost_of(command, pure=way == PURE))
    found = {way: best(list_of) for way, list_of in costs.items()}
    print(f"\n{trace.name}: {size / 1e6:.0f} MB, {events:,} events, load {os.getloadavg()[0]:.1f}\n")
    print("| way | wall s | CPU s | MB/s | events/s | peak MB | peak ÷ file | slower than traceread, wall | CPU |")
    print("|---|---|---|---|---|---|---|---|---|")
    ours = found[OURS]
    for way, cost in found.items():
        print(
            f"| {way} | {cost.wall_s:.2f} | {cost.cpu_s:.2f} | {size / 1e6 / cost.wall_s:.0f} | {events / cost.wall_s:,.0f} "
            f"| {cost.peak_bytes / 1e6:.0f} | {cost.peak_bytes / size:.2f} "
            f"| {cost.wall_s / ours.wall_s:.1f} × | {cost.cpu_s / ours.cpu_s:.1f} × |"
        )


def over_sizes(source: Path, work: Path, sizes: Sequence[str], rounds: int, packed: bool) -> None:
    """Prints the report's cost over sizes."""
    print("\n| trace | text MB | wall s | CPU s | s per GB | peak MB | peak ÷ text |")
    print("|---|---|---|---|---|---|---|")
    for suffix in (".json", ".json.gz") if packed else (".json",):
        for size in sizes:
            trace = made(source, work, size, suffix)
            text, _ = text_size(trace)
            cost = best([cost_of([sys.executable, "-m", "traceread", "report", str(trace)]) for _ in range(rounds)])
            print(
                f"| {trace.name} | {text / 1e6:.0f} | {cost.wall_s:.2f} | {cost.cpu_s:.2f} | {cost.wall_s / text * 1e9:.2f} "
                f"| {cost.peak_bytes / 1e6:.0f} | {cost.peak_bytes / text:.2f} |",
                flush=True,
            )


def over_threads(trace: Path, rounds: int) -> None:
    """Prints how long reading alone takes over threads, and without the compiled scanner."""
    size, _ = text_size(trace)
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from traceread.readers import kineto\nfrom traceread.readers.options import ReadOptions\n"
        "options = ReadOptions(threads=max(int(sys.argv[2]), 1), compiled=sys.argv[2] != '0')\n"
        "begun = time.perf_counter()\nkineto.read(Path(sys.argv[1]), options)\nprint(time.perf_counter() - begun)"
    )
    print(f"\nreading alone, {trace.name}\n\n| threads | s | MB/s |\n|---|---|---|")
    for threads in (0, 1, *(n for n in (2, 4, 8) if n <= cpus())):
        seconds = min(
            float(subprocess.run([sys.executable, "-c", code, str(trace), str(threads)], capture_output=True, text=True, check=True).stdout)
            for _ in range(rounds)
        )
        print(f"| {threads or 'pure Python'} | {seconds:.2f} | {size / 1e6 / seconds:.0f} |", flush=True)


def start_up(traces: Sequence[Path], rounds: int) -> None:
    """Prints how long the report on these takes beside starting Python with numpy."""
    commands = {"python -c 'import numpy'": [sys.executable, "-c", "import numpy"]}
    commands["traceread --help"] = [sys.executable, "-m", "traceread", "--help"]
    for trace in traces:
        commands[f"traceread report {trace.name}"] = [sys.executable, "-m", "traceread", "report", str(trace)]
    costs: dict[str, list[Cost]] = {way: [] for way in commands}
    for n in range(rounds + 1):
        for way, command in commands.items():
            cost = cost_of(command)
            costs[way] += [cost] if n else []
    base = best(costs["python -c 'import numpy'"])
    print("\n| command | text MB | wall s | above numpy | CPU s | above numpy |\n|---|---|---|---|---|---|")
    sizes = ["", "", *(f"{text_size(trace)[0] / 1e6:.1f}" for trace in traces)]
    for (way, list_of), size in zip(costs.items(), sizes, strict=True):
        cost = best(list_of)
        above_wall, above_cpu = cost.wall_s - base.wall_s, cost.cpu_s - base.cpu_s
        print(f"| `{way}` | {size} | {cost.wall_s:.3f} | {above_wall:+.3f} | {cost.cpu_s:.3f} | {above_cpu:+.3f} |")


def main() -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help="a PyTorch trace; with --start-up all of them are used")
    parser.add_argument(
        "--work", type=Path, default=Path("benchmark-work"), metavar="DIR", help="where inputs are made (default: benchmark-work)"
    )
    parser.add_argument("--size", default="400M", help="size for the table of ways (default: 400M)")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="rounds; the best of each way is printed (default: 1)")
    parser.add_argument("--sizes", nargs="+", metavar="SIZE", help="only traceread, over these sizes")
    parser.add_argument("--gz", action="store_true", help="with --sizes: gzip as well")
    parser.add_argument("--threads", action="store_true", help="only reading, over numbers of threads")
    parser.add_argument("--start-up", action="store_true", help="only small traces, beside import numpy")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    if args.start_up:
        print(versions(None))
        start_up(args.traces, args.rounds)
    elif args.sizes:
        print(versions(None))
        over_sizes(args.traces[0], args.work, args.sizes, args.rounds, args.gz)
    elif args.threads:
        print(versions(None))
        over_threads(made(args.traces[0], args.work, args.size), args.rounds)
    else:
        other = other_python(args.work)
        print(versions(other))
        side_by_side(made(args.traces[0], args.work, args.size), other, args.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
