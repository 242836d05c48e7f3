"""One of four ranks is late, each time for another reason; the others wait for it in the all-reduce."""

from traceread.simulate.job import Fault, Job, Phase
from traceread.simulate.models import BATCH, NO_HOST, SHALLOW, SLOW_HOST, backward, forward, update
from traceread.simulate.phases import CopyIn, CpuOps, Fetch, GarbageCollection, Item
from traceread.simulate.program import MS, US

LATE = (2,)


def straggler(cause: str, about: str, *step: Phase) -> Job:
    """A job of four ranks with one that is late."""
    return Job(f"straggler-{cause}", about, step, ranks=4, machine=SHALLOW)


COPY = CopyIn(1_048_576, 40 * US)

JOBS = (
    straggler(
        "compute",
        "The kernels of rank 2 take 12 % longer.",
        *BATCH,
        Fault("slow-gpu", (forward(each=224 * US), backward(each=224 * US)), (forward(), backward()), ranks=LATE),
        update(),
    ),
    straggler(
        "data",
        "Rank 2 waits 45 ms for its batch.",
        Fault("data-loader", (Fetch(45 * MS),), (Fetch(60 * US),), ranks=LATE),
        COPY,
        forward(),
        backward(),
        update(),
    ),
    straggler(
        "host",
        "The host of rank 2 launches too slowly for its short kernels.",
        *BATCH,
        Fault("host", (forward(400, 12 * US, SLOW_HOST),), (forward(400, 12 * US, NO_HOST),), ranks=LATE),
        backward(),
        update(),
    ),
    straggler(
        "gc",
        "Python's collector stops rank 2 for 40 ms in every other step.",
        *BATCH,
        forward(),
        Fault("gc", (GarbageCollection(40 * MS),), ranks=LATE, every=2),
        backward(),
        update(),
    ),
    straggler(
        "sync",
        "Rank 2 logs: it reads the loss and spends 6 ms on it.",
        *BATCH,
        forward(),
        Fault("item", (Item(), CpuOps(6 * MS)), ranks=LATE),
        backward(),
        update(),
    ),
)
