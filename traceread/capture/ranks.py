"""Which rank this process is, and what all ranks know together; with torch.distributed or without."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RankFacts:
    """A process among the others.

    Attributes:
        rank, world_size, local_rank: as launchers number them.
        joined: whether torch.distributed is initialised, so that ranks can exchange.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    joined: bool = False

    def gather(self, value: Any) -> list[Any]:
        """The value of every rank, in their order; that of this one alone where ranks cannot exchange. A collective."""
        if not self.joined:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values


def find_rank() -> RankFacts:
    """The rank of this process, by torch.distributed, else by what torchrun, Slurm or MPI put into the environment."""
    import torch.distributed as dist

    local = _number("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
    if dist.is_available() and dist.is_initialized():
        return RankFacts(dist.get_rank(), dist.get_world_size(), local or 0, joined=True)
    rank = _number("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
    size = _number("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
    if rank is None or size is None or not rank < size:
        return RankFacts()
    return RankFacts(rank, size, local or 0)


def device_index() -> int | None:
    """The current CUDA device; None without one."""
    import torch

    return int(torch.cuda.current_device()) if torch.cuda.is_available() else None


def synchronise() -> None:
    """Waits until the device has done all its work; nothing without one."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _number(*names: str) -> int | None:
    for name in names:
        text = os.environ.get(name, "")
        if text.isdecimal() and len(text) < 10:
            return int(text)
    return None
