"""The profiler itself stops the host.

What it means. The profiler flushes or requests buffers, or initialises, in the middle of a recorded step. A run without the profiler does
not have this time: it is no loss of the job, but it is in the recorded step.

How it is measured. Idle time of the GPU under the profiler's own rows; the saving is the step re-timed without it.

In Nsight Systems. Rows of Profiler overhead.

In a PyTorch trace. Rows of category overhead named Buffer Flush or Activity Buffer Request.

How to confirm. Time some steps without the profiler.

What to try. Record fewer steps, without stacks, shapes and memory; in nsys trace only cuda and nvtx. Write the time of a step without the
profiler into run.json (untraced_step_ns; traceread.capture does), and the report says what recording costs.

When it is fine. Always, as long as it is known: subtract it.

Documentation. https://docs.pytorch.org/docs/stable/profiler.html
https://docs.nvidia.com/nsight-systems/UserGuide/index.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.model import Capability, RangeKind
from traceread.rules import Facts, rule


@rule("profiler-overhead", needs={Capability.ACTIVITIES, Capability.OVERHEAD}, effort=Effort.SETTING)
def profiler_overhead(facts: Facts) -> Iterator[Finding]:
    """One finding for the profiler's own time."""
    rows = facts.idle_rows(StepClass.PROFILER)
    lost = facts.idle_ns(rows)
    if not facts.worth(lost):
        return
    work = len(facts.trace.calls) + np.flatnonzero(facts.trace.ranges.kind == RangeKind.PROFILER)
    work = facts.meeting(work, facts.idle_rows(StepClass.PROFILER, lead_in=True))
    loss = facts.host_loss(work, rows)
    yield Finding(
        title="the profiler itself stops the host",
        loss=loss,
        why=f"{facts.mean(lost)}{facts.in_the_mean} is the profiler's own work, {facts.steps_phrase(loss)}; "
        "a run without it does not have that.",
    )
