"""Kernels that have never run before: their code is loaded inside the launch call."""

from traceread.simulate.job import Fault, Job
from traceread.simulate.models import BATCH, SHALLOW, backward, forward, update
from traceread.simulate.phases import LoadCode, Synchronize
from traceread.simulate.program import MS, Stream

JOB = Job(
    "first-launch",
    "Every step launches three kernels for the first time; loading their code takes 9 ms each.",
    (*BATCH, forward(), Synchronize(Stream.COMPUTE), Fault("loading", (LoadCode(3, 9 * MS),), (LoadCode(3, 0),)), backward(), update()),
    machine=SHALLOW,
)
