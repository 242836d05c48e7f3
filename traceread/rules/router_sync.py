"""The expert router reads token counts on the host.

What it means. To size the all-to-all that sends tokens to their experts, the counts are copied to the host in every layer; the host waits
and the queue runs dry once per layer.

How it is measured. The step re-timed with the waits just before an all-to-all, or inside ranges of the router, returning at once.

In Nsight Systems. A small device-to-host copy and cudaStreamSynchronize, then ncclDevKernel_SendRecv, layer after layer.

In a PyTorch trace. aten::item or aten::to around cudaStreamSynchronize right before nccl:all_to_all.

How to confirm. Count the synchronisations per step: as many as expert layers, or twice as many.

What to try. Dispatch and combine kernels that read the counts on the GPU (DeepEP, torch.ops.symm_mem all_to_all_vdev), a fixed capacity
per expert, or permutation in one grouped kernel.

When it is fine. With few expert layers of large microbatches the queue may be deep enough.

Documentation. https://github.com/deepseek-ai/DeepEP
https://docs.pytorch.org/docs/stable/symmetric_memory.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceread import intervals
from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.model import Capability, IntColumn, Operation
from traceread.rules import Facts, rule
from traceread.rules.facts import Blocked, Mask
from traceread.rules.operations import operation
from traceread.rules.syncs import inside_code, split, wait_findings

_ROUTER = r"(?i:(?<![a-z])(?:moe|router|token_?dispatch\w*|expert_?dispatch)(?![a-z]))"
_EXPERTS = r"(?i)(?<![a-z])(?:moe|experts?|token_?(?:dispatch|permut))|grouped_?gemm|gatherTopK"
_LAUNCHES_BETWEEN = 12


@rule("router-sync", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.OPS}, effort=Effort.DESIGN)
def router_sync(facts: Facts) -> Iterator[Finding]:
    """One finding for all waits for token counts."""
    exchanges = operation(facts, Operation.ALL_TO_ALL)
    if not exchanges.any() or not any(re.search(_EXPERTS, name) for name in facts.trace.names):
        return
    launched = np.flatnonzero(exchanges & facts.launches.known)
    found: list[Blocked] = []
    for wait in facts.blocked(StepClass.HOST_SYNC):
        if wait.title and len(wait.rows):
            mine = inside_code(facts, wait, _ROUTER) | _just_before(facts, wait.rows, launched)
            if mine.any():
                found.append(split(facts, wait, mine)[0])
    yield from wait_findings(facts, iter(found), "the router waits for token counts", "sizes of the all-to-all are read on the host")


def _just_before(facts: Facts, rows: IntColumn, exchanges: IntColumn) -> Mask:
    """For each call whether an all-to-all is launched on its thread within a few launches after it."""
    result = np.zeros(len(rows), bool)
    launches = facts.launches
    for thread in intervals.unique(facts.rows.thread[rows]).tolist():
        mine = np.flatnonzero(facts.rows.thread[rows] == thread)
        every = np.sort(launches.start_ns[launches.known & (launches.thread == thread)])
        wanted = np.sort(launches.start_ns[exchanges[launches.thread[exchanges] == thread]])
        if not len(wanted):
            continue
        end = facts.rows.end[rows[mine]]
        at = np.searchsorted(wanted, end, side="left")
        following = wanted[np.minimum(at, len(wanted) - 1)]
        between = np.searchsorted(every, following, side="left") - np.searchsorted(every, end, side="left")
        result[mine] = (at < len(wanted)) & (between <= _LAUNCHES_BETWEEN)
    return result
