"""Collective operations in a PyTorch trace: the few events that name one, decoded whole while the text goes by.

Since 2024 kernels carry the collective's arguments themselves (NVIDIA, newer PyTorch); `record_param_comms` carries them on the
host since 2023. Older traces have the annotation "nccl:all_reduce" around the launch, with input dimensions if shapes were
recorded. All of them become rows of one table; what belongs to which kernel is decided later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from traceread.model import ELEMENT_BYTES, NOT_RECORDED, CollectiveRecords, Operation, ProcessGroup
from traceread.readers.event_columns import Scalar, WholeEvent, loaded
from traceread.readers.microseconds import LIMIT_NS, nanoseconds
from traceread.readers.operation_names import operation_named, operation_of_range, peers_of_range

NAMED = b'"Collective name"'
"""Stands in the text of every event whose arguments name a collective."""
_SYMMETRIC_RANGE = "symm_mem::"
RANGES = (_SYMMETRIC_RANGE, "nccl:", "rccl:", "xccl:")
"""How the names of ranges around collectives begin."""
_KERNELS = ("kernel", "Kernel")
_HOST = ("cpu_op", "user_annotation", "Operator")
_ROOTED = (Operation.BROADCAST, Operation.REDUCE, Operation.GATHER, Operation.SCATTER)

_MOST_RANKS = 1 << 20

_DTYPES = {name: code for code, name in enumerate(ELEMENT_BYTES)}
_DTYPES |= {  # how the types of inputs are written
    "float": _DTYPES["Float"], "double": _DTYPES["Double"], "int": _DTYPES["Int"], "long int": _DTYPES["Long"],
    "long": _DTYPES["Long"], "short": _DTYPES["Short"], "signed char": _DTYPES["Char"], "unsigned char": _DTYPES["Byte"],
    "bool": _DTYPES["Bool"], "c10::BFloat16": _DTYPES["BFloat16"], "c10::Half": _DTYPES["Half"],
}  # fmt: skip


_SAID = {
    "name": "Collective name", "dtype": "dtype", "elements_in": "In msg nelems", "elements_out": "Out msg nelems",
    "splits_in": "In split size", "splits_out": "Out split size", "rank": "Rank", "source": "Src Rank", "destination": "Dst Rank",
    "group": "Process Group Name", "description": "Process Group Description", "ranks": "Process Group Ranks", "size": "Group size",
    "first_rank": "Global rank start", "stride": "Global rank stride", "input_dims": "Input Dims", "input_type": "Input type",
}  # fmt: skip
"""Arguments that tell what a collective is, as they are recorded."""
_WHICH = {"sequence": "Seq", "correlation": "correlation"}
"""Arguments that tell which one it is of those that are alike."""
_NOTHING = msgspec.Raw()
_BETWEEN = b"\0"
"""Stands in no JSON."""


class _Args(msgspec.Struct, gc=False, frozen=True, rename=_SAID | _WHICH):
    name: msgspec.Raw = _NOTHING
    dtype: msgspec.Raw = _NOTHING
    elements_in: msgspec.Raw = _NOTHING
    elements_out: msgspec.Raw = _NOTHING
    splits_in: msgspec.Raw = _NOTHING
    splits_out: msgspec.Raw = _NOTHING
    rank: msgspec.Raw = _NOTHING
    source: msgspec.Raw = _NOTHING
    destination: msgspec.Raw = _NOTHING
    group: msgspec.Raw = _NOTHING
    description: msgspec.Raw = _NOTHING
    ranks: msgspec.Raw = _NOTHING
    size: msgspec.Raw = _NOTHING
    first_rank: msgspec.Raw = _NOTHING
    stride: msgspec.Raw = _NOTHING
    input_dims: msgspec.Raw = _NOTHING
    input_type: msgspec.Raw = _NOTHING
    sequence: msgspec.Raw = _NOTHING
    correlation: msgspec.Raw = _NOTHING


_said_in = attrgetter(*_SAID)


class _Event(WholeEvent, gc=False):
    args: _Args = _Args()


_decode = msgspec.json.Decoder(_Event).decode
_REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Found(NamedTuple):
    """One event that names a collective; times as text."""

    category: str
    name: str
    track: tuple[Scalar, Scalar]
    ts: bytes
    dur: bytes
    sequence: int
    correlation: int
    said: int  # position of what its arguments say


class CollectiveEvents:
    """Collects the events about collectives. What many of them say in the same words is taken apart once."""

    def __init__(self) -> None:
        self._found: list[_Found] = []
        self._said: list[Mapping[str, Any]] = []
        self._positions: dict[bytes, int] = {}

    def look(self, event: bytes) -> None:
        """Keeps what the text of one event says about a collective, if it does."""
        if NAMED not in event and b"ccl:" not in event and b"symm_mem::" not in event and b"\\u" not in event:
            return  # the last one may stand for a letter of another
        try:
            told: _Event | None = _decode(event)
        except _REFUSED:
            told = _patiently_decoded(event)
        if told is None or told.ph != "X" or told.cat not in (*_KERNELS, *_HOST):
            return
        written = _BETWEEN.join(_said_in(told.args))
        if written.startswith(b'"') or told.name.startswith(RANGES):
            times = bytes(told.ts), bytes(told.dur)
            which = _written_number(told.args.sequence), _written_number(told.args.correlation)
            self._found.append(_Found(told.cat, told.name, (told.pid, told.tid), *times, *which, self._position(written)))

    def _position(self, written: bytes) -> int:
        """Where it stands what arguments say that are written so."""
        if written not in self._positions:
            self._positions[written] = len(self._said)
            keyed = zip(_SAID.values(), written.split(_BETWEEN), strict=True)
            texts = [b'"%s":%s' % (key.encode(), text) for key, text in keyed if text]
            self._said.append(loaded(b"{" + b",".join(texts) + b"}") or {})
        return self._positions[written]

    def _used(self) -> list[_Found]:
        """What was found, without the annotations that repeat what named records say, with less in it."""
        named = [isinstance(said.get("Collective name"), str) for said in self._said]
        if not any(named):
            return self._found
        return [found for found in self._found if named[found.said] or found.name.startswith(_SYMMETRIC_RANGE)]

    def table(
        self,
        thread_of: Callable[[Scalar, Scalar], int],
        base_ns: int,
        job: Mapping[str, Any],
        rank: int,
    ) -> tuple[CollectiveRecords, tuple[ProcessGroup, ...]]:
        """The records with their groups; events without a usable time are left out.

        Args:
            thread_of: position of the thread of a (pid, tid), -1 if it has none.
            base_ns: what times count from.
            job: distributedInfo of the trace.
            rank: rank of the trace, -1 if it does not say.
        """
        every = self._used()
        start, start_read = nanoseconds([found.ts for found in every])
        dur, dur_read = nanoseconds([found.dur for found in every])
        start = start + base_ns
        usable = start_read & dur_read & (np.abs(start) < LIMIT_NS)
        begins, ends = start.tolist(), (start + np.maximum(dur, 0)).tolist()
        groups = _Groups(job)
        known: dict[tuple[int, str], tuple[int, ...] | None] = {}
        rows = []
        for i in np.flatnonzero(usable).tolist():
            found = every[i]
            kernel = found.category in _KERNELS
            thread = -1 if kernel else thread_of(*found.track)
            if kernel or thread >= 0:
                key = found.said, found.name
                if key not in known:
                    known[key] = _row(self._said[found.said], found.name, groups, rank)
                row = known[key]
                if row is not None:
                    correlation = found.correlation if kernel else NOT_RECORDED
                    rows.append((begins[i], ends[i], thread, correlation, *row[:2], max(found.sequence, NOT_RECORDED), *row[2:]))
        table = CollectiveRecords.from_rows(rows)
        order: npt.NDArray[np.int64] = np.lexsort((-table.end_ns, table.start_ns))
        return table.take(order), groups.known()


def _patiently_decoded(event: bytes) -> _Event | None:
    """The event where a value is not of the usual type, or the text is not quite sound; None if it is none."""
    values = loaded(event)
    args = {} if values is None else values.get("args", {})
    if values is None or not isinstance(args, dict):
        return None
    phase, category, name = (value if isinstance(value := values.get(key), str) else "" for key in ("ph", "cat", "name"))
    process, thread = (value if isinstance(value, int | str) else None for value in (values.get("pid"), values.get("tid")))
    ts, dur = (msgspec.Raw(str(values.get(key, "")).encode("ascii", "replace")) for key in ("ts", "dur"))
    written = {field: msgspec.Raw(json.dumps(args[key]).encode()) for field, key in (_SAID | _WHICH).items() if key in args}
    return _Event(phase, category, name, process, thread, ts, dur, _Args(**written))


def _row(args: Mapping[str, Any], name: str, groups: _Groups, rank: int) -> tuple[int, ...] | None:
    """Operation to largest_out of the record of an event without its number in the sequence, None if it moves nothing."""
    named = args.get("Collective name")
    operation = operation_named(named) if isinstance(named, str) else operation_of_range(name)
    if operation is Operation.UNKNOWN:
        return None
    group = groups.position(args)
    ranks = groups.ranks(group)
    if isinstance(named, str):
        elements_in, elements_out = (_count(args.get(key)) for key in ("In msg nelems", "Out msg nelems"))
        dtype = _DTYPES.get(str(args.get("dtype")), 0)
    else:
        elements_in, dtype = _first_input(args)
        elements_out = elements_in if operation in (Operation.ALL_REDUCE, Operation.BROADCAST) else NOT_RECORDED
    source, destination = _peers(args, name, operation, ranks, rank)
    root = NOT_RECORDED
    if operation in _ROOTED and (position := _count(args.get("Rank"))) >= 0:
        # For an operation with a root PyTorch records the root's position in the group here, else the rank's own.
        root = ranks[position] if position < len(ranks) else NOT_RECORDED if ranks else position
    return (
        operation,
        group,
        dtype,
        elements_in,
        elements_out,
        NOT_RECORDED,
        source,
        destination,
        root,
        _largest(args.get("In split size")),
        _largest(args.get("Out split size")),
    )


def _peers(args: Mapping[str, Any], name: str, operation: Operation, ranks: Sequence[int], rank: int) -> tuple[int, int]:
    """Ranks between which a send or receive goes; PyTorch records the other side, and both in the name of an annotation."""
    if operation not in (Operation.SEND, Operation.RECV):
        return NOT_RECORDED, NOT_RECORDED
    source, destination = _count(args.get("Src Rank")), _count(args.get("Dst Rank"))
    in_name = peers_of_range(name)
    if source < 0 and destination < 0 and in_name is not None:
        return tuple(ranks[p] if p < len(ranks) else NOT_RECORDED if ranks else p for p in in_name)  # type: ignore[return-value]
    if operation is Operation.SEND:
        return source if source >= 0 else rank, destination
    return source, destination if destination >= 0 else rank


class _Groups:
    """The process groups met so far, each once."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self._positions: dict[ProcessGroup, int] = {}
        self._by_arguments: dict[tuple[str, ...], int] = {}
        self._order: list[ProcessGroup] = []
        configured = job.get("pg_config")
        listed = [entry for entry in configured if isinstance(entry, dict)] if isinstance(configured, list) else []
        self._configured = {str(entry.get("pg_name")): _ranks(entry.get("ranks")) for entry in listed}

    def position(self, args: Mapping[str, Any]) -> int:
        """Position of the group that an event's arguments name, -1 if they name none."""
        keys = ("Process Group Name", "Process Group Description", "Process Group Ranks", "Group size")
        more = ("Global rank start", "Global rank stride")
        key = tuple(str(args.get(k)) for k in (*keys, *more))
        if key not in self._by_arguments:
            self._by_arguments[key] = self._new(args)
        return self._by_arguments[key]

    def _new(self, args: Mapping[str, Any]) -> int:
        name, size = args.get("Process Group Name"), _count(args.get("Group size"))
        if not isinstance(name, str | int) and size < 0:
            return NOT_RECORDED
        first, stride = _count(args.get("Global rank start")), _count(args.get("Global rank stride"))
        ranks = _ranks(args.get("Process Group Ranks"))
        if not ranks and first >= 0 and stride > 0 and 0 < size <= _MOST_RANKS:  # the list is cut where it is long
            ranks = tuple(range(first, first + stride * size, stride))
        ranks = ranks or self._configured.get(str(name), ())
        description = args.get("Process Group Description")
        group = ProcessGroup(
            "" if name is None else str(name),
            description if isinstance(description, str) and description != "undefined" else "",
            ranks if size in (NOT_RECORDED, len(ranks)) else (),
            size if size >= 0 else len(ranks) or NOT_RECORDED,
        )
        if group not in self._positions:
            self._positions[group] = len(self._order)
            self._order.append(group)
        return self._positions[group]

    def ranks(self, position: int) -> tuple[int, ...]:
        """The ranks of a group, empty if not known."""
        return self._order[position].ranks if position >= 0 else ()

    def known(self) -> tuple[ProcessGroup, ...]:
        """The groups in order of their position."""
        return tuple(self._order)


