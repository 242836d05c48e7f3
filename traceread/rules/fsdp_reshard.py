"""Parameters are gathered again for the backward.

What it means. FSDP frees the gathered parameters of a unit after its forward and gathers them a second time for its backward. Where the
links cannot hide that, keeping them saves a third of FSDP's communication.

How it is measured. All-gathers in the backward, about as many as in the forward, that nothing hides. The saving is the step re-timed with
their exposed time gone.

In Nsight Systems. ncclDevKernel_AllGather before every unit of the backward.

In a PyTorch trace. nccl:_all_gather_base inside FSDP::pre_backward or FSDP::backward_prefetch.

How to confirm. Count all-gathers per step: twice the number of units.

What to try. fully_shard(..., reshard_after_forward=False) for some or all units (FSDP1: ShardingStrategy.SHARD_GRAD_OP); or an integer,
which reshards to a smaller group within the node. Where memory does not allow it: set_modules_to_backward_prefetch.

When it is fine. Where memory is the limit, or the gathers are hidden. The last unit is kept by default.

Documentation. https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability, Operation
from traceread.rules import GENERAL, Facts, rule
from traceread.rules.operations import operation
from traceread.rules.phases import BACKWARD, FORWARD
from traceread.units import duration

_FEWEST = 4


@rule("fsdp-reshard", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.OPS}, effort=Effort.SETTING, turn=GENERAL)
def fsdp_reshard(facts: Facts) -> Iterator[Finding]:
    """One finding for the gathers of the backward."""
    gathers = operation(facts, Operation.ALL_GATHER)
    forward, backward = gathers & (facts.phases == FORWARD), gathers & (facts.phases == BACKWARD)
    first, second = int(forward.sum()), int(backward.sum())
    if min(first, second) < _FEWEST * facts.step_count or not 4 * first <= 5 * second <= 7 * first:
        return
    loss = facts.work_loss(backward)
    lost = facts.loss_total_ns(loss)
    if not facts.worth(lost):
        return
    yield Finding(
        title="parameters are gathered again for the backward",
        loss=loss,
        why=f"{facts.per_step(second)} all-gathers{facts.a_step} in the backward cost {duration(facts.per_step(lost))} that nothing hides.",
        recorded=False,
    )
