"""The last gradient bucket is reduced when there is nothing left to compute."""

from traceread.simulate.job import Fault, Job
from traceread.simulate.models import BATCH, SHALLOW, backward, forward, update
from traceread.simulate.program import MS, US

JOB = Job(
    "ddp-allreduce",
    "12 ms of gradient all-reduce at the end of the backward pass hide behind nothing.",
    (*BATCH, forward(), Fault("allreduce", (backward(tail=12 * MS),), (backward(tail=20 * US),)), update()),
    ranks=4,
    machine=SHALLOW,
)
