"""Matrix products or convolutions run in full fp32.

What it means. Products and convolutions of fp32 tensors run on the ordinary cores unless TF32 is allowed; the tensor cores are several
times to tens of times faster in TF32, bf16 or fp16.

How it is measured. Time of kernels whose names say fp32 without tensor cores (sgemm, scudnn and the like). Where the device is known, the
saving is the step re-timed with them faster by half the ratio of its peaks (TF32 to fp32, else fp16 to fp32).

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

import numpy as np

from traceread.findings import Effort, Finding
from traceread.measurements.peaks import find_peak
from traceread.measurements.precision import format_of_kernel
from traceread.model import Capability, Device
from traceread.rules import GENERAL, Facts, Loss, rule
from traceread.rules.facts import Mask
from traceread.units import percent

_FP16_ALONE = (
    "This GPU's tensor cores know no TF32 and no bf16: torch.autocast('cuda', dtype=torch.float16) with torch.amp.GradScaler('cuda'); "
    "sizes that are multiples of 8."
)
_SERIOUS = 20
"""From a twentieth of the step on."""


@rule("fp32-matmul", needs={Capability.ACTIVITIES}, effort=Effort.SETTING, turn=GENERAL)
def fp32_matmul(facts: Facts) -> Iterator[Finding]:
    """One finding for all such kernels."""
    which = facts.is_family("gemm", "convolution")
    which[which] = _works_in_fp32(facts, which)
    spent = int(facts.exposed_ns[which].sum())
    if spent * _SERIOUS < facts.total_ns or not spent:
        return
    keep = _permille_with_tensor_cores(facts.trace.device)
    kernels = facts.kernel_loss(which, keep)
    known = keep < 1000
    old = known and _knows_fp16_alone(facts.trace.device)
    yield Finding(
        title=f"{_what(facts, which)} run in full fp32",
        loss=kernels if known else Loss(activities=kernels.activities, ns=facts.exposed_ns[kernels.activities]),
        why=f"{facts.mean(spent)} ({percent(spent, facts.total_ns)}) are fp32 products or convolutions that do not use tensor cores."
        + ("" if known else " What it would save is not said: the peaks of this GPU are not known."),
        recorded=not known,
        confirm="Parameters and inputs have dtype float32 and no autocast is active." if old else "",
        fix=_FP16_ALONE if old else "",
    )


def _knows_fp16_alone(device: Device) -> bool:
    return all(find_peak(device, precision).flops is None for precision in ("tf32", "bf16"))


def _what(facts: Facts, which: Mask) -> str:
    """What most of them are."""
    folded = int(facts.exposed_ns[which & facts.is_family("convolution")].sum())
    return "convolutions" if 2 * folded > int(facts.exposed_ns[which].sum()) else "matrix products"


def _works_in_fp32(facts: Facts, which: Mask) -> Mask:
    """For each of these activities whether its kernel's name says fp32 without tensor cores."""
    codes, of = np.unique(facts.trace.activities.name[which], return_inverse=True)
    formats = [format_of_kernel(facts.trace.names[code]) for code in codes.tolist()]
    result: Mask = np.array([f == "fp32" for f in formats], bool)[of]
    return result


def _permille_with_tensor_cores(device: Device) -> int:
    """How long such kernels take with half the speed-up that the device's peaks promise, in thousandths; 1000 if it is not known."""
    plain = find_peak(device, "fp32").flops
    fast = find_peak(device, "tf32").flops or find_peak(device, "fp16").flops
    if plain is None or fast is None:
        return 1000
    return min(int(2000 * plain / fast), 1000)
