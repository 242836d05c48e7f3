"""The GPU is idle and the trace does not say why.

What it means. The host did nothing that was recorded while the GPU had nothing to do: Python outside any operation, a lock, a read, a
process that was not running. The trace cannot tell which.

How it is measured. Idle time of class unattributed, other than that inside graphs. No saving is predicted.

In Nsight Systems. No CUDA call and no NVTX range on the launching thread; OS runtime tracing shows what it waits in.

In a PyTorch trace. No cpu_op, no cuda_runtime row and no annotation on the launching thread; stacks show where Python is.

How to confirm. Record again with what is missing; traceread info says how.

What to try. Record stacks (with_stack=True) or OS calls (nsys profile -t cuda,nvtx,osrt) for a few steps; put record_function or NVTX
ranges around the parts of the loop that are not operations: loading, logging, evaluation, checkpoints.

When it is fine. Between phases of the script that are not training.

Documentation. https://docs.pytorch.org/docs/stable/profiler.html
https://docs.nvidia.com/nsight-systems/UserGuide/index.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.model import Capability
from traceread.rules import LAST, Facts, rule
from traceread.units import percent

_SERIOUS = 20


@rule("unexplained-idle", needs={Capability.ACTIVITIES}, effort=Effort.SETTING, turn=LAST)
def unexplained_idle(facts: Facts) -> Iterator[Finding]:
    """One finding for all of it."""
    rows = facts.idle_rows(StepClass.UNATTRIBUTED)
    lost = facts.idle_ns(rows)
    if lost * _SERIOUS < facts.total_ns or not lost:
        return
    loss = facts.idle_loss(rows)
    yield Finding(
        title="the GPU is idle and the trace does not say why",
        loss=loss,
        why=f"{facts.mean(lost)} ({percent(lost, facts.total_ns)}), {facts.steps_phrase(loss)}.",
    )
