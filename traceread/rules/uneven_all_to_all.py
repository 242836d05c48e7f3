"""Ranks wait for each other in the all-to-all.

What it means. Experts or embedding tables of some ranks have more to do than those of others. Everybody meets in the all-to-all, so each of
them takes as long as the fullest rank needs; the others wait.

How it is measured. Mean waiting of the loaded ranks in all-to-alls, with clocks aligned, where no single rank is late throughout. With
even load each rank would need the mean instead of the most: that is what the mean waiting amounts to. It is not replayed.

In Nsight Systems. ncclDevKernel_SendRecv of very different length on the ranks, ending together; another rank is short each time.

In a PyTorch trace. nccl:all_to_all with different In split size and Out split size on the ranks.

How to confirm. Count tokens per expert and step (or lookups per table): the fullest rank against the mean.

What to try. Experts: an auxiliary loss or a bias that evens the router out (Megatron --moe-router-load-balancing-type), a capacity factor,
more experts per rank, copies of the fullest experts. Tables: another sharding plan (TorchRec EmbeddingShardingPlanner with measured pooling
factors), column-wise shards of the largest tables.

When it is fine. A few percent, or in the first steps, before the router has learnt.

Documentation. https://github.com/NVIDIA/Megatron-LM
https://github.com/meta-pytorch/torchrec
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread.findings import Effort, Finding
from traceread.measurements.waiting import Split
from traceread.model import Capability, Operation
from traceread.rules import GENERAL, rule
from traceread.rules.job import JobFacts
from traceread.units import duration, percent, ratio

_SERIOUS = 50
"""From a fiftieth of the step on."""


@rule("uneven-all-to-all", needs={Capability.ACTIVITIES}, effort=Effort.DESIGN, turn=GENERAL, compares_ranks=True)
def uneven_all_to_all(job: JobFacts) -> Iterator[Finding]:
    """One finding for all such exchanges."""
    table = job.table
    used = np.concatenate([r.in_used_windows() for r in job.ranks])
    mine = used & (table.matches.column("operation") == Operation.ALL_TO_ALL) & (table.waiting.split == Split.SPLIT)
    if table.straggler is not None or not mine.any():
        return
    waited = job.per_step(int(table.waiting.wait_ns[mine].sum()) // len(job.ranks))
    step = job.per_step(job.own_ns())
    if waited * _SERIOUS < step:
        return
    yield Finding(
        title="ranks wait for each other in the all-to-all",
        why=f"a rank waits {duration(waited)}{job.a_step} in the mean ({percent(waited, step)}), which even load would end{_loads(job)}.",
        ranks=tuple(r.rank for r in job.ranks),
        evidence=job.evidence([k.name for k in job.own.kernels.rows if k.category == "communication"][:3]),
    )


def _loads(job: JobFacts) -> str:
    """How far the amounts that ranks get are apart, where they are recorded."""
    if not job.table.experts:
        return ""
    over, under = max((e.imbalance for e in job.table.experts), key=lambda i: i[0] / max(i[1], 1))
    return f"; the fullest rank gets {ratio(over, under)} times the mean"
