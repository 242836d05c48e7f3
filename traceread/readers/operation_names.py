"""What collective operation a recorded name stands for: PyTorch's collective names and annotations, NCCL's own functions."""

from __future__ import annotations

import re

from traceread.model import Operation

_SPELLINGS = (
    (re.compile(r"reduce_?scatter"), Operation.REDUCE_SCATTER),
    (re.compile(r"all_?gather"), Operation.ALL_GATHER),
    (re.compile(r"barrier"), Operation.BARRIER),  # before all_reduce: "all_reduce_barrier"
    (re.compile(r"all_?reduce"), Operation.ALL_REDUCE),
    (re.compile(r"all_?to_?all"), Operation.ALL_TO_ALL),
    (re.compile(r"broadcast|bcast"), Operation.BROADCAST),
    (re.compile(r"reduce"), Operation.REDUCE),
    (re.compile(r"gather"), Operation.GATHER),
    (re.compile(r"scatter"), Operation.SCATTER),
    (re.compile(r"send"), Operation.SEND),
    (re.compile(r"recv"), Operation.RECV),
)
"""The first that is found in the name decides."""

_NCCL = re.compile(r"nccl(AllReduce|AllGather|ReduceScatter|AlltoAll|AllToAll|Broadcast|Bcast|Reduce|Gather|Scatter|Send|Recv)")
_NCCL_TRACING = re.compile(r"AllReduce|AllGather|ReduceScatter|All[tT]oAll")
_ANNOTATION = re.compile(r"(?:nccl|rccl|xccl):(\w+)(?: \d+(?:->|<-)\d+)?")
_PEERS = re.compile(r"(\d{1,9})(->|<-)(\d{1,9})$")
_SYMMETRIC_MEMORY = re.compile(r"symm_mem::(\w+)")


def operation_named(name: str) -> Operation:
    """The operation of a "Collective name", such as "_allgather_base"; UNKNOWN for one that moves nothing, such as "wait"."""
    lowered = name.lower()
    return next((operation for spelling, operation in _SPELLINGS if spelling.search(lowered)), Operation.UNKNOWN)


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
