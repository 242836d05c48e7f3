"""One host launches more slowly than the others.

What it means. The same program takes longer from launch to launch on one rank: its processes share cores with others, run on the wrong
NUMA node, or the machine is slower. The other ranks wait for it.

How it is measured. The rank that the others wait for is late with launching, and its median time from launch to launch is at least a fifth
above its peers'. The saving is the step re-timed with its host time as short as theirs.

In Nsight Systems. Longer gaps between CUDA API calls on one process; CPU sampling shows who else runs on its cores.

In a PyTorch trace. Longer cpu_op rows for the same operations in one rank's trace.

How to confirm. top and numactl --show on that node: the cores that the rank may use, and what else uses them. A profiler on one rank
only slows that rank: profile all or none.

What to try. Bind every rank to cores of its own on the GPU's NUMA node (torchrun --numa-binding=node, numactl --cpunodebind); fewer data
loader workers per core; no other jobs on the node; the same CPU governor everywhere.

When it is fine. Where ranks run different programs by design.

Documentation. https://docs.pytorch.org/docs/stable/elastic/run.html
https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.measurements.blame import Cause
from traceread.measurements.classes import StepClass
from traceread.model import Capability
from traceread.rules import GENERAL, rule
from traceread.rules.job import JobFacts
from traceread.units import duration, ratio


@rule("slow-host", needs={Capability.ACTIVITIES, Capability.LAUNCHES}, effort=Effort.CODE, turn=GENERAL, compares_ranks=True)
def slow_host(job: JobFacts) -> Iterator[Finding]:
    """One finding where the straggler is late with launching and slower at it."""
    straggler = job.table.straggler
    if straggler is None or straggler.rank != job.critical or straggler.launches is None or straggler.cause is not Cause.LAUNCH_BOUND:
        return
    own, typical = straggler.launches.own_ns, straggler.launches.typical_ns
    keep = 1000 * typical // own
    slower = job.own_ns() * (1000 - keep) // 1000  # a host that holds the GPU up works throughout the step
    lost = job.per_step(min(job.own_ns(StepClass.LAUNCH_BOUND), slower))
    yield Finding(
        title=f"the host of rank {straggler.rank} launches more slowly than the others",
        loss=job.reduced(StepClass.LAUNCH_BOUND, keep),
        why=f"it takes {ratio(own, typical)} times as long from launch to launch as the other hosts ({duration(own)} against "
        f"{duration(typical)}); the others waited {duration(straggler.charged_ns)} for it over {job.all_steps}.",
        evidence=job.evidence([straggler.evidence] if straggler.evidence else [job.own.kernels.rows[0].name]),
        loss_ns=((StepClass.LAUNCH_BOUND, lost),),
        recorded=False,
    )
