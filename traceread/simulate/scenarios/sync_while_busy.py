"""The host waits for an event of long ago while the GPU has plenty to do: no time is lost."""

from traceread.simulate.job import Fault, Job
from traceread.simulate.models import BATCH, SHALLOW, backward, forward, update
from traceread.simulate.phases import Poll, RecordEvent, Synchronize

JOB = Job(
    "sync-while-busy",
    "Every step waits for an event in the forward pass while kernels are queued behind it; it costs nothing.",
    (
        *BATCH,
        forward(24),
        RecordEvent("activations"),
        forward(24),
        backward(),
        Poll(2),
        Fault("sync", (Synchronize(event="activations"),)),
        update(),
    ),
    machine=SHALLOW,
)
