"""Text of events in, columns out: which fields of an event are kept, and how they are decoded.

The typed decoder skips what is not asked for. What it refuses although it is JSON (a number where a string is usual, a
lone surrogate) goes the slow and patient way of the standard library and ends in the same columns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from traceread.readers.microseconds import nanoseconds
from traceread.readers.scanner import Scan

IntColumn = npt.NDArray[np.int64]
CodeColumn = npt.NDArray[np.int32]
Scalar = int | str | float | None

ABSENT = -1
"""In a column of arguments: the event has no such argument, or it is no integer."""


class _Args(msgspec.Struct, gc=False):
    """The arguments that are kept; of any type, because a surprise in one of them must not cost the whole event."""

    device: Any = ABSENT
    stream: Any = ABSENT
    correlation: Any = ABSENT
    correlation_capital: Any = msgspec.field(default=ABSENT, name="Correlation")
    bytes: Any = ABSENT
    graph_node: Any = msgspec.field(default=ABSENT, name="graph node id")
    from_device: Any = msgspec.field(default=ABSENT, name="fromDevice")
    to_device: Any = msgspec.field(default=ABSENT, name="toDevice")
    event_correlation: Any = msgspec.field(default=ABSENT, name="wait_on_cuda_event_record_corr_id")
    event_stream: Any = msgspec.field(default=ABSENT, name="wait_on_stream")
    name: Any = None
    labels: Any = None


class WholeEvent(msgspec.Struct, gc=False):
    """One event that is decoded beside its columns, without its arguments."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Scalar = None
    tid: Scalar = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()


class Event(msgspec.Struct, gc=False):
    """One event of any phase; ts and dur stay text, for a double cannot hold them."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: Scalar = None
    tid: Scalar = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    args: _Args | None = None


_INTEGER_ARGUMENTS = (
    "device", "stream", "correlation", "correlation_capital", "bytes", "graph_node", "from_device", "to_device", "event_correlation",
    "event_stream",
)  # fmt: skip
_CORRELATIONS = ("correlation", "correlation_capital")
_KEPT = ((), _CORRELATIONS, _INTEGER_ARGUMENTS)
_KEPT_OF = {"cpu_op": 0, "user_annotation": 0, "python_function": 0, "cuda_runtime": 1, "cuda_driver": 1}
"""Which of these arguments are kept by category: of the commonest rows of the host nobody asks for more. Others: all. As in the scanner."""
_NO_ARGS = _Args()
_ARG_KEYS = [(f.name, f.encode_name) for f in msgspec.structs.fields(_Args)]
_many = msgspec.json.Decoder(list[Event]).decode
_one = msgspec.json.Decoder(Event).decode
_string = msgspec.json.Decoder(str).decode
_identity_written = msgspec.json.Decoder(int | str | float | None).decode
_REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def decoded_many(text: bytes) -> list[Event] | None:
    """The events of objects with commas between them; None if they are not exactly that."""
    try:
        return _many(b"[" + text + b"]")
    except _REFUSED:
        return None


def decoded(text: bytes) -> Event | None:
    """The event of one sound object, None if it is not sound."""
    try:
        return _one(text)
    except msgspec.ValidationError:
        return patiently_decoded(text)  # sound, but not of the usual types
    except _REFUSED:
        return None


def patiently_decoded(text: bytes) -> Event | None:
    """The event of an object, even with raw control characters, NaN or bad UTF-8 in it; None if it is none."""
    values = loaded(text)
    return None if values is None else _event_from(values)


def loaded(text: bytes) -> dict[str, Any] | None:
    """A JSON object as builtins, decimal numbers as text; None if it is none."""
    try:
        values = _patient.decode(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


class _Decimal(str):
    """The text of a number with a point or an exponent."""

    __slots__ = ()


def _nothing(_: str) -> None:
    """NaN and the infinities say nothing."""


_patient = json.JSONDecoder(strict=False, parse_float=_Decimal, parse_constant=_nothing)


def _event_from(values: dict[str, Any]) -> Event:
    args = values.get("args")
    kept = None
    if isinstance(args, dict):
        kept = _Args(**{attribute: args[key] for attribute, key in _ARG_KEYS if key in args})
        kept.name, kept.labels = _clean(kept.name), _clean(kept.labels)
    return Event(
        ph=_clean(values.get("ph")),
        cat=_clean(values.get("cat")),
        name=_clean(values.get("name")),
        pid=_identity(values.get("pid")),
        tid=_identity(values.get("tid")),
        ts=msgspec.Raw(_time_text(values.get("ts"))),
        dur=msgspec.Raw(_time_text(values.get("dur"))),
        args=kept,
    )


def _clean(value: Any) -> str | None:
    """A string that can be encoded again (a lone surrogate cannot), None for anything else."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _identity(value: Any) -> Scalar:
    if isinstance(value, _Decimal):
        return float(value)
    return value if isinstance(value, int) else _clean(value)


