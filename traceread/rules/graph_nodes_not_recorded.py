"""The kernels of CUDA graphs were not all recorded.

What it means. The profiler recorded some kernels of a graph launch and not the others. Where the others ran the GPU looks idle, so the
idle time is an upper bound and nothing can be said about the graph's inside.

How it is measured. Gaps before or between recorded nodes of one graph launch that are longer than a dispatch.

In Nsight Systems. With --cuda-graph-trace=graph a launch is one opaque row; with node every kernel has its own.

In a PyTorch trace. Fewer kernels with the correlation id of a cudaGraphLaunch in one step than in the next, or long gaps between them.

How to confirm. Count the kernels per graph launch: they must be equal for the same graph.

What to try. Record the graph's nodes: nsys profile --cuda-graph-trace=node; a newer CUPTI and PyTorch; a short capture without the graph
(torch.compile without mode="reduce-overhead") to see its kernels.

When it is fine. Where only the time outside graphs is in question.

Documentation. https://docs.nvidia.com/nsight-systems/UserGuide/index.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.measurements.classes import Reason, StepClass
from traceread.model import Capability
from traceread.rules import Facts, rule
from traceread.units import percent

_SERIOUS = 20


@rule("graph-nodes-not-recorded", needs={Capability.ACTIVITIES, Capability.LAUNCHES}, effort=Effort.SETTING)
def graph_nodes_not_recorded(facts: Facts) -> Iterator[Finding]:
    """One finding for all gaps inside graphs."""
    rows = facts.idle_rows(StepClass.UNATTRIBUTED, (Reason.GRAPH_NODES_NOT_RECORDED,))
    lost = facts.idle_ns(rows)
    if lost * _SERIOUS < facts.total_ns or not lost:
        return
    loss = facts.idle_loss(rows)
    yield Finding(
        title="the kernels of CUDA graphs were not all recorded",
        loss=loss,
        why=f"{facts.mean(lost)} ({percent(lost, facts.total_ns)}) inside graph launches hold no recorded kernel, "
        f"{facts.steps_phrase(loss)}: the capture, not the job, has to be mended first.",
    )
