"""Every launch waits for its kernel.

What it means. CUDA_LAUNCH_BLOCKING=1, a debugger or a synchronisation after every operation makes the host wait for each kernel before it
launches the next. The GPU idles after every one of them.

How it is measured. Of the kernels longer than 20 µs at least four fifths are over before their launch call returns, or more than half of
the launches are followed by a synchronisation before the next one. The saving is the step re-timed without the waiting.

In Nsight Systems. Each cudaLaunchKernel call lasts as long as its kernel.

In a PyTorch trace. The same, or a cudaDeviceSynchronize after every launch.

How to confirm. echo $CUDA_LAUNCH_BLOCKING, $HIP_LAUNCH_BLOCKING; look for torch.autograd.set_detect_anomaly and for hooks that
synchronise.

What to try. Unset the variable; remove debugging wrappers.

When it is fine. While looking for the operation that fails.

Documentation. https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread import intervals
from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.measurements.replay import Removal
from traceread.measurements.replay_graph import HostIntervals
from traceread.model import ActivityKind, Capability
from traceread.rules import Facts, Loss, rule
from traceread.units import percent

_LONG_NS = 20_000
_FEW = 50
_CALL_NS = 5_000


@rule("launch-blocking", needs={Capability.ACTIVITIES, Capability.LAUNCHES}, effort=Effort.SETTING)
def launch_blocking(facts: Facts) -> Iterator[Finding]:
    """One finding where launches block."""
    yield from _blocking_calls(facts)
    yield from _always_synchronised(facts)


def _blocking_calls(facts: Facts) -> Iterator[Finding]:
    a, launches = facts.trace.activities, facts.launches
    used = intervals.holds(facts.windows, a.start_ns)
    rows = np.flatnonzero(used & (a.kind == ActivityKind.KERNEL) & launches.known & (a.end_ns - a.start_ns >= _LONG_NS))
    over = launches.end_ns[rows] >= a.end_ns[rows]
    if len(rows) < _FEW or 5 * int(over.sum()) < 4 * len(rows):
        return
    blocked = rows[over]
    idle = facts.before(facts.idle_rows(StepClass.LAUNCH_BOUND), used)
    host = HostIntervals(launches.start_ns[blocked] + _CALL_NS, launches.end_ns[blocked], launches.thread[blocked].astype(np.int64))
    yield Finding(
        title="every launch waits for its kernel",
        loss=Loss(idle=idle, host_rows=intervals.unique(launches.call[blocked]), removal=Removal(host=host)),
        why=f"{percent(int(over.sum()), len(rows))} of the longer kernels are over before their launch call returns; the GPU idles "
        f"{facts.mean(facts.idle_ns(idle))} between them.",
        recorded=False,
    )


def _always_synchronised(facts: Facts) -> Iterator[Finding]:
    waits = facts.blocked(StepClass.HOST_SYNC)
    calls = sum(w.count for w in waits)
    if 2 * calls < _FEW:
        return
    launched = intervals.holds(facts.host_windows, facts.launches.start_ns)
    launching = np.zeros(len(facts.trace.calls), bool)
    launching[facts.launches.call[launched & facts.launches.known]] = True
    count = int(launching.sum())
    if count < _FEW or 2 * calls < count:
        return
    loss = sum((w.loss for w in waits), Loss())
    waited = sum(w.ns for w in waits)
    if not facts.worth(waited):
        return
    yield Finding(
        title="nearly every launch is followed by a synchronisation",
        loss=loss,
        confirm="In the timeline a cudaDeviceSynchronize, cudaStreamSynchronize or cudaMemcpy follows every launch.",
        fix="Order work by streams and events and wait once, where the host needs the result; cudaMemcpyAsync with pinned memory "
        "instead of cudaMemcpy; no torch.cuda.synchronize() and no debugging wrappers in the loop.",
        why=f"{calls:,} synchronisations for {count:,} launches; they wait {facts.mean(waited)}.",
    )
