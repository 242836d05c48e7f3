"""The collective operations of one rank: every communication kernel with what was recorded about it.

A kernel carries its collective's arguments itself, or was launched inside a host range that names it, or closes a group of such
ranges (sends and receives in one batch, coalesced tensors): then it is one instance with many parts. Where nothing was recorded
only the kernel's name is left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.categories.operations import launches as can_launch
from traceread.categories.operations import operation_of_kernel
from traceread.measurements.launches import Launches
from traceread.measurements.steps import Steps, StepSource
from traceread.model import (
    ELEMENT_BYTES,
    NOT_RECORDED,
    ActivityKind,
    ByteColumn,
    Category,
    CodeColumn,
    CollectiveRecords,
    IntColumn,
    Operation,
    ProcessGroup,
    Table,
    Trace,
    column,
)
from traceread.records import record

GROUPED_NS = 10_000_000
"""A group of sends, receives or coalesced collectives is launched at most this long after its last part was recorded."""

SYMMETRIC = (Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.REDUCE_SCATTER, Operation.ALL_TO_ALL, Operation.BARRIER)
"""Operations in which every rank needs every other's data."""
ROOTED = (Operation.BROADCAST, Operation.SCATTER, Operation.REDUCE, Operation.GATHER)
PEER_TO_PEER = (Operation.SEND, Operation.RECV, Operation.SEND_RECV)

_ELEMENT_BYTES = np.array(list(ELEMENT_BYTES.values()), np.int64)
_TOLD = ("group", "sequence", "dtype", "elements_in", "elements_out", "source", "destination", "root", "largest_in", "largest_out")
_LAST_NUMBER = re.compile(r"(\d{1,15})\D*$")


class Evidence(IntEnum):
    """How the operation of a kernel is known."""

    NOTHING = 0
    KERNEL_NAME = 1
    GROUP = 2  # ranges recorded just before its launch, on the same thread
    RECORD = 3  # its own arguments, or the range it was launched in


@record(eq=False)
class Collectives(Table):
    """The communication kernels of one rank, one row each, in order of start."""

    activity: IntColumn = column("int64", "", "position in Trace.activities")
    start_ns: IntColumn = column("int64", "ns", "start of the kernel")
    end_ns: IntColumn = column("int64", "ns", "end of the kernel")
    launch_ns: IntColumn = column("int64", "ns", "start of the call that launched it, -1: not recorded")
    stream: IntColumn = column("int64", "", "stream id as recorded")
    window: CodeColumn = column("int32", "", "position in Steps.windows: of its launch, else of its start; -1: none")
    step: IntColumn = column("int64", "", "number in the label of that step, -1: none")
    operation: ByteColumn = column("uint8", "", "Operation")
    evidence: ByteColumn = column("uint8", "", "Evidence: how the operation is known")
    group: CodeColumn = column("int32", "", "position in RankCollectives.groups, -1: not recorded")
    sequence: IntColumn = column("int64", "", "number within the group, -1: not recorded")
    dtype: ByteColumn = column("uint8", "", "position in ELEMENT_BYTES, 0: not recorded or several")
    elements_in: IntColumn = column("int64", "", "elements this rank gives, -1: not recorded")
    elements_out: IntColumn = column("int64", "", "elements this rank gets, -1: not recorded")
    bytes: IntColumn = column("int64", "bytes", "message size as nccl-tests counts it, -1: not recorded")
    source: IntColumn = column("int64", "", "rank that sends, -1: not recorded or several")
    destination: IntColumn = column("int64", "", "rank that receives, -1: not recorded or several")
    root: IntColumn = column("int64", "", "root of a rooted operation, -1: not recorded")
    largest_in: IntColumn = column("int64", "", "all-to-all: most elements given to one peer, -1: not recorded or equal")
    largest_out: IntColumn = column("int64", "", "all-to-all: most elements got from one peer, -1: not recorded or equal")
    parts: CodeColumn = column("int32", "", "recorded operations that the kernel does at once, 0: none recorded")
    sends: CodeColumn = column("int32", "", "sends among the parts")
    receives: CodeColumn = column("int32", "", "receives among the parts")


@record(eq=False)
class Peers(Table):
    """The sends and receives inside the collectives of one rank whose both ends are known."""

    collective: IntColumn = column("int64", "", "position in Collectives")
    group: CodeColumn = column("int32", "", "position in RankCollectives.groups, -1: not recorded")
    source: IntColumn = column("int64", "", "rank that sends")
    destination: IntColumn = column("int64", "", "rank that receives")
    elements: IntColumn = column("int64", "", "elements, -1: not recorded")


