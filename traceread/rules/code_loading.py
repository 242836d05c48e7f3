"""Kernels are loaded when they are first launched.

What it means. CUDA loads a kernel's code lazily: the first launch of each kernel takes milliseconds, during which nothing else is
launched. New kernels keep appearing where shapes change or evaluation and training alternate.

How it is measured. The step re-timed without module loading and without launches of a kernel name that is new in the process and takes
over a millisecond.

In Nsight Systems. cuModuleLoadData, cuLibraryLoadData, or a launch call of several milliseconds whose kernel has not run before.

In a PyTorch trace. A cudaLaunchKernel of several milliseconds; newer traces mark it with an overhead row named Lazy Function Loading.

How to confirm. Run with CUDA_MODULE_LOADING=EAGER: loading moves to the start of the process.

What to try. Warm up with all shapes before training is timed; CUDA_MODULE_LOADING=EAGER; fewer different shapes.

When it is fine. In the first steps: it does not come back.

Documentation. https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.measurements.classes import Reason, StepClass
from traceread.model import Capability
from traceread.rules import GENERAL, Facts, Loss, rule


@rule("code-loading", needs={Capability.ACTIVITIES, Capability.LAUNCHES}, effort=Effort.SETTING, turn=GENERAL, beyond_first_step=True)
def code_loading(facts: Facts) -> Iterator[Finding]:
    """One finding for all loading in steps after the first."""
    loss = sum((b.loss for b in facts.blocked(StepClass.COMPILE)), Loss())
    first = facts.idle_rows(StepClass.COMPILE, (Reason.CODE_LOADING,), lead_in=True)
    loss = loss + facts.host_loss(facts.sources(first), first)
    lost = facts.loss_total_ns(loss)
    if not facts.worth(lost):
        return
    yield Finding(
        title="kernels are loaded when they are first launched",
        loss=loss,
        why=f"loading code leaves the GPU idle for {facts.mean(lost)}{facts.in_the_mean}, {facts.steps_phrase(loss)}.",
    )
