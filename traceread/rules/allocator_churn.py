"""Device memory is allocated and freed in the middle of steps.

What it means. PyTorch's caching allocator should ask the driver for memory only while it warms up. cudaMalloc in a steady step means that
the cache is fragmented or too small; cudaFree in between means it gave blocks back to find room, and that waits for the whole GPU.

How it is measured. The step re-timed without cudaMalloc, cudaFree, cuMemMap and the like.

In Nsight Systems. cudaMalloc and cudaFree, or cuMemMap and cuMemUnmap, in the CUDA API row inside a steady step.

In a PyTorch trace. cudaMalloc and cudaFree in category cuda_runtime inside aten::empty and other allocating operations.

How to confirm. torch.cuda.memory_stats()["num_alloc_retries"] and ["num_device_alloc"] grow from step to step;
torch.cuda.memory._record_memory_history() shows which tensors.

What to try. PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; a little headroom (smaller microbatch, more recomputation); pad to few
different shapes; no torch.cuda.empty_cache() in the loop; allocate pinned host buffers once.

When it is fine. In the first steps, in the first evaluation and the first checkpoint.

Documentation. https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.model import Capability
from traceread.rules import Facts, Loss, rule
from traceread.rules.syncs import FREES_MEMORY, waits_titled
from traceread.units import duration, plural


@rule("allocator-churn", needs={Capability.ACTIVITIES, Capability.LAUNCHES}, effort=Effort.SETTING, beyond_first_step=True)
def allocator_churn(facts: Facts) -> Iterator[Finding]:
    """One finding for all allocation and freeing."""
    found = [*facts.blocked(StepClass.ALLOCATION), *waits_titled(facts, FREES_MEMORY)]
    loss = sum((b.loss for b in found), Loss())
    spent = sum(b.ns for b in found)
    if not loss or not facts.worth(max(facts.loss_total_ns(loss), spent)):
        return
    calls = sum(b.count for b in found)
    lost = duration(facts.per_step(facts.loss_total_ns(loss)))
    yield Finding(
        title="device memory is allocated in the middle of steps",
        loss=loss,
        why=f"{plural(calls, 'call')} that allocate or free memory over {facts.all_steps} take "
        f"{facts.mean(spent)} of host time and leave the GPU idle for {lost}.",
    )
