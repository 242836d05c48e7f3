"""A new shape every other step makes torch.compile work."""

from traceread.simulate.job import Fault, Job
from traceread.simulate.models import BATCH, SHALLOW, backward, forward, update
from traceread.simulate.phases import Recompile
from traceread.simulate.program import MS

JOB = Job(
    "recompile",
    "torch.compile recompiles for 60 ms in every other step.",
    (*BATCH, Fault("recompile", (Recompile(60 * MS),), every=2), forward(), backward(), update()),
    machine=SHALLOW,
    steps=6,
)
