"""Pauses between kernels that were already queued add up.

What it means. Even with a full queue the GPU needs about a microsecond from one kernel to the next. With kernels of a few microseconds
that is a large part of the time.

How it is measured. Idle time before work that was already queued, up to a few microseconds each. No saving is predicted.

In Nsight Systems. Short kernels back to back with equal small gaps, launched long before they run.

In a PyTorch trace. The same.

How to confirm. Divide the number of kernels into the busy time: below 10 µs a kernel the pauses matter.

What to try. Fewer and longer kernels: torch.compile, fused modules, larger microbatches; CUDA graphs shorten the pauses to about half.

When it is fine. Below a few percent.

Documentation. https://docs.pytorch.org/docs/stable/generated/torch.compile.html
https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.measurements.classes import Reason, StepClass
from traceread.model import Capability
from traceread.rules import Facts, rule
from traceread.units import duration, percent

_SERIOUS = 20


@rule("small-kernels", needs={Capability.ACTIVITIES, Capability.LAUNCHES}, effort=Effort.CODE)
def small_kernels(facts: Facts) -> Iterator[Finding]:
    """One finding for all pauses."""
    rows = facts.idle_rows(StepClass.QUEUED, (Reason.DISPATCH,))
    lost = facts.idle_ns(rows)
    if lost * _SERIOUS < facts.total_ns or not lost:
        return
    count = facts.per_step(len(rows))
    yield Finding(
        title="pauses between short kernels add up",
        loss=facts.idle_loss(rows),
        why=f"{count:,} pauses{facts.a_step} take {duration(facts.per_step(lost))} ({percent(lost, facts.total_ns)}).",
    )
