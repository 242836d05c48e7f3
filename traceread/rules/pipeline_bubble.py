"""Pipeline stages wait for each other.

What it means. A stage has nothing to do while the pipeline fills and drains, and whenever another stage is slower. With p stages and m
microbatches of equal length one forward, one backward leaves (p − 1) / (m + p − 1) of the step empty.

How it is measured. Time in sends and receives that nothing hides, where a step has several of them. With one stage loaded, waiting and
transfer look the same; nearly all of it is waiting. No saving is predicted: faster links do not
shorten a bubble.

In Nsight Systems. ncclDevKernel_SendRecv with an empty compute stream at the start and the end of the step.

In a PyTorch trace. nccl:send and nccl:recv (batch_isend_irecv) around such kernels.

How to confirm. Load all stages: the bubble is equal on all of them with an even pipeline; a slow stage makes the others wait in every
microbatch.

What to try. More microbatches per step; an interleaved or zero-bubble schedule (ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble,
ScheduleZBVZeroBubble); equal stages: the embedding and the loss count too.

When it is fine. Up to the bubble of the schedule.

Documentation. https://docs.pytorch.org/docs/stable/distributed.pipelining.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability, Operation
from traceread.rules import GENERAL, Facts, Loss, rule
from traceread.rules.operations import operation
from traceread.units import duration, percent

_POINT_TO_POINT = r"(?i)^(?:nccl|rccl|c10d)[:_]+(?:coalesced)?_?(?:send|recv|batch_isend_irecv)"
_FEWEST = 4


@rule("pipeline-bubble", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.OPS}, effort=Effort.DESIGN, turn=GENERAL)
def pipeline_bubble(facts: Facts) -> Iterator[Finding]:
    """One finding for all sends and receives."""
    which = operation(facts, Operation.SEND, Operation.RECV)
    which |= operation(facts, Operation.SEND_RECV) & facts.launched_inside(facts.ranges_named(_POINT_TO_POINT))
    count = facts.count(which)
    loss = facts.work_loss(which)
    lost = facts.loss_total_ns(loss)
    if count < _FEWEST or not facts.worth(lost):
        return
    yield Finding(
        title="pipeline stages wait for each other",
        loss=Loss(activities=loss.activities, ns=loss.ns),
        why=f"{count} sends and receives{facts.a_step} hold this stage {duration(facts.per_step(lost))} ({percent(lost, facts.total_ns)}) "
        "with nothing to compute.",
    )