def _time_text(value: Any) -> bytes:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value).encode("utf-8", "replace")
    return b""


@dataclass(frozen=True)
class EventBatch:
    """Equally long columns of complete ("X") events, in the order of the file.

    Attributes:
        category, name, track: positions in `Columns.categories`, `names` and `tracks`.
        start_ns, dur_ns: ts and dur as written, in ns (base time not added).
        timed: whether both could be read.
        device, stream, correlation, bytes, graph_node, from_device, to_device, event_correlation, event_stream: arguments, ABSENT if
            not there. Of "cuda_runtime" and "cuda_driver" only the correlation is kept, of "cpu_op", "user_annotation" and
            "python_function" none.
    """

    category: CodeColumn
    name: CodeColumn
    track: CodeColumn
    start_ns: IntColumn
    dur_ns: IntColumn
    timed: npt.NDArray[np.bool_]
    device: IntColumn
    stream: IntColumn
    correlation: IntColumn
    bytes: IntColumn
    graph_node: IntColumn
    from_device: IntColumn
    to_device: IntColumn
    event_correlation: IntColumn
    event_stream: IntColumn

    def __len__(self) -> int:
        return len(self.start_ns)


# In the order in which the compiled scanner fills its rows.
_SCANNED = (
    "start_ns", "dur_ns", "device", "stream", "correlation", "bytes", "graph_node", "from_device", "to_device", "event_correlation",
    "event_stream",
)  # fmt: skip


