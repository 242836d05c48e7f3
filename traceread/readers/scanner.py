"""The compiled scanner of events, where it was built: text in, columns out, outside the interpreter's lock.

It is an optional extension of this package. Without it, or with `TRACEREAD_PURE_PYTHON=1` in the environment, the typed decoder
reads everything: the same tables, more slowly. Nothing here needs numpy, so that scanning can begin while that is imported.
"""

from __future__ import annotations

import os
from sys import getrefcount
from typing import TYPE_CHECKING, NamedTuple

try:
    from traceread.readers import _scanner
except ImportError:  # not built: no compiler when the package was installed
    _HERE = False
else:
    _HERE = True

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from traceread.readers._scanner import Scanned

PURE_PYTHON = "TRACEREAD_PURE_PYTHON"
"""Environment variable that turns the compiled scanner off."""

_LEAST_BYTES = 48  # complete events shorter than this on average are left to the typed decoder


class Columns(NamedTuple):
    """What a room holds, as arrays: see `_scanner.scan`."""

    integers: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int32]
    timed: npt.NDArray[np.bool_]


class Scan(NamedTuple):
    """The events of a stretch of text: their number and texts, and memory with their columns, which may have room for more rows."""

    told: Scanned
    room: bytearray

    def columns(self) -> Columns:
        """The columns, as long as there are rows; they show the memory itself."""
        import numpy as np

        room, rows = rows_in(self.room), self.told.rows
        integers = np.frombuffer(self.room, np.int64, _scanner.INTEGERS * room).reshape(-1, room)
        codes = np.frombuffer(self.room, np.int32, 3 * room, integers.nbytes).reshape(-1, room)
        timed = np.frombuffer(self.room, np.bool_, room, integers.nbytes + codes.nbytes)
        return Columns(integers[:, :rows], codes[:, :rows], timed[:rows])


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


def most_rows(text_bytes: int) -> int:
    """How many rows there is room for in the columns of so much text, if it is read at all."""
    return text_bytes // _LEAST_BYTES + 1


def room_for(rows: int) -> bytearray:
    """Memory for the columns of so many rows."""
    return _scanner.room_for(rows)


def rows_in(room: bytearray) -> int:
    """For how many rows there is memory."""
    return len(room) // _scanner.ROW_BYTES


class Rooms:
    """Memory for columns, one after the other: to get it from the system anew costs as much time as filling it.

    What was made before is used again when nobody looks at anything in it any more. Only one thread may ask at a time.
    """

    def __init__(self) -> None:
        self._made: list[bytearray] = []

    def room_for(self, rows: int) -> bytearray:
        """Memory for the columns of so many rows, or more."""
        for made, references in zip(self._made, _references(self._made), strict=True):
            if len(made) >= rows * _scanner.ROW_BYTES and references == _UNSEEN:
                return made
        self._made.append(room_for(rows))
        return self._made[-1]


def _references(made: list[bytearray]) -> list[int]:
    return [getrefcount(one) for one in made]


_UNSEEN = _references([bytearray()])[0]
"""References to what nobody has but a list; how many Python counts differs between its versions."""


def scan(text: bytes, start: int, stop: int, room: bytearray) -> Scan | None:
    """The events from `start` to `stop` of a text; None if anything there is not plainly understood.

    The stretch begins with the brace that opens an event and ends behind the one that closes the last. May be called from any thread.
    """
    told = _scanner.scan(text, start, stop, room)
    return None if told is None else Scan(told, room)


def scan_file(descriptor: int, begin: int, stop: int, is_first: bool, buffer_bytes: int, room: bytearray) -> FilePart | None:
    """The events that begin between two places of an open file, another one behind them; None if anything there is not plainly understood.

    Unless it is the first part, whose first event begins at `begin`, the next place where one seems to begin is taken. May be called from
    any thread.
    """
    found = _scanner.scan_file(descriptor, begin, stop, is_first, buffer_bytes, room)
    return None if found is None else FilePart(Scan(found[0], room), *found[1:])
