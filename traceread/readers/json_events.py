"""Blocks of Chrome-trace text in, batches of event columns out, in bounded memory; damage is worked around and counted.

The text is decoded in chunks cut where one event ends and the next begins. A chunk that decodes as a list proves its cut
right; one that does not is read event by event, and an event that does not decode is mended or left out. So what is read
depends on the text alone, never on where a chunk happened to end. Only `EventReader` and `EventBatch` are for others: a
compiled scanner can stand in for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from traceread.readers.mending import mended
from traceread.readers.microseconds import nanoseconds
from traceread.readers.options import ReadOptions

IntColumn = npt.NDArray[np.int64]
CodeColumn = npt.NDArray[np.int32]

Scalar = int | str | float | None

ABSENT = -1
"""In a column of arguments: the event has no such argument, or it is no integer."""


class _Args(msgspec.Struct, gc=False):
    """The arguments that are kept; any type, because a surprise in one of them must not cost the whole event."""

    device: Any = ABSENT
    stream: Any = ABSENT
    correlation: Any = ABSENT
    correlation_capital: Any = msgspec.field(default=ABSENT, name="Correlation")
    bytes: Any = ABSENT
    graph_node: Any = msgspec.field(default=ABSENT, name="graph node id")
    from_device: Any = msgspec.field(default=ABSENT, name="fromDevice")
    to_device: Any = msgspec.field(default=ABSENT, name="toDevice")
    event_correlation: Any = msgspec.field(default=ABSENT, name="wait_on_cuda_event_record_corr_id")
    name: Any = None
    labels: Any = None


class _Event(msgspec.Struct, gc=False):
    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: Scalar = None
    tid: Scalar = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    args: _Args | None = None


_decode_many = msgspec.json.Decoder(list[_Event]).decode
_decode_one = msgspec.json.Decoder(_Event).decode
_REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

# The keys an event starts with. "id" is left out: the devices listed beside the events start with it.
_KEY = rb'"(?:ph|cat|name|pid|tid|ts|dur|args|bp|s|cname|tts|tdur)"\s*+:'
_AFTER_CLOSED = re.compile(rb"}[\s,]*+\{\s*+" + _KEY)
_CANDIDATE = re.compile(rb"[^\s:\[](\s*+)\{\s*+" + _KEY)
_SEPARATOR = re.compile(rb"[\s,]*+")
_EARLY_END = re.compile(rb"\][\s,]*+\{")
_ARRAY_END = re.compile(rb"\](?=\s*+(?:,\s*+\"[\w ]{1,60}\"\s*+:|\}?\s*+\Z))")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*+:\s*+\[')
_CLOSES = {ord("}"): ord("{"), ord("]"): ord("[")}

_LOOKAHEAD = 256  # bytes that decide whether a "]" ends the events
_NESTED = 1 << 16  # how far objects inside an event's own lists are followed
_NESTED_TRIES = 100  # and how often in vain: hostile files must stay linear

_MARKS = {
    # What rows carry without being read: a digit inside the dimensions, a named collective.
    "shapes": re.compile(rb'"Input [Dd]ims"\s*+:\s*+\[[\[\],\s]*+\d'),
    "collectives": re.compile(rb'"Collective name"\s*+:\s*+"'),
}


@dataclass(frozen=True)
class EventBatch:
    """Equally long columns of complete ("X") events, in the order of the file. Codes point into the reader's lists.

    Attributes:
        category: position in `EventReader.categories`.
        name: position in `EventReader.names`.
        track: position in `EventReader.tracks`.
        start_ns, dur_ns: ts and dur as written, in ns (base time not added).
        timed: whether both could be read.
        device, stream, correlation, bytes, graph_node, from_device, to_device, event_correlation: arguments, ABSENT if not there.
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

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass
class Damage:
    """What was wrong with the text.

    Attributes:
        mended: events that could be read after a repair.
        dropped: stretches that could not be read as an event.
        separators: commas missing or too many between events, and other stray text there.
        truncated: the list of events was not closed.
        metadata: what stands beside the events could only be read in part.
    """

    mended: int = 0
    dropped: int = 0
    separators: int = 0
    truncated: bool = False
    metadata: bool = False


