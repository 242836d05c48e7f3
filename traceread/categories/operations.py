"""What a communication kernel's name says about its operation, where nothing better was recorded.

It says little: NCCL launches all-to-alls, gathers and scatters as `SendRecv`, RCCL everything as `Generic`, and the protocol in a
name such as `RING_LL` is that of the entry point, not of the transfer.
"""

from __future__ import annotations

import re

from traceread.model import Operation

_KERNELS = (
    (re.compile(r"reduce_?scatter", re.IGNORECASE), Operation.REDUCE_SCATTER),
    (re.compile(r"all_?gather", re.IGNORECASE), Operation.ALL_GATHER),
    (re.compile(r"all_?reduce|cross_device_reduce", re.IGNORECASE), Operation.ALL_REDUCE),
    (re.compile(r"broadcast", re.IGNORECASE), Operation.BROADCAST),
    (re.compile(r"Kernel_Reduce_"), Operation.REDUCE),
    (re.compile(r"SendRecv"), Operation.SEND_RECV),
)

_LAUNCHES = {
    Operation.SEND_RECV: (
        Operation.SEND,
        Operation.RECV,
        Operation.SEND_RECV,
        Operation.ALL_TO_ALL,
        Operation.GATHER,
        Operation.SCATTER,
    ),
    Operation.ALL_REDUCE: (Operation.ALL_REDUCE, Operation.BARRIER),
    Operation.BROADCAST: (Operation.BROADCAST, Operation.ALL_GATHER),  # an all-gather of unequal parts
    Operation.REDUCE: (Operation.REDUCE, Operation.REDUCE_SCATTER),
}


def operation_of_kernel(name: str) -> Operation:
    """The operation in a communication kernel's name; SEND_RECV for what may be an all-to-all, UNKNOWN if the name has none."""
    return next((operation for pattern, operation in _KERNELS if pattern.search(name[:512])), Operation.UNKNOWN)


def launches(kernel: Operation, operation: Operation) -> bool:
    """Whether a kernel whose name says `kernel` can be the launch of a recorded operation."""
    return kernel is Operation.UNKNOWN or operation in _LAUNCHES.get(kernel, (kernel,))
