"""Many ranks in one report: beside one rank times their number over the processors, and on a Dask cluster of this machine.

    python benchmarks/ranks_speed.py --ranks 256 --work benchmark-work

The job is simulated in --work, where it is left for the next run. A rank is timed in a process that has read others before, for
reading and analysing only; the report of all of them from its start to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from kineto_speed import cpus, versions

SCENARIO = "llama7b"
STEPS = 8

_WHOLE = """
import json, resource, sys, time
begun = time.perf_counter()
from traceread.cli import main
if __name__ == "__main__":
    code = main(["report", *sys.argv[2:], "-q", "-f", "json", "-o", sys.argv[1]])
    wall = time.perf_counter() - begun
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = [who.ru_utime + who.ru_stime for who in (own, others)]
    print(json.dumps([code, wall, *cpu, own.ru_maxrss * 1024, others.ru_maxrss * 1024]))
"""
_ONE = """
import json, sys, time
from traceread import job
from traceread.readers.options import ReadOptions
found = []
for path in sys.argv[1:]:
    begun = time.perf_counter(), time.process_time()
    job.analyze_job(job.Request([path], read=ReadOptions(threads=1)))
    found.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
print(json.dumps([min(f[i] for f in found[1:]) for i in (0, 1)]))
"""


def simulated(work: Path, ranks: int) -> Path:
    """The directory of the job, made once."""
    run = work / f"{SCENARIO}-{ranks}"
    if not run.is_dir():
        options = ["--ranks", str(ranks), "--steps", str(STEPS), "--write", f"0-{ranks - 1}", "--no-truth"]
        subprocess.run(
            [sys.executable, "-m", "traceread", "simulate", SCENARIO, *options, "-o", str(work / "partial-job"), "-q"], check=True
        )
        (work / "partial-job").rename(run)
    return run


def whole(output: Path, run: Path, *options: str) -> list[float]:
    """Exit code, wall seconds, CPU seconds of the process itself and of its workers, peak bytes of itself and of its largest worker."""
    command = [sys.executable, "-c", _WHOLE, str(output), str(run), *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def on_dask(output: Path, run: Path) -> list[float] | None:
    """The same on a Dask cluster with a worker per processor; None without Dask."""
    try:
        from distributed import LocalCluster
    except ImportError:
        return None
    with LocalCluster(n_workers=cpus(), threads_per_worker=1, dashboard_address=None) as cluster:
        return whole(output, run, "--cluster", cluster.scheduler_address)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("benchmark-work"), metavar="DIR", help="where the job is made")
    parser.add_argument("--ranks", type=int, default=256, metavar="N")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    run = simulated(args.work, args.ranks)
    files = sorted(run.glob("rank*"))
    print(versions(None))
    size = sum(file.stat().st_size for file in files)
    print(f"\n{len(files)} ranks of {SCENARIO}, {STEPS} steps, {size / 1e6:.0f} MB as stored, load {os.getloadavg()[0]:.1f}\n")
    chosen = [str(file) for file in files[:6]]
    one_wall, one_cpu = json.loads(subprocess.run([sys.executable, "-c", _ONE, *chosen], check=True, capture_output=True, text=True).stdout)
    share = one_wall * len(files) / cpus()
    print(
        "| what | wall s | CPU s, parent | CPU s, workers | peak MB, parent | largest worker | wall ÷ (rank × ranks ÷ CPUs) | in CPU time |"
    )
    print("|---|---|---|---|---|---|---|---|")
    print(f"| one rank | {one_wall:.3f} | {one_cpu:.3f} | | | | | |", flush=True)
    reports = {}
    for way, measured in (("processes", whole(args.work / "processes.json", run)), ("Dask", on_dask(args.work / "dask.json", run))):
        if measured is None:
            print(f"| {way} | not installed | | | | | | |")
            continue
        _, wall, parent, workers, own, others = measured
        reports[way] = json.loads((args.work / f"{way.lower()}.json").read_text())
        if way == "processes":  # alone on the machine it would take the workers' time over the CPUs, then the parent's
            cells = [f"{workers:.1f}", f"{own / 1e6:.0f}", f"{others / 1e6:.0f}"]
            alone = f"{(workers / cpus() + parent) / (one_cpu * len(files) / cpus()):.2f}"
        else:
            cells, alone = ["Dask's", f"{own / 1e6:.0f}", "Dask's"], ""
        print(f"| {way} | {wall:.1f} | {parent:.1f} | {' | '.join(cells)} | {wall / share:.2f} | {alone} |", flush=True)
    if len(reports) == 2:
        print(f"\nthe JSON reports of both are {'identical' if reports['processes'] == reports['Dask'] else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
