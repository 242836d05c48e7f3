"""What one rank sends in its collectives: bytes over its link, by operation, and the least time that takes."""

from __future__ import annotations

from math import ceil, log2

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.measurements.collectives import RankCollectives
from traceread.measurements.steps import Steps
from traceread.model import NOT_RECORDED, IntColumn, Operation
from traceread.records import record

_SECOND = 10**9
_HALVED = (Operation.ALL_GATHER, Operation.REDUCE_SCATTER, Operation.ALL_TO_ALL, Operation.GATHER, Operation.SCATTER)
"""Of the whole tensor each rank sends all but its own part; an all-reduce does so twice."""


@record
class OperationTraffic:
    """One operation in groups of one size, over the used steps of a rank.

    Attributes:
        operation: which.
        group: number of ranks that take part, -1 if not recorded.
        count: how often.
        ns: length of its kernels, summed.
        sent: bytes that go over the rank's link, of those whose size is recorded.
        sized: how many are those.
        sized_ns: length of their kernels.
    """

    operation: Operation
    group: int
    count: int
    ns: int
    sent: int
    sized: int
    sized_ns: int

    @property
    def rounds(self) -> int:
        """Messages that must follow each other however it is done: data reaches at most twice as many ranks with each."""
        return ceil(log2(self.group)) if self.group > 1 else 0 if self.group == 1 else 1


@record
class Traffic:
    """What one rank sends over its used steps.

    Attributes:
        operations: the longest first.
        steps: number of used steps.
    """

    operations: tuple[OperationTraffic, ...] = ()
    steps: int = 0

    @property
    def ns(self) -> int:
        """Length of all kernels together, per step."""
        return self._mean(sum(o.ns for o in self.operations))

    @property
    def sent(self) -> int:
        """Bytes over the link per step, of the operations whose size is recorded."""
        return self._mean(sum(o.sent for o in self.operations))

    @property
    def coverage(self) -> tuple[int, int]:
        """Kernel time of the operations whose size is recorded, and of all."""
        return sum(o.sized_ns for o in self.operations), sum(o.ns for o in self.operations)

    def least_ns(self, link_bytes_per_s: float, latency_ns: int = 0) -> int:
        """The least time of a step's operations, one after the other: their bytes over the link, and a latency for each round."""
        bytes_ns = round(self.sent * _SECOND / link_bytes_per_s)
        return bytes_ns + self._mean(sum(o.rounds * o.sized for o in self.operations)) * latency_ns

    def _mean(self, total: int) -> int:
        return (2 * total + self.steps) // (2 * self.steps) if self.steps else 0


def sum_traffic(of_rank: RankCollectives, steps: Steps) -> Traffic:
    """The traffic of one rank over its used steps."""
    used = np.array([*steps.used, False], bool)
    table = of_rank.collectives.take(used[of_rank.collectives.window])
    sizes = np.array([g.size for g in of_rank.groups] + [NOT_RECORDED], np.int64)[table.group]
    sent = sent_bytes(table.operation, sizes, table.bytes)
    length = table.end_ns - table.start_ns
    operations, groups, of = intervals.distinct_pairs(table.operation, sizes)
    rows = []
    for i, (operation, group) in enumerate(zip(operations.tolist(), groups.tolist(), strict=True)):
        mine = of == i
        sized = mine & (sent >= 0)
        rows.append(
            OperationTraffic(
                operation=Operation(operation),
                group=group,
                count=int(mine.sum()),
                ns=int(length[mine].sum()),
                sent=int(sent[sized].sum()),
                sized=int(sized.sum()),
                sized_ns=int(length[sized].sum()),
            )
        )
    rows.sort(key=lambda row: (-row.ns, row.operation, row.group))
    return Traffic(tuple(rows), sum(steps.used))


def sent_bytes(operation: npt.NDArray[np.uint8], group: IntColumn, size: IntColumn) -> IntColumn:
    """Bytes that each operation puts on a rank's link, -1 where size or group are not recorded; as nccl-tests counts bus bandwidth."""
    passes = np.select([operation == Operation.ALL_REDUCE, np.isin(operation, _HALVED)], [2, 1], 0)
    shares = passes > 0
    known = (size >= 0) & (~shares | (group > 0)) & (operation != Operation.UNKNOWN)
    n = np.maximum(group, 1)
    # In this order nothing overflows: sizes stay below 2**60.
    shared = passes * (size // n * (n - 1) + size % n * (n - 1) // n)
    return np.where(known, np.where(shares, shared, size), NOT_RECORDED)
