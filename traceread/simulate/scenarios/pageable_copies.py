"""Batches copied in from pageable memory: every copy blocks the host."""

from traceread.simulate.job import Fault, Job
from traceread.simulate.models import SHALLOW, backward, forward, update
from traceread.simulate.phases import CopyIn, Fetch
from traceread.simulate.program import MS, US

JOB = Job(
    "pageable-copies",
    "Four copies of 1.5 ms from pageable memory at the start of a step.",
    (
        Fetch(60 * US),
        Fault("pageable", (CopyIn(16_777_216, 1500 * US, pinned=False, copies=4),), (CopyIn(16_777_216, 700 * US, copies=4),)),
        forward(each=MS // 8),
        backward(),
        update(),
    ),
    machine=SHALLOW,
)
