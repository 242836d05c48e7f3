"""Kernels that only move memory run one after the other.

What it means. Additions, activations, casts and normalisations read and write whole tensors and compute next to nothing. A run of them
on the same data could be one kernel that reads and writes once.

How it is measured. Runs of at least three such kernels next to each other on a stream, each run ending with the first reduction, softmax
or normalisation. Fused into one, a run takes at least as long as its longest member: what is above that is counted, and the step re-timed
without it. It is an upper bound.

In Nsight Systems. vectorized_elementwise_kernel, unrolled_elementwise_kernel and reduce_kernel one after the other.

In a PyTorch trace. The same kernels; aten::add, aten::mul, aten::copy_ one after the other on the launching thread.

How to confirm. Achieved bytes per second of these kernels: near the memory's peak they are as fast as they get one by one, and only
fusing helps.

What to try. torch.compile on the module (or on the loss alone); fused kernels of a library: fused layer norm and rotary embedding
(TransformerEngine, Liger, apex), fused cross entropy; bf16 instead of fp32 halves the bytes.

When it is fine. Kernels that are already fused, and small tensors where the launch is the limit.

Documentation. https://docs.pytorch.org/docs/stable/generated/torch.compile.html
https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread import intervals
from traceread.findings import Effort, Finding
from traceread.model import ActivityKind, Capability, Category, IntColumn
from traceread.rules import GENERAL, Facts, rule
from traceread.units import duration, percent

_POINTWISE = ("elementwise", "random")
_CLOSES = ("normalisation", "softmax", "reduction")
_SHORTEST_RUN = 3


@rule("unfused-elementwise", needs={Capability.ACTIVITIES}, effort=Effort.CODE, turn=GENERAL)
def unfused_elementwise(facts: Facts) -> Iterator[Finding]:
    """One finding for all runs."""
    a = facts.trace.activities
    rows, run = _runs(facts)
    if not len(rows):
        return
    length = facts.exposed_ns[rows] + facts.lead_in_ns[rows]
    size = np.bincount(run)
    total, longest = np.bincount(run, weights=length).astype(np.int64), np.zeros(len(size), np.int64)
    np.maximum.at(longest, run, length)
    spare = np.where(size >= _SHORTEST_RUN, total - longest, 0)
    keep = np.full(len(a), 1000)
    fits = total[run] > 0
    keep[rows[fits]] = 1000 - 1000 * spare[run[fits]] // total[run[fits]]
    which = np.zeros(len(a), bool)
    which[rows[size[run] >= _SHORTEST_RUN]] = True
    loss = facts.kernel_loss(which, keep)
    lost = facts.loss_total_ns(loss)
    if not facts.worth(lost):
        return
    moving = int(facts.exposed_ns[which].sum())
    runs = len(intervals.unique(run[which[rows] & (facts.exposed_ns[rows] > 0)]))
    yield Finding(
        title="kernels that only move memory run one after the other",
        loss=loss,
        why=f"{runs:,} runs of such kernels take {facts.mean(moving)} "
        f"({percent(moving, facts.total_ns)} of it); fused, at most {duration(facts.per_step(lost))} of that would go.",
        recorded=False,
    )


def _runs(facts: Facts) -> tuple[IntColumn, IntColumn]:
    """Rows of memory-bound kernels in order of stream and time, and for each the number of its run."""
    a = facts.trace.activities
    order = np.flatnonzero((a.kind == ActivityKind.KERNEL) & (a.category == Category.COMPUTE) & (facts.exposed_ns + facts.lead_in_ns > 0))
    order = order[np.lexsort((a.start_ns[order], a.stream[order]))]
    closes = facts.is_family(*_CLOSES)[order]
    moves = facts.is_family(*_POINTWISE)[order] | closes
    if not moves.any():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    begins = np.ones(len(order), bool)
    begins[1:] = ~moves[:-1] | closes[:-1] | (a.stream[order][1:] != a.stream[order][:-1])
    run = np.cumsum(begins) - 1
    return order[moves], intervals.distinct(run[moves])[1]
