"""Gradients are reduced after every microbatch.

What it means. With gradient accumulation only the sum over the microbatches is needed; reducing after each of them sends the same bytes as
many times as there are microbatches.

How it is measured. Forward and backward alternate several times in a step with one optimizer, and each backward is followed by about as
many reductions as the last. Counted is the exposed time of all but the last; the saving is the step re-timed without it.

In Nsight Systems. The same all-reduce or reduce-scatter kernels after every backward of a step.

In a PyTorch trace. The same; DistributedDataParallel.forward several times inside one ProfilerStep.

How to confirm. Count the reductions per optimizer step and per microbatch.

What to try. DDP: with model.no_sync(): around all microbatches but the last. FSDP2: module.set_requires_gradient_sync(False), which keeps
unsharded gradients in memory. Megatron and Lightning do it by themselves where accumulation is configured in them.

When it is fine. FSDP where memory does not allow unsharded gradients.

Documentation. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread.findings import Effort, Finding
from traceread.model import Capability, Category, IntColumn, Operation
from traceread.rules import Facts, rule
from traceread.rules.facts import Mask
from traceread.rules.operations import operation
from traceread.rules.phases import BACKWARD, FORWARD


@rule("gradient-sync-every-microbatch", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.OPS}, effort=Effort.CODE)
def gradient_sync_every_microbatch(facts: Facts) -> Iterator[Finding]:
    """One finding for all reductions before the last microbatch's."""
    a = facts.trace.activities
    reduces = operation(facts, Operation.ALL_REDUCE, Operation.REDUCE_SCATTER) & (facts.phases == BACKWARD)
    if not reduces.any():
        return
    batch = _microbatch(facts)
    early: Mask = np.zeros(len(a), bool)
    micro = 0
    rows = np.flatnonzero(reduces)
    rows = rows[np.argsort(facts.steps.window_of[rows], kind="stable")]
    first, stop = (np.searchsorted(facts.steps.window_of[rows], facts.used, side) for side in ("left", "right"))
    for lo, hi in zip(first.tolist(), stop.tolist(), strict=True):
        mine = rows[lo:hi]
        if not len(mine):
            return
        counts = np.unique(batch[mine], return_counts=True)[1]
        if len(counts) < 2 or 5 * int(counts.min()) < 4 * int(counts.max()):
            return  # no accumulation, or the last microbatch alone reduces
        early[mine[batch[mine] < batch[mine].max()]] = True
        micro = max(micro, len(counts))
    loss = facts.work_loss(early)
    lost = facts.loss_total_ns(loss)
    if not facts.worth(lost):
        return
    yield Finding(
        title="gradients are reduced after every microbatch",
        loss=loss,
        why=f"{micro} microbatches{facts.a_step} each reduce their gradients; all but the last cost {facts.mean(lost)}.",
        recorded=False,
    )


def _microbatch(facts: Facts) -> IntColumn:
    """For each activity in how many backward passes launches had been made before it, in order of launch."""
    launches = facts.launches
    compute = np.flatnonzero((facts.trace.activities.category == Category.COMPUTE) & launches.known)
    order = compute[np.argsort(launches.start_ns[compute], kind="stable")]
    phase = facts.phases[order]
    begins = np.flatnonzero((phase[1:] == BACKWARD) & (phase[:-1] == FORWARD)) + 1
    at = launches.start_ns[order[begins]]
    number: IntColumn = np.searchsorted(at, launches.start_ns, side="right")
    return number
