"""The profiler flushes its buffers in the middle of steps."""

from traceread.simulate.job import Fault, Job
from traceread.simulate.models import BATCH, SHALLOW, backward, forward, update
from traceread.simulate.phases import ProfilerFlush
from traceread.simulate.program import MS

JOB = Job(
    "profiler-overhead",
    "A buffer flush of 35 ms stops the host in every other step.",
    (*BATCH, forward(), Fault("flush", (ProfilerFlush(35 * MS),), every=2), backward(), update()),
    machine=SHALLOW,
    steps=6,
)
