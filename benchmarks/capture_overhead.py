"""What traceread.capture costs a training script while nothing records: a range, and a step of the StepTimer.

    python benchmarks/capture_overhead.py

Times are processor time of all threads, so that what else runs on the machine does not count. Needs torch. On a machine without a GPU
the StepTimer's device synchronisation costs nothing, so its figure is one of the CPU alone.
"""

import statistics
import sys
import tempfile
import time

import torch

from traceread import capture

STEP_NS = 10_000_000
RANGE_LIMIT_NS = 1_000
TIMER_LIMIT = 0.001


def ns_per_call(call, count, repeats=9):
    times = []
    for _ in range(repeats):
        begun = time.process_time_ns()
        for _ in range(count):
            call()
        times.append((time.process_time_ns() - begun) / count)
    return statistics.median(times)


def one_range():
    with capture.range("forward"):
        pass


def nothing():
    pass


def timer_ns(interval, steps=20_000):
    """Of a step with tokens, loss and batch ids: its share of the interval's line, and of the thread that writes it, included."""
    loss = torch.tensor(2.0)
    with tempfile.TemporaryDirectory() as directory:
        begun = time.process_time_ns()
        with capture.StepTimer(directory, interval=interval, capacity=1 << 20) as timer:
            for _ in range(steps):
                timer.step(tokens=4096, loss=loss, batch_ids=(1,))
        return (time.process_time_ns() - begun) / steps


def main():
    empty = ns_per_call(nothing, 100_000)
    idle = ns_per_call(one_range, 100_000) - empty
    print(f"capture.range, nothing records: {idle:,.0f} ns (limit {RANGE_LIMIT_NS:,} ns)")
    where = "with a GPU" if torch.cuda.is_available() else "CPU only"
    ok = idle < RANGE_LIMIT_NS
    for interval in (10, 100):
        cost = timer_ns(interval)
        print(f"StepTimer, interval {interval}, {where}: {cost:,.0f} ns a step, {100 * cost / STEP_NS:.3f} % of a 10 ms step (limit 0.1 %)")
        ok = ok and cost < TIMER_LIMIT * STEP_NS
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
