"""Matrix products run in full fp32.

What it means. Products and convolutions of fp32 tensors run on the ordinary cores unless TF32 is allowed; the tensor cores are several
times to tens of times faster in TF32, bf16 or fp16.

How it is measured. Time of kernels whose names say fp32 without tensor cores (sgemm, scudnn and the like). No saving is predicted: it
depends on the device and on the shapes.

In Nsight Systems. Kernel names with sgemm or scudnn and without tf32, s1688, 16816 or bf16.

In a PyTorch trace. The same names; Input type float of aten::mm and aten::addmm where shapes are recorded.

How to confirm. torch.get_float32_matmul_precision() returns "highest"; model parameters have dtype float32 and no autocast is active.

What to try. torch.set_float32_matmul_precision("high") allows TF32 on Ampere and later; torch.autocast("cuda", dtype=torch.bfloat16) for
training; fp16 with a gradient scaler on Volta and Turing.

When it is fine. Where the result needs 24 bits: some losses, some solvers, small parts of a model.

Documentation. https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html
https://docs.pytorch.org/docs/stable/amp.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability
from traceread.rules import GENERAL, Facts, Loss, rule
from traceread.units import duration, percent

_FP32 = r"(?i)(?:^|[^a-z])(?:\w*_)?(?:sgemm|scudnn|simt_s)|^Cijk_\w*_SB_|magma_sgemm|gemv\w*<float|ffma"
_TENSOR = r"(?i)tf32|s1688|s16816|s884|h884|h1688|h16816|bf16|fp16|f16f16|tensorop|wgmma|hmma"
_SERIOUS = 20
"""From a twentieth of the step on."""


@rule("fp32-matmul", needs={Capability.ACTIVITIES}, effort=Effort.SETTING, turn=GENERAL)
def fp32_matmul(facts: Facts) -> Iterator[Finding]:
    """One finding for all such kernels."""
    which = facts.is_family("gemm", "convolution") & facts.is_named(_FP32) & ~facts.is_named(_TENSOR)
    lost = int(facts.exposed_ns[which].sum())
    if lost * _SERIOUS < facts.total_ns or not lost:
        return
    kernels = facts.kernel_loss(which)
    yield Finding(
        title="matrix products run in full fp32",
        loss=Loss(activities=kernels.activities, ns=kernels.ns),
        why=f"{duration(facts.per_step(lost))} a step ({percent(lost, facts.total_ns)}) are fp32 products or convolutions that do not "
        "use tensor cores.",
    )
