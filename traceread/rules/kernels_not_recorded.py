"""Kernels that were launched are not in the capture.

What it means. The profiler recorded launches without what they launched. Where the missing kernels ran the GPU looks idle, so the idle time
is an upper bound, and no cause of it is named.

How it is measured. Idle time in windows of whose launches of kernels and graphs less than nine tenths own a kernel.

In Nsight Systems. Rows of CUDA calls without kernels of the same correlation id; the diagnostics may say that CUDA events are missing.

In a PyTorch trace. cudaLaunchKernel or cudaGraphLaunch rows from which no arrow leads to the GPU.

How to confirm. traceread steps shows how many launches of each step lack kernels.

What to try. Record fewer steps, so that the profiler's buffers suffice: schedule(wait=…, warmup=…, active=3), nsys profile --duration=…;
warm the profiler up for a step before the first recorded one; a newer driver, CUPTI or ROCm.

When it is fine. In the first and the last step of a capture, which summaries leave out.

Documentation. https://docs.pytorch.org/docs/stable/profiler.html
https://docs.nvidia.com/nsight-systems/UserGuide/index.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.measurements.classes import Reason, StepClass
from traceread.model import Capability
from traceread.rules import Facts, rule
from traceread.units import percent

_SERIOUS = 20


@rule("kernels-not-recorded", needs={Capability.ACTIVITIES, Capability.LAUNCHES}, effort=Effort.SETTING)
def kernels_not_recorded(facts: Facts) -> Iterator[Finding]:
    """One finding for all windows that lack kernels."""
    rows = facts.idle_rows(StepClass.UNATTRIBUTED, (Reason.KERNELS_NOT_RECORDED,))
    lost = facts.idle_ns(rows)
    if lost * _SERIOUS < facts.total_ns or not lost:
        return
    loss = facts.idle_loss(rows)
    yield Finding(
        title="kernels that were launched are not in the capture",
        loss=loss,
        why=f"{facts.mean(lost)} ({percent(lost, facts.total_ns)}) of idle time lie where kernels are missing, "
        f"{facts.steps_phrase(loss)}: the capture, not the job, has to be mended first.",
    )
