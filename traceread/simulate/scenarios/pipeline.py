"""Four pipeline stages, eight microbatches, one forward one backward."""

from traceread.simulate.job import Job
from traceread.simulate.models import BATCH, update
from traceread.simulate.phases import Pipeline
from traceread.simulate.program import MS

JOB = Job(
    "pipeline-1f1b",
    "Stages wait for activations and gradients: the bubble.",
    (*BATCH, Pipeline(8, 4 * MS, 8 * MS, kernels=10), update()),
    ranks=4,
    steps=4,
)
