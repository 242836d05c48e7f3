"""A capture that begins and ends in the middle of steps."""

from traceread.simulate.job import Job
from traceread.simulate.models import BATCH, SHALLOW, backward, forward, update
from traceread.simulate.phases import CpuOps, Item
from traceread.simulate.program import MS

JOB = Job(
    "capture-cut",
    "The capture begins and ends in the middle of steps.",
    (*BATCH, forward(), Item(), CpuOps(3 * MS), backward(), update()),
    machine=SHALLOW,
    steps=6,
    cut=(14 * MS, 17 * MS),
)
