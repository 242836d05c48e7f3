"""Small models that scenarios share: the phases of a training step without its faults."""

from __future__ import annotations

from traceread.simulate.job import Machine, Phase
from traceread.simulate.phases import ZERO_GRAD, Await, Backward, Communicate, Compute, CopyIn, Fetch, optimizer
from traceread.simulate.program import US, HostCost

EACH = 200 * US
"""Length of a kernel of the small model."""

SLOW_HOST = HostCost(before=14 * US, call=6 * US, after=5 * US, between=9 * US)
"""34 µs for a launch: eager Python on a busy machine."""
NO_HOST = HostCost(before=100, call=300, after=100, between=100)
"""Hardly any host time between launches, as in a CUDA graph."""

SHALLOW = Machine(queue_depth=96)
"""Run-ahead of less than a step of the small model."""

BATCH = (Fetch(60 * US), CopyIn(1_048_576, 40 * US))
"""A batch that is there in time."""


def forward(kernels: int = 48, each: int = EACH, host: HostCost | None = None) -> Phase:
    """The forward pass."""
    return Compute(kernels, each, host=host)


def backward(kernels: int = 96, each: int = EACH, host: HostCost | None = None, tail: int = 80 * US, reduce: int = 4_000 * US) -> Phase:
    """The backward pass: gradients are reduced in two buckets; the second one, of `tail` ns, begins with the last kernel."""
    return Backward(
        (
            Compute(kernels // 2, each, "backward", host=host),
            Communicate("allreduce", 25_000_000, reduce, dtype="Float"),
            Compute(kernels - kernels // 2, each, "backward", host=host),
            Communicate("allreduce", 5_000_000, tail, dtype="Float"),
            Await(),
        )
    )


def update(kernels: int = 8, each: int = 250 * US, host: HostCost | None = None) -> Phase:
    """The optimizer."""
    return optimizer(kernels, each, host)


STEP = (ZERO_GRAD, *BATCH, forward(), backward(), update())
"""A step of the small model: about 31 ms, nothing wrong with it."""