class _Codes(dict[Any, int]):
    """A code for each distinct key, in order of first use; `order` is the way back."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[Any] = []

    def __missing__(self, key: Any) -> int:
        code = self[key] = len(self.order)
        self.order.append(key)
        return code


@dataclass
class EventReader:
    """The events of one trace, batch by batch when iterated over (once); everything else is complete after the last batch.

    Attributes:
        blocks: the text, cut anywhere.
        options: chunk size and limits.
        form: "object", "list", or "" where the text is neither or holds no list called traceEvents.
        objects: how many elements of the list were read.
        events: how many of them are events, of any phase.
        damage: what was wrong.
        marks: of "shapes" and "collectives", what the events carry.
        labels: the last value of each metadata ("M") event of interest: (event name, pid, tid) → value.
    """

    blocks: Iterable[bytes]
    options: ReadOptions = field(default_factory=ReadOptions)
    form: str = ""
    objects: int = 0
    events: int = 0
    damage: Damage = field(default_factory=Damage)
    marks: set[str] = field(default_factory=set)
    labels: dict[tuple[str, Any, Any], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._source = iter(self.blocks)
        self._text = b""
        self._base = 0  # where the text begins in the file
        self._at = 0  # the cursor, in the text
        self._eof = False
        self._comma_due = False
        self._nested_tries = _NESTED_TRIES
        self._barren = (0, 0)  # no event begins in this stretch of the file
        self._categories = _Codes()
        self._names = _Codes()
        self._tracks = _Codes()
        self._head = b""
        self._foot = b""

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

    @property
    def head(self) -> bytes:
        """The text before the events, as far as it is kept; the whole text where there are no events."""
        return self._head

    def head_is_json(self) -> bool:
        """Whether the text before the events is one sound JSON value; only the brackets of its ends count in a long one."""
        if len(self._head) >= self.options.max_event_bytes:
            return self._text.rstrip().endswith(b"}")
        return _loaded(self._head) is not None

    def __iter__(self) -> Iterator[EventBatch]:
        if not self._find_events():
            return
        is_open = True
        while is_open:
            while len(self._text) - self._at < self.options.chunk_bytes and self._more():
                pass
            boundary = self._last_boundary()
            events = self._chunk(boundary)
            if events is None:
                events, is_open = self._one_by_one(boundary or len(self._text))
            self.objects += len(events)
            batch = self._columns(events)
            del events
            if len(batch):
                yield batch
        self._read_foot()

    # --- the text -------------------------------------------------------------------------------------------------

    def _more(self) -> bool:
        """Whether there was more text; drops what lies before the cursor. Doubles, so that growing stays linear."""
        if self._eof:
            return False
        parts = [self._text[self._at :]]
        wanted = max(self.options.chunk_bytes, len(parts[0]))
        for block in self._source:
            parts.append(block)
            wanted -= len(block)
            if wanted <= 0:
                break
        else:
            self._eof = True
        self._base += self._at
        self._at = 0
        self._text = b"".join(parts)
        return len(parts) > 1

    def _full(self) -> bool:
        return len(self._text) - self._at >= self.options.max_event_bytes

    def _find_events(self) -> bool:
        """Whether the text holds a list of events; puts the cursor behind its opening bracket."""
        while len(self._text.lstrip()) < 4 and self._more():
            pass
        start = self._text.removeprefix(b"\xef\xbb\xbf").lstrip()
        if start.startswith(b"["):
            self.form = "list"
            self._at = self._text.index(b"[") + 1
            return True
        if not start.startswith(b"{"):
            self._keep_head(self._text[:_LOOKAHEAD])
            return False
        self._at = self._text.index(b"{")
        searched = self._at
        while not (match := _EVENTS_KEY.search(self._text, searched)):
            if self._full():
                self._keep_head(self._text[self._at : -_LOOKAHEAD])
                self._at = len(self._text) - _LOOKAHEAD
            # The key may lie across the end of the text read so far.
            searched = max(0, len(self._text) - _LOOKAHEAD - self._at)
            if not self._more():
                self._keep_head(self._text[self._at :])
                return False
        self.form = "object"
        self._keep_head(self._text[self._at : match.start()])
        self._at = match.end()
        return True

    def _keep_head(self, text: bytes) -> None:
        self._head += text[: self.options.max_event_bytes - len(self._head)]

    # --- events, many at once ---------------------------------------------------------------------------------------

    def _last_boundary(self) -> int:
        """The last end of an event in the text that another one follows, 0 if none is seen."""
        at = len(self._text)
        while (at := self._text.rfind(b"}", self._at, at)) >= 0:
            if _AFTER_CLOSED.match(self._text, at):
                return at + 1
        return 0

    def _chunk(self, boundary: int) -> list[_Event] | None:
        """The events up to a boundary; None where they do not decode at once."""
        start = _end_of_separator(self._text, self._at)
        if self._text[start : start + 1] != b"{" or start > boundary:
            return None
        chunk = self._text[start:boundary]
        try:
            events = _decode_many(b"[" + chunk + b"]")
        except _REFUSED:
            return None
        self._check_commas(self._text.count(b",", self._at, start))
        self._comma_due = True
        self._look_for_marks(chunk)
        self._at = boundary
        return events

    # --- events, one by one -----------------------------------------------------------------------------------------

    def _one_by_one(self, stop: int) -> tuple[list[_Event], bool]:
        """The events that begin before a position of the text, and whether the list goes on after them."""
        events: list[_Event] = []
        stop += self._base
        while self._base + self._at < stop:
            if not self._at_event():
                return events, False
            end = self._object_end()
            event = self._decoded(self._text[self._at : end]) if end else None
            if event is None:
                end = self._next_event(self._at + 1)
                if not self.damage.truncated:
                    event = self._mended(self._text[self._at : end])
            self._comma_due = self._text[end - 1 : end] == b"}"  # a resynchronisation has passed the comma already
            self._at = end
            if event is not None:
                events.append(event)
        return events, True

    def _at_event(self) -> bool:
        """Whether another event follows; skips and counts what should not stand before it."""
        commas = 0
        while True:
            end = _end_of_separator(self._text, self._at)
            commas += self._text.count(b",", self._at, end)
            self._at = end
            if len(self._text) - end < _LOOKAHEAD and self._more():
                continue
            following = self._text[self._at : self._at + 1]
            if following == b"{":
                self._check_commas(commas)
                return True
            if not following:
                self.damage.truncated = True
                return False
            if following == b"]" and not _EARLY_END.match(self._text, self._at):
                self.damage.separators += commas > 0
                self._at += 1
                return False
            self.damage.separators += 1
            self._comma_due = False
            commas = 0
            self._at = self._next_event(self._at + 1)

    def _check_commas(self, commas: int) -> None:
        self.damage.separators += commas != self._comma_due

    def _object_end(self) -> int:
        """Where the object at the cursor ends; 0 where it does not end before another event begins."""
        while True:
            candidate = self._candidate(self._at + 1)
            stop = len(self._text) if candidate is None else candidate
            reach = stop + _NESTED if self._nested_tries else stop
            end = self._walk(stop, reach)
            if end is not None:
                return end
            known = candidate is not None and reach <= len(self._text)
            if known or self._full() or not self._more():
                if candidate is not None:
                    self._nested_tries = max(0, self._nested_tries - 1)
                return 0

    def _candidate(self, start: int) -> int | None:
        """Where the next event seems to begin, at or after a position of the text."""
        barren_from, barren_to = (at - self._base for at in self._barren)
        inside = barren_from <= start <= barren_to
        match = _CANDIDATE.search(self._text, max(0, (barren_to if inside else start) - 1))
        at = match.end(1) if match else max(start, len(self._text) - _LOOKAHEAD)
        self._barren = (self._base + (barren_from if inside else start), self._base + at)
        return at if match else None

    def _walk(self, stop: int, reach: int) -> int | None:
        """The end of the object at the cursor, 0 where its brackets or quotes are broken, None if it is open at `reach`."""
        text = self._text
        stack = bytearray()
        for token in _TOKEN.finditer(text, self._at, reach):
            begin = token.start()
            first = text[begin]
            if first == ord('"'):
                if begin < stop < min(token.end(), len(text)):
                    return 0  # no string of sound JSON holds the start of an event
            elif first in _CLOSES:
                if not stack or stack.pop() != _CLOSES[first]:
                    return 0
                if not stack:
                    return token.end()
            else:
                if begin == stop and stack[-1:] != b"[":
                    return 0  # an object where a key belongs
                stack.append(first)
        return None

    def _next_event(self, start: int) -> int:
        """Where the next event begins at or after a position of the text; the end of the list or of the text if none does."""
        offset = start - self._at
        while (candidate := self._candidate(self._at + offset)) is None:
            if self._full():
                return max(self._at + offset, len(self._text) - _LOOKAHEAD)
            if not self._more():
                closing = _ARRAY_END.search(self._text, self._at + offset)
                if not closing:
                    self.damage.truncated = True
                return closing.start() if closing else len(self._text)
        return candidate

    def _decoded(self, text: bytes) -> _Event | None:
        """The event of one sound object, None if it is not sound."""
        try:
            event: _Event | None = _decode_one(text)
        except msgspec.ValidationError:
            values = _loaded(text)  # sound, but not of the usual types
            event = _event_from(values) if values is not None else None
        except _REFUSED:
            event = None
        if event is not None:
            self._look_for_marks(text)
        return event

    def _mended(self, text: bytes) -> _Event | None:
        """The event of a damaged object, None if nothing can be made of it; counts both."""
        for candidate in mended(text.rstrip(b" \t\r\n,")):
            values = _loaded(candidate)
            if values is not None and isinstance(values.get("ph"), str):
                self.damage.mended += 1
                self._look_for_marks(candidate)
                return _event_from(values)
        self.damage.dropped += 1
        return None

    # --- columns ------------------------------------------------------------------------------------------------------

    def _look_for_marks(self, text: bytes) -> None:
        for mark, pattern in _MARKS.items():
            if mark not in self.marks and pattern.search(text):
                self.marks.add(mark)

    def _columns(self, events: list[_Event]) -> EventBatch:
        rows = [e for e in events if e.ph == "X"]
        self.events += len(events)
        if len(rows) < len(events):
            for e in events:
                if e.ph == "M":
                    self._keep_label(e)
                elif e.ph is None:
                    self.events -= 1
        args = [e.args or _NO_ARGS for e in rows]
        start_ns, start_read = nanoseconds([bytes(e.ts) for e in rows])
        dur_ns, dur_read = nanoseconds([bytes(e.dur) for e in rows])
        correlation = _integers([a.correlation for a in args])
        capital = _integers([a.correlation_capital for a in args])
        return EventBatch(
            category=_coded(self._categories, [e.cat for e in rows]),
            name=_coded(self._names, [e.name for e in rows]),
            track=np.fromiter(map(self._tracks.__getitem__, [(e.pid, e.tid) for e in rows]), np.int32, len(rows)),
            start_ns=start_ns,
            dur_ns=dur_ns,
            timed=start_read & dur_read,
            device=_integers([a.device for a in args]),
            stream=_integers([a.stream for a in args]),
            correlation=np.where(correlation == ABSENT, capital, correlation),
            bytes=_integers([a.bytes for a in args]),
            graph_node=_integers([a.graph_node for a in args]),
            from_device=_integers([a.from_device for a in args]),
            to_device=_integers([a.to_device for a in args]),
            event_correlation=_integers([a.event_correlation for a in args]),
        )

    def _keep_label(self, event: _Event) -> None:
        if event.name in ("thread_name", "process_name", "process_labels") and event.args is not None:
            value = event.args.labels if event.name == "process_labels" else event.args.name
            if isinstance(value, str):
                self.labels[event.name, event.pid, event.tid] = value

    # --- what stands beside the events ----------------------------------------------------------------------------

    def _read_foot(self) -> None:
        while not self._full() and self._more():
            pass
        self._foot = self._text[self._at :][: self.options.max_event_bytes]
        self._text, self._at = b"", 0
        if self.form == "list" and self._foot.strip():
            self.damage.metadata = True

    def metadata(self, keys: Iterable[str]) -> dict[str, Any]:
        """The values of these top-level keys where they exist, as Python builtins; notes it when the text is damaged."""
        if self.form != "object":
            return {}
        text = self._head + b'"traceEvents":0' + self._foot
        try:
            raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            found = {key: bytes(raw[key]) for key in keys if key in raw}
        except _REFUSED:
            self.damage.metadata = True
            found = {}
            for key in keys:
                # The last one counts, as in any JSON reader.
                for match in re.finditer(rb'"%s"\s*+:\s*+' % re.escape(key.encode()), text):
                    found[key] = text[match.end() :]
        values = {}
        for key, stored in found.items():
            try:
                values[key], _ = json.JSONDecoder(strict=False).raw_decode(stored.decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                self.damage.metadata = True
        return values


_NO_ARGS = _Args()


def _coded(codes: _Codes, values: list[str | None]) -> CodeColumn:
    if None in values:
        values = [v or "" for v in values]
    return np.fromiter(map(codes.__getitem__, values), np.int32, len(values))


def _end_of_separator(text: bytes, at: int) -> int:
    match = _SEPARATOR.match(text, at)
    return match.end() if match else at


def _integers(values: list[Any]) -> IntColumn:
    """The values as int64; what is no integer of 64 bits is ABSENT."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.array([_integer(v) for v in values], np.int64)