@record(eq=False)
class RankCollectives:
    """What one rank contributes to the comparison of ranks; small, and all that matching needs.

    Attributes:
        rank: rank in the job.
        host: host name, None if not recorded.
        clock: what its times count from: ranks with the same value share a clock ("" stands for a clock of its own).
        epoch: its times count from the epoch, so that other ranks' clocks differ by what their hosts' clocks do.
        groups: its process groups.
        collectives, peers: its operations.
    """

    rank: int
    host: str | None
    clock: str
    epoch: bool
    groups: tuple[ProcessGroup, ...]
    collectives: Collectives
    peers: Peers


def find_collectives(trace: Trace, launches: Launches, steps: Steps) -> RankCollectives:
    """The communication kernels of a classified trace with their operation, group, sizes and peers."""
    activities = trace.activities
    rows = np.flatnonzero((activities.category == Category.COMMUNICATION) & (activities.kind == ActivityKind.KERNEL))
    kernels = _Kernels(
        rows,
        activities.start_ns[rows],
        np.where(launches.known[rows], launches.start_ns[rows], NOT_RECORDED),
        launches.thread[rows],
        activities.correlation[rows],
        _operations(trace, rows),
    )
    records = trace.collective_records
    on_host = _Ranges(records.take(records.correlation == NOT_RECORDED))
    parts = _parts(kernels, on_host)
    described = _Description(kernels, trace.rank)
    described.from_parts(parts, on_host)
    described.from_arguments(records.take(records.correlation != NOT_RECORDED))
    window, step = _windows(kernels, steps)
    size = np.array([g.size for g in trace.groups] + [NOT_RECORDED], np.int64)[described.group]
    collectives = Collectives(
        activity=rows,
        start_ns=kernels.start_ns,
        end_ns=activities.end_ns[rows],
        launch_ns=kernels.launch_ns,
        stream=activities.stream[rows],
        window=window.astype(np.int32),
        step=step,
        bytes=_message_bytes(described, size),
        **described.columns(),
    )
    return RankCollectives(
        trace.rank,
        trace.host,
        _clock(trace),
        trace.clock == "epoch",
        trace.groups,
        collectives,
        _peers(trace.rank, described, parts, on_host),
    )


def _clock(trace: Trace) -> str:
    """What tells a clock: the file of an nsys export, else the host; "" where neither is known."""
    return str(Path(trace.files[0])) if trace.source == "nsys" and trace.files else f"host {trace.host}" if trace.host else ""


@record(eq=False)
class _Kernels:
    """Communication kernels with their launches; `said` is the operation in their names."""

    row: IntColumn
    start_ns: IntColumn
    launch_ns: IntColumn
    thread: npt.NDArray[np.int32]
    correlation: IntColumn
    said: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.row)


def _operations(trace: Trace, rows: IntColumn) -> npt.NDArray[np.uint8]:
    codes, position = np.unique(trace.activities.name[rows], return_inverse=True)
    return np.array([operation_of_kernel(trace.names[code]) for code in codes.tolist()], np.uint8)[position]


def _windows(kernels: _Kernels, steps: Steps) -> tuple[IntColumn, IntColumn]:
    """Position of the window of each kernel, and the number in its label."""
    if not steps.windows:
        nothing = np.full(len(kernels), NOT_RECORDED)
        return nothing, nothing
    start, end = (np.array([getattr(w, name) for w in steps.windows], np.int64) for name in ("start_ns", "end_ns"))
    by_time = np.searchsorted(end, kernels.start_ns, side="right")
    inside = (by_time < len(end)) & (kernels.start_ns >= start[0])
    launched = steps.window_of[kernels.row]
    window = np.where(launched >= 0, launched, np.where(inside, by_time, NOT_RECORDED))
    recorded = steps.source is StepSource.RECORDED
    found = [_LAST_NUMBER.search(w.label) if recorded else None for w in steps.windows]
    number = np.array([int(match[1]) if match else NOT_RECORDED for match in found] + [NOT_RECORDED], np.int64)
    return window, number[window]


# Which records belong to which kernel.


