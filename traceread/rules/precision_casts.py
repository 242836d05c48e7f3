"""Much time goes into casts between precisions.

What it means. Under autocast weights are cast to bf16 or fp16 in every forward pass, and activations at every border between an op that
autocasts and one that does not. Each cast reads and writes the whole tensor.

How it is measured. Time of kernels that copy with a conversion. No saving is predicted: some casts are needed.

In Nsight Systems. elementwise kernels whose names hold bfloat16_copy_kernel, float16_copy_kernel or LoadWithCast.

In a PyTorch trace. aten::to, aten::_to_copy and aten::copy_ around such kernels.

How to confirm. Group the kernels by op and by module (with_modules or with_stack).

What to try. Keep the weights in bf16 with fp32 master weights in the optimizer (FSDP MixedPrecisionPolicy casts once per unit); leave
autocast's weight cache on; move norms and losses into the autocast region where they are stable; torch.compile fuses casts into their
neighbours.

When it is fine. Below a few percent.

Documentation. https://docs.pytorch.org/docs/stable/amp.html
https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability
from traceread.rules import LAST, Facts, Loss, rule
from traceread.units import percent

_CASTS = r"(?:bfloat16|float16|float8\w*|half)_copy_kernel|LoadWithCast|StoreWithCast"
_SERIOUS = 20


@rule("precision-casts", needs={Capability.ACTIVITIES}, effort=Effort.CODE, turn=LAST)
def precision_casts(facts: Facts) -> Iterator[Finding]:
    """One finding for all casts."""
    which = facts.is_family("elementwise") & facts.is_named(_CASTS)
    lost = int(facts.exposed_ns[which].sum())
    if lost * _SERIOUS < facts.total_ns or not lost:
        return
    kernels = facts.kernel_loss(which)
    yield Finding(
        title="much time goes into casts between precisions",
        loss=Loss(activities=kernels.activities, ns=kernels.ns),
        why=f"casts take {facts.mean(lost)} ({percent(lost, facts.total_ns)}).",
    )