def _ranks(value: Any) -> tuple[int, ...]:
    """Ranks written as a list or as the text of one; empty where they are not all there ("[0, 1, ..., 63]")."""
    numbers = list(_integers(value))
    return () if None in numbers else tuple(n for n in numbers if n is not None and n >= 0)


def _largest(splits: Any) -> int:
    """The largest of the split sizes, -1 where they are equal or not all recorded."""
    numbers = list(_integers(splits))
    known = [n for n in numbers if n is not None]
    return max(known) if known and len(known) == len(numbers) else NOT_RECORDED


def _integers(value: Any) -> Iterator[int | None]:
    """The numbers of a list or of its text, None for what is no number."""
    if isinstance(value, str):
        value = [part.strip() for part in value.strip("[] ").split(",") if part.strip()]
    for part in value if isinstance(value, list) else ():
        number = _whole(part)
        yield number if number != NOT_RECORDED else None


def _first_input(args: Mapping[str, Any]) -> tuple[int, int]:
    """Elements and dtype code of the first input, -1 and 0 if shapes were not recorded."""
    dims, types = args.get("Input Dims"), args.get("Input type")
    first = dims[0] if isinstance(dims, list) and dims else None
    if not isinstance(first, list) or not first or not all(isinstance(d, int) and d >= 0 for d in first):
        return NOT_RECORDED, 0
    kind = types[0] if isinstance(types, list) and types else ""
    return min(prod(first), LIMIT_NS), _DTYPES.get(str(kind), 0)


def _count(value: Any) -> int:
    """A number that counts something, -1 for anything else."""
    return max(_whole(value), NOT_RECORDED)


def _written_number(written: msgspec.Raw) -> int:
    """The integer of an argument as it is written, -1 for anything else."""
    text = bytes(written)
    if len(text) < 19 and text.isdigit():
        return int(text)
    return _whole((loaded(b'{"":%s}' % text) or {}).get("")) if text else NOT_RECORDED


def _whole(value: Any) -> int:
    """An integer, or the text of one; -1 for anything else."""
    try:
        number = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else NOT_RECORDED
    except ValueError:
        return NOT_RECORDED
    return number if -(1 << 63) <= number < 1 << 63 else NOT_RECORDED
