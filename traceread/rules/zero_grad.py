"""Gradients are set to zero instead of dropped.

What it means. zero_grad(set_to_none=False) writes zeros over every gradient and the backward then adds to them: a launch and a pass over
memory per parameter for nothing.

How it is measured. The kernels and memsets launched inside the range of zero_grad, and the idle time before them; the saving is the step
re-timed without both.

In Nsight Systems. Many memset or fill kernels at the start of the step.

In a PyTorch trace. The range Optimizer.zero_grad#... with aten::zero_ inside.

How to confirm. Look for set_to_none=False and for zero_grad of a wrapper that keeps gradients.

What to try. optimizer.zero_grad(set_to_none=True), the default since PyTorch 2.0.

When it is fine. Where code relies on gradients being tensors, and with gradient buckets that are views (DDP's
gradient_as_bucket_view keeps them).

Documentation. https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.model import Capability, Category
from traceread.rules import Facts, rule


@rule("zero-grad", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.RANGES}, effort=Effort.SETTING)
def zero_grad(facts: Facts) -> Iterator[Finding]:
    """One finding for all zeroing."""
    ranges = facts.ranges_named(r"zero_grad")
    zeroing = facts.launched_inside(ranges) & (facts.trace.activities.category == Category.COMPUTE)
    if not zeroing.any():
        return
    idle = facts.before(facts.idle_rows(StepClass.LAUNCH_BOUND), zeroing)
    loss = facts.host_loss(ranges, idle) + facts.kernel_loss(zeroing)
    lost = facts.loss_total_ns(loss)
    if not facts.worth(lost):
        return
    yield Finding(
        title="gradients are set to zero instead of dropped",
        loss=loss,
        why=f"zeroing takes {facts.mean(lost)}, {facts.steps_phrase(loss)}.",
    )
