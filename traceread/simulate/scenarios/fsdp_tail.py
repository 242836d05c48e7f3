"""FSDP whose last reduce-scatters run with an empty compute stream."""

from traceread.simulate.job import Fault, Job, Machine, Phase
from traceread.simulate.models import BATCH, update
from traceread.simulate.phases import Await, Backward, Communicate, Compute
from traceread.simulate.program import MS, US, Stream

LAYERS = 12
ELEMENTS = 201_326_592


def gather(layer: int, direction: str) -> Phase:
    """The all-gather of a layer's parameters."""
    return Communicate("_allgather_base", ELEMENTS, 6 * MS, after=False, event=f"{direction} {layer}", stream=Stream.SECOND)


def layers(direction: str, kernels: int) -> tuple[Phase, ...]:
    """Layer by layer: gather the next one, wait for this one, compute."""
    order = range(LAYERS) if direction == "forward" else range(LAYERS - 1, -1, -1)
    phases: list[Phase] = []
    for i, layer in enumerate(order):
        if i + 1 < LAYERS:
            phases.append(gather(order[i + 1], direction))
        phases += [Await(f"{direction} {layer}"), Compute(kernels, 2 * MS, direction)]
    return tuple(phases)


def scatters(ns: int) -> tuple[Phase, ...]:
    """Six reduce-scatters after the last kernel of the backward pass."""
    return tuple(Communicate("_reduce_scatter_base", 2 * ELEMENTS, ns) for _ in range(6))


JOB = Job(
    "fsdp-tail",
    "300 ms of reduce-scatter run after the last kernel of the backward pass.",
    (
        *BATCH,
        gather(0, "forward"),
        Compute(8, 2 * MS, "embedding", layer=8),
        *layers("forward", 8),
        gather(LAYERS - 1, "backward"),
        Compute(4, 2 * MS, "loss"),
        Backward((*layers("backward", 16), Fault("reduce-scatter", scatters(50 * MS), scatters(1 * US)), Await())),
        update(20, 2 * MS),
    ),
    ranks=4,
    machine=Machine(queue_depth=40, gpu_jitter=2),
)
