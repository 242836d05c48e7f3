"""A step replayed as a CUDA graph, with all of its nodes recorded or only some."""

from traceread.simulate.job import Job, Machine, Phase
from traceread.simulate.models import update
from traceread.simulate.phases import Communicate, CopyIn, Fetch, GraphReplay, Python
from traceread.simulate.program import US


def step(recorded: int) -> tuple[Phase, ...]:
    """Two graphs, the reduction of the gradients between them, and some Python that the host has time for."""
    return (
        Fetch(60 * US),
        CopyIn(1_048_576, 40 * US),
        GraphReplay(180, 30 * US, recorded=recorded),
        Communicate("allreduce", 5_000_000, 300 * US, wait=True, dtype="Float"),
        GraphReplay(60, 30 * US, name="optimizer_graph", recorded=recorded),
        Python(300 * US),
        update(4, 30 * US),
    )


JOBS = (
    Job("cuda-graph", "A step of two CUDA graph launches.", step(1), machine=Machine(queue_depth=6)),
    Job("cuda-graph-partial", "Of every thirty nodes of the graphs the profiler records ten.", step(3), machine=Machine(queue_depth=6)),
)
