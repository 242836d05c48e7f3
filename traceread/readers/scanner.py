"""The compiled scanner of events, where it was built: text in, columns out, outside the interpreter's lock.

It is an optional extension of this package. Without it, or with `TRACEREAD_PURE_PYTHON=1` in the environment, the typed decoder
reads everything: the same tables, more slowly.
"""

from __future__ import annotations

import os
from sys import getrefcount
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

try:
    from traceread.readers import _scanner
except ImportError:  # not built: no compiler when the package was installed
    _HERE = False
else:
    _HERE = True

if TYPE_CHECKING:
    from traceread.readers._scanner import Scanned

PURE_PYTHON = "TRACEREAD_PURE_PYTHON"
"""Environment variable that turns the compiled scanner off."""

_ROW_BYTES = 48  # complete events shorter than this on average are left to the typed decoder


_UNSEEN = 4
"""References to a column that nobody has but `Rooms.room`, which looks for them."""


class Room(NamedTuple):
    """Columns to be filled; see `_scanner.scan`. For large arrays numpy asks for huge pages, so there is one for each integer."""

    integers: tuple[npt.NDArray[np.int64], ...]
    codes: npt.NDArray[np.int32]
    timed: npt.NDArray[np.bool_]


class Scan(NamedTuple):
    """The events of a stretch of text: their number and texts, and their columns, which are longer than there are rows."""

    told: Scanned
    room: Room


class FilePart(NamedTuple):
    """The events of a part of a file.

    Attributes:
        scan: what they hold.
        begin, end, following: where the first one begins, where the last one ends, and where the next one begins.
    """

    scan: Scan
    begin: int
    end: int
    following: int


def is_available() -> bool:
    """Whether the compiled scanner was built and is not turned off."""
    return _HERE and os.environ.get(PURE_PYTHON, "") in ("", "0")


def in_use() -> str:
    """What reads PyTorch traces here, in words for people."""
    if is_available():
        return "compiled scanner"
    return f"pure Python ({PURE_PYTHON} is set)" if _HERE else "pure Python (the compiled scanner was not built)"


def room(start: int, stop: int) -> Room:
    """Columns for the events of a stretch of text."""
    rows = (stop - start) // _ROW_BYTES + 1
    integers = tuple(np.empty(rows, np.int64) for _ in range(_scanner.INTEGERS))
    return Room(integers, np.empty((3, rows), np.int32), np.empty(rows, np.bool_))


class Rooms:
    """Columns to be filled, one after the other: memory that the system gives anew costs as much time as filling it.

    Those made before are used again when nobody looks at anything in them any more. Only one thread may ask.
    """

    def __init__(self) -> None:
        self._made: list[Room] = []

    def room(self, start: int, stop: int) -> Room:
        """Columns for the events of a stretch of text, or longer ones."""
        rows = (stop - start) // _ROW_BYTES + 1
        made = next((made for made in self._made if len(made.timed) >= rows and _is_free(made)), None)
        if made is None:
            made = room(start, stop)
            self._made.append(made)
        return Room(tuple(column[:] for column in made.integers), made.codes[:], made.timed[:])


def _is_free(made: Room) -> bool:
    return all(getrefcount(column) <= _UNSEEN for column in (*made.integers, made.codes, made.timed))


def scan(text: bytes, start: int, stop: int, room: Room) -> Scan | None:
    """The events from `start` to `stop` of a text; None if anything there is not plainly understood.

    The stretch begins with the brace that opens an event and ends behind the one that closes the last. May be called from any thread.
    """
    told = _scanner.scan(text, start, stop, room.integers, room.codes, room.timed.view(np.uint8))
    return None if told is None else Scan(told, room)


def scan_file(descriptor: int, begin: int, stop: int, is_first: bool, buffer_bytes: int, room: Room) -> FilePart | None:
    """The events that begin between two places of an open file, another one behind them; None if anything there is not plainly understood.

    Unless it is the first part, whose first event begins at `begin`, the next place where one seems to begin is taken. May be called from
    any thread.
    """
    found = _scanner.scan_file(descriptor, begin, stop, is_first, buffer_bytes, room.integers, room.codes, room.timed.view(np.uint8))
    return None if found is None else FilePart(Scan(found[0], room), *found[1:])
