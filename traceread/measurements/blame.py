"""Who is to blame for waiting, and why that rank was late (section 6 of the time model).

The wait of a rank in a collective is shared among causes in proportion to what the last rank did more of than its peers since it
had arrived at the group's collective before: more computing, more waiting for data, more host time between launches. Durations on
one rank need no clock, so causes do not depend on how well clocks are aligned.

Two kinds of lateness are older than that, and keep their causes. What the last rank spent waiting in another group is passed on to
what that wait was charged with. And where computing hid the wait in the collective before, the waiting rank has gone on: it is
ahead by as much, and waits for the same lateness again (the second bucket of a gradient reduction, say).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.intervals import Intervals
from traceread.measurements.classes import IDLE_CLASSES, StepClass
from traceread.measurements.clocks import Clocks
from traceread.measurements.idle import Idle
from traceread.measurements.matching import Matches
from traceread.measurements.partition import Busy
from traceread.measurements.steps import Steps
from traceread.measurements.waiting import NOBODY, ExposedSplit, Split, Waiting
from traceread.model import CodeColumn, IntColumn, Table, column
from traceread.records import record

Amounts = npt.NDArray[np.int64]

_CLASSES = len(StepClass)
_OUTSIDE = _CLASSES  # the column behind the classes: time outside all windows
_CHUNK = 1 << 22  # numbers held at once


class Cause(IntEnum):
    """What waiting is charged to: a class in which the last rank spent more time than its peers, or one of two more."""

    COMPUTE = StepClass.COMPUTE
    COMMUNICATION = StepClass.EXPOSED_COMMUNICATION
    COPY = StepClass.EXPOSED_COPY
    DATA_WAIT = StepClass.DATA_WAIT
    HOST_SYNC = StepClass.HOST_SYNC
    LAUNCH_BOUND = StepClass.LAUNCH_BOUND
    ALLOCATION = StepClass.ALLOCATION
    COMPILE = StepClass.COMPILE
    CHECKPOINT = StepClass.CHECKPOINT
    PROFILER = StepClass.PROFILER
    QUEUED = StepClass.QUEUED
    UNATTRIBUTED = StepClass.UNATTRIBUTED
    BUBBLE = _CLASSES  # waiting in sends and receives: the order of the pipeline, nobody's fault
    UNEXPLAINED = _CLASSES + 1

    @property
    def key(self) -> str:
        """The name in JSON and tables, such as "data_wait"."""
        return self.name.lower()

    @property
    def title(self) -> str:
        """The name in sentences, such as "data wait"."""
        return _TITLES.get(self) or self.key.replace("_", " ")


_TITLES = {Cause.LAUNCH_BOUND: "launch-bound", Cause.UNATTRIBUTED: "idle, cause not recorded", Cause.BUBBLE: "pipeline bubble"}


@record(eq=False)
class Charges(Table):
    """What each wait is charged to. The charges of a row add up to its wait, and to the exposed part of it, exactly."""

    row: IntColumn = column("int64", "", "waiting row of Matches")
    blamed: CodeColumn = column("int32", "", "position of the rank that was late, -1: nobody")
    cause: CodeColumn = column("int32", "", "Cause")
    wait_ns: IntColumn = column("int64", "ns", "part of the wait")
    exposed_ns: IntColumn = column("int64", "ns", "part of the wait that nothing hides, inside used windows")


@record(eq=False)
class Between:
    """What a rank did between two instants, for many pairs of them.

    Attributes:
        class_ns: ns per class (column), exposed communication without waiting.
        waiting_ns: ns waiting for peers with nothing hiding it.
        outside_ns: ns outside all windows.
    """

    class_ns: Amounts
    waiting_ns: IntColumn
    outside_ns: IntColumn


def time_between(steps: Steps, busy: Busy, idle: Idle, waits: Intervals, start: IntColumn, end: IntColumn) -> Between:
    """Class times of one rank in each `[start, end)`; they and `outside_ns` add up to its length, which is 0 where end < start.

    Args:
        steps: windows of the rank.
        busy: unions of its activities.
        idle: its idle intervals with their causes.
        waits: when it was waiting for peers with nothing hiding it.
        start: where the stretches begin.
        end: where they end.
    """
    length = np.maximum(end - start, 0)
    if not steps.windows:
        return Between(np.zeros((len(start), _CLASSES), np.int64), np.zeros(len(start), np.int64), length)
    low, high = steps.windows[0].start_ns, steps.windows[-1].end_ns
    begin, stop = np.clip(start, low, high), np.clip(np.maximum(end, start), low, high)
    computing_or_moving = intervals.union(
        np.concatenate((busy.compute.start, busy.communication.start)), np.concatenate((busy.compute.end, busy.communication.end))
    )
    result = np.zeros((len(start), _CLASSES), np.int64)
    compute, moving = intervals.covered(busy.compute, begin, stop), intervals.covered(computing_or_moving, begin, stop)
    waiting = intervals.covered(waits, begin, stop)
    result[:, StepClass.COMPUTE] = compute
    result[:, StepClass.EXPOSED_COMMUNICATION] = moving - compute - waiting
    result[:, StepClass.EXPOSED_COPY] = intervals.covered(busy.any, begin, stop) - moving
    for cause in IDLE_CLASSES:
        rows = idle.cause == cause
        if rows.any():
            result[:, cause] = intervals.covered(Intervals(idle.start_ns[rows], idle.end_ns[rows]), begin, stop)
    return Between(result, waiting, length - (stop - begin))


def previous(matches: Matches) -> IntColumn:
    """For each row the matched operation of the same group before it on its rank, -1 where it is the first or not matched."""
    start = matches.column("start_ns")
    result = np.full(len(start), NOBODY)
    met = np.flatnonzero(matches.meeting >= 0)
    order = met[np.lexsort((start[met], matches.group[met], matches.rank_of[met]))]
    rank, group = matches.rank_of[order], matches.group[order]
    same = (rank[1:] == rank[:-1]) & (group[1:] == group[:-1])
    result[order[1:][same]] = order[:-1][same]
    return result


def charge(
    matches: Matches, waiting: Waiting, clocks: Clocks, before: IntColumn, between: Sequence[Between], exposed: Sequence[ExposedSplit]
) -> Charges:
    """What every wait is charged to.

    Args:
        matches: which operations are one.
        waiting: how long each rank waits in them.
        clocks: residuals; a wait shorter than those of the two ranks blames nobody.
        before: `previous`.
        between: for each rank what it did from the start of those until the start of its rows; not looked at where nobody waited.
        exposed: for each rank how its exposed communication is divided.
    """
    case = _Case(matches, waiting, clocks, before, exposed)
    waits = np.flatnonzero((waiting.split == Split.SPLIT) & (waiting.wait_ns > 0))
    paired, met = waits[matches.meeting[waits] < 0], waits[matches.meeting[waits] >= 0]
    late = waiting.last[met]
    clear = waiting.wait_ns[met] > case.residual[met] + case.residual[late]
    rows, late, unclear = met[clear], late[clear], met[~clear]
    excess = np.zeros((len(case.rank), _CLASSES + 1), np.int64)
    if len(late):
        excess[intervals.unique(late)] = _excess(case, between, intervals.unique(late))
    weights = np.zeros((len(rows), len(Cause)), np.int64)
    weights[:, :_CLASSES] = excess[late, :_CLASSES]
    weights[:, Cause.UNEXPLAINED] = excess[late, _OUTSIDE]
    at_once = (case.carried[rows] == 0) & (case.elsewhere[late] == 0)
    weights[~weights.any(axis=1) & (case.elsewhere[late] == 0), Cause.UNEXPLAINED] = 1
    unexplained = np.zeros((len(unclear), len(Cause)), np.int64)
    unexplained[:, Cause.UNEXPLAINED] = 1
    charges = [
        Charges(paired, np.full(len(paired), NOBODY), np.full(len(paired), Cause.BUBBLE), waiting.wait_ns[paired], case.exposed[paired]),
        _divided(case, unclear, np.full(len(unclear), NOBODY), unexplained),
        _divided(case, rows[at_once], case.rank[late[at_once]], weights[at_once]),
    ]
    if not at_once.all():
        charges.append(_in_order(case, rows[~at_once], weights[~at_once], _Ledger(_stacked(charges), len(case.rank))))
    table = _stacked(charges)
    return table.take(np.lexsort((table.cause, table.blamed, table.row)))


def _stacked(charges: Sequence[Charges]) -> Charges:
    return Charges(*(np.concatenate([getattr(c, name) for c in charges]) for name, _ in charges[0].columns()))


class _Case:
    """What is known about the rows of `Matches`.

    Attributes:
        carried: how much of a wait is the lateness of the wait before: what of it was hidden, if it was for the same rank.
        elsewhere: how long the rank waited in other groups, with nothing hiding it, since its group's operation before.
        exposed: exposed waiting inside used windows.
    """

    def __init__(self, matches: Matches, waiting: Waiting, clocks: Clocks, before: IntColumn, exposed: Sequence[ExposedSplit]) -> None:
        self.meeting, self.rank, self.before = matches.meeting, matches.rank_of, before
        self.start = matches.column("start_ns")
        self.aligned = np.concatenate([clocks.aligned(r, part) for r, part in enumerate(np.split(self.start, matches.first[1:-1]))])
        self.residual = np.array([o.residual_ns for o in clocks.offsets], np.int64)[self.rank]
        self.last, self.wait = waiting.last, waiting.wait_ns
        self.exposed = np.concatenate([e.own_wait_ns for e in exposed])
        self.blocked = np.concatenate([e.blocked_ns for e in exposed])
        self._order = np.lexsort((self.start, self.rank))
        self._ordered_start, self._first = self.start[self._order], matches.first
        blocked = self._blocked_since_before()
        known = before >= 0
        self.elsewhere = np.where(known, blocked - self.blocked[before], 0)
        same = known & (self.last >= 0) & (self.last[before] >= 0) & (self.rank[self.last] == self.rank[self.last[before]])
        self.carried = np.where(same, np.clip(self.wait[before] - blocked, 0, self.wait), 0)

    def _blocked_since_before(self) -> IntColumn:
        """For each row how long its rank waited, nothing hiding it, in operations from its group's one before on."""
        place = np.empty(len(self._order), np.int64)
        place[self._order] = np.arange(len(self._order))
        total = np.concatenate(([0], np.cumsum(self.blocked[self._order])))
        return np.where(self.before >= 0, total[place] - total[place[self.before]], 0)

    def waits_elsewhere(self, row: int) -> IntColumn:
        """Rows of other groups in which the rank of a row waited since its group's operation before."""
        before = int(self.before[row])
        own = slice(self._first[self.rank[row]], self._first[self.rank[row] + 1])
        low, high = np.searchsorted(self._ordered_start[own], (self.start[before], self.start[row]))
        between = self._order[own][low:high]
        found: IntColumn = between[(self.blocked[between] > 0) & (between != before)]
        return found


