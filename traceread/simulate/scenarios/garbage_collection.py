"""Python's collector stops the launching thread in the middle of a step."""

from traceread.simulate.job import Fault, Job
from traceread.simulate.models import BATCH, SHALLOW, backward, forward, update
from traceread.simulate.phases import GarbageCollection
from traceread.simulate.program import MS

JOB = Job(
    "garbage-collection",
    "The collector runs for 45 ms in every other step, labelled.",
    (*BATCH, forward(), Fault("gc", (GarbageCollection(45 * MS),), every=2), backward(), update()),
    machine=SHALLOW,
    steps=6,
)
