"""The GPU waits for the next batch.

What it means. The training loop asks its loader for a batch and the batch is not there; everything queued on the GPU is done before it
arrives. Only waiting that leaves the GPU idle counts: a loader that is slow but ahead costs nothing.

How it is measured. Idle time of the GPU while the host is inside DataLoader.__next__ or a range that fetches a batch, and the restart
after it. Where no range was recorded, host silence before the first copy of a step to the device is taken for it and called inferred.
The saving is the step re-timed with fetches that take no time.

In Nsight Systems. The main thread is inside the NVTX range of the loader, or in poll, sem_wait or read with OS runtime tracing, and
calls no CUDA API; the GPU rows are empty.

In a PyTorch trace. A range enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__ (or _SingleProcess...) covers the gap at the
start of a step.

How to confirm. Replace the loader by one batch that is used again and again: the step must shorten by the saving. Time next(iterator)
alone to see the rate the loader can sustain.

What to try. DataLoader(num_workers=...) from 4 to the number of cores per GPU, a larger prefetch_factor, persistent_workers=True,
pin_memory=True; then cheaper work per sample (decoding, tokenising ahead of time, fewer small files). num_workers=0 loads in the
training process itself.

When it is fine. The first batch of an epoch, while workers start. A wait while the GPU still has work queued costs nothing and is not
counted here.

Documentation. https://docs.pytorch.org/docs/stable/data.html
https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.model import Capability
from traceread.rules import LAST, Facts, Loss, rule
from traceread.units import duration

_SINGLE = "SingleProcess"
_MULTI = "MultiProcessing"


@rule("data-loading", needs={Capability.ACTIVITIES, Capability.LAUNCHES}, effort=Effort.SETTING, turn=LAST)
def data_loading(facts: Facts) -> Iterator[Finding]:
    """One finding for all waiting for batches."""
    waits = facts.blocked(StepClass.DATA_WAIT)
    loss = sum((w.loss for w in waits), Loss())
    lost = facts.loss_total_ns(loss)
    fetching = sum(w.ns for w in waits)
    if not facts.worth(max(lost, fetching)):
        return
    titles = [w.title for w in waits if w.title]
    fetch = duration(facts.per_step(fetching))
    shown = f" (the fetch itself takes {fetch}, the rest is hidden)" if fetching > lost else ""
    yield Finding(
        title="the GPU waits for the next batch",
        loss=loss,
        why=f"{facts.mean(lost)} the GPU is idle because the batch is late, {facts.steps_phrase(loss)}{shown}.",
        fix=_fix(titles),
        recorded=bool(facts.idle.recorded[loss.idle].any()) if len(loss.idle) else True,
    )


def _fix(titles: list[str]) -> str:
    if any(_SINGLE in t for t in titles):
        return (
            "the loader runs in the training process: DataLoader(num_workers=4 or more, persistent_workers=True, prefetch_factor=4, "
            "pin_memory=True)"
        )
    if any(_MULTI in t for t in titles):
        return (
            "the workers cannot keep up: raise num_workers towards the number of cores per GPU and prefetch_factor; if the cores are all "
            "busy, make samples cheaper (decode or tokenise ahead of time, larger files)"
        )
    return "prepare batches ahead in worker processes or a thread: DataLoader(num_workers=...), a larger prefetch queue"
