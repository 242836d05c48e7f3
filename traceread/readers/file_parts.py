"""Parts of a file that is not packed, scanned by several threads at once straight from the file.

Where a part begins is a guess for all but the first: a comma and a brace may stand in a text too. It was right if the part before,
which was understood from its first event to its last, ends where the next one begins.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Generator, Iterator
from functools import partial
from itertools import islice
from threading import Lock

from traceread.readers import scanner

_BUFFER_BYTES = 1 << 19  # of the file in memory, for each thread; the processor's cache holds it
_PARTS_PER_THREAD = 8
_AHEAD = 2  # parts begun for each thread
_PATIENCE_S = 0.0005


class _Impatient:
    """While anybody is in it, a busy thread gives the interpreter away sooner.

    Others may be importing meanwhile, and a part is scanned in less time than they are let go on by default. The interval is the whole
    process's, so the first who comes notes it and the last who goes restores it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._before = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(_PATIENCE_S, self._before))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                sys.setswitchinterval(self._before)


_impatient = _Impatient()


def scanned_parts(
    descriptor: int, begin: int, stop: int, *, threads: int, least_bytes: int, most_bytes: int, max_event_bytes: int
) -> Generator[scanner.FilePart, None, None]:
    """The events that begin in a stretch of an open file, part by part, as far as the scanner understands them.

    Args:
        descriptor: of the file.
        begin: where an event begins.
        stop: events that begin there or later are left out.
        threads: how many parts are scanned at once.
        least_bytes: how long a part is at least.
        most_bytes: how long it is at most.
        max_event_bytes: a longer event is not understood.
    """
    length = min(max((stop - begin) // (_PARTS_PER_THREAD * threads), least_bytes), most_bytes)
    buffer_bytes = min(_BUFFER_BYTES, max_event_bytes)
    rooms = scanner.Rooms()

    def scans() -> Iterator[partial[scanner.FilePart | None]]:
        for at in range(begin, stop, length):
            until = min(at + length, stop)
            yield partial(scanner.scan_file, descriptor, at, until, at == begin, buffer_bytes, rooms.room(at, until))

    expected = begin
    for part in (scan() for scan in scans()) if threads == 1 else _at_once(scans(), threads):
        if part is None or part.begin != expected:
            return
        expected = part.following
        if part.scan.told.objects:
            yield part


def _at_once(scans: Iterator[partial[scanner.FilePart | None]], threads: int) -> Iterator[scanner.FilePart | None]:
    """What the parts hold, in order; some are begun before they are asked for, so that no thread waits."""
    from concurrent.futures import ThreadPoolExecutor  # a small file needs none

    with _impatient, ThreadPoolExecutor(threads) as pool:
        begun = deque(map(pool.submit, islice(scans, _AHEAD * threads)))
        try:
            while begun:
                part = begun.popleft().result()
                begun.extend(map(pool.submit, islice(scans, 1)))
                yield part
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
