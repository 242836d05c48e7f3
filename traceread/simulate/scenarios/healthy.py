"""A data-parallel job that keeps its GPUs busy."""

from traceread.simulate.job import Job
from traceread.simulate.phases import Await, Backward, Communicate, Compute, CopyIn, Fetch, optimizer
from traceread.simulate.program import US

HEALTHY_STEP = (
    Fetch(80 * US),
    CopyIn(1_048_576, 40 * US),
    Compute(64, 300 * US),
    Backward(
        (
            Compute(64, 300 * US, "backward"),
            Communicate("allreduce", 50_000_000, 3_000 * US, dtype="Float"),
            Compute(64, 300 * US, "backward"),
            Communicate("allreduce", 5_000_000, 300 * US, dtype="Float"),
            Compute(8, 300 * US, "backward"),
            Await(),
        )
    ),
    optimizer(12, 400 * US),
)

JOB = Job("healthy", "The GPU is busy all the time; what is left of communication and copies is small.", HEALTHY_STEP)
