"""Two machines whose clocks differ and drift apart."""

from traceread.simulate.job import Job, Node
from traceread.simulate.models import BATCH, SHALLOW, backward, forward, update
from traceread.simulate.program import MS

JOB = Job(
    "two-hosts",
    "The second machine's clock is 3.7 ms ahead and runs 4 ppm fast.",
    (*BATCH, forward(), backward(tail=2 * MS), update()),
    ranks=4,
    nodes=(Node("node-0"), Node("node-1", offset_ns=3_700_000, drift_ppb=4_000)),
    steps=8,
    machine=SHALLOW,
)
