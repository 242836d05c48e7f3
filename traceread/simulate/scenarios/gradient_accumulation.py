"""Four micro-batches for every optimizer step."""

from traceread.simulate.job import Job
from traceread.simulate.models import BATCH, SHALLOW, backward, forward, update
from traceread.simulate.phases import Backward, Compute, Repeat
from traceread.simulate.program import US

MICRO = (*BATCH, forward(24), Backward((Compute(48, 200 * US, "backward"),)))

JOB = Job(
    "gradient-accumulation",
    "Three micro-batches without communication, the fourth reduces the gradients.",
    (Repeat(3, MICRO), *BATCH, forward(24), backward(48), update()),
    machine=SHALLOW,
)
