"""Buffers are broadcast before every forward.

What it means. DDP sends the buffers of the model (running means of batch norms) from rank 0 to all ranks before each forward pass, and the
forward waits for it.

How it is measured. Broadcasts in the forward that nothing hides; the saving is the step re-timed without their exposed time.

In Nsight Systems. ncclDevKernel_Broadcast at the start of the step.

In a PyTorch trace. nccl:broadcast inside DistributedDataParallel.forward.

How to confirm. DistributedDataParallel(broadcast_buffers=False) for some steps.

What to try. broadcast_buffers=False where every rank may keep its own statistics, or SyncBatchNorm, which synchronises what matters.

When it is fine. Where ranks must have equal buffers at every step.

Documentation. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability, Operation
from traceread.rules import GENERAL, Facts, rule
from traceread.rules.operations import operation


@rule("broadcast-buffers", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.RANGES}, effort=Effort.SETTING, turn=GENERAL)
def broadcast_buffers(facts: Facts) -> Iterator[Finding]:
    """One finding for the broadcasts of DDP's forward."""
    wrapped = facts.launched_inside(facts.ranges_named(r"^DistributedDataParallel\.forward$"))
    loss = facts.work_loss(operation(facts, Operation.BROADCAST) & wrapped)
    lost = facts.loss_total_ns(loss)
    if not facts.worth(lost):
        return
    yield Finding(
        title="buffers are broadcast before every forward",
        loss=loss,
        why=f"it costs {facts.mean(lost)} that nothing hides, {facts.steps_phrase(loss)}.",
    )
