"""Shapes that depend on data make the host wait.

What it means. The size of the result of nonzero, masked_select, unique, boolean indexing or repeat_interleave is known only when the GPU
has computed it; PyTorch waits for it before it can allocate the result.

How it is measured. The step re-timed with the waits inside these operations returning at once.

In Nsight Systems. cudaStreamSynchronize after a copy of 4 or 8 bytes from the device; with emit_nvtx inside the range of the operation.

In a PyTorch trace. cudaStreamSynchronize inside aten::nonzero, aten::masked_select, aten::_unique2, aten::index.

How to confirm. torch.cuda.set_sync_debug_mode("warn") names the line.

What to try. torch.where, multiplication with a mask or a fill value instead of boolean indexing; padding to a fixed size;
torch.nonzero_static(size=...); repeat_interleave(output_size=...); the mask or the sizes computed on the host with the batch.

When it is fine. In evaluation, or where the following work really shrinks by much.

Documentation. https://docs.pytorch.org/docs/stable/generated/torch.nonzero.html
https://docs.pytorch.org/docs/stable/generated/torch.repeat_interleave.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability
from traceread.rules import GENERAL, Facts, rule
from traceread.rules.syncs import DEPENDS_ON_DATA, wait_findings, waits_titled


@rule("data-dependent-shapes", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.OPS}, effort=Effort.CODE, turn=GENERAL)
def data_dependent_shapes(facts: Facts) -> Iterator[Finding]:
    """One finding for all operations whose result's size the host waits for."""
    yield from wait_findings(
        facts, waits_titled(facts, DEPENDS_ON_DATA), "the host waits for the size of a result", "shapes depend on data"
    )
