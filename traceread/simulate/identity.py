"""Numbers a process goes by in captures: pid, tids, device, context, streams."""

from __future__ import annotations

from dataclasses import dataclass

from traceread.simulate.program import Stream
from traceread.simulate.recording import Capture
from traceread.simulate.simulation import Run

FIRST_CORRELATION = 113
"""Correlation id of a process's first call; every process starts there, so ids collide between processes."""


@dataclass(frozen=True)
class Identity:
    """How a rank appears in a capture.

    Attributes:
        pid, tids, thread_names: its process and threads, by thread number of the simulation.
        node, local_rank, devices: its machine, its place there, and how many GPUs that has.
        device, context: the GPU's number in its process and the CUDA context.
        streams: recorded stream ids, by `Stream`.
    """

    pid: int
    tids: tuple[int, ...]
    thread_names: tuple[str, ...]
    node: int
    local_rank: int
    devices: int
    device: int
    context: int
    streams: tuple[int, ...]


def identity_of(run: Run, rank: int, capture: Capture) -> Identity:
    """The identity of a rank. On AMD devices are numbered as agents, after the sockets, and stream 0 computes."""
    job = run.job
    node = job.node(rank, job.ranks)
    peers = [r for r in range(job.ranks) if job.node(r, job.ranks) == node]
    local = peers.index(rank)
    pid = 3_100 + 131 * local + 7 * node
    amd = capture.vendor == "amd"
    first = 0 if amd else 15 if local % 2 else 7
    threads = len(run.hosts[rank].threads)
    return Identity(
        pid=pid,
        tids=(pid, pid + 97, *(pid + 100 + i for i in range(threads - 2))),
        thread_names=("python3", "pt_autograd_0", *("python3" for _ in range(threads - 2))),
        node=node,
        local_rank=local,
        devices=len(peers),
        device=local + 2 if amd else local,
        context=1 + local % 2,
        streams=tuple(first + (0 if s is Stream.COMPUTE else (8 if not amd else 0) + 4 * int(s)) for s in Stream),
    )
