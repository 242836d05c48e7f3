"""Training waits while a checkpoint is saved.

What it means. The model and the optimizer's state are copied to the host and written to disk before the next step is launched.

How it is measured. The steps re-timed without the checkpoint's range, and with its copies running beside the next steps' kernels; the
mean over all used steps, so that a rare checkpoint counts as much as it costs per step.

In Nsight Systems. A burst of device-to-host copies, then write and fsync with OS runtime tracing, inside an NVTX range that names the
checkpoint.

In a PyTorch trace. A range that names the checkpoint, or torch.save and torch.distributed.checkpoint frames with stacks, over an empty
GPU.

How to confirm. The steps with the range are longer than the others by its length.

What to try. torch.distributed.checkpoint.async_save, which copies to pinned memory and writes in the background; fewer checkpoints
(traceread plan computes the interval that loses least); shards written by every rank instead of one file by rank 0.

When it is fine. At the interval that failures demand: seconds per half hour are 0.1 %.

Documentation. https://docs.pytorch.org/tutorials/recipes/distributed_async_checkpoint_recipe.html
https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.model import Capability, Category
from traceread.rules import Facts, Loss, rule


@rule("checkpoint-stall", needs={Capability.ACTIVITIES, Capability.LAUNCHES}, effort=Effort.CODE)
def checkpoint_stall(facts: Facts) -> Iterator[Finding]:
    """One finding for all checkpoints: the idle time, and the copies that nothing hides."""
    saves = facts.blocked(StepClass.CHECKPOINT)
    loss = sum((s.loss for s in saves), Loss())
    rows = np.concatenate([s.rows for s in saves]) if saves else np.empty(0, np.int64)
    copies = facts.launched_inside(rows) & (facts.trace.activities.category == Category.COPY)
    loss = loss + facts.work_loss(copies)
    lost = facts.loss_total_ns(loss)
    if not facts.worth(max(lost, sum(s.ns for s in saves))):
        return
    yield Finding(
        title="training waits while a checkpoint is saved",
        loss=loss,
        why=f"saving costs {facts.mean(lost)}{facts.in_the_mean}; it happens {facts.steps_phrase(loss)}.",
    )
