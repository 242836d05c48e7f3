"""Copies between host and GPU run while the GPU computes nothing.

What it means. A copy on the compute stream, or one that the next kernel waits for, leaves the multiprocessors idle. Copies of the next
batch can run beside the kernels of this one.

How it is measured. Time in which a copy with the host on either side runs and neither a kernel nor communication does. Beside the saving
with that time gone stands the one with the copies running beside other work until somebody needs them.

In Nsight Systems. Memcpy HtoD or DtoH rows with nothing in the kernel rows.

In a PyTorch trace. Rows of category gpu_memcpy with nothing beside them.

How to confirm. Copy the same batch once before the loop and reuse it.

What to try. Prefetch the next batch on a stream of its own: with torch.cuda.stream(side): batch.to(device, non_blocking=True), then
current_stream().wait_stream(side) and tensor.record_stream; send smaller types (uint8 images, int32 tokens) and convert on the GPU;
offloaded states in larger pieces.

When it is fine. Small copies at the start of a step; offloading that is meant.

Documentation. https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
https://docs.pytorch.org/docs/stable/generated/torch.cuda.Stream.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability, Category, CopyKind
from traceread.rules import LAST, Facts, rule
from traceread.units import duration, plural

_DIRECTIONS = (
    ("copies to the GPU run alone", (CopyKind.HOST_TO_DEVICE,), "", ""),
    (
        "copies to the host run alone",
        (CopyKind.DEVICE_TO_HOST,),
        "Leave the copies out of some steps: these must be shorter by the saving.",
        "Copy into pinned memory on a stream of its own: record an event after the work, let the side stream wait for it, copy with "
        "non_blocking=True and tensor.record_stream, and read the buffer when the copy's event is done; copy less, or less often.",
    ),
    ("copies run alone", (CopyKind.UNKNOWN, CopyKind.HOST_TO_HOST), "", ""),
)


@rule("exposed-copy", needs={Capability.ACTIVITIES}, effort=Effort.CODE, turn=LAST)
def exposed_copy(facts: Facts) -> Iterator[Finding]:
    """One finding per direction."""
    a = facts.trace.activities
    for title, kinds, confirm, fix in _DIRECTIONS:
        which = a.category == Category.COPY
        which &= sum((a.copy_kind == k for k in kinds), which & False)
        loss = facts.work_loss(which)
        lost = facts.loss_total_ns(loss)
        if facts.worth(lost):
            count = facts.count(which)
            yield Finding(
                title=title,
                loss=loss,
                why=f"{plural(count, 'copy', 'copies')}{facts.a_step}, {duration(facts.per_step(lost))} of them while nothing else runs, "
                f"{facts.steps_phrase(loss)}.",
                confirm=confirm,
                fix=fix,
            )
