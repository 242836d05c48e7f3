"""A value is read from the GPU in the middle of the step.

What it means. loss.item(), float(tensor), tensor.cpu(), print(tensor), `if tensor:` and the like copy a value to the host and wait until
the GPU has computed it. Everything queued is done by then: the GPU idles until the host has launched more.

How it is measured. The step re-timed with these calls returning at once. The time the call itself lasts is not the cost: most of it the
GPU is busy.

In Nsight Systems. A copy of a few bytes from the device, then cudaStreamSynchronize on the launching thread; with emit_nvtx the range
aten::item around both.

In a PyTorch trace. aten::item or aten::_local_scalar_dense around cudaMemcpyAsync (DtoH) and cudaStreamSynchronize.

How to confirm. torch.cuda.set_sync_debug_mode("warn") prints a stack for each. Log every hundredth step instead of each and compare the
step time.

What to try. Keep the sum on the GPU and read it every so many steps; to log every step, copy with non_blocking=True into pinned memory
and read the value one step later; use torch.where instead of `if`.

When it is fine. At the very end of a step after the next one is queued; every hundredth step.

Documentation. https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability
from traceread.rules import GENERAL, Facts, rule
from traceread.rules.syncs import READS_A_VALUE, wait_findings, waits_titled


@rule("item-sync", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.OPS}, effort=Effort.CODE, turn=GENERAL)
def item_sync(facts: Facts) -> Iterator[Finding]:
    """One finding for all values read."""
    yield from wait_findings(facts, waits_titled(facts, READS_A_VALUE), ".item() drains the queue", "values are read from the GPU")
