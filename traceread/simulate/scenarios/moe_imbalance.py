"""Experts of unequal load: ranks wait for each other in the all-to-alls."""

from traceread.simulate.job import Job, Phase
from traceread.simulate.models import BATCH, SHALLOW, forward, update
from traceread.simulate.phases import Experts
from traceread.simulate.program import US

LAYERS: tuple[Phase, ...] = tuple(phase for _ in range(6) for phase in (forward(8), Experts(6, 200 * US, skew=600)))

JOB = Job(
    "moe-imbalance",
    "The load of the experts differs by up to 60 % between ranks.",
    (*BATCH, *LAYERS, update()),
    ranks=4,
    machine=SHALLOW,
)
