"""One GPU is slower than the others.

What it means. The same kernels take longer on one rank: its GPU runs at lower clocks (power or temperature limit, a shared or partitioned
device), or its memory is being repaired. All other ranks wait for it in every collective.

How it is measured. The rank that the others wait for runs nearly all kernels longer than the median of its peers at equal counts, by at
least 3 %. The saving is the step re-timed with its kernels as fast as theirs.

In Nsight Systems. The same kernel name with a longer row on one GPU; GPU metrics (--gpu-metrics-devices) show its clocks.

In a PyTorch trace. The same kernel name with a longer row in one rank's trace.

How to confirm. nvidia-smi -q -d CLOCK,PERFORMANCE,POWER,TEMPERATURE on that node while it trains: clocks below the others', an active
throttle reason. Swap two ranks: the slowness must stay with the GPU.

What to try. Cooling and power limit of the node; nvidia-smi -q for ECC errors and row remapping, then dcgmi diag; take the node out of the
job.

When it is fine. Where ranks have different work by design (pipeline stages, experts, sequences of different length).

Documentation. https://docs.nvidia.com/deploy/nvidia-smi/index.html
https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.model import Capability
from traceread.rules import GENERAL, rule
from traceread.rules.job import JobFacts
from traceread.units import duration, ratio


@rule("slow-gpu", needs={Capability.ACTIVITIES}, effort=Effort.CODE, turn=GENERAL, compares_ranks=True)
def slow_gpu(job: JobFacts) -> Iterator[Finding]:
    """One finding where the straggler's kernels are slower, all of them."""
    straggler = job.table.straggler
    if straggler is None or straggler.rank != job.critical or straggler.kernels is None or not straggler.kernels.everywhere:
        return
    own, typical = straggler.kernels.own_ns, straggler.kernels.typical_ns
    lost = job.per_step(own - typical)
    yield Finding(
        title=f"the GPU of rank {straggler.rank} is slower than the others",
        loss=job.reduced(StepClass.COMPUTE, 1000 * typical // own),
        why=f"its kernels take {ratio(own, typical)} times as long as the same kernels of the other ranks, "
        f"{duration(lost)}{job.a_step} more; the others waited {duration(straggler.charged_ns)} for it over {job.all_steps}.",
        evidence=job.evidence([k.name for k in job.own.kernels.rows[:3] if k.category == "compute"]),
        loss_ns=((StepClass.COMPUTE, lost),),
        recorded=False,
    )
