"""What a capture holds and lacks, what the lacking would tell, and how to record it the next time."""

from __future__ import annotations

from traceread.measurements.classes import Reason
from traceread.model import Capability
from traceread.records import record
from traceread.report import RankReport, Report


@record
class Guide:
    """A capability in words.

    Attributes:
        tells: what is known with it.
        kineto, nsys: how torch.profiler and Nsight Systems record it; "" where they do not, or traceread does not read it.
    """

    tells: str
    kineto: str
    nsys: str

    def how(self, source: str) -> str:
        """How to record it with the tool a capture is from, or with the other one where that cannot, as a sentence."""
        ways = [self.kineto, f"in Nsight Systems, {self.nsys}"] if source == "kineto" else [self.nsys, f"in a PyTorch trace, {self.kineto}"]
        how = ways[0] or ways[1]
        return f"It {how}." if how.startswith("comes ") else f"To record it: {how}"

    def possible(self, source: str) -> bool:
        """Whether the tool a capture is from can record it."""
        return bool(self.nsys if source == "nsys" else self.kineto)


GUIDES = {
    Capability.ACTIVITIES: Guide(
        "everything: which kernels and copies ran, and when",
        "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        "nsys profile -t cuda",
    ),
    Capability.LAUNCHES: Guide(
        "which call started a kernel: steps, and why the GPU was idle",
        "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        "nsys profile -t cuda",
    ),
    Capability.OPS: Guide(
        "which op synchronised, copied or launched",
        "activities=[ProfilerActivity.CPU, …]",
        "nsys profile -t cuda,nvtx, and in the script: with torch.autograd.profiler.emit_nvtx():",
    ),
    Capability.RANGES: Guide(
        "where steps begin and end, which part of the script waits",
        'call prof.step() each step; with torch.profiler.record_function("load batch"):',
        'nsys profile -t cuda,nvtx, and in the script: with torch.cuda.nvtx.range("step"):',
    ),
    Capability.STACKS: Guide(
        "the source line behind a gap",
        "with_stack=True (slows the host down)",
        "",
    ),
    Capability.OS_CALLS: Guide(
        "what a silent host waits in: a read, a lock, a poll",
        "",
        "nsys profile -t cuda,nvtx,osrt",
    ),
    Capability.COPY_KINDS: Guide(
        "whether host memory was pinned; pageable copies block the host",
        "comes with every copy on NVIDIA GPUs",
        "nsys profile -t cuda",
    ),
    Capability.SYNC_EVENTS: Guide(
        "that queued work waited for another stream",
        "experimental_config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)",
        "nsys profile -t cuda",
    ),
    Capability.COLLECTIVES: Guide(
        "the operation, group and size behind a communication kernel",
        "activities=[ProfilerActivity.CPU, …] in a recent PyTorch",
        "nsys profile -t cuda,nvtx, then nsys export --type sqlite --include-blobs=true",
    ),
    Capability.SHAPES: Guide(
        "how much work an op had to do",
        "record_shapes=True",
        "",
    ),
    Capability.GRAPH_NODES: Guide(
        "what a graph spends its time on, and whether the GPU was idle within it",
        "comes with graph launches; nothing to switch on",
        "nsys profile --cuda-graph-trace=node (costs some time per kernel)",
    ),
    Capability.OVERHEAD: Guide(
        "which idle time a run without the profiler does not have",
        "comes with recent PyTorch, where it happens",
        "comes with nsys profile, where it happens",
    ),
}


@record
class Missing:
    """Something that was not recorded: what, and on which ranks."""

    capability: Capability
    ranks: tuple[int, ...]


def missing(report: Report) -> tuple[Missing, ...]:
    """What this report would have used, had it been recorded."""
    found = []
    for capability, guide in GUIDES.items():
        ranks = tuple(r.rank for r in report.ranks if capability not in r.recorded and _would_use(r, capability, guide))
        if ranks:
            found.append(Missing(capability, ranks))
    return tuple(found)


def _would_use(rank: RankReport, capability: Capability, guide: Guide) -> bool:
    """Whether a rank's report lacks something without this, as opposed to there being nothing to record."""
    if not guide.possible(rank.source):
        return False
    if capability is Capability.GRAPH_NODES:
        return any(k.family == "graph" for k in rank.kernels.rows) or bool((rank.idle.reason == Reason.GRAPH_NODES_NOT_RECORDED).any())
    if capability is Capability.COLLECTIVES:
        return any(k.category == "communication" for k in rank.kernels.rows)
    if capability is Capability.COPY_KINDS:
        return any(k.category == "copy" for k in rank.kernels.rows)
    return capability not in (Capability.OVERHEAD, Capability.SHAPES)
