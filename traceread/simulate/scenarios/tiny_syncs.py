"""Launch-bound code with short synchronisations in it: they are not why the GPU is idle."""

from traceread.simulate.job import Fault, Job
from traceread.simulate.models import BATCH, SLOW_HOST, backward, forward, update
from traceread.simulate.phases import Python, Repeat, Synchronize
from traceread.simulate.program import US, Stream

SLOW = Repeat(20, (forward(8, 10 * US, SLOW_HOST), Fault("sync", (Synchronize(Stream.COMPUTE),)), Python(400 * US)))

JOB = Job(
    "tiny-syncs",
    "Twenty synchronisations of a few µs among 400 µs of Python each.",
    (*BATCH, SLOW, backward(24, 10 * US, SLOW_HOST, tail=20 * US, reduce=20 * US), update(8, 10 * US, SLOW_HOST)),
)
