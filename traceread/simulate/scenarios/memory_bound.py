"""Half of the step is spent in kernels that only move memory."""

from traceread.simulate.job import Job
from traceread.simulate.models import BATCH, SHALLOW, backward, update
from traceread.simulate.phases import Compute
from traceread.simulate.program import US

JOB = Job(
    "memory-bound",
    "120 elementwise and normalisation kernels between the matrix products.",
    (*BATCH, Compute(120, 130 * US, "elementwise"), backward(72), update()),
    machine=SHALLOW,
)
