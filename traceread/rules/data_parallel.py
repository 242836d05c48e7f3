"""The model runs under nn.DataParallel.

What it means. One process drives all GPUs: every step it copies the model to each of them, scatters the batch, gathers the outputs on the
first GPU and adds the gradients there. All launches share one interpreter.

How it is measured. Communication and copies between GPUs launched inside the ranges of DataParallel that nothing hides. No saving is
predicted beyond that.

In Nsight Systems. One process with kernels on several devices, Broadcast and ReduceAdd kernels and peer copies in every step.

In a PyTorch trace. DataParallel.forward, Broadcast, Scatter, Gather and ReduceAddCoalesced on the launching thread.

How to confirm. Search the script for nn.DataParallel.

What to try. torch.nn.parallel.DistributedDataParallel with one process per GPU (torchrun), or FSDP.

When it is fine. Never in training.

Documentation. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability, Category, RangeKind
from traceread.rules import Facts, rule

_FORWARD = r"^DataParallel\.forward$|torch/nn/parallel/data_parallel\.py\(\d+\): forward$"
_PARTS = rf"{_FORWARD}|^(?:Broadcast|Scatter|Gather|ReduceAddCoalesced)(?:Backward)?$"


@rule("data-parallel", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.RANGES}, effort=Effort.CODE)
def data_parallel(facts: Facts) -> Iterator[Finding]:
    """One finding where DataParallel is used."""
    kinds = (RangeKind.OP, RangeKind.ANNOTATION, RangeKind.PYTHON)
    if not len(facts.ranges_named(_FORWARD, kinds)):
        return
    moved = facts.launched_inside(facts.ranges_named(_PARTS, kinds)) & (facts.trace.activities.category == Category.COMMUNICATION)
    loss = facts.work_loss(moved)
    yield Finding(
        title="the model runs under nn.DataParallel",
        loss=loss,
        why=f"its transfers between GPUs take {facts.mean(facts.loss_total_ns(loss))} that nothing hides.",
    )
