"""A 7B model on 32 GPUs under FSDP with three faults that each stand alone: late reduce-scatters, a slow loader, `.item()`."""

from traceread.simulate.job import Fault, Job, Machine, Node, Phase
from traceread.simulate.phases import Annotate, Await, Backward, Communicate, Compute, CopyIn, CpuOps, Fetch, Item, optimizer
from traceread.simulate.program import MS, US, Stream

PARAMETERS = 6_740_000_000
LAYERS = 32
UNITS = 8  # reduce-scatters per step, four layers each
RANKS = 32
KERNEL = 5 * MS - 1 * US  # with the gap to the next one, 5 ms each
GATHER = {"forward": 9 * MS, "backward": 26 * MS}
SCATTER = 50 * MS
UNIT_ELEMENTS = PARAMETERS // UNITS // RANKS * RANKS
LAYER_ELEMENTS = PARAMETERS // LAYERS // RANKS * RANKS


def gather(layer: int, direction: str) -> Phase:
    """The all-gather of a layer's parameters, ahead of their use and on a stream of its own."""
    return Communicate(
        "_allgather_base", LAYER_ELEMENTS, GATHER[direction], after=False, event=f"{direction} {layer}", stream=Stream.SECOND
    )


def scatter(unit: int, ns: int = SCATTER) -> Phase:
    """The reduce-scatter of the gradients of four layers."""
    return Communicate("_reduce_scatter_base", UNIT_ELEMENTS, ns, event=f"gradient {unit}")


def forward(layers: range) -> tuple[Phase, ...]:
    """Layers of four kernels each; the next layer's parameters are gathered meanwhile."""
    phases: list[Phase] = []
    for layer in layers:
        if layer + 1 < LAYERS:
            phases.append(gather(layer + 1, "forward"))
        phases += [Await(f"forward {layer}"), Compute(4, KERNEL, "large forward")]
    return tuple(phases)


def backward(scattered: bool) -> tuple[Phase, ...]:
    """Recomputation and gradients: 402 kernels; gradients leave unit by unit, or all at the end."""
    phases: list[Phase] = [gather(LAYERS - 1, "backward"), Compute(2, KERNEL, "loss")]
    for i, layer in enumerate(reversed(range(LAYERS))):
        if layer:
            phases.append(gather(layer - 1, "backward"))
        phases += [Await(f"backward {layer}"), Compute(12 + i % 2, KERNEL, "large backward", layer=13)]
        if scattered and layer % 4 == 0:
            phases.append(scatter(layer // 4))
    if not scattered:
        phases += [scatter(unit) for unit in reversed(range(UNITS))]
    return tuple(phases)


def update(hidden: bool) -> tuple[Phase, ...]:
    """The optimizer, 40 kernels: unit by unit as gradients arrive, or after all of them."""
    units = tuple(reversed(range(UNITS)))
    waits = [Await(f"gradient {unit}") for unit in units]
    if hidden:
        steps = [phase for unit in units for phase in (waits[UNITS - 1 - unit], Compute(5, KERNEL, "optimizer"))]
        return (Annotate("Optimizer.step#AdamW.step", tuple(steps)),)
    return (*waits, optimizer(40, KERNEL))


STEP = (
    Fault("data-loader", (Fetch(330 * MS),), (Fetch(20 * US),)),
    CopyIn(262_144, 12 * US),
    gather(0, "forward"),
    Compute(10, KERNEL, "embedding", layer=10),
    *forward(range(10)),
    Fault("item", (Item(), CpuOps(120 * MS, each=700 * US, gap=100 * US))),
    *forward(range(10, LAYERS)),
    Fault(
        "reduce-scatter",
        (Backward(backward(scattered=False)), *update(hidden=False)),
        (Backward(backward(scattered=True)), *update(hidden=True)),
    ),
)

JOB = Job(
    "llama7b",
    "7B on 32 GPUs, 3.60 s a step: 0.40 s of reduce-scatter nothing hides, 0.18 s of data loading, 0.12 s after .item().",
    STEP,
    ranks=RANKS,
    nodes=tuple(Node(f"node-{i}") for i in range(4)),
    steps=6,
    warmup=2,
    first_step=11,
    machine=Machine(queue_depth=30, gpu_jitter=1),
    written=(0, 1, 2, 3),
    run={
        "world_size": RANKS,
        "parallel": {"dp": RANKS},
        "model": {
            "parameters": PARAMETERS,
            "layers": LAYERS,
            "attention_width": 4096,
            "sequence_length": 4096,
            "precision": "bf16",
            "recomputation": "full",
        },
        "global_batch_sequences": 256,
        "tokens_per_step": {"valid": 256 * 4096},
        "profiler": {"with_stack": False, "record_shapes": False},
        "peak_flops": 989e12,
        "link_bytes_per_s": 50e9,
    },
)
