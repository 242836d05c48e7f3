"""Kernels of 12 µs launched from Python that needs 34 µs for each: the GPU waits for the host."""

from traceread.simulate.job import Fault, Job, Phase
from traceread.simulate.models import BATCH, NO_HOST, SLOW_HOST, backward, forward, update
from traceread.simulate.program import US, HostCost


def work(host: HostCost) -> tuple[Phase, ...]:
    """The step's kernels, launched at this cost."""
    return (forward(160, 12 * US, host), backward(320, 12 * US, host, reduce=300 * US), update(20, 15 * US, host))


JOB = Job("launch-bound", "Kernels are shorter than their launches.", (*BATCH, Fault("host", work(SLOW_HOST), work(NO_HOST))))
