"""Communication by process group and operation: how often, how much, how long, hidden or not, and how fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from traceread import intervals
from traceread.measurements.collectives import PEER_TO_PEER
from traceread.measurements.matching import Group, Matches
from traceread.measurements.rank_facts import RankFacts
from traceread.measurements.waiting import ExposedSplit, Split, Waiting
from traceread.model import Operation
from traceread.records import record

SMALL_BYTES = 1 << 20
"""The time of a smaller message is latency: a bandwidth says nothing about it."""

_ONE_SHARE = (Operation.ALL_GATHER, Operation.REDUCE_SCATTER, Operation.ALL_TO_ALL, Operation.GATHER, Operation.SCATTER)


@record
class OperationTime:
    """One operation of one process group, summed over the used steps of all loaded ranks.

    Attributes:
        group: the process group.
        operation: what it does.
        ranks: number of loaded ranks that do it.
        size: ranks of the group as far as known.
        count: kernels.
        sized: those of them whose message size is known.
        bytes: their message sizes, as nccl-tests counts them.
        wait_ns, transfer_ns, not_split_ns: exposed time: waiting for peers, moving data, and what of the two is not known.
        hidden_ns: time under compute.
        moved_bytes, moving_ns: size and transfer time of what is split and sized; together they give the bandwidth.
        lasting_bytes, lasting_ns: size and length of the sized ones that are not split: they may have waited.
        small: sized ones of less than SMALL_BYTES.
        small_ns: their transfer, or their length where they are not split.
        lower_bound: some of the waiting is a lower bound, because ranks of the group are not loaded.
    """

    group: Group
    operation: Operation
    ranks: int
    size: int
    count: int
    sized: int
    bytes: int
    wait_ns: int
    transfer_ns: int
    not_split_ns: int
    hidden_ns: int
    moved_bytes: int
    moving_ns: int
    lasting_bytes: int
    lasting_ns: int
    small: int
    small_ns: int
    lower_bound: bool

    @property
    def exposed_ns(self) -> int:
        """Exposed time."""
        return self.wait_ns + self.transfer_ns + self.not_split_ns

    @property
    def bandwidth(self) -> tuple[int, bool] | None:
        """Algorithm bandwidth in bytes per second, and whether it is only a lower bound; None where sizes are not known.

        Message size over time, as in nccl-tests. Time is transfer where waiting is known, else the kernel's length.
        """
        if self.moving_ns and self.moved_bytes:
            return self.moved_bytes * 10**9 // self.moving_ns, False
        if self.lasting_ns and self.lasting_bytes:
            return self.lasting_bytes * 10**9 // self.lasting_ns, True
        return None

    @property
    def bus_factor(self) -> tuple[int, int]:
        """What turns algorithm bandwidth into bus bandwidth, as a fraction (nccl-tests, doc/PERFORMANCE.md); (0, 1) for one rank."""
        n = self.size
        if n == 1:
            return 0, 1
        if self.operation is Operation.ALL_REDUCE:
            return 2 * (n - 1), n
        return (n - 1, n) if self.operation in _ONE_SHARE else (1, 1)

    @property
    def bus_bandwidth(self) -> int | None:
        """Bus bandwidth in bytes per second: comparable with the speed of a link, whatever the number of ranks."""
        found = self.bandwidth
        over, under = self.bus_factor
        return None if found is None else found[0] * over // under

    def to_dict(self, link_bytes_per_s: float | None = None) -> dict[str, Any]:
        """The operation as JSON builtins."""
        found, bus = self.bandwidth, self.bus_bandwidth
        return {
            "group": self.group.to_dict(),
            "operation": self.operation.key,
            "ranks_loaded": self.ranks,
            "size": self.size,
            "count": self.count,
            "sized": self.sized,
            "bytes": self.bytes if self.sized else None,
            "exposed_ns": self.exposed_ns,
            "exposed_wait_ns": self.wait_ns,
            "exposed_transfer_ns": self.transfer_ns,
            "exposed_not_split_ns": self.not_split_ns,
            "hidden_ns": self.hidden_ns,
            "waiting_is_lower_bound": self.lower_bound,
            "algorithm_bytes_per_s": None if found is None else found[0],
            "bus_bytes_per_s": bus,
            "bandwidth_is_lower_bound": None if found is None else found[1],
            "link_share": bus / link_bytes_per_s if bus is not None and link_bytes_per_s else None,
            "small_count": self.small,
            "small_ns": self.small_ns,
        }


def sum_operations(
    facts: Sequence[RankFacts], matches: Matches, waiting: Waiting, exposed: Sequence[ExposedSplit], world_size: int | None
) -> tuple[OperationTime, ...]:
    """Communication by group and operation, most exposed time first."""
    used = np.concatenate([f.in_used_windows() for f in facts] or [np.empty(0, bool)])
    operation, size_of = matches.column("operation"), matches.column("bytes")
    length = matches.column("end_ns") - matches.column("start_ns")
    known = waiting.split == Split.SPLIT
    moving = np.where(known, length - waiting.wait_ns, length)
    sized = used & (size_of >= 0)
    small = sized & (size_of < SMALL_BYTES)
    columns = {
        "count": used.astype(np.int64),
        "sized": sized.astype(np.int64),
        "bytes": np.where(sized, size_of, 0),
        "wait_ns": _of_all(exposed, "own_wait_ns"),
        "transfer_ns": _of_all(exposed, "own_transfer_ns"),
        "not_split_ns": _of_all(exposed, "own_not_split_ns"),
        "hidden_ns": _of_all(exposed, "hidden_ns"),
        "moved_bytes": np.where(sized & known, size_of, 0),
        "moving_ns": np.where(sized & known, moving, 0),
        "lasting_bytes": np.where(sized & ~known, size_of, 0),
        "lasting_ns": np.where(sized & ~known, length, 0),
        "small": small.astype(np.int64),
        "small_ns": np.where(small, moving, 0),
    }
    key = matches.group * len(Operation) + operation
    keys, of = np.unique(key, return_inverse=True)
    sums = {name: np.zeros(len(keys), np.int64) for name in columns}
    for name, values in columns.items():
        np.add.at(sums[name], of, values)
    bounded = np.zeros(len(keys), bool)
    bounded[of[used & (waiting.lower_bound == 1)]] = True
    found = []
    for i, k in enumerate(keys.tolist()):
        group, kind = matches.groups[k // len(Operation)], Operation(k % len(Operation))
        ranks = len(intervals.unique(matches.rank_of[(of == i) & used]))
        if sums["count"][i] or sums["wait_ns"][i] + sums["transfer_ns"][i] + sums["not_split_ns"][i]:
            size = 2 if kind in PEER_TO_PEER else group.size if group.size > 0 else world_size or len(group.loaded)
            totals = {name: int(column[i]) for name, column in sums.items()}
            found.append(OperationTime(group, kind, ranks, size, lower_bound=bool(bounded[i]), **totals))
    return tuple(sorted(found, key=lambda o: (-o.exposed_ns, -o.hidden_ns, o.group.title, o.operation)))


def _of_all(exposed: Sequence[ExposedSplit], name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.concatenate([getattr(e, name) for e in exposed] or [np.empty(0, np.int64)])
