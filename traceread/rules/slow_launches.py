"""Single launch calls take milliseconds.

What it means. A launch takes microseconds. One that takes over a millisecond although its kernel has run before was held up: by a lock of
the driver that another thread holds (allocation, module loading, another process's context switch), by the operating system taking the
core away, or by a profiler.

How it is measured. Idle time inside such calls; the saving is the step re-timed without them.

In Nsight Systems. A cudaLaunchKernel of milliseconds above an empty GPU; look at the other threads' calls at that moment and at the
scheduling rows (--cpuctxsw=process-tree).

In a PyTorch trace. The same; other threads' cudaMalloc, cudaHostAlloc or cuModuleLoad beside it.

How to confirm. Pin the process to its cores and see whether the calls disappear; perf sched or nsys with context switches.

What to try. Bind each rank to cores of its own on the GPU's NUMA node (numactl, torchrun --numa-binding); leave cores free beside data
loader workers; no allocation on other threads during the step.

When it is fine. A launch held by a full queue is long and harmless: the GPU is busy, and it is not counted here.

Documentation. https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.measurements.classes import Reason, StepClass
from traceread.model import Capability
from traceread.rules import GENERAL, Facts, rule
from traceread.units import plural


@rule("slow-launches", needs={Capability.ACTIVITIES, Capability.LAUNCHES}, effort=Effort.CODE, turn=GENERAL)
def slow_launches(facts: Facts) -> Iterator[Finding]:
    """One finding for all slow calls."""
    rows = facts.idle_rows(StepClass.LAUNCH_BOUND, (Reason.SLOW_CALL,))
    lost = facts.idle_ns(rows)
    if not facts.worth(lost):
        return
    calls = facts.sources(rows)
    near = facts.idle_rows(StepClass.LAUNCH_BOUND, (Reason.SLOW_CALL,), lead_in=True)
    loss = facts.host_loss(facts.sources(near), near)
    yield Finding(
        title="single launch calls take milliseconds",
        loss=loss,
        why=f"{plural(len(calls), 'launch call')} of more than a millisecond leave the GPU idle for "
        f"{facts.mean(lost)}, {facts.steps_phrase(loss)}.",
    )
