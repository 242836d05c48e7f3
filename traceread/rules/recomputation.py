"""Activations are computed a second time in the backward.

What it means. Activation checkpointing keeps only the inputs of a block and runs its forward again before its backward. Full
recomputation costs a third more of the forward and backward together; the optimizer and communication do not change.

How it is measured. Kernels launched inside the recomputation and not by a gradient; the saving is the step re-timed without them. It is
an upper bound: nothing recomputed may not fit into memory.

In Nsight Systems. Forward kernels in the middle of the backward; with emit_nvtx inside CheckpointFunctionBackward.

In a PyTorch trace. The op CheckpointFunctionBackward on the autograd thread, or torch/utils/checkpoint.py frames with stacks.

How to confirm. HFU and MFU differ by about 4/3 with full recomputation. torch.cuda.max_memory_allocated() says what room there is.

What to try. Selective recomputation: torch.utils.checkpoint.create_selective_checkpoint_contexts, or recompute attention only; checkpoint
every second block; free memory elsewhere (FSDP, a fused loss, bf16 optimizer states) and recompute less.

When it is fine. Where memory is needed for a batch size that gains more.

Documentation. https://docs.pytorch.org/docs/stable/checkpoint.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability, Category, RangeKind
from traceread.rules import Facts, rule
from traceread.units import percent

_RECOMPUTES = r"(?:^|: )CheckpointFunctionBackward$|torch/utils/checkpoint\.py\(\d+\): (?:backward|unpack_hook|recompute_fn)$|^recompute$"
_GRADIENT = r"^autograd::engine::evaluate_function: (?!CheckpointFunctionBackward)"
_SERIOUS = 20


@rule("recomputation", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.OPS}, effort=Effort.DESIGN)
def recomputation(facts: Facts) -> Iterator[Finding]:
    """One finding for all recomputation."""
    blocks = facts.ranges_named(_RECOMPUTES, (RangeKind.OP, RangeKind.ANNOTATION, RangeKind.PYTHON))
    if not len(blocks):
        return
    again = facts.launched_inside(blocks) & ~facts.launched_inside(facts.ranges_named(_GRADIENT, (RangeKind.OP,)))
    loss = facts.kernel_loss(again & (facts.trace.activities.category == Category.COMPUTE))
    lost = facts.loss_total_ns(loss)
    if lost * _SERIOUS < facts.total_ns:
        return
    yield Finding(
        title="activations are computed a second time",
        loss=loss,
        why=f"recomputation takes {facts.mean(lost)} ({percent(lost, facts.total_ns)}), {facts.steps_phrase(loss)}; "
        "with memory to spare up to that much can be saved.",
    )
