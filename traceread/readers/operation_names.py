"""What collective operation a recorded name stands for: PyTorch's collective names and annotations, NCCL's own functions."""

from __future__ import annotations

import re
from functools import lru_cache

from traceread.model import Operation

_SPELLINGS = (
    (("reduce_scatter", "reducescatter"), Operation.REDUCE_SCATTER),
    (("all_gather", "allgather"), Operation.ALL_GATHER),
    (("barrier",), Operation.BARRIER),  # before all_reduce: "all_reduce_barrier"
    (("all_reduce", "allreduce"), Operation.ALL_REDUCE),
    (("all_to_all", "alltoall", "all_toall", "allto_all"), Operation.ALL_TO_ALL),
    (("broadcast", "bcast"), Operation.BROADCAST),
    (("reduce",), Operation.REDUCE),
    (("gather",), Operation.GATHER),
    (("scatter",), Operation.SCATTER),
    (("send",), Operation.SEND),
    (("recv",), Operation.RECV),
)
"""The first that is found in the name decides."""

_NCCL = re.compile(r"nccl(AllReduce|AllGather|ReduceScatter|AlltoAll|AllToAll|Broadcast|Bcast|Reduce|Gather|Scatter|Send|Recv)")
_NCCL_TRACING = re.compile(r"AllReduce|AllGather|ReduceScatter|All[tT]oAll")
_ANNOTATION = re.compile(r"(?:nccl|rccl|xccl):(\w+)(?: \d+(?:->|<-)\d+)?")
_PEERS = re.compile(r"(\d{1,9})(->|<-)(\d{1,9})$")
_SYMMETRIC_MEMORY = re.compile(r"symm_mem::(\w+)")


@lru_cache(1 << 10)  # the same few names come thousands of times
def operation_named(name: str) -> Operation:
    """The operation of a "Collective name", such as "_allgather_base"; UNKNOWN for one that moves nothing, such as "wait"."""
    lowered = name.lower()
    return next((operation for spellings, operation in _SPELLINGS if any(s in lowered for s in spellings)), Operation.UNKNOWN)


@lru_cache(1 << 10)
def operation_of_range(name: str) -> Operation:
    """The operation of a host range: "nccl:all_reduce", "symm_mem::one_shot_all_reduce", "ncclAllGather"; UNKNOWN for any other."""
    for pattern in (_NCCL, _ANNOTATION, _SYMMETRIC_MEMORY):
        match = pattern.fullmatch(name)
        if match is not None:
            return operation_named(match[1])
    return operation_named(name) if _NCCL_TRACING.fullmatch(name) else Operation.UNKNOWN


def peers_of_range(name: str) -> tuple[int, int] | None:
    """Source and destination within the group, from "nccl:send 0->1" and "nccl:recv 1<-0"; None if the name has none."""
    match = _PEERS.search(name)
    if match is None:
        return None
    here, there = int(match[1]), int(match[3])
    return (here, there) if match[2] == "->" else (there, here)
