"""Blocks of Chrome-trace text in, batches of event columns out, in bounded memory; damage is worked around and counted.

The text is decoded in chunks cut where one event ends and the next begins. A chunk that decodes as a list proves its cut
right; one that does not is read event by event, and an event that does not decode is mended or left out. So what is read
depends on the text alone, never on where a chunk happened to end. Where the compiled scanner was built, chunks go to it first,
several at a time; what it does not understand whole is read as if it were not there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from traceread.readers import scanner
from traceread.readers.event_columns import Columns, Event, EventBatch, Scalar, decoded, decoded_many, loaded, patiently_decoded
from traceread.readers.file_parts import FileParts, Stretch
from traceread.readers.mending import mended
from traceread.readers.options import DEFAULTS, ReadOptions

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from traceread.readers.unpacking import Unpacked

_P = ParamSpec("_P")
_T = TypeVar("_T")

# The keys an event starts with. "id" is left out: the devices listed beside the events start with it.
_KEY = rb'"(?:ph|cat|name|pid|tid|ts|dur|args|bp|s|cname|tts|tdur)"\s*+:'
_AFTER_CLOSED = re.compile(rb"}[\s,]*+\{\s*+" + _KEY)
_AFTER_ANY = re.compile(rb"}[\s,]*+\{")
_CANDIDATE = re.compile(rb"[^\s:\[](\s*+)\{\s*+" + _KEY)
_SPACE = re.compile(rb"\s*+")
_SEPARATOR = re.compile(rb"[\s,]*+")
_EARLY_END = re.compile(rb'\][\s,]*+(?:\{|"(?:ph|cat|pid|tid|ts|dur)"\s*+:)')
_ARRAY_END = re.compile(rb"\](?=\s*+(?:,\s*+\"[\w ]{1,60}\"\s*+:|\}?\s*+\Z))")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*+:\s*+\[')
_BOM = b"\xef\xbb\xbf"
_CLOSES = {ord("}"): ord("{"), ord("]"): ord("[")}

_LOOKAHEAD = 256  # bytes that decide whether a "]" ends the events
_NESTED = 1 << 16  # how far objects inside an event's own lists are followed
_NESTED_TRIES = 100  # and how often in vain: hostile files must stay linear
_CHUNKS_PER_THREAD = 2  # begun before the first result is waited for, so that threads are done at about the same time

_MARKS = {
    # What rows carry without being read: a digit inside the dimensions, a named collective. A plain search for the key is far quicker.
    "shapes": ((b'"Input Dims"', b'"Input dims"'), re.compile(rb'"Input [Dd]ims"\s*+:\s*+\[[\[\],\s]*+\d')),
    "collectives": ((b'"Collective name"',), re.compile(rb'"Collective name"\s*+:\s*+"')),
}


Watch = Callable[[bytes, Sequence[str | None] | None], None]
"""Called with a text of one event, or of several and commas, and their names in order; None for one that may be worth a look.

