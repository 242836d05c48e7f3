"""Kernels are slower while communication runs beside them.

What it means. Collectives occupy multiprocessors and memory bandwidth. Hidden communication is not free: the kernels it hides behind take
longer.

How it is measured. For every kernel name and phase of the step that occurs at least ten times beside communication and ten times alone,
with lengths alone that differ by less than a tenth: the median length beside it above the median alone, summed. The saving is the step
re-timed with that excess gone.

In Nsight Systems. The same kernel with a longer row where an NCCL kernel runs above it.

In a PyTorch trace. The same: compare lengths of one kernel name with and without NCCL beside it.

How to confirm. NCCL_MAX_CTAS at half its value for some steps: the kernels get faster and the collectives slower.

What to try. Fewer thread blocks for NCCL (NCCL_MAX_CTAS, or ncclConfig maxCTAs per group); collectives by copy engine or in the switch
(symmetric memory, NVLS); less communication in bf16.

When it is fine. A few percent are the price of overlap.

Documentation. https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread import intervals
from traceread.findings import Effort, Finding
from traceread.measurements.replay import Removal
from traceread.model import ActivityKind, Capability, Category, IntColumn
from traceread.rules import GENERAL, Facts, Loss, rule
from traceread.units import percent

_SAMPLES = 10
_NOTICEABLE = 20
"""A median that is less than a twentieth longer is noise."""


@rule("contention", needs={Capability.ACTIVITIES, Capability.LAUNCHES}, effort=Effort.SETTING, turn=GENERAL)
def contention(facts: Facts) -> Iterator[Finding]:
    """One finding for all kernels that communication slows down."""
    rows, excess = _slowed(facts)
    lost = int(excess.sum())
    if not facts.worth(lost):
        return
    yield Finding(
        title="kernels are slower beside communication",
        loss=Loss(activities=rows, ns=excess, removal=Removal(activities=rows, off_ns=excess)),
        why=f"{len(intervals.unique(facts.trace.activities.name[rows]))} kernels take {facts.mean(lost)} "
        f"({percent(lost, facts.total_ns)}) more where communication runs beside them.",
        recorded=False,
    )


def _slowed(facts: Facts) -> tuple[IntColumn, IntColumn]:
    """Kernels beside communication that are slower than their like alone, and by how much."""
    a = facts.trace.activities
    rows = np.flatnonzero((a.kind == ActivityKind.KERNEL) & (a.category == Category.COMPUTE) & (facts.exposed_ns > 0))
    if not len(rows) or not len(facts.busy.communication.start):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    length = a.end_ns[rows] - a.start_ns[rows]
    beside = intervals.covered(facts.busy.communication, a.start_ns[rows], a.end_ns[rows])
    loud, quiet = 10 * beside >= 9 * length, beside == 0
    phase = facts.phases[rows] - facts.phases.min(initial=0)
    kinds, of = intervals.distinct(a.name[rows].astype(np.int64) * (int(phase.max()) + 1) + phase)
    enough = (np.bincount(of[loud], minlength=len(kinds)) >= _SAMPLES) & (np.bincount(of[quiet], minlength=len(kinds)) >= _SAMPLES)
    found, excess = [], []
    for kind in np.flatnonzero(enough).tolist():
        alone = np.sort(length[quiet & (of == kind)])
        mine = loud & (of == kind)
        usual = int(alone[len(alone) // 2])
        spread = int(alone[len(alone) * 9 // 10] - alone[len(alone) // 10])
        slower = int(np.median(length[mine])) - usual
        if 10 * spread < usual and _NOTICEABLE * slower >= usual:
            found.append(rows[mine])
            excess.append(np.minimum(np.maximum(length[mine] - usual, 0), facts.exposed_ns[rows[mine]]))
    if not found:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate(found), np.concatenate(excess)
