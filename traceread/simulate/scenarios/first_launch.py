"""Kernels that have never run before: their code is loaded inside the launch call."""

from traceread.simulate.job import Fault, Job
from traceread.simulate.models import BATCH, SHALLOW, backward, forward, update
from traceread.simulate.phases import LoadCode, Synchronize
from traceread.simulate.program import MS, Stream


def loading(name: str, about: str, *, recorded: bool) -> Job:
    """A job that loads code in every step."""
    fault = Fault("loading", (LoadCode(3, 9 * MS, recorded=recorded),), (LoadCode(3, 0),))
    return Job(name, about, (*BATCH, forward(), Synchronize(Stream.COMPUTE), fault, backward(), update()), machine=SHALLOW)


JOBS = (
    loading("first-launch", "Every step launches three kernels for the first time; loading their code takes 9 ms each.", recorded=False),
    loading("first-launch-recorded", "As first-launch, with the profiler's rows of lazy loading.", recorded=True),
)
