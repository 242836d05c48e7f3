"""The gradient scaler reads its overflow flag every step.

What it means. GradScaler.step() asks whether any gradient overflowed before it calls the optimizer; that waits for the whole backward
pass, and the optimizer's kernels are launched only afterwards.

How it is measured. The step re-timed with the waits inside the scaler returning at once.

In Nsight Systems. A copy of four bytes from the device and cudaStreamSynchronize between backward and optimizer, inside the scaler's
NVTX range where there is one.

In a PyTorch trace. aten::item inside torch/amp/grad_scaler.py with stacks, or inside an annotation that names the scaler.

How to confirm. Record with stacks: with_stack=True. Train some steps in bf16 without a scaler and compare.

What to try. bf16 autocast, which needs no scaler; a fused or capturable optimizer (AdamW(fused=True)), to which the scaler hands its flag
on the GPU instead of waiting.

When it is fine. Where only fp16 is available and the optimizer is short.

Documentation. https://docs.pytorch.org/docs/stable/amp.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability
from traceread.rules import Facts, rule
from traceread.rules.syncs import wait_findings, waits_in_code

_SCALER = r"grad_scaler\.py\(\d+\): |(?i:(?<![a-z])grad_?scaler(?![a-z]))"


@rule("gradient-scaler", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.RANGES}, effort=Effort.SETTING)
def gradient_scaler(facts: Facts) -> Iterator[Finding]:
    """One finding for all waits inside the gradient scaler."""
    yield from wait_findings(facts, waits_in_code(facts, _SCALER), "the gradient scaler drains the queue", "the overflow flag is read")
