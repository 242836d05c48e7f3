"""The host launches work more slowly than the GPU finishes it.

What it means. Between two kernels the GPU waits for Python, the framework or the launch call itself. The GPU is busy only as long as the
host stays ahead; with short kernels it cannot. Tracing slows the host down, so the share in an unprofiled run is smaller.

How it is measured. Idle time that ends with a launch nobody was blocked before: plain host execution and launch latency. The saving is
the step re-timed with host time and launch calls that take nothing, fetches and synchronisations kept: what an ideal CUDA graph would
give.

In Nsight Systems. cudaLaunchKernel calls back to back in the CUDA API row while the GPU row shows short kernels with gaps; each kernel
begins a few microseconds after its call.

In a PyTorch trace. Dense cpu_op rows on the launching thread and kernels that start right after their cudaLaunchKernel.

How to confirm. Double the batch size: if the step hardly gets longer, the host was the limit. Compare with the step time without the
profiler: if that is much shorter, much of this is the profiler's own weight.

What to try. torch.compile(mode="reduce-overhead"), which captures CUDA graphs, or torch.cuda.make_graphed_callables for parts with static
shapes; larger microbatches; fused modules and optimizers so that fewer kernels are launched; no Python work between launches. vLLM and
other inference servers: run with their CUDA graphs, not with enforce_eager.

When it is fine. With small test inputs. CUDA graphs need static shapes and no synchronisation inside; where kernels are long enough for
the host to get ahead, they gain nothing.

Documentation. https://docs.pytorch.org/docs/stable/generated/torch.compile.html
https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread import intervals
from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.measurements.replay import Removal
from traceread.model import ActivityKind, Capability
from traceread.rules import LAST, Facts, Loss, rule
from traceread.units import duration


@rule("launch-bound", needs={Capability.ACTIVITIES, Capability.LAUNCHES}, effort=Effort.DESIGN, turn=LAST)
def launch_bound(facts: Facts) -> Iterator[Finding]:
    """One finding for all plain host time that the GPU waited for."""
    rows = facts.idle_rows(StepClass.LAUNCH_BOUND)
    lost = facts.idle_ns(rows)
    if not facts.worth(lost):
        return
    kernels = facts.trace.activities.kind == ActivityKind.KERNEL
    inside = kernels & intervals.holds(facts.windows, facts.trace.activities.start_ns)
    lengths = (facts.trace.activities.end_ns - facts.trace.activities.start_ns)[inside]
    middle = int(np.median(lengths)) if len(lengths) else 0
    count = facts.per_step(len(lengths))
    loss = Loss(idle=rows, removal=Removal(host=facts.working))
    yield Finding(
        title="the host launches more slowly than the GPU works",
        loss=loss,
        why=f"{facts.mean(lost)} the GPU waits for the next launch, {facts.steps_phrase(loss)}: "
        f"{count:,} kernels{facts.a_step}, half of them shorter than {duration(middle)}.",
        recorded=True,
    )
