"""Queued work waits for another stream.

What it means. The next kernel was launched in time but its stream has to wait for an event of another stream, and nothing else runs.
Where the other stream runs communication or a copy, that time is counted there; this is what is left: the wait of one stream for another
while neither does anything.

How it is measured. Idle time before queued work whose stream had been told to wait for an event. No saving is predicted.

In Nsight Systems. cudaStreamWaitEvent before the launch, and both streams empty.

In a PyTorch trace. The same, with enable_cuda_sync_events.

How to confirm. Look at what the awaited stream waits for itself: often a host function or another event.

What to try. Order streams by the work that is needed, not by everything on the stream: record the event right after that work; use fewer
streams; avoid host callbacks between them.

When it is fine. A few microseconds at every join.

Documentation. https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.measurements.classes import Reason, StepClass
from traceread.model import Capability
from traceread.rules import Facts, rule


@rule("stream-dependency", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.SYNC_EVENTS}, effort=Effort.CODE)
def stream_dependency(facts: Facts) -> Iterator[Finding]:
    """One finding for all such waits."""
    rows = facts.idle_rows(StepClass.QUEUED, (Reason.DEPENDENCY,))
    lost = facts.idle_ns(rows)
    if not facts.worth(lost):
        return
    loss = facts.idle_loss(rows)
    yield Finding(
        title="queued work waits for another stream",
        loss=loss,
        why=f"{facts.mean(lost)}, {facts.steps_phrase(loss)}.",
    )
