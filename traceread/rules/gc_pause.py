"""Python's garbage collector stops the launching thread.

What it means. A collection of the oldest generation walks all Python objects: tens to hundreds of milliseconds in a large job, at a
different moment on every rank, so that each rank's pause is also everybody's wait.

How it is measured. The step re-timed without the collector's ranges or frames.

In Nsight Systems. NVTX ranges of the collector (nsys profile --python-sampling, or gc.callbacks that push a range); otherwise a silent
host of that length.

In a PyTorch trace. Annotations that name gc, or Python frames of gc.collect with stacks.

How to confirm. gc.callbacks with a timer, or gc.set_debug(gc.DEBUG_STATS); run with gc.disable() for some steps.

What to try. gc.disable() and gc.collect(1) on all ranks together every few hundred steps; gc.freeze() after the model is built, so that
permanent objects are not walked.

When it is fine. Pauses well below a percent of the step.

Documentation. https://docs.python.org/3/library/gc.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.model import Capability, RangeKind
from traceread.rules import Facts, rule
from traceread.units import duration

_COLLECTOR = r"(?i)(?<![a-z])(?:gc|garbage)(?![a-z])"


@rule("gc-pause", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.RANGES}, effort=Effort.CODE)
def gc_pause(facts: Facts) -> Iterator[Finding]:
    """One finding for all pauses of the collector."""
    pauses = facts.ranges_named(_COLLECTOR, (RangeKind.ANNOTATION, RangeKind.PYTHON))
    if not len(pauses):
        return
    idle = [facts.idle_inside(facts.idle_rows(c), pauses) for c in (StepClass.LAUNCH_BOUND, StepClass.UNATTRIBUTED, StepClass.HOST_SYNC)]
    loss = facts.host_loss(pauses, np.sort(np.concatenate(idle)))
    lost = facts.loss_total_ns(loss)
    paused = facts.host_ns(pauses)
    if not facts.worth(max(lost, paused)):
        return
    yield Finding(
        title="Python's garbage collector stops the launching thread",
        loss=loss,
        why=f"collections take {facts.mean(paused)} of host time{facts.in_the_mean}, {facts.steps_phrase(loss)}; the GPU "
        f"idles for {duration(facts.per_step(lost))}.",
    )