class _Ranges:
    """Host ranges that name a collective, the outermost of each thread, with what stands inside them.

    Attributes:
        outer: the outermost ranges, in order of (thread, start).
        sent: bytes that sends inside an outer range move, -1 where they are not all recorded.
    """

    def __init__(self, records: CollectiveRecords) -> None:
        records = records.take(np.lexsort((-records.end_ns, records.start_ns, records.thread)))
        group = records.thread.astype(np.int64)
        reach = intervals.reach_per_group(records.start_ns, records.end_ns, np.unique(group, return_inverse=True)[1])
        first = np.concatenate(([True], group[1:] != group[:-1])) if len(group) else np.empty(0, bool)
        inside = ~first & (records.start_ns < reach) & (records.end_ns <= reach)
        outer = np.flatnonzero(~inside)
        of = np.cumsum(~inside) - 1
        table = records.take(outer)
        inner = np.flatnonzero(inside)
        self.sent = _sent_inside(records.take(inner), of[inner], len(outer))
        self.outer = _completed(table, records.take(inner), of[inner])

    def holding(self, thread: npt.NDArray[np.int32], at: IntColumn) -> IntColumn:
        """For each (thread, instant) the position of the outer range that holds it, -1 if none does."""
        if not len(self.outer):
            return np.full(len(at), NOT_RECORDED)
        instants, rank = np.unique(np.concatenate((self.outer.start_ns, self.outer.end_ns, at)), return_inverse=True)
        start, end, asked = np.split(rank, [len(self.outer), 2 * len(self.outer)])
        line = self.outer.thread.astype(np.int64) * len(instants)
        place = thread.astype(np.int64) * len(instants) + asked
        before = np.searchsorted(line + start, place, side="right") - 1
        held = (before >= 0) & (place < (line + end)[before]) & (at != NOT_RECORDED)
        return np.where(held, before, NOT_RECORDED)


def _sent_inside(inner: CollectiveRecords, of: IntColumn, count: int) -> IntColumn:
    sends = inner.operation == Operation.SEND
    total, unknown = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(total, of[sends], np.maximum(inner.bytes[sends], 0))
    np.add.at(unknown, of[sends], inner.bytes[sends] < 0)
    any_sent = np.bincount(of[sends], minlength=count) > 0
    return np.where(any_sent & (unknown == 0), total, NOT_RECORDED)


def _completed(outer: CollectiveRecords, inner: CollectiveRecords, of: IntColumn) -> CollectiveRecords:
    """The outer ranges with what they lack taken from the one range of the same operation inside, or the group of any inside."""
    same = inner.operation == outer.operation[of]
    alone = same & (np.bincount(of[same], minlength=len(outer))[of] == 1)
    filled = {}
    for name in ("group", "bytes", "root", "elements_in", "elements_out", "dtype", "sequence"):
        values = getattr(outer, name).copy()
        missing = 0 if name == "dtype" else NOT_RECORDED
        usable = np.ones(len(of), bool) if name == "group" else alone
        usable &= (getattr(inner, name) != missing) & (values[of] == missing)
        values[of[usable]] = getattr(inner, name)[usable]
        filled[name] = values
    return outer.replace(**filled)


@record
class _Parts:
    """Which outer ranges belong to which kernel.

    Attributes:
        held: for each kernel the range it was launched in, -1 if none.
        grouped: kernel → the ranges it closes, for those launched in none.
    """

    held: IntColumn
    grouped: dict[int, list[int]]


def _parts(kernels: _Kernels, ranges: _Ranges) -> _Parts:
    """The host records of each kernel."""
    held = ranges.holding(kernels.thread, kernels.launch_ns)
    grouped: dict[int, list[int]] = {}
    alone = np.flatnonzero((held < 0) & (kernels.launch_ns != NOT_RECORDED))
    if not len(alone) or not len(ranges.outer):
        return _Parts(held, grouped)
    launching = np.bincount(held[held >= 0], minlength=len(ranges.outer)) > 0
    for thread in intervals.unique(kernels.thread[alone]).tolist():
        free = np.flatnonzero((ranges.outer.thread == thread) & ~launching)
        launches = np.flatnonzero((kernels.thread == thread) & (kernels.launch_ns != NOT_RECORDED))
        launches = launches[np.argsort(kernels.launch_ns[launches], kind="stable")]
        grouped |= _grouped(kernels, ranges.outer, launches.tolist(), set(alone.tolist()), free)
    return _Parts(held, grouped)


