"""Tensors are converted between NCHW and NHWC.

What it means. Tensor-core convolutions want channels last; tensors in the default layout are transposed before and after each of them.

How it is measured. Time of the conversion kernels; the saving is the step re-timed without them.

In Nsight Systems. Kernels named nchwToNhwc and nhwcToNchw around convolutions.

In a PyTorch trace. The same kernels.

How to confirm. x.is_contiguous(memory_format=torch.channels_last) is False for the input of the convolutions.

What to try. model = model.to(memory_format=torch.channels_last) and the same for the input batch.

When it is fine. A conversion at the border between a convolutional part and the rest.

Documentation. https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability
from traceread.rules import Facts, rule

_CONVERSIONS = r"(?i)nchw_?to_?nhwc|nhwc_?to_?nchw|batched_transpose_\w*(?:nchw|nhwc)"


@rule("layout-conversion", needs={Capability.ACTIVITIES}, effort=Effort.SETTING)
def layout_conversion(facts: Facts) -> Iterator[Finding]:
    """One finding for all conversions."""
    loss = facts.kernel_loss(facts.is_named(_CONVERSIONS))
    lost = facts.loss_total_ns(loss)
    if not facts.worth(lost):
        return
    yield Finding(
        title="tensors are converted between NCHW and NHWC",
        loss=loss,
        why=f"conversions take {facts.mean(lost)}, {facts.steps_phrase(loss)}.",
    )
