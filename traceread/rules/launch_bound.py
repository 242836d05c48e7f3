"""The host launches work more slowly than the GPU finishes it.

What it means. Between two kernels the GPU waits for Python, the framework or the launch call itself. The GPU is busy only as long as the
host stays ahead; with short kernels it cannot. Tracing slows the host down, so the share in an unprofiled run is smaller.

How it is measured. Idle time that ends with a launch nobody was blocked before: plain host execution and launch latency. The saving is
the step re-timed with host time and launch calls that take nothing, fetches and synchronisations kept: what an ideal CUDA graph would
give.

In Nsight Systems. cudaLaunchKernel calls back to back in the CUDA API row while the GPU row shows short kernels with gaps; each kernel
begins a few microseconds after its call.

In a PyTorch trace. Dense cpu_op rows on the launching thread and kernels that start right after their cudaLaunchKernel.

How to confirm. Double the batch size: if the step hardly gets longer, the host was the limit. Compare with the step time without the
profiler: if that is much shorter, much of this is the profiler's own weight.

What to try. torch.compile(mode="reduce-overhead"), which captures CUDA graphs, or torch.cuda.make_graphed_callables for parts with static
shapes; larger microbatches; fused modules and optimizers so that fewer kernels are launched; no Python work between launches. vLLM and
other inference servers: run with their CUDA graphs, not with enforce_eager.

When it is fine. With small test inputs. CUDA graphs need static shapes and no synchronisation inside; where kernels are long enough for
the host to get ahead, they gain nothing. Where they run most kernels already, the report advises something else: for host time before
graph launches fewer and larger graphs, for host time before kernels launched one by one capturing these too.

Documentation. https://docs.pytorch.org/docs/stable/generated/torch.compile.html
https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread import intervals
from traceread.categories.host import CallRole, HostNames
from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.measurements.replay import Removal
from traceread.model import ActivityKind, Capability
from traceread.rules import LAST, Facts, Loss, rule
from traceread.rules.facts import Mask
from traceread.units import duration, plural

_FEWER_GRAPHS = (
    "CUDA graphs are in use; what is left is between them: fewer and larger graphs (TORCH_LOGS=graph_breaks names what ends those of "
    "torch.compile), inputs of the next replay copied with non_blocking=True while this one runs, no other Python work between replays"
)
_LARGER_GRAPHS = (
    "CUDA graphs are in use; what is left is launched beside them: capture that too (optimizer, loss, sampling), or fuse it; "
    "TORCH_LOGS=perf_hints says where torch.compile left CUDA graphs out"
)


@rule("launch-bound", needs={Capability.ACTIVITIES, Capability.LAUNCHES}, effort=Effort.DESIGN, turn=LAST)
def launch_bound(facts: Facts) -> Iterator[Finding]:
    """One finding for all plain host time that the GPU waited for."""
    rows = facts.idle_rows(StepClass.LAUNCH_BOUND)
    lost = facts.idle_ns(rows)
    if not facts.worth(lost):
        return
    loss = Loss(idle=rows, removal=Removal(host=facts.working))
    why, fix = _with_graphs(facts, loss) or (_one_by_one(facts), "")
    yield Finding(
        title="the host launches more slowly than the GPU works",
        loss=loss,
        why=f"{facts.mean(lost)} the GPU waits for the next launch, {facts.steps_phrase(loss)}: {why}.",
        fix=fix,
        recorded=True,
    )


def _one_by_one(facts: Facts) -> str:
    """How many kernels there are to launch, and how long they run."""
    activities = facts.trace.activities
    kernels = (activities.kind == ActivityKind.KERNEL) & intervals.holds(facts.windows, activities.start_ns)
    lengths = (activities.end_ns - activities.start_ns)[kernels]
    middle = int(np.median(lengths)) if len(lengths) else 0
    return f"{facts.per_step(len(lengths)):,} kernels{facts.a_step}, half of them no longer than {duration(middle)}"


def _with_graphs(facts: Facts, loss: Loss) -> tuple[str, str] | None:
    """What the GPU waits for and what to change where CUDA graphs run most of the kernels, by their time if one is opaque; else None."""
    activities = facts.trace.activities
    graphs = _in_graphs(facts)
    kernels = np.isin(activities.kind, (ActivityKind.KERNEL, ActivityKind.GRAPH)) & intervals.holds(facts.windows, activities.start_ns)
    opaque = kernels & (activities.kind == ActivityKind.GRAPH)
    weight = activities.end_ns - activities.start_ns if opaque.any() else np.ones(len(activities), np.int64)
    if 2 * int(weight[kernels & graphs].sum()) <= int(weight[kernels].sum()):
        return None
    following = facts.idle.next_activity[loss.idle]
    before_graphs = facts.idle_ns(loss.idle[(following >= 0) & graphs[following]])
    before_others = facts.idle_ns(loss.idle) - before_graphs
    launches = facts.per_step(len(intervals.unique(activities.correlation[kernels & graphs])))
    single = facts.per_step(int((kernels & ~graphs).sum()))
    run = f"{plural(launches, 'CUDA graph launch', 'CUDA graph launches')}{facts.a_step}, which run{'s' * (launches == 1)} most kernels"
    why = f"{duration(facts.per_step(before_graphs))} of it before {run}"
    if before_others:
        why += f", and {duration(facts.per_step(before_others))} before what is launched one by one ({plural(single, 'kernel')})"
    return why, _FEWER_GRAPHS if before_graphs > before_others else _LARGER_GRAPHS


def _in_graphs(facts: Facts) -> Mask:
    """Which activities a CUDA graph runs."""
    trace, launches = facts.trace, facts.launches
    if not len(trace.calls):
        return np.asarray(trace.activities.kind == ActivityKind.GRAPH)
    launched_by = HostNames().call_roles(trace.names, trace.calls.name)[launches.call]
    graphs: Mask = (launches.known & (launched_by == CallRole.GRAPH_LAUNCH)) | (trace.activities.kind == ActivityKind.GRAPH)
    return graphs