def _grouped(kernels: _Kernels, outer: CollectiveRecords, order: Sequence[int], alone: set[int], free: IntColumn) -> dict[int, list[int]]:
    """The ranges that each lone launch of one thread closes: those since the launch before, if its kernel can do them.

    Several launches without a range in between belong to one group (one per communicator) and share its parts by kind.
    """
    found: dict[int, list[int]] = {}
    begins, ends = outer.start_ns[free], outer.end_ns[free]
    since = np.iinfo(np.int64).min
    waiting: list[int] = []
    for k in order:
        at = int(kernels.launch_ns[k])
        low, high = np.searchsorted(begins, since), np.searchsorted(begins, at)
        fresh = [int(free[i]) for i in range(low, high) if ends[i] <= at]
        waiting = [i for i in fresh or waiting if at - outer.end_ns[i] <= GROUPED_NS]
        since = at
        if k in alone:
            own = [i for i in waiting if can_launch(Operation(kernels.said[k]), Operation(outer.operation[i]))]
            if own:
                found[k] = own
                waiting = [i for i in waiting if i not in own]
    return found


# What the records say.


class _Description:
    """Columns of what is recorded about each kernel, filled step by step; what is known is never overwritten."""

    def __init__(self, kernels: _Kernels, rank: int) -> None:
        count = len(kernels)
        self._kernels = kernels
        self._rank = rank
        self.operation = np.full(count, Operation.UNKNOWN, np.uint8)
        self.evidence = np.full(count, Evidence.NOTHING, np.uint8)
        self.dtype = np.zeros(count, np.uint8)
        self.group, self.sequence, self.elements_in, self.elements_out, self.source = (np.full(count, NOT_RECORDED) for _ in range(5))
        self.destination, self.root, self.largest_in, self.largest_out, self.recorded_bytes = (
            np.full(count, NOT_RECORDED) for _ in range(5)
        )
        self.total_bytes = np.full(count, NOT_RECORDED)
        self.parts, self.sends, self.receives = (np.zeros(count, np.int64) for _ in range(3))

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The columns of `Collectives`; what is not known is taken from the kernel's name."""
        nameless = (self.operation == Operation.UNKNOWN) & (self._kernels.said != Operation.UNKNOWN)
        operation = np.where(nameless, self._kernels.said, self.operation)
        evidence = np.where(nameless, np.uint8(Evidence.KERNEL_NAME), self.evidence)
        return {"operation": operation, "evidence": evidence} | {
            name: getattr(self, name) for name in (*_TOLD, "parts", "sends", "receives")
        }

    def from_parts(self, parts: _Parts, ranges: _Ranges) -> None:
        """Takes what the host ranges of each kernel say; several are added up."""
        single = np.flatnonzero(parts.held >= 0)
        self._fill(single, ranges.outer.take(parts.held[single]))
        self.evidence[single] = Evidence.RECORD
        self.total_bytes[single] = ranges.sent[parts.held[single]]
        self.parts[single] = 1
        for k, of in parts.grouped.items():
            records = ranges.outer.take(np.array(of))
            if len(of) == 1:
                self._fill(np.array([k]), records)
            else:
                self._add_up(k, records)
            self.evidence[k] = Evidence.GROUP
            self.parts[k] = len(of)
            self.sends[k] = int((records.operation == Operation.SEND).sum())
            self.receives[k] = int((records.operation == Operation.RECV).sum())
        self._count_single()

    def _count_single(self) -> None:
        alone = self.parts == 1
        self.sends[alone] = self.operation[alone] == Operation.SEND
        self.receives[alone] = self.operation[alone] == Operation.RECV

    def from_arguments(self, records: CollectiveRecords) -> None:
        """Takes what the kernels' own arguments say where nothing else is known, and believes them about the operation."""
        if not len(records) or not len(self._kernels):
            return
        order = np.lexsort((records.start_ns, records.correlation))
        correlation = np.concatenate((records.correlation[order], self._kernels.correlation))
        start = np.concatenate((records.start_ns[order], self._kernels.start_ns))
        both, _, position = intervals.distinct_pairs(correlation, start)
        at = np.full(len(both), NOT_RECORDED)
        at[position[: len(order)]] = order
        own = at[position[len(order) :]]
        kernels = np.flatnonzero(own >= 0)
        told = records.take(own[kernels])
        guessed = (self.evidence[kernels] == Evidence.GROUP) & (self.parts[kernels] == 1)
        self.operation[kernels[guessed & (self.operation[kernels] != told.operation)]] = Operation.UNKNOWN
        self._fill(kernels, told)
        self.evidence[kernels] = Evidence.RECORD
        self.parts[kernels] = np.maximum(self.parts[kernels], 1)
        self._count_single()

    def _fill(self, kernels: IntColumn, records: CollectiveRecords) -> None:
        """What the records say about these kernels, where nothing was known."""
        unknown = self.operation[kernels] == Operation.UNKNOWN
        self.operation[kernels[unknown]] = records.operation[unknown]
        for name, of_record in (*((name, name) for name in _TOLD), ("recorded_bytes", "bytes")):
            values = getattr(self, name)
            missing = values[kernels] == (0 if name == "dtype" else NOT_RECORDED)
            values[kernels[missing]] = getattr(records, of_record)[missing]

    def _add_up(self, kernel: int, records: CollectiveRecords) -> None:
        """Makes one operation of many."""
        operations = intervals.unique(records.operation).astype(np.uint8)
        self.operation[kernel] = operations[0] if len(operations) == 1 else _joint(operations)
        self.sequence[kernel] = records.sequence[0]
        for name in ("group", "root", "source", "destination"):
            values = intervals.unique(getattr(records, name))
            getattr(self, name)[kernel] = values[0] if len(values) == 1 else NOT_RECORDED
        self.dtype[kernel] = records.dtype[0] if (records.dtype == records.dtype[0]).all() else 0
        for name in ("elements_in", "elements_out"):
            values = getattr(records, name)
            getattr(self, name)[kernel] = values.sum() if (values >= 0).all() and self.dtype[kernel] else NOT_RECORDED
        self.recorded_bytes[kernel] = records.bytes.sum() if (records.bytes >= 0).all() else NOT_RECORDED