class _Codes(dict[Any, int]):
    """A code for each distinct key, in order of first use; `order` is the way back."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[Any] = []

    def __missing__(self, key: Any) -> int:
        code = self[key] = len(self.order)
        self.order.append(key)
        return code


class Columns:
    """Makes columns of events, and remembers what their codes stand for.

    Attributes:
        labels: the last value of each metadata ("M") event of interest: (event name, pid, tid) → value.
        events: how many of the objects seen are events, of any phase.
    """

    def __init__(self) -> None:
        self.labels: dict[tuple[str, Scalar, Scalar], str] = {}
        self.events = 0
        self._categories = _Codes()
        self._names = _Codes()
        self._tracks = _Codes()
        self._written_categories: dict[bytes, int] = {}
        self._written_names: dict[bytes, int] = {}
        self._kept_of = np.empty(0, np.int8)  # position in _KEPT for each category

    @property
    def categories(self) -> Sequence[str]:
        """The category of each code; "" stands for none."""
        return self._categories.order

    @property
    def names(self) -> Sequence[str]:
        """The name of each code; "" stands for none."""
        return self._names.order

    @property
    def tracks(self) -> Sequence[tuple[Scalar, Scalar]]:
        """The (pid, tid) of each code, as written."""
        return self._tracks.order

    def batch(self, events: list[Event]) -> EventBatch:
        """The columns of the complete events among these."""
        rows = [e for e in events if e.ph == "X"]
        self.events += len(events)
        if len(rows) < len(events):
            for e in events:
                if e.ph == "M":
                    self._keep_label(e)
                elif e.ph is None:
                    self.events -= 1
        start_ns, start_read = nanoseconds(_texts(list(map(attrgetter("ts"), rows))))
        dur_ns, dur_read = nanoseconds(_texts(list(map(attrgetter("dur"), rows))))
        category = _coded(self._categories, list(map(attrgetter("cat"), rows)))
        arguments = self._arguments(rows, category)
        capital = arguments.pop("correlation_capital")
        arguments["correlation"] = np.where(arguments["correlation"] == ABSENT, capital, arguments["correlation"])
        return EventBatch(
            category=category,
            name=_coded(self._names, list(map(attrgetter("name"), rows))),
            track=np.fromiter(map(self._tracks.__getitem__, map(attrgetter("pid", "tid"), rows)), np.int32, len(rows)),
            start_ns=start_ns,
            dur_ns=dur_ns,
            timed=start_read & dur_read,
            **arguments,
        )

    def _arguments(self, rows: list[Event], category: CodeColumn) -> dict[str, IntColumn]:
        """The integer arguments by name, of each row those that are kept of its category."""
        new = self.categories[len(self._kept_of) :]
        self._kept_of = np.append(self._kept_of, np.array([_KEPT_OF.get(name, len(_KEPT) - 1) for name in new], np.int8))
        kept_of = self._kept_of[category]
        found = {name: np.full(len(rows), ABSENT) for name in _INTEGER_ARGUMENTS}
        for position, names in enumerate(_KEPT):
            which = np.flatnonzero(kept_of == position)
            if names and len(which):
                for name, values in _integers_of(names, [rows[i].args or _NO_ARGS for i in which.tolist()]).items():
                    found[name][which] = values
        return found

    def scanned(self, scan: Scan) -> EventBatch | None:
        """The columns that the compiled scanner made, with the codes used here; None where a text in them is not sound."""
        told = scan.told
        try:
            identities = [_identity_written(written or b"null") for written in told.identities]
            new_categories = _unwritten(told.categories, self._written_categories)
            new_names = _unwritten(told.names, self._written_names)
            labels = _many(b"[" + b",".join(told.labels) + b"]")
        except _REFUSED:
            return None
        self.events += told.events
        for event in labels:
            self._keep_label(event)
        for written, text in new_categories.items():
            self._written_categories[written] = self._categories[text]
        for written, text in new_names.items():
            self._written_names[written] = self._names[text]
        category = np.array([self._written_categories[written] for written in told.categories], np.int32)
        name = np.array([self._written_names[written] for written in told.names], np.int32)
        track = np.array([self._tracks[identities[process], identities[thread]] for process, thread in told.tracks], np.int32)
        columns = scan.columns()
        return EventBatch(
            category=category[columns.codes[0]],
            name=name[columns.codes[1]],
            track=track[columns.codes[2]],
            timed=columns.timed,
            **dict(zip(_SCANNED, columns.integers, strict=True)),
        )

    def _keep_label(self, event: Event) -> None:
        if event.name in ("thread_name", "process_labels") and event.args is not None:
            value = event.args.labels if event.name == "process_labels" else event.args.name
            if isinstance(value, str):
                self.labels[event.name, event.pid, event.tid] = value


def _unwritten(texts: Sequence[bytes], known: dict[bytes, int]) -> dict[bytes, str]:
    """What the unknown ones of texts as written in JSON say, in their order.

    Raises:
        MsgspecError, UnicodeDecodeError: one is not sound.
    """
    return {written: _string(b'"' + written + b'"') for written in texts if written not in known}


def _coded(codes: _Codes, values: list[str | None]) -> CodeColumn:
    if None in values:
        values = [v or "" for v in values]
    return np.fromiter(map(codes.__getitem__, values), np.int32, len(values))


def _texts(written: list[msgspec.Raw]) -> list[bytes]:
    """The texts of values; joined and parted again is quicker than one by one."""
    texts = b"\n".join(written).split(b"\n")
    return texts if len(texts) == len(written) else list(map(bytes, written))  # a text may hold a line end, and none is no text


def _integers_of(names: Sequence[str], args: list[_Args]) -> dict[str, IntColumn]:
    """Some integer arguments by name."""
    try:  # all at once: rows of a table, whose columns are asked for
        flat = chain.from_iterable(map(attrgetter(*names), args))
        table = np.fromiter(flat, np.int64, len(args) * len(names)).reshape(len(args), -1)
        return dict(zip(names, table.T, strict=True))
    except (TypeError, ValueError, OverflowError):
        return {name: _integers(list(map(attrgetter(name), args))) for name in names}


def _integers(values: list[Any]) -> IntColumn:
    """The values as int64; what is no integer of 64 bits is ABSENT."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.array([_integer(v) for v in values], np.int64)


def _integer(value: Any) -> int:
    try:
        number = int(float(value) if isinstance(value, _Decimal) else value)
    except (TypeError, ValueError, OverflowError):
        return ABSENT
    return number if -(1 << 63) <= number < 1 << 63 else ABSENT
