"""Code is compiled again in the middle of training.

What it means. torch.compile meets a shape, a dtype or a Python value it has no code for, and Dynamo, Inductor and Triton run while the GPU
has nothing to do. It should happen in the first steps only.

How it is measured. The step re-timed without the ranges of compilation.

In Nsight Systems. NVTX ranges of Dynamo and Inductor, or a host without CUDA calls for seconds, then cuModuleLoadData.

In a PyTorch trace. Ranges such as _compile.compile_inner (dynamo_timed), compile_fx, CachingAutotuner, over an empty GPU.

How to confirm. TORCH_LOGS=recompiles names the guard that failed each time.

What to try. torch._dynamo.mark_dynamic for the dimension that changes, or torch.compile(dynamic=True); pad batches to few lengths; keep
Python numbers that change out of the compiled function; a persistent cache (TORCHINDUCTOR_FX_GRAPH_CACHE=1).

When it is fine. In the first steps after the start and after a change of sequence length.

Documentation. https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
https://docs.pytorch.org/docs/stable/torch.compiler_dynamic_shapes.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.model import Capability
from traceread.rules import Facts, Loss, rule
from traceread.units import duration

_COMPILER = re.compile(r"dynamo|inductor|compil|autotun|triton|AsyncCompile", re.IGNORECASE)


@rule("recompilation", needs={Capability.ACTIVITIES, Capability.LAUNCHES}, effort=Effort.CODE, beyond_first_step=True)
def recompilation(facts: Facts) -> Iterator[Finding]:
    """One finding for all compilation in steps after the first."""
    found = [b for b in facts.blocked(StepClass.COMPILE) if _COMPILER.search(b.title)]
    loss = sum((b.loss for b in found), Loss())
    lost = facts.loss_total_ns(loss)
    spent = sum(b.ns for b in found)
    if not facts.worth(max(lost, spent)):
        return
    yield Finding(
        title="code is compiled again in the middle of training",
        loss=loss,
        why=f"compilation takes {facts.mean(spent)} of host time{facts.in_the_mean}, {facts.steps_phrase(loss)}, and leaves "
        f"the GPU idle for {duration(facts.per_step(lost))}.",
    )
