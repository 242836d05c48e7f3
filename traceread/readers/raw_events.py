"""Events of a PyTorch trace as they were written, for copying: every field as its own JSON text, in bounded memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec

from traceread.readers.event_columns import loaded
from traceread.readers.json_events import EventReader
from traceread.readers.options import DEFAULTS, ReadOptions
from traceread.readers.unpacking import Unpacked

RawEvent = dict[str, msgspec.Raw]
"""An event: its fields by name, each as JSON text."""

_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d{1,19})\b')
_LONGEST_BASE = 64

_many = msgspec.json.Decoder(list[RawEvent]).decode


def raw_events(path: Path, options: ReadOptions = DEFAULTS) -> Iterator[list[RawEvent]]:
    """The events of all phases in the order of the file, batch by batch; damaged ones are mended as far as the reader mends them.

    Raises:
        TraceNotFound, InputError, LimitExceeded: the file cannot be read.
    """
    shown: list[bytes] = []

    def show(text: bytes, _: object) -> None:
        shown.append(text)

    with closing(Unpacked(path, options).blocks()) as blocks:
        for _ in EventReader(blocks, replace(options, compiled=False), show):
            yield from map(decoded_events, shown)
            shown.clear()
    yield from map(decoded_events, shown)


def base_ns(path: Path, options: ReadOptions = DEFAULTS) -> int:
    """What the times of a PyTorch trace count from, 0 if the file does not say.

    Raises:
        TraceNotFound, InputError, LimitExceeded: the file cannot be read.
    """
    rest = b""
    with closing(Unpacked(path, options).blocks()) as blocks:
        for block in blocks:
            text = rest + block
            found = _BASE.search(text)
            if found and found.end() < len(text):
                return int(found[1])
            rest = text[-_LONGEST_BASE:]
    found = _BASE.search(rest)
    return int(found[1]) if found else 0


def decoded_events(text: bytes) -> list[RawEvent]:
    """The events of a stretch of text that the reader could use, as it read them."""
    try:
        return _many(b"[" + text + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    several = loaded(b'{"events":[' + text + b"]}")  # what the typed decoder skips may be bytes that are no UTF-8
    if several is not None and isinstance(several["events"], list):
        return [_raw(event) for event in several["events"] if isinstance(event, dict)]
    return []


def _raw(event: dict[str, object]) -> RawEvent:
    return {key: msgspec.Raw(_encoded(value)) for key, value in event.items()}


def _encoded(value: object) -> bytes:
    """A value as JSON; numbers that were kept as text to be exact are numbers again."""
    if isinstance(value, str) and type(value) is not str:
        return value.encode("ascii", "replace")
    return json.dumps(value).encode()
