"""Checkpoints, written while training waits or beside it."""

from traceread.simulate.job import Fault, Job
from traceread.simulate.models import SHALLOW, STEP
from traceread.simulate.phases import Checkpoint
from traceread.simulate.program import MS

JOBS = (
    Job(
        "checkpoint",
        "Every third step copies the model out and writes it while the GPU waits.",
        (*STEP, Fault("checkpoint", (Checkpoint(4, 67_108_864, 4 * MS, 50 * MS),), every=3, first=2)),
        machine=SHALLOW,
        steps=6,
    ),
    Job(
        "checkpoint-async",
        "Every third step copies the model out beside the next steps; a helper thread writes it.",
        (*STEP, Fault("checkpoint", (Checkpoint(8, 134_217_728, 7 * MS, 100 * MS, asynchronous=True),), every=3, first=2)),
        machine=SHALLOW,
        steps=6,
    ),
)