It may raise RecursionError if it keeps nothing: then the events are shown one by one."""


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


class EventReader:
    """The events of one trace, batch by batch when iterated over (once); the rest is complete after the last batch.

    Attributes:
        form: "object", "list", or "" where the text is neither or holds no list called traceEvents.
        objects: how many elements of the list were read.
        damage: what was wrong.
        marks: of "shapes" and "collectives", what the events carry.
    """

    def __init__(
        self,
        blocks: Iterable[bytes],
        options: ReadOptions = DEFAULTS,
        watch: Watch = lambda text, names: None,
        source: Unpacked | None = None,
    ) -> None:
        """`watch` is shown every event once, mended where it was damaged; of what the compiled scanner reads, those it may want.

        `source`, where the blocks come from, lets the scanner read the file itself if it is not packed.
        """
        self.form = ""
        self.objects = 0
        self.damage = Damage()
        self.marks: set[str] = set()
        self._options = options
        self._watch = watch
        self._blocks = iter(blocks)
        self._source = source
        self._text = b""
        self._base = 0  # where the text begins in the file
        self._at = 0  # the cursor, in the text
        self._eof = False
        self._comma_due = False
        self._nested_tries = _NESTED_TRIES
        self._barren = (0, 0)  # no event begins in this stretch of the file
        self._columns = Columns()
        self._threads = options.scanning_threads
        # How many chunks the compiled scanner is given at once: fewer after one that it did not understand; 0 without it.
        self._stride = self._longest_stride = _CHUNKS_PER_THREAD * self._threads if options.compiled and scanner.is_available() else 0
        # One thread reads and the others scan, so that memory which is freed in one is used again by the same.
        self._ahead: ThreadPoolExecutor | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._head = b""
        self._foot = b""

    @property
    def events(self) -> int:
        """How many elements of the list are events, of any phase."""
        return self._columns.events

    @property
    def categories(self) -> Sequence[str]:
        """The category of each code; "" stands for none."""
        return self._columns.categories

    @property
    def names(self) -> Sequence[str]:
        """The name of each code; "" stands for none."""
        return self._columns.names

    @property
    def tracks(self) -> Sequence[tuple[Scalar, Scalar]]:
        """The (pid, tid) of each code, as written."""
        return self._columns.tracks

    @property
    def labels(self) -> dict[tuple[str, Scalar, Scalar], str]:
        """The last thread_name or process_labels of each track: (event name, pid, tid) → value."""
        return self._columns.labels

    @property
    def head(self) -> bytes:
        """The text before the events, as far as it is kept; the whole text where there are no events."""
        return self._head

    def head_is_json(self) -> bool:
        """Whether the text before the events is one sound JSON value; only the brackets of its ends count in a long one."""
        if len(self._head) >= self._options.max_event_bytes:
            return self._text.rstrip().endswith(b"}")
        return loaded(self._head) is not None

    def __iter__(self) -> Iterator[EventBatch]:
        if not self._find_events():
            return
        try:
            if self._stride:
                yield from self._scanned_parts()
            is_open = True
            while is_open:
                if self._stride:
                    yield from self._scanned()
                batch, is_open = self._decoded()
                if len(batch):
                    yield batch
        finally:
            for threads in (self._ahead, self._pool):
                if threads is not None:
                    threads.shutdown(cancel_futures=True)
        self._read_foot()

    # --- the text -------------------------------------------------------------------------------------------------

    def _more(self) -> bool:
        """Whether there was more text; drops what lies before the cursor. Doubles, so that growing stays linear."""
        if self._eof:
            return False
        rest = self._text[self._at :]
        self._base += self._at
        self._at = 0
        self._text = self._with_more(rest, max(self._options.chunk_bytes, len(rest)))
        return len(self._text) > len(rest)

    def _with_more(self, rest: bytes, wanted: int) -> bytes:
        """A text with at least so many bytes more of the file behind it, unless that ends before."""
        parts = [rest]
        while wanted > 0 and not self._eof:
            block = next(self._blocks, None)
            if block is None:
                self._eof = True
            else:
                parts.append(block)
                wanted -= len(block)
        return b"".join(parts)

    def _full(self) -> bool:
        return len(self._text) - self._at >= self._options.max_event_bytes

    def _find_events(self) -> bool:
        """Whether the text holds a list of events; puts the cursor behind its opening bracket."""
        while len(self._text) < len(_BOM) and self._more():
            pass
        self._at = len(_BOM) if self._text.startswith(_BOM) else 0
        while (start := _end(_SPACE, self._text, self._at)) == len(self._text) and self._more():
            pass
        self._at = start
        first = self._text[start : start + 1]
        if first == b"[":
            self.form = "list"
            self._at += 1
            return True
        if first != b"{":
            self._keep_head(self._text[start : start + _LOOKAHEAD])
            return False
        searched = start
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
        self._head += text[: self._options.max_event_bytes - len(self._head)]

    # --- events, by the compiled scanner ----------------------------------------------------------------------------

    def _scanned_parts(self) -> Iterator[EventBatch]:
        """Most events of a file that is not packed, up to some that the scanner does not understand."""
        start = _end(_SEPARATOR, self._text, self._at)
        if self._source is None or self._source.plain is None or self._eof or self._text[start : start + 1] != b"{":
            return
        if self._text.count(b",", self._at, start):
            return
        descriptor, begun = self._source.plain.fileno(), self._options.head_start
        stretch = Stretch.of(self._base + start, self._source.size, self._threads, self._options)
        parts = (begun and begun.taken(descriptor, stretch)) or FileParts(descriptor, stretch)
        with closing(parts):
            for part in parts:
                batch = self._taken(part.scan)
                if batch is None:
                    break
                self._comma_due = True
                self._text, self._base, self._at = b"", part.end, 0
                self._source.move(part.end)
                yield batch

    def _scanned(self) -> Iterator[EventBatch]:
        """The events from the cursor on, up to some that the scanner does not understand or that are the last.

        While threads scan some chunks, another reads the text behind them, and whoever iterates works on the batches before.
        """
        ready: list[EventBatch] = []
        rooms = scanner.Rooms()
        while True:
            while len(self._text) - self._at < self._stride * self._options.chunk_bytes and self._more():
                pass
            cuts = self._cuts()
            if not cuts or max(map(int.__sub__, cuts, [self._at, *cuts])) > self._options.max_event_bytes:
                break
            if self._pool is None and self._threads > 1 and not self._eof:
                from concurrent.futures import ThreadPoolExecutor  # a small file needs none

                self._ahead, self._pool = ThreadPoolExecutor(1), ThreadPoolExecutor(self._threads)
            end = cuts[-1]
            following = _begun(self._ahead, self._with_more, self._text[end:], self._stride * self._options.chunk_bytes)
            starts = [_end(_SEPARATOR, self._text, at) for at in (self._at, *cuts[:-1])]
            stretches = list(zip(starts, cuts, strict=True))
            columns = [rooms.room_for(scanner.most_rows(cut - start)) for start, cut in stretches]
            scans = [_begun(self._pool, scanner.scan, self._text, *where, room) for where, room in zip(stretches, columns, strict=True)]
            del columns  # who holds a room looks at it
            yield from ready
            ready = []
            for scan, (start, cut) in zip(scans, stretches, strict=True):
                batch = self._accepted(scan(), start, cut)
                if batch is None:
                    break
                ready.append(batch)
            understood = self._at == end
            self._text = self._text[self._at : end] + following()
            self._base += self._at
            self._at = 0
            self._stride = min(2 * self._stride, self._longest_stride) if understood else 1
            if not understood:
                break
        yield from ready

    def _cuts(self) -> list[int]:
        """Where chunks of the text may end: behind events that others follow."""
        last = self._last_boundary(self._at, len(self._text))
        chunks = (last - self._at) // self._options.chunk_bytes
        cuts: list[int] = []
        for i in range(1, chunks):
            start, stop = cuts[-1] if cuts else self._at, self._at + (last - self._at) * i // chunks
            cuts += [cut] if (cut := self._last_boundary(start, stop)) else []
        return [*cuts, last] if last else []

    def _accepted(self, scan: scanner.Scan | None, start: int, cut: int) -> EventBatch | None:
        """The batch of a scanned chunk, None if it was not understood; moves the cursor behind it."""
        batch = None if scan is None else self._taken(scan)
        if batch is not None:
            self._check_commas(self._text.count(b",", self._at, start))
            self._comma_due = True
            self._at = cut
        return batch

    def _taken(self, scan: scanner.Scan) -> EventBatch | None:
        """The batch of what was scanned, None if a text in it is not sound; then nothing is kept."""
        batch = self._columns.scanned(scan)
        if batch is None:
            return None
        self.objects += scan.told.objects
        for mark, seen in (("shapes", scan.told.has_shapes), ("collectives", scan.told.names_collectives)):
            if seen:
                self.marks.add(mark)
        for event in scan.told.whole:
            self._watch(event, None)
        return batch

    # --- events, many at once ---------------------------------------------------------------------------------------

    def _decoded(self) -> tuple[EventBatch, bool]:
        """The events of the next chunk, one at least, and whether others may follow."""
        chunk = self._options.chunk_bytes
        while len(self._text) - self._at < chunk and self._more():
            pass
        boundary = self._last_boundary(self._at, self._at + chunk) or self._last_boundary(self._at, len(self._text))
        is_open = True
        events = self._chunk(boundary)
        if events is None:
            events, is_open = self._one_by_one(boundary or len(self._text))
        self.objects += len(events)
        return self._columns.batch(events), is_open

    def _last_boundary(self, start: int, stop: int) -> int:
        """The last end of an event in a stretch of the text that another one follows, 0 if none is seen."""
        for pattern in (_AFTER_CLOSED, _AFTER_ANY):
            at = stop
            while (at := self._text.rfind(b"}", start, at)) >= 0:
                if pattern.match(self._text, at):
                    return at + 1
        return 0

    def _chunk(self, boundary: int) -> list[Event] | None:
        """The events up to a boundary; None where they do not decode at once."""
        start = _end(_SEPARATOR, self._text, self._at)
        if self._text[start : start + 1] != b"{" or not start < boundary <= start + self._options.max_event_bytes:
            return None
        chunk = self._text[start:boundary]
        events = decoded_many(chunk)
        if events is None:
            return None
        try:
            self._look_for_marks(chunk, list(map(attrgetter("name"), events)))
        except RecursionError:
            return None
        self._check_commas(self._text.count(b",", self._at, start))
        self._comma_due = True
        self._at = boundary
        return events

    # --- events, one by one -----------------------------------------------------------------------------------------

    def _one_by_one(self, stop: int) -> tuple[list[Event], bool]:
        """The events up to a position of the text, one at least, and whether the list goes on after them."""
        events: list[Event] = []
        stop += self._base
        while True:
            if not self._at_event():
                return events, False
            end = self._object_end()
            text = self._text[self._at : end]
            event = decoded(text) if 0 < end <= self._at + self._options.max_event_bytes else None
            self._comma_due = event is not None
            if event is None:
                end = self._next_event(self._at + 1)  # passes the comma as well
                if not self.damage.truncated:
                    text, event = self._mended(self._text[self._at : end])
            if event is not None:
                events.append(event)
                self._look_for_marks(text, (event.name,))
            self._at = end
            if self._base + self._at >= stop:
                return events, True

    def _at_event(self) -> bool:
        """Whether another event follows; skips and counts what should not stand before it."""
        commas = 0
        while True:
            end = _end(_SEPARATOR, self._text, self._at)
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
        """Where the next event seems to begin behind a position of the text, its last character before included."""
        start -= 1
        barren_from, barren_to = (at - self._base for at in self._barren)
        inside = barren_from <= start <= barren_to
        match = _CANDIDATE.search(self._text, barren_to if inside else start)
        at = match.start() if match else max(start, len(self._text) - _LOOKAHEAD)
        self._barren = (self._base + (barren_from if inside else start), self._base + at)
        return match.end(1) if match else None

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

    def _mended(self, text: bytes) -> tuple[bytes, Event | None]:
        """A damaged object made sound, with its event; None if nothing can be made of it or it is too long. Counts both."""
        for candidate in mended(text.rstrip(b" \t\r\n,")) if len(text) <= self._options.max_event_bytes else ():
            event = patiently_decoded(candidate)
            if event is not None and event.ph is not None and len(event.ph) == 1:
                self.damage.mended += 1
                return candidate, event
        self.damage.dropped += 1
        return text, None

    def _look_for_marks(self, text: bytes, names: Sequence[str | None]) -> None:
        self._watch(text, names)
        for mark, (signs, pattern) in _MARKS.items():
            if mark not in self.marks and any(sign in text for sign in signs) and pattern.search(text):
                self.marks.add(mark)

    # --- what stands beside the events ----------------------------------------------------------------------------

    def _read_foot(self) -> None:
        while not self._full() and self._more():
            pass
        self._foot = self._text[self._at :][: self._options.max_event_bytes]
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
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.damage.metadata = True
            # The last one of a key counts, as in any JSON reader.
            at = {key: m.end() for key in keys for m in re.finditer(rb'"%s"\s*+:\s*+' % re.escape(key.encode()), text)}
            found = {key: text[start:] for key, start in at.items()}
        values = {}
        for key, stored in found.items():
            try:
                values[key], _ = json.JSONDecoder(strict=False).raw_decode(stored.decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                self.damage.metadata = True
        return values


def _begun(threads: ThreadPoolExecutor | None, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Callable[[], _T]:
    """What returns a function's result; it is at work already where there are threads."""
    return partial(function, *args, **kwargs) if threads is None else threads.submit(function, *args, **kwargs).result


def _end(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
