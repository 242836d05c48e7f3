"""The optimizer updates parameters one by one.

What it means. A for-loop optimizer launches several tiny kernels per parameter: thousands of launches of a few microseconds each, during
which the GPU mostly waits for the host. Fused and foreach versions update all parameters in a handful of kernels.

How it is measured. More than 200 kernels per step are launched inside the optimizer's range, half of them shorter than 20 µs and none of
them a multi-tensor kernel. The saving is the step re-timed with the host time of that range gone; the kernels stay.

In Nsight Systems. After the backward hundreds of short elementwise kernels and no multi_tensor_apply_kernel.

In a PyTorch trace. The range Optimizer.step#AdamW.step with aten::add_, aten::mul_, aten::addcdiv_ for every parameter.

How to confirm. Count the kernels inside the range; type(optimizer).__name__ and optimizer.defaults say which implementation runs.

What to try. torch.optim.AdamW(..., fused=True), else foreach=True; for other optimizers torch.compile(optimizer.step) or a multi-tensor
implementation (apex, TransformerEngine).

When it is fine. With few parameters, or where a step is long and the host is far ahead.

Documentation. https://docs.pytorch.org/docs/stable/optim.html
https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.model import ActivityKind, Capability
from traceread.rules import Facts, rule
from traceread.rules.phases import OPTIMIZER_RANGE
from traceread.units import duration

_MANY = 200
_SHORT_NS = 20_000
_FUSED = r"(?i)multi_tensor|fused.*(?:adam|sgd|lamb|lion|optim)|(?:adam|sgd|lamb|lion)\w*fused|foreach|^triton_"


@rule("unfused-optimizer", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.RANGES}, effort=Effort.SETTING)
def unfused_optimizer(facts: Facts) -> Iterator[Finding]:
    """One finding for the optimizer's host time."""
    ranges = facts.ranges_named(OPTIMIZER_RANGE)
    a = facts.trace.activities
    kernels = facts.launched_inside(ranges) & (a.kind == ActivityKind.KERNEL)
    count = facts.count(kernels)
    if count < _MANY or (kernels & facts.is_named(_FUSED)).any():
        return
    middle = int(np.median((a.end_ns - a.start_ns)[kernels]))
    if middle >= _SHORT_NS:
        return
    idle = facts.before(facts.idle_rows(StepClass.LAUNCH_BOUND), kernels)
    lost = facts.idle_ns(idle)
    if not facts.worth(lost):
        return
    loss = facts.host_loss(ranges, idle)
    yield Finding(
        title="the optimizer updates parameters one by one",
        loss=loss,
        why=f"{count:,} kernels{facts.a_step} are launched in the optimizer, half of them shorter than {duration(middle)}; the GPU waits "
        f"{facts.mean(lost)} for their launches.",
    )