def _joint(operations: npt.NDArray[np.uint8]) -> Operation:
    return Operation.SEND_RECV if np.isin(operations, PEER_TO_PEER).all() else Operation.UNKNOWN


def _peers(rank: int, described: _Description, parts: _Parts, ranges: _Ranges) -> Peers:
    """The sends and receives of all kernels; the end that is not recorded is this rank."""
    single = np.flatnonzero(np.isin(described.operation, (Operation.SEND, Operation.RECV)) & (described.parts == 1))
    columns = [single, described.group[single], described.operation[single], described.source[single], described.destination[single]]
    columns.append(np.maximum(described.elements_in, described.elements_out)[single])
    grouped = [
        (k, i)
        for k, of in parts.grouped.items()
        if len(of) > 1
        for i in of
        if ranges.outer.operation[i] in (Operation.SEND, Operation.RECV)
    ]
    if grouped:
        of_kernel, at = np.array(grouped, np.int64).T
        told = ranges.outer.take(at)
        elements = np.maximum(told.elements_in, told.elements_out)
        more = [of_kernel, told.group, told.operation, told.source, told.destination, elements]
        columns = [np.concatenate(pair) for pair in zip(columns, more, strict=True)]
    kernel, group, operation, source, destination, elements_of = columns
    source = np.where((operation == Operation.SEND) & (source < 0), rank, source)
    destination = np.where((operation == Operation.RECV) & (destination < 0), rank, destination)
    known = (source >= 0) & (destination >= 0) & (source != destination) & ((source == rank) | (destination == rank))
    return Peers(kernel, group.astype(np.int32), source, destination, elements_of).take(known)


def _message_bytes(described: _Description, size: IntColumn) -> IntColumn:
    """Message sizes as nccl-tests counts them: the whole tensor for gathering and scattering operations, one rank's for all others."""
    operation, given, taken = described.operation, described.elements_in, described.elements_out

    def times_ranks(count: IntColumn) -> IntColumn:
        return np.where((count >= 0) & (size > 0), count * size, NOT_RECORDED)

    def whole_tensor(whole: IntColumn, of_one_rank: IntColumn) -> IntColumn:
        return np.where(whole >= 0, whole, times_ranks(of_one_rank))

    kinds = (Operation.ALL_GATHER, Operation.REDUCE_SCATTER, Operation.GATHER, Operation.SCATTER, Operation.ALL_TO_ALL)
    elements = np.select(
        [operation == kind for kind in kinds],
        [whole_tensor(taken, given), whole_tensor(given, taken), times_ranks(given), times_ranks(taken), given],
        np.maximum(given, taken),
    )
    per_element = _ELEMENT_BYTES[described.dtype]
    by_elements = np.where((elements >= 0) & (per_element > 0), elements * per_element, NOT_RECORDED)
    # NCCL's payloads hold what one rank gives, or gets.
    by_payload = np.where(np.isin(operation, kinds[:4]), times_ranks(described.recorded_bytes), described.recorded_bytes)
    by_sends = np.where(operation == Operation.ALL_TO_ALL, described.total_bytes, NOT_RECORDED)
    return np.where(by_elements >= 0, by_elements, np.where(by_payload >= 0, by_payload, by_sends))
