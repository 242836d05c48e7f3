"""Many small collectives run one by one.

What it means. A collective takes tens of microseconds before the first byte arrives, whatever its size. Hundreds of small ones spend
their time on that.

How it is measured. Exposed time of collectives shorter than 100 µs where there are at least fifty of one operation in a step. The saving is
the step re-timed without it; one large collective in their place is not free, so it is an upper bound.

In Nsight Systems. Many short NCCL kernels in a row, each after its own launch.

In a PyTorch trace. The same; In msg nelems of a few thousand.

How to confirm. nccl-tests with the same size: the time hardly depends on the size.

What to try. Larger buckets (DDP bucket_cap_mb, ZeRO reduce_bucket_size and allgather_bucket_size), larger FSDP units, coalesced calls
(torch.distributed all_gather_into_tensor on one flat tensor, _coalescing_manager), one all-reduce for all metrics. Tensor parallelism:
fewer ranks in a group, and a kernel that does the all-reduce and the norm after it at once (vLLM, TensorRT-LLM and FlashInfer have one).

When it is fine. Where they are hidden.

Documentation. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
https://www.deepspeed.ai/docs/config-json/
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability
from traceread.rules import GENERAL, Facts, rule
from traceread.rules.operations import operations, title_of
from traceread.units import duration

_SHORT_NS = 100_000
_MANY = 50


@rule("small-collectives", needs={Capability.ACTIVITIES}, effort=Effort.SETTING, turn=GENERAL)
def small_collectives(facts: Facts) -> Iterator[Finding]:
    """One finding per operation."""
    a = facts.trace.activities
    for operation, which in operations(facts):
        small = which & (a.end_ns - a.start_ns < _SHORT_NS)
        loss = facts.work_loss(small)
        lost = facts.loss_total_ns(loss)
        count = facts.per_step(len(loss.activities))
        if count < _MANY or not facts.worth(lost):
            continue
        yield Finding(
            title=f"many small {title_of(operation)} calls",
            loss=loss,
            why=f"{count:,} of them{facts.a_step} are shorter than {duration(_SHORT_NS)} and cost {facts.mean(lost)}.",
        )
