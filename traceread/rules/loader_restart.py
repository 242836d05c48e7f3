"""The data loader starts its workers again.

What it means. Without persistent workers every epoch ends all worker processes and starts new ones, which import the code and open the
data anew before the first batch comes.

How it is measured. Idle time of the GPU while the loader's iterator is being made. The saving is the steps re-timed without it, in the
mean over all used steps.

In Nsight Systems. fork, clone or execve in the OS runtime rows of the main thread at the edge of an epoch, and seconds without CUDA calls.

In a PyTorch trace. With stacks: frames of torch/utils/data/dataloader.py named __init__ or _get_iterator over an empty GPU.

How to confirm. The pause comes once per epoch, as long as the workers need to start.

What to try. DataLoader(persistent_workers=True); a sampler that goes on over epochs; cheap imports and lazy opening of files in workers.

When it is fine. Epochs of hours.

Documentation. https://docs.pytorch.org/docs/stable/data.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.model import Capability, RangeKind
from traceread.rules import Facts, rule
from traceread.units import duration

_STARTS = r"torch/utils/data/dataloader\.py\(\d+\): (?:__init__|_get_iterator|_reset)$"
_IDLE = (StepClass.DATA_WAIT, StepClass.LAUNCH_BOUND, StepClass.UNATTRIBUTED)


@rule(
    "loader-restart", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.STACKS}, effort=Effort.SETTING, beyond_first_step=True
)
def loader_restart(facts: Facts) -> Iterator[Finding]:
    """One finding for all starts of workers."""
    starts = facts.ranges_named(_STARTS, (RangeKind.PYTHON,))
    if not len(starts):
        return
    idle = np.sort(np.concatenate([facts.idle_inside(facts.idle_rows(c), starts) for c in _IDLE]))
    loss = facts.host_loss(starts, idle)
    lost = facts.loss_total_ns(loss)
    starting = facts.host_ns(starts)
    if not facts.worth(max(lost, starting)):
        return
    yield Finding(
        title="the data loader starts its workers again",
        loss=loss,
        why=f"starting workers takes {facts.mean(starting)}{facts.in_the_mean}, {facts.steps_phrase(loss)}, and leaves the "
        f"GPU idle for {duration(facts.per_step(lost))}.",
    )
