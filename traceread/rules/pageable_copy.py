"""Copies to the GPU come from pageable memory.

What it means. A copy from memory that is not pinned goes through a staging buffer: it is about half as fast, and cudaMemcpyAsync returns
only when it is done, so the host launches nothing meanwhile, whatever non_blocking says.

How it is measured. The step re-timed with these calls returning at once and the copies as fast as the pinned ones of the same direction
in this capture; where there are none, in half the time.

In Nsight Systems. Memcpy HtoD with source kind Pageable; the cudaMemcpyAsync call lasts as long as the copy.

In a PyTorch trace. Rows named Memcpy HtoD (Pageable -> Device).

How to confirm. batch.is_pinned() is False before .to(device).

What to try. DataLoader(pin_memory=True) and batch.to(device, non_blocking=True); for own buffers torch.empty(..., pin_memory=True) once.
Calling .pin_memory() in the loop copies once more and gains nothing.

When it is fine. Copies below 64 KiB are staged without waiting.

Documentation. https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
https://docs.pytorch.org/docs/stable/data.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread import intervals
from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.model import ActivityKind, Capability, CopyKind
from traceread.rules import Facts, Loss, rule
from traceread.rules.facts import Mask
from traceread.units import plural, size

_STAGED = 64 << 10
_HALF = 500


@rule("pageable-copy", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.COPY_KINDS}, effort=Effort.SETTING)
def pageable_copy(facts: Facts) -> Iterator[Finding]:
    """One finding for all copies from pageable memory to the device."""
    a = facts.trace.activities
    into = (a.kind == ActivityKind.MEMCPY) & (a.copy_kind == CopyKind.HOST_TO_DEVICE)
    which = into & (a.pageable == 1) & ((a.bytes > _STAGED) | (a.bytes < 0))
    calls = intervals.unique(facts.launches.call[which & facts.launches.known])
    waits = [w for w in facts.blocked(StepClass.HOST_SYNC) if np.isin(w.rows, calls).any()]
    idle = np.concatenate([w.loss.idle for w in waits]) if waits else np.empty(0, np.int64)
    copies = facts.kernel_loss(which, _pinned_permille(facts, which, into & (a.pageable == 0)))
    loss = facts.host_loss(np.concatenate([w.rows for w in waits]) if waits else np.empty(0, np.int64), idle) + copies
    lost = facts.loss_total_ns(loss)
    if not facts.worth(max(lost, sum(w.ns for w in waits))) or not loss:
        return
    moved = int(a.bytes[which & (facts.exposed_ns > 0) & (a.bytes > 0)].sum())
    count = facts.per_step(int((facts.exposed_ns[which] > 0).sum()))
    yield Finding(
        title="copies to the GPU come from pageable memory",
        loss=loss + Loss(beside=facts.work_loss(which).beside),
        why=f"{plural(count, 'copy', 'copies')}{facts.a_step}, {size(facts.per_step(moved))}, block the host; they cost "
        f"{facts.mean(lost)} more than copies from pinned memory, {facts.steps_phrase(loss)}.",
    )


def _pinned_permille(facts: Facts, which: Mask, pinned: Mask) -> int:
    """How long the same copies would take from pinned memory, in thousandths."""
    a = facts.trace.activities
    rates = []
    for mask in (which, pinned):
        rows = np.flatnonzero(mask & (a.bytes > _STAGED) & (a.end_ns > a.start_ns))
        if not len(rows):
            return _HALF
        rates.append((int(a.bytes[rows].sum()), int((a.end_ns - a.start_ns)[rows].sum())))
    (bytes_slow, ns_slow), (bytes_fast, ns_fast) = rates
    return min(1000 * ns_fast * bytes_slow // max(bytes_fast * ns_slow, 1), 1000)
