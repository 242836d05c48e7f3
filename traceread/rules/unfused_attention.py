"""Attention is computed with separate matrix products and a softmax.

What it means. The scores of every pair of positions are written to memory, normalised there, and read again. A fused kernel keeps them on
the chip: it needs a fraction of the memory traffic, and of the memory.

How it is measured. Softmax kernels between batched matrix products, or the op of the unfused path, in steps without any fused attention
kernel. Counted are the softmax kernels and what stands between them and the products; no saving is predicted.

In Nsight Systems. softmax_warp_forward or cunn_SoftMaxForward between two gemm kernels, layer after layer; no flash or fmha kernels.

In a PyTorch trace. aten::_scaled_dot_product_attention_math, or aten::bmm, aten::softmax, aten::bmm.

How to confirm. with torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION): raises where the fast path cannot be used and says why.

What to try. torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True) in bf16 or fp16; FlashAttention or cuDNN attention
through TransformerEngine; flex_attention for masks that are not causal.

When it is fine. Short sequences, and masks or head sizes that no fused kernel takes.

Documentation. https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
https://docs.pytorch.org/docs/stable/nn.attention.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread.findings import Effort, Finding
from traceread.model import ActivityKind, Capability, Category
from traceread.rules import GENERAL, Facts, Loss, rule
from traceread.rules.facts import Mask

_MATH = r"^aten::_scaled_dot_product_attention_math$"


@rule("unfused-attention", needs={Capability.ACTIVITIES}, effort=Effort.CODE, turn=GENERAL)
def unfused_attention(facts: Facts) -> Iterator[Finding]:
    """One finding for all softmax kernels between products."""
    if facts.is_family("attention").any():
        return
    inside = facts.launched_inside(facts.ranges_named(_MATH))
    which = facts.is_family("softmax") & (_between_products(facts) | inside)
    which |= inside & facts.is_family("softmax", "elementwise")
    lost = int(facts.exposed_ns[which].sum())
    if not facts.worth(lost):
        return
    kernels = facts.kernel_loss(which)
    yield Finding(
        title="attention is computed with separate products and a softmax",
        loss=Loss(activities=kernels.activities, ns=kernels.ns),
        why=f"{facts.mean(lost)} of softmax kernels stand between the products; a fused kernel does without them "
        "and without writing the scores to memory.",
        recorded=True,
    )


def _between_products(facts: Facts) -> Mask:
    """Which kernels have a matrix product among the four before and the four after them on their stream."""
    a = facts.trace.activities
    order = np.flatnonzero((a.kind == ActivityKind.KERNEL) & (a.category == Category.COMPUTE))
    order = order[np.lexsort((a.start_ns[order], a.stream[order]))]
    product = facts.is_family("gemm")[order]
    before, after = np.zeros(len(order), bool), np.zeros(len(order), bool)
    for distance in range(1, 5):
        before[distance:] |= product[:-distance]
        after[:-distance] |= product[distance:]
    result = np.zeros(len(a), bool)
    result[order] = before & after
    return result
