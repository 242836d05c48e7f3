"""Reading the loss every step drains the queue; the logging after it leaves the GPU idle."""

from traceread.simulate.job import Fault, Job
from traceread.simulate.models import BATCH, SHALLOW, backward, forward, update
from traceread.simulate.phases import CpuOps, Item
from traceread.simulate.program import MS

JOB = Job(
    "item-sync",
    ".item() after the forward pass drains the queue and 5 ms of logging follow.",
    (*BATCH, forward(), Fault("item", (Item(), CpuOps(5 * MS))), backward(), update()),
    machine=SHALLOW,
)
