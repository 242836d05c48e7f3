"""The host waits for other ranks.

What it means. A barrier, a store lookup, an MPI call or a gloo collective on the CPU holds the launching thread until the slowest rank has
come; the GPU runs dry meanwhile.

How it is measured. The step re-timed with these calls returning at once. With one rank loaded nothing says who was late.

In Nsight Systems. MPI ranges, or NVTX ranges named barrier, on the launching thread above an empty GPU row.

In a PyTorch trace. Ranges gloo:..., c10d::barrier, or store calls on the launching thread.

How to confirm. Look at the same call on the other ranks: the one that leaves first came last.

What to try. Remove barriers from the loop (dist.barrier() is rarely needed: collectives order ranks by themselves); reduce metrics on the
GPU with the training process group; gather rarely changing things once.

When it is fine. Around checkpoints and evaluation.

Documentation. https://docs.pytorch.org/docs/stable/distributed.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability
from traceread.rules import Facts, rule
from traceread.rules.syncs import wait_findings, waits_titled

_PEERS = re.compile(r"^P?MPI_|^gloo:|(?i:(?<![a-z])(?:barrier|(?:tcp|file|hash)?store(?:\.|::|_| )(?:get|wait))(?![a-z]))")


@rule("host-barrier", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.RANGES}, effort=Effort.CODE)
def host_barrier(facts: Facts) -> Iterator[Finding]:
    """One finding for all waits of the host for its peers."""
    yield from wait_findings(facts, waits_titled(facts, _PEERS), "the host waits for other ranks", "the launching thread waits for peers")
