"""The host waits for the GPU and the GPU then waits for the host.

What it means. A blocking call returns when the GPU has finished; only then can the host launch more, so the queue has run dry and the
GPU idles until the next launches arrive. The cost is the drained queue, not the length of the call: a call that waits while enough
work is queued behind it costs nothing and is not reported.

How it is measured. The step re-timed with these calls returning at once. Beside it stands the idle time charged to them: inside the
call after the GPU finished, and the restart after it, up to the time the call had lasted.

In Nsight Systems. cudaStreamSynchronize, cudaDeviceSynchronize or cudaEventSynchronize in the CUDA API row that ends just as the GPU
rows become empty.

In a PyTorch trace. The same calls in category cuda_runtime; the op around them (aten::item, aten::nonzero, aten::_to_copy) says who
asked.

How to confirm. torch.cuda.set_sync_debug_mode("warn") prints the stack of synchronising operations. Take the call out for a few steps
and compare the step time.

What to try. Keep values on the GPU; read them every so many steps; copy with non_blocking=True to pinned memory and read them a step
later; remove torch.cuda.synchronize() and timers that need it from the loop.

When it is fine. At the end of a step whose successor is already queued; once every many steps; where the value decides what is
launched next and no masked alternative exists.

Documentation. https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.model import Capability
from traceread.rules import LAST, Facts, rule
from traceread.units import duration, plural


@rule("host-sync", needs={Capability.ACTIVITIES, Capability.LAUNCHES}, effort=Effort.CODE, turn=LAST)
def host_sync(facts: Facts) -> Iterator[Finding]:
    """One finding per blocking call and op around it."""
    for wait in facts.blocked(StepClass.HOST_SYNC):
        if not wait.title or not facts.worth(wait.ns):  # no host can gain more than it waited
            continue
        lost = facts.per_step(facts.loss_total_ns(wait.loss))
        count = wait.count
        yield Finding(
            title=f"{wait.title} drains the queue",
            loss=wait.loss,
            why=f"{plural(count, 'call')} over {facts.all_steps}; they leave the GPU idle for {duration(lost)}{facts.a_step}.",
        )
