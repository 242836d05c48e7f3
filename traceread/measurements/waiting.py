"""Waiting for peers and transfer inside collectives, and inside the communication that nothing hides (section 6 of the time model).

`[start, S)` of a collective is waiting, the rest is transfer; S is when the last rank whose data are needed starts. Of ranks that
are not loaded nothing is known, so waiting is a lower bound where some are missing, and with one rank nothing is split.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.intervals import Intervals
from traceread.measurements.clocks import Clocks
from traceread.measurements.collectives import ROOTED, SYMMETRIC, Collectives
from traceread.measurements.matching import Matches, Unmatched
from traceread.measurements.partition import Busy
from traceread.measurements.steps import Steps
from traceread.model import FlagColumn, IntColumn, Operation
from traceread.records import record

NOBODY = -1


class Split(IntEnum):
    """Whether an operation is split into waiting and transfer, or why not."""

    SPLIT = 0
    ALONE = 1  # no other rank of it is loaded
    UNMATCHED = 2
    UNKNOWN_OPERATION = 3
    UNKNOWN_ROOT = 4  # or the root is not loaded
    NO_CLOCK = 5  # the clocks of its ranks cannot be compared

    @property
    def text(self) -> str:
        """The reason in words."""
        return _SPLIT_TEXT[self]


_SPLIT_TEXT = {
    Split.SPLIT: "split",
    Split.ALONE: "only one of its ranks is loaded",
    Split.UNMATCHED: "not matched with the other ranks",
    Split.UNKNOWN_OPERATION: "the operation is not recorded",
    Split.UNKNOWN_ROOT: "its root is not recorded or not loaded",
    Split.NO_CLOCK: "the clocks of its ranks cannot be compared",
}


@record(eq=False)
class Waiting:
    """Waiting in every collective; columns are parallel to the rows of `Matches`.

    Attributes:
        split: a Split.
        wait_ns: waiting for peers; 0 where not split.
        last: row of the rank that was waited for, the rank's own if it waits for nobody, -1 where not split.
        lead_ns: for the last of a meeting how much later than the second to last it starts, else 0.
        lower_bound: 1 where ranks of the operation are not loaded.
    """

    split: npt.NDArray[np.uint8]
    wait_ns: IntColumn
    last: IntColumn
    lead_ns: IntColumn
    lower_bound: FlagColumn


def find_waiting(matches: Matches, clocks: Clocks, world_size: int | None = None) -> Waiting:
    """How long each rank waits for its peers in each operation.

    Args:
        matches: which operations are one.
        clocks: how to compare their starts.
        world_size: ranks of the job, for groups that do not record their size.
    """
    count = len(matches.meeting)
    rank, operation = matches.rank_of, matches.column("operation")
    start, end = matches.column("start_ns"), matches.column("end_ns")
    aligned = np.concatenate(
        [clocks.aligned(r, start[matches.first[r] : matches.first[r + 1]]) for r in range(len(matches.ranks))] or [np.empty(0, np.int64)]
    )
    split = np.full(count, Split.UNMATCHED, np.uint8)
    split[matches.unmatched == Unmatched.NO_PARTNER] = Split.ALONE
    split[operation == Operation.UNKNOWN] = Split.UNKNOWN_OPERATION
    ready, last, lead = aligned.copy(), np.full(count, NOBODY), np.zeros(count, np.int64)
    by_itself = np.flatnonzero(_sizes(matches, world_size)[matches.group] == 1) if count else np.empty(0, np.int64)
    split[by_itself], last[by_itself] = Split.SPLIT, by_itself
    bound = np.zeros(count, np.int8)
    _meetings(matches, clocks, rank, operation, aligned, (split, ready, last, lead, bound), world_size)
    _exchanges(matches, clocks, rank, aligned, (split, ready, last, lead, bound))
    wait = np.where(split == Split.SPLIT, np.clip(ready - aligned, 0, end - start), 0)
    return Waiting(split, wait, np.where(split == Split.SPLIT, last, NOBODY), lead, bound)


_State = tuple[npt.NDArray[np.uint8], IntColumn, IntColumn, IntColumn, FlagColumn]


def _meetings(
    matches: Matches, clocks: Clocks, rank: IntColumn, operation: IntColumn, aligned: IntColumn, state: _State, world_size: int | None
) -> None:
    """Fills in the operations of whole groups, comparing only ranks whose clocks have the same reference."""
    split, ready, last, lead, bound = state
    met = np.flatnonzero(matches.meeting >= 0)
    if not len(met):
        return
    reference = np.array(clocks.reference, np.int64)[rank]
    ids = np.stack((matches.meeting[met], reference[met]), axis=1)
    distinct, of = np.unique(ids, axis=0, return_inverse=True)
    of = of.ravel()
    order = np.lexsort((met, aligned[met], of))  # the last of each set stands at its end
    rows, of = met[order], of[order]
    ends = np.append(np.flatnonzero(np.diff(of)), len(of) - 1)
    size = np.diff(np.concatenate(([-1], ends)))
    latest = rows[ends][of]
    together, split_up = size[of] > 1, _split_up(distinct[:, 0])[of]
    symmetric = np.isin(operation[rows], (*SYMMETRIC, Operation.SEND_RECV))
    rooted = np.isin(operation[rows], ROOTED)
    root, at_root, root_row = _roots(matches, rows, of, rank)
    collecting = np.isin(operation[rows], (Operation.REDUCE, Operation.GATHER))
    needs_all = symmetric | (rooted & collecting & at_root)
    needs_root = rooted & ~collecting & ~at_root
    needs_nobody = rooted & (collecting != at_root)
    split[rows] = np.select(
        [operation[rows] == Operation.UNKNOWN, ~together, rooted & ((root < 0) | (~collecting & (root_row < 0)))],
        [Split.UNKNOWN_OPERATION, np.where(split_up, Split.NO_CLOCK, Split.UNMATCHED), Split.UNKNOWN_ROOT],
        Split.SPLIT,
    )
    awaited = np.where(needs_all, latest, np.where(needs_root, root_row, np.where(needs_nobody, rows, NOBODY)))
    counts = (split[rows] == Split.SPLIT) & (awaited >= 0)
    ready[rows[counts]] = np.maximum(aligned[rows], aligned[awaited])[counts]
    last[rows[counts]] = np.where(aligned[awaited] > aligned[rows], awaited, rows)[counts]
    second = rows[np.maximum(ends - 1, 0)]
    leading = (size > 1) & symmetric[ends]
    lead[rows[ends[leading]]] = (aligned[rows[ends]] - aligned[second])[leading]
    sizes = _sizes(matches, world_size)
    bound[rows] = size[of] < np.where(sizes > 0, sizes, [len(g.loaded) for g in matches.groups])[matches.group[rows]]


def _sizes(matches: Matches, world_size: int | None) -> IntColumn:
    """Number of ranks of each group, -1 where it is not known."""
    return np.array([g.size if g.size > 0 else world_size or -1 for g in matches.groups], np.int64)


def _split_up(meeting: IntColumn) -> npt.NDArray[np.bool_]:
    """For each set of ranks with one clock whether its meeting has another such set."""
    _, of, count = np.unique(meeting, return_inverse=True, return_counts=True)
    result: npt.NDArray[np.bool_] = count[of.ravel()] > 1
    return result


def _roots(matches: Matches, rows: IntColumn, of: IntColumn, rank: IntColumn) -> tuple[IntColumn, npt.NDArray[np.bool_], IntColumn]:
    """For each row the root of its operation, whether its own rank is that, and the row of the root in its set, -1 if not there."""
    number = np.array([r.rank for r in matches.ranks], np.int64)
    root = matches.column("root")[rows]
    at_root = (root >= 0) & (number[rank[rows]] == root)
    root_row = np.full(int(of.max()) + 1, NOBODY)
    root_row[of[at_root]] = rows[at_root]
    return root, at_root, root_row[of]


def _exchanges(matches: Matches, clocks: Clocks, rank: IntColumn, aligned: IntColumn, state: _State) -> None:
    """Fills in sends and receives: the one waits for the other. A kernel that does many waits for the latest."""
    split, ready, last, _, bound = state
    one = np.concatenate((matches.sender, matches.receiver))
    other = np.concatenate((matches.receiver, matches.sender))
    peers = np.zeros(len(ready), np.int64)
    for r, of_rank in enumerate(matches.ranks):
        np.add.at(peers, of_rank.peers.collective + matches.first[r], 1)
    bound[np.bincount(one, minlength=len(ready)) < peers] = 1
    reference = np.array(clocks.reference, np.int64)[rank]
    apart = reference[one] != reference[other]
    split[one[apart]] = Split.NO_CLOCK
    one, other = one[~apart], other[~apart]
    order = np.lexsort((aligned[other], one))
    one, other = one[order], other[order]
    latest = np.append(one[1:] != one[:-1], True) if len(one) else np.empty(0, bool)
    one, other = one[latest], other[latest]
    split[one] = Split.SPLIT
    ready[one] = np.maximum(aligned[one], aligned[other])
    last[one] = np.where(aligned[other] > aligned[one], other, one)


# Exposed communication.


@record(eq=False)
class ExposedSplit:
    """Exposed communication of one rank, divided; each sum is exact.

    Attributes:
        wait_ns, transfer_ns, not_split_ns: per window, parallel to `Steps.windows`; they add up to exposed communication.
        own_wait_ns, own_transfer_ns, own_not_split_ns: per collective, inside used windows; of collectives that overlap the one
            that began first owns the time, so that they add up as well. Communication that is no kernel has no collective.
        blocked_ns: per collective, waiting with nothing hiding it, wherever; as `own_wait_ns` inside used windows.
        hidden_ns: per collective, time under compute inside used windows.
        other_ns: exposed communication of used windows outside any collective: copies between devices.
        waits: when this rank was waiting with nothing hiding it.
    """

    wait_ns: IntColumn
    transfer_ns: IntColumn
    not_split_ns: IntColumn
    own_wait_ns: IntColumn
    own_transfer_ns: IntColumn
    own_not_split_ns: IntColumn
    blocked_ns: IntColumn
    hidden_ns: IntColumn
    other_ns: int
    waits: Intervals


def split_exposed(steps: Steps, busy: Busy, table: Collectives, split: npt.NDArray[np.uint8], wait_ns: IntColumn) -> ExposedSplit:
    """Exposed communication of one rank, divided into waiting, transfer and what is not split.

    Where collectives overlap, transfer wins over what is not split, and that over waiting.

    Args:
        steps: windows of the rank.
        busy: unions of its activities.
        table: its collectives.
        split: for each of them whether it is split, as in `Waiting`.
        wait_ns: how long it waits.
    """
    exposed = intervals.subtract(busy.communication, busy.compute)
    known = split == Split.SPLIT
    ready = table.start_ns + wait_ns
    moving = intervals.union(ready[known], table.end_ns[known])
    unknown = intervals.union(table.start_ns[~known], table.end_ns[~known])
    waiting = intervals.union(table.start_ns[known], ready[known])
    transfer = intervals.intersect(exposed, moving)
    rest = intervals.subtract(exposed, moving)
    waits = intervals.intersect(intervals.subtract(rest, unknown), waiting)
    not_split = intervals.subtract(rest, waits)
    start = np.array([w.start_ns for w in steps.windows], np.int64)
    end = np.array([w.end_ns for w in steps.windows], np.int64)
    used = np.array(steps.used, bool)
    inside = intervals.union(start[used], end[used])
    own_not_split = _owned(table.start_ns, table.end_ns, ~known, intervals.intersect(not_split, inside))
    hidden = intervals.intersect(busy.compute, inside)
    return ExposedSplit(
        wait_ns=intervals.covered(waits, start, end),
        transfer_ns=intervals.covered(transfer, start, end),
        not_split_ns=intervals.covered(not_split, start, end),
        own_wait_ns=_owned(table.start_ns, ready, known, intervals.intersect(waits, inside)),
        own_transfer_ns=_owned(ready, table.end_ns, known, intervals.intersect(transfer, inside)),
        own_not_split_ns=own_not_split,
        blocked_ns=_owned(table.start_ns, ready, known, waits),
        hidden_ns=intervals.covered(hidden, table.start_ns, table.end_ns),
        other_ns=intervals.intersect(not_split, inside).total - int(own_not_split.sum()),
        waits=waits,
    )


def _owned(start: IntColumn, end: IntColumn, which: npt.NDArray[np.bool_], of: Intervals) -> IntColumn:
    """For each interval the part of a set in it that no earlier one has; 0 for those not asked for."""
    result = np.zeros(len(start), np.int64)
    rows = np.flatnonzero(which)
    rows = rows[np.argsort(start[rows], kind="stable")]
    if len(rows):
        reach = np.concatenate((start[rows][:1], np.maximum.accumulate(end[rows])[:-1]))
        result[rows] = intervals.covered(of, np.maximum(start[rows], reach), np.maximum(end[rows], reach))
    return result


def unsplit(steps: Steps, busy: Busy, table: Collectives) -> ExposedSplit:
    """The same where no other rank is known: nothing is split."""
    return split_exposed(steps, busy, table, np.full(len(table), Split.ALONE, np.uint8), np.zeros(len(table), np.int64))
