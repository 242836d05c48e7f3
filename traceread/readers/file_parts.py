"""Parts of a file that is not packed, scanned by several threads at once straight from the file.

Where a part begins is a guess for all but the first: a comma and a brace may stand in a text too. It was right if the part before,
which was understood from its first event to its last, ends where the next one begins.

Nothing here needs numpy, so that scanning can begin while that is imported.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from stat import S_ISREG
from threading import Lock, Thread
from typing import TYPE_CHECKING, NamedTuple

from traceread.readers import scanner
from traceread.readers.options import ReadOptions

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_BUFFER_BYTES = 1 << 19  # of the file in memory, for each thread; the processor's cache holds it
_PARTS_PER_THREAD = 8
_CHUNKS_PER_PART = 8  # at most
_AHEAD = 2  # parts begun for each thread
_MOST_EARLY = 32  # parts scanned before anybody asks: more than can be while the reader is imported
_EARLY_BYTES = 16 << 20  # of a smaller file there is little to scan meanwhile
_HEAD_BYTES = 1 << 18  # in which the events must begin for a head start
_PATIENCE_S = 0.0005

_FIRST_EVENT = re.compile(rb'(?:\xef\xbb\xbf)?+\s*+(?:\[|\{.*?"traceEvents"\s*+:\s*+\[)\s*+(?=\{)', re.DOTALL)


class Stretch(NamedTuple):
    """What is scanned of a file, and in which parts.

    Attributes:
        begin: where an event begins.
        stop: events that begin there or later are left out.
        length: how long a part is.
        buffer_bytes: how much of the file a thread holds; a longer event is not understood.
        threads: how many parts are scanned at once.
    """

    begin: int
    stop: int
    length: int
    buffer_bytes: int
    threads: int

    @classmethod
    def of(cls, begin: int, size: int, threads: int, options: ReadOptions) -> Stretch:
        """What is scanned of a file with events from `begin` on: all but its end, of which other readers know more."""
        chunk = options.chunk_bytes
        stop = min(size, options.max_uncompressed_bytes) - chunk
        length = min(max((stop - begin) // (_PARTS_PER_THREAD * threads), chunk), _CHUNKS_PER_PART * chunk)
        return cls(begin, stop, length, min(_BUFFER_BYTES, options.max_event_bytes), threads)


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


class FileParts:
    """The events that begin in a stretch of an open file, part by part, as far as the scanner understands them.

    To be iterated over once, and closed before the file is.
    """

    def __init__(self, descriptor: int, stretch: Stretch) -> None:
        self._descriptor = descriptor
        self._stretch = stretch
        self._scans = self._all_scans()
        self._rooms = scanner.Rooms()
        self._rows = 0  # of the part with the most of them
        self._early: deque[scanner.FilePart | None] = deque()
        self._early_thread: Thread | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._asked_for = False

    def begin_early(self) -> None:
        """Scans the first parts in a thread, until somebody asks for them or there are many."""
        thread = Thread(target=self._scan_early)
        thread.start()
        self._early_thread = thread

    def __iter__(self) -> Iterator[scanner.FilePart]:
        expected = self._stretch.begin
        for part in self._scanned():
            if part is None or part.begin != expected:
                return
            expected = part.following
            if part.scan.told.objects:
                yield part

    def close(self) -> None:
        """Lets go of the parts that nobody has asked for, and waits for those that are being scanned."""
        self._asked_for = True
        if self._early_thread is not None:
            self._early_thread.join()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
            _impatient.__exit__()

    def _scan_early(self) -> None:
        with suppress(MemoryError):  # whoever goes on meets the same
            while not self._asked_for and len(self._early) < _MOST_EARLY and (scan := next(self._scans, None)) is not None:
                self._early.append(scan())

    def _scanned(self) -> Iterator[scanner.FilePart | None]:
        """What the parts hold, in order; some are always begun before they are asked for, so that no thread waits."""
        self._asked_for = True
        threads = self._stretch.threads
        if threads > 1:
            from concurrent.futures import ThreadPoolExecutor  # meanwhile the early thread ends its part
        self.close()
        if threads > 1:
            _impatient.__enter__()
            self._pool = ThreadPoolExecutor(threads)
            self._rooms = scanner.Rooms()  # there are many of the early ones, which are not used again
        begun = self._begun(_AHEAD * threads)
        while self._early:
            yield self._early.popleft()
        while begun:
            part = begun.popleft()()
            begun += self._begun(1)
            yield part

    def _begun(self, count: int) -> deque[Callable[[], scanner.FilePart | None]]:
        """What returns the next so many parts; threads are at work on them where there are any."""
        scans = islice(self._scans, count if self._pool else 1)
        return deque(scans if self._pool is None else (self._pool.submit(scan).result for scan in scans))

    def _all_scans(self) -> Iterator[partial[scanner.FilePart | None]]:
        begin, stop, length, _, _ = self._stretch
        for at in range(begin, stop, length):
            until = min(at + length, stop)
            most = scanner.most_rows(until - at)
            room = self._rooms.room_for(min(most, 2 * self._rows) if self._rows else most)
            yield partial(self._scan, at, until, room)

    def _scan(self, at: int, until: int, room: bytearray) -> scanner.FilePart | None:
        begin, _, _, buffer_bytes, _ = self._stretch
        most = scanner.most_rows(until - at)
        part = scanner.scan_file(self._descriptor, at, until, at == begin, buffer_bytes, room)
        if part is None and scanner.rows_in(room) < most:  # as the parts before are, this one need not be
            part = scanner.scan_file(self._descriptor, at, until, at == begin, buffer_bytes, scanner.room_for(most))
        if part is not None:
            self._rows = max(self._rows, part.scan.told.rows)
        return part


class HeadStart:
    """The first parts of a file, scanned before its reader is there."""

    def __init__(self, descriptor: int, stretch: Stretch) -> None:
        self._file = _identity(descriptor)
        self._stretch = stretch
        self._parts: FileParts | None = FileParts(descriptor, stretch)
        with suppress(RuntimeError):  # no thread is to be had: then it is no head start
            self._parts.begin_early()

    def taken(self, descriptor: int, stretch: Stretch) -> FileParts | None:
        """All parts of this stretch of this file, to be closed by whoever takes them; None if others were begun, or somebody has them."""
        if self._stretch != stretch or self._file != _identity(descriptor):
            return None
        parts, self._parts = self._parts, None
        return parts

    def close(self) -> None:
        """Ends what nobody has taken."""
        if self._parts is not None:
            self._parts.close()


@contextmanager
def head_start(path: Path, options: ReadOptions, least_bytes: int = _EARLY_BYTES) -> Iterator[HeadStart | None]:
    """Scans the beginning of a trace while what will read it is still being imported.

    None where that gains nothing (a file of fewer bytes, one processor, no compiled scanner) and where it is not plainly a trace that is
    not packed: whoever reads it finds out what it is.
    """
    threads = options.scanning_threads
    with ExitStack() as opened:
        begun = None
        if threads > 1 and options.compiled and scanner.is_available() and _is_file_of(path, least_bytes):
            file = opened.enter_context(path.open("rb"))
            head = _FIRST_EVENT.match(file.read(_HEAD_BYTES))
            if head:
                stretch = Stretch.of(head.end(), os.fstat(file.fileno()).st_size, threads, options)
                begun = opened.enter_context(closing(HeadStart(file.fileno(), stretch)))
        yield begun


def _is_file_of(path: Path, least_bytes: int) -> bool:
    """Whether it is a file of so many bytes that may be read; to open a pipe would be to wait for somebody to write."""
    try:
        stated = path.stat()
    except (OSError, ValueError):
        return False
    return S_ISREG(stated.st_mode) and stated.st_size >= least_bytes and os.access(path, os.R_OK)


def _identity(descriptor: int) -> tuple[int, ...]:
    stated = os.fstat(descriptor)
    return stated.st_dev, stated.st_ino, stated.st_size, stated.st_mtime_ns