def _excess(case: _Case, between: Sequence[Between], late: IntColumn) -> Amounts:
    """For each of these late rows what its rank did more of than the median of its peers, since the group's operation before.

    0 where that operation is not in the capture, on this rank or on all others. Columns: classes, _OUTSIDE.
    """
    own = np.concatenate([np.column_stack((b.class_ns, b.outside_ns)) for b in between])
    known = case.before >= 0
    result = np.zeros((len(late), own.shape[1]), np.int64)
    rows = np.flatnonzero((case.meeting >= 0) & known & np.isin(case.meeting, case.meeting[late]))
    if not len(rows):
        return result
    rows = rows[np.argsort(case.meeting[rows], kind="stable")]
    values, begins, size = np.unique(case.meeting[rows], return_index=True, return_counts=True)
    at = np.minimum(np.searchsorted(values, case.meeting[late]), len(values) - 1)
    usable = known[late] & (size[at] > 1)
    for count in intervals.unique(size[at[usable]]).tolist():
        mine = np.flatnonzero(usable & (size[at] == count))
        step = max(_CHUNK // (count * own.shape[1]), 1)
        for chunk in np.split(mine, range(step, len(mine), step)):
            members = rows[begins[at[chunk]][:, None] + np.arange(count)]
            peers = members[members != late[chunk][:, None]].reshape(len(chunk), count - 1)
            typical = np.sort(own[peers], axis=1)[:, (count - 2) // 2]
            result[chunk] = np.maximum(own[late[chunk]] - typical, 0)
    return result


def _divided(case: _Case, rows: IntColumn, blamed: IntColumn, weights: Amounts) -> Charges:
    """Charges of rows that blame one rank each, by weights per cause."""
    wait = share_out(case.wait[rows], weights)
    exposed = share_out(case.exposed[rows], wait)
    row, cause = np.nonzero(wait)
    return Charges(rows[row], blamed[row].astype(np.int32), cause.astype(np.int32), wait[row, cause], exposed[row, cause])


class _Ledger:
    """What each row is charged to so far: a code for (blamed, cause) and ns, the charges of a row side by side."""

    def __init__(self, known: Charges, rows: int) -> None:
        known = known.take(np.argsort(known.row, kind="stable"))
        self._code, self._ns = (known.blamed.astype(np.int64) + 1) * len(Cause) + known.cause, known.wait_ns
        self._used = len(known)
        self._count = np.bincount(known.row, minlength=rows)
        self._first = np.searchsorted(known.row, np.arange(rows))

    def add(self, row: IntColumn, code: IntColumn, ns: IntColumn) -> None:
        """Charges of more rows, those of a row side by side."""
        end = self._used + len(row)
        if end > len(self._ns):
            self._code, self._ns = (np.resize(column, 2 * end) for column in (self._code, self._ns))
        self._code[self._used : end], self._ns[self._used : end] = code, ns
        rows, begins, count = np.unique(row, return_index=True, return_counts=True)
        self._first[rows], self._count[rows] = self._used + begins, count
        self._used = end

    def divide(self, rows: IntColumn, amounts: IntColumn) -> tuple[IntColumn, Amounts]:
        """Amounts divided like what these rows are charged to: the codes, and for each row the parts; 0 where nothing is known."""
        count = np.where(amounts > 0, self._count[rows], 0)
        if not count.any():
            return np.empty(0, np.int64), np.zeros((len(rows), 0), np.int64)
        of = np.repeat(np.arange(len(rows)), count)
        at = np.arange(len(of)) - np.repeat(np.cumsum(count) - count - self._first[rows], count)
        codes, which = np.unique(self._code[at], return_inverse=True)
        weights = np.zeros((len(rows), len(codes)), np.int64)
        weights[of, which] = self._ns[at]
        return codes, share_out(amounts, weights)


def _in_order(case: _Case, rows: IntColumn, weights: Amounts, ledger: _Ledger) -> Charges:
    """Charges of rows that depend on those of earlier ones, meeting by meeting in order of time.

    Args:
        case: what is known.
        rows: the waiting rows.
        weights: for each its weights per cause, waiting in other groups left out.
        ledger: what all other rows are charged to.
    """
    late = case.last[rows]
    order = np.lexsort((rows, late, case.aligned[late]))
    found = []
    for mine in np.split(order, np.flatnonzero(np.diff(late[order])) + 1):
        row, last = rows[mine], int(late[mine[0]])
        own = (case.rank[last] + 1) * len(Cause)
        elsewhere = case.waits_elsewhere(last) if case.elsewhere[last] else np.empty(0, np.int64)
        passed_on, parts = ledger.divide(elsewhere, case.blocked[elsewhere])
        kept, carried = ledger.divide(case.before[row], case.carried[row])
        codes = intervals.unique(np.concatenate((own + np.arange(len(Cause)), passed_on, kept)))
        new = np.zeros(len(codes), np.int64)
        new[np.searchsorted(codes, own) + np.arange(len(Cause))] = weights[mine[0]]
        new[np.searchsorted(codes, passed_on)] += parts.sum(axis=0)
        if not new.any():
            new[np.searchsorted(codes, own + Cause.UNEXPLAINED)] = 1
        wait = share_out(case.wait[row] - carried.sum(axis=1), np.broadcast_to(new, (len(row), len(codes))))
        wait[:, np.searchsorted(codes, kept)] += carried
        exposed = share_out(case.exposed[row], wait)
        at, which = np.nonzero(wait)
        ledger.add(row[at], codes[which], wait[at, which])
        found.append((row[at], codes[which], wait[at, which], exposed[at, which]))
    row, code, wait_ns, exposed_ns = (np.concatenate(column) for column in zip(*found, strict=True))
    return Charges(row, (code // len(Cause) - 1).astype(np.int32), (code % len(Cause)).astype(np.int32), wait_ns, exposed_ns)


def share_out(amounts: IntColumn, weights: Amounts) -> Amounts:
    """Each amount divided in proportion to a row of weights, in whole ns that add up (largest remainder, earlier columns first).

    A row without weights gets nothing.
    """
    total = weights.sum(axis=1)
    if len(amounts) and int(amounts.max()) * int(weights.max(initial=0)) >= 1 << 62:
        return np.array([_share_one(int(a), w) for a, w in zip(amounts, weights.tolist(), strict=True)], np.int64).reshape(weights.shape)
    product = amounts[:, None] * weights
    divisor = np.maximum(total, 1)[:, None]
    parts = product // divisor
    missing = np.where(total > 0, amounts - parts.sum(axis=1), 0)
    by_remainder = np.argsort(-(product % divisor), axis=1, kind="stable")
    place = np.argsort(by_remainder, axis=1, kind="stable")
    result: Amounts = parts + (place < missing[:, None])
    return result


def _share_one(amount: int, weights: Sequence[int]) -> list[int]:
    total = sum(weights)
    if not total:
        return [0] * len(weights)
    parts = [amount * w // total for w in weights]
    order = sorted(range(len(weights)), key=lambda i: (-(amount * weights[i] % total), i))
    for i in order[: amount - sum(parts)]:
        parts[i] += 1
    return parts
