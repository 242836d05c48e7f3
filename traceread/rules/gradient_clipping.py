"""Gradient clipping waits for the norm.

What it means. clip_grad_norm_ needs no synchronisation by itself; it waits where error_if_nonfinite=True checks the result on the host,
where the norm is logged with .item(), or where a sharded norm is gathered with full_tensor().item().

How it is measured. The step re-timed with the waits inside the clipping returning at once.

In Nsight Systems. cudaStreamSynchronize between backward and optimizer inside an NVTX range that names clipping or the gradient norm.

In a PyTorch trace. aten::item inside torch/nn/utils/clip_grad.py with stacks, or inside an annotation that names clipping.

How to confirm. Record with stacks: with_stack=True; look at the callers of aten::item between backward and optimizer.

What to try. error_if_nonfinite=False (the default); keep the returned norm on the GPU and log it some steps later; foreach=True.

When it is fine. Where a bad step must be skipped on the host and nothing else can decide it.

Documentation. https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability
from traceread.rules import Facts, rule
from traceread.rules.syncs import wait_findings, waits_in_code

_CLIPPING = r"clip_grad\.py\(\d+\): |(?i:(?<![a-z])(?:clip_?grad\w*|grad(?:ient)?_?(?:norm|clipping))(?![a-z]))"


@rule("gradient-clipping", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.RANGES}, effort=Effort.CODE)
def gradient_clipping(facts: Facts) -> Iterator[Finding]:
    """One finding for all waits inside gradient clipping."""
    yield from wait_findings(facts, waits_in_code(facts, _CLIPPING), "gradient clipping drains the queue", "the gradient norm is read")
