"""How long it takes to simulate and write 64 ranks × 20 steps × 2,000 kernels: under two minutes on two cores.

python benchmarks/simulate_speed.py [kineto|nsys]
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

from traceread.simulate import Capture, Job, simulate, write_run
from traceread.simulate.phases import Await, Backward, Communicate, Compute, CopyIn, Fetch, optimizer
from traceread.simulate.program import US

JOB = Job(
    "speed",
    "Two thousand kernels a step.",
    (
        Fetch(80 * US),
        CopyIn(1_048_576, 40 * US),
        Compute(640, 40 * US),
        Backward(
            (
                Compute(600, 40 * US, "backward"),
                Communicate("allreduce", 50_000_000, 3_000 * US),
                Compute(600, 40 * US, "backward"),
                Communicate("allreduce", 5_000_000, 300 * US),
                Compute(60, 40 * US, "backward"),
                Await(),
            )
        ),
        optimizer(96, 40 * US),
    ),
    ranks=64,
    steps=20,
)


def main(format_: str) -> None:
    begin = time.monotonic()
    run = simulate(JOB)
    kernels = sum(len(host.device.end) for host in run.hosts)
    simulated = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        write_run(run, Path(directory), Capture(format_), counterfactuals=False)
        size = sum(path.stat().st_size for path in Path(directory).iterdir())
    end = time.monotonic()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    took = f"simulated in {simulated - begin:.0f} s, {size / 1e6:,.0f} MB written in {end - simulated:.0f} s, {end - begin:.0f} s in all"
    print(f"{format_}: {kernels:,} activities {took}, peak memory {peak:.1f} GB")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "kineto")
