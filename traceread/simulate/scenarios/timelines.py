"""Five timelines with one problem each, A to E."""

from traceread.simulate.job import Fault, Job, Phase
from traceread.simulate.models import BATCH, NO_HOST, SHALLOW, SLOW_HOST, backward, forward, update
from traceread.simulate.phases import CopyIn, CpuOps, Fetch, Item
from traceread.simulate.program import MS, US, HostCost

COPY = CopyIn(1_048_576, 40 * US)


def short_kernels(host: HostCost) -> tuple[Phase, ...]:
    """500 kernels of 15 µs."""
    return (forward(160, 15 * US, host), backward(320, 15 * US, host, reduce=300 * US), update(20, 15 * US, host))


JOBS = (
    Job(
        "A-launch-bound",
        "One problem: launches are slower than kernels.",
        (*BATCH, Fault("host", short_kernels(SLOW_HOST), short_kernels(NO_HOST))),
    ),
    Job(
        "B-exposed-communication",
        "One problem: the last all-reduce hides behind nothing.",
        (*BATCH, forward(), Fault("allreduce", (backward(tail=9 * MS),), (backward(tail=20 * US),)), update()),
        ranks=4,
        machine=SHALLOW,
    ),
    Job(
        "C-input-stall",
        "One problem: the loader is slower than the step.",
        (Fault("data-loader", (Fetch(42 * MS),), (Fetch(60 * US),)), COPY, forward(), backward(), update()),
        machine=SHALLOW,
    ),
    Job(
        "D-host-sync",
        "One problem: .item() and 6 ms of logging after it.",
        (*BATCH, forward(), Fault("item", (Item(), CpuOps(6 * MS))), backward(), update()),
        machine=SHALLOW,
    ),
    Job(
        "E-straggler",
        "One problem: the GPU of rank 1 is 15 % slower.",
        (*BATCH, Fault("slow-gpu", (forward(each=230 * US), backward(each=230 * US)), (forward(), backward()), ranks=(1,)), update()),
        ranks=4,
        machine=SHALLOW,
    ),
)
