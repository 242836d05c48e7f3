"""What the classes mean, in a sentence each."""

from __future__ import annotations

from traceread.measurements.classes import StepClass

MEANINGS = {
    StepClass.COMPUTE: "a kernel that is not communication runs.",
    StepClass.EXPOSED_COMMUNICATION: "the GPU only communicates, or waits in a collective for other ranks.",
    StepClass.EXPOSED_COPY: "the GPU only copies from or to the host.",
    StepClass.DATA_WAIT: "the GPU is idle because the next batch is not there.",
    StepClass.HOST_SYNC: "the GPU is idle because the host waited for it, or for a copy, before it launched on.",
    StepClass.LAUNCH_BOUND: "the GPU is idle because the host launches more slowly than the GPU works.",
    StepClass.ALLOCATION: "the GPU is idle while the host allocates or frees memory.",
    StepClass.COMPILE: "the GPU is idle while the host compiles or loads code.",
    StepClass.CHECKPOINT: "the GPU is idle while a checkpoint is written.",
    StepClass.PROFILER: "the GPU is idle because of the profiler's own work; a run without it does not have this time.",
    StepClass.QUEUED: "the GPU pauses between pieces of work that were queued already, or until another stream is done.",
    StepClass.UNATTRIBUTED: "the GPU is idle, and the trace does not show why.",
}
"""By class."""

DEFINITIONS = tuple((c.key, c.title, text) for c, text in MEANINGS.items())
"""Key, title and meaning of each class, in the order of tables."""
