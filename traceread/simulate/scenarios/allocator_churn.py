"""The caching allocator frees and asks for device memory in every step."""

from traceread.simulate.job import Fault, Job
from traceread.simulate.models import BATCH, SHALLOW, backward, forward, update
from traceread.simulate.phases import Allocate
from traceread.simulate.program import US

JOB = Job(
    "allocator-churn",
    "Six times cudaFree and cudaMalloc between forward and backward pass.",
    (*BATCH, forward(), Fault("allocator", (Allocate(6, 900 * US, free=True),)), backward(), update()),
    machine=SHALLOW,
)
