"""Loader workers that cannot keep up, with and without PyTorch's range around the wait."""

from traceread.simulate.job import Fault, Job
from traceread.simulate.models import SHALLOW, backward, forward, update
from traceread.simulate.phases import CopyIn, Fetch
from traceread.simulate.program import MS, US

READY = (Fetch(60 * US),)
COPY = CopyIn(1_048_576, 40 * US)
WORK = (forward(), backward(), update())

JOBS = (
    Job(
        "data-stall",
        "Two loader workers need 90 ms for a batch each; a step needs one every 31 ms.",
        (Fault("data-loader", (Fetch(90 * MS, workers=2),), READY), COPY, *WORK),
        machine=SHALLOW,
        workers=2,
    ),
    Job(
        "data-stall-unannotated",
        "A home-made loader that leaves no range keeps the GPU waiting before the batch is copied in.",
        (Fault("data-loader", (Fetch(40 * MS, annotated=False),), READY), COPY, *WORK),
        machine=SHALLOW,
    ),
)