def _integer(value: Any) -> int:
    try:
        number = int(float(value) if isinstance(value, _Number) else value)
    except (TypeError, ValueError, OverflowError):
        return ABSENT
    return number if -(1 << 63) <= number < 1 << 63 else ABSENT


def _loaded(text: bytes) -> dict[str, Any] | None:
    """A JSON object by the slow and patient way: raw control characters, NaN and bad UTF-8 pass; None if it is none."""
    try:
        values = json.loads(text.decode("utf-8", "replace"), strict=False, parse_float=_Number, parse_constant=_nothing)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


class _Number(str):
    """The text of a number that is no integer."""

    __slots__ = ()


def _nothing(_: str) -> None:
    """NaN and the infinities say nothing."""


def _event_from(values: dict[str, Any]) -> _Event:
    """An event from builtins of any type."""
    args = values.get("args")
    kept = None
    if isinstance(args, dict):
        kept = _Args(**{attribute: args[key] for attribute, key in _ARG_KEYS if key in args})
        kept.name, kept.labels = _clean(kept.name), _clean(kept.labels)
    return _Event(
        ph=_clean(values.get("ph")),
        cat=_clean(values.get("cat")),
        name=_clean(values.get("name")),
        pid=_hashable(values.get("pid")),
        tid=_hashable(values.get("tid")),
        ts=msgspec.Raw(_time_text(values.get("ts"))),
        dur=msgspec.Raw(_time_text(values.get("dur"))),
        args=kept,
    )


_ARG_KEYS = [(f.name, f.encode_name) for f in msgspec.structs.fields(_Args)]


def _clean(value: Any) -> str | None:
    """A string that can be encoded again (lone surrogates cannot), None for anything else."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _hashable(value: Any) -> Scalar:
    return value if isinstance(value, int | float) else _clean(value)


def _time_text(value: Any) -> bytes:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value).encode("utf-8", "replace")
    return b""
