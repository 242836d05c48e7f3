"""A tensor is copied to the host and waited for.

What it means. tensor.cpu(), tensor.numpy(), tensor.tolist() or .to("cpu") inside the step copy results to pageable memory and return only
when the copy is done, and with it everything queued before.

How it is measured. The step re-timed with these calls returning at once. The copies themselves stay.

In Nsight Systems. A device-to-host copy and a cudaStreamSynchronize or a blocking cudaMemcpyAsync on the launching thread.

In a PyTorch trace. aten::to, aten::_to_copy or aten::copy_ around a DtoH copy and cudaStreamSynchronize.

How to confirm. torch.cuda.set_sync_debug_mode("warn") prints a stack for each.

What to try. Copy into a pinned buffer with non_blocking=True on a stream of its own, record an event, and read the buffer a step later
when event.query() is true; collect on the GPU and copy once per many steps.

When it is fine. Once per epoch, or where the host must know before it can go on.

Documentation. https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread import intervals
from traceread.findings import Effort, Finding
from traceread.model import ActivityKind, Capability, CopyKind
from traceread.rules import GENERAL, Facts, rule
from traceread.rules.facts import Mask
from traceread.rules.syncs import READS_A_TENSOR, split, wait_findings, waits_titled

_SOON_NS = 50_000


@rule("tensor-to-host", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.OPS}, effort=Effort.CODE, turn=GENERAL)
def tensor_to_host(facts: Facts) -> Iterator[Finding]:
    """One finding for all tensors copied to the host and waited for."""
    waits = (split(facts, w, _after_copy_to_host(facts, w.rows))[0] for w in waits_titled(facts, READS_A_TENSOR))
    found = (w for w in waits if len(w.rows))
    yield from wait_findings(facts, found, "a tensor is copied to the host and waited for", "results are copied from the GPU")


def _after_copy_to_host(facts: Facts, rows: object) -> Mask:
    """For each call whether it launches a copy to the host, or follows one of its thread within 50 µs."""
    a, launches, calls = facts.trace.activities, facts.launches, facts.trace.calls
    which = np.asarray(rows, np.int64)
    copies = np.flatnonzero((a.kind == ActivityKind.MEMCPY) & (a.copy_kind == CopyKind.DEVICE_TO_HOST) & launches.known)
    result = intervals.among(which, launches.call[copies])
    for thread in intervals.unique(launches.thread[copies]).tolist():
        made = np.sort(launches.end_ns[copies[launches.thread[copies] == thread]])
        mine = np.flatnonzero((which < len(calls)) & (facts.rows.thread[which] == thread))
        start = facts.rows.start[which[mine]]
        at = np.searchsorted(made, start, side="right") - 1
        result[mine] |= (at >= 0) & (start - made[np.maximum(at, 0)] <= _SOON_NS)
    return result
