"""The step log: JSON lines from a bounded queue that another thread writes, so that a slow or full disk never holds training up."""

from __future__ import annotations

import errno
import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from traceread.capture.files import log

CAPACITY = 1024
_SECONDS = 0.2
_CLOSE_SECONDS = 10.0

Write = Callable[[bytes], int | None]
"""Takes bytes and returns how many of them; None: all."""


class StepLog:
    """A log under way. Lines reach the operating system within a fifth of a second: a killed job leaves all before that.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, *, capacity: int = CAPACITY, write: Write | None = None) -> None:
        self.path = path
        self._waiting: deque[Mapping[str, Any]] = deque()
        self._capacity = capacity
        self._full = self._lost = 0  # one counter for each thread
        self._write = write
        self._file: FileIO | None = None
        self._cut = False  # the last line may be half there
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traceread-step-log", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines that are lost: the queue was full, or the disk took none."""
        return self._full + self._lost

    def put(self, entry: Mapping[str, Any]) -> None:
        """Takes a line and returns at once; it wakes nobody, so that the loop keeps the interpreter to itself."""
        if len(self._waiting) < self._capacity:
            self._waiting.append(entry)
        else:
            self._full += 1

    def close(self) -> None:
        """Writes what waits, for a few seconds at most."""
        self._closing.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        closing = False
        while not closing:
            closing = self._closing.wait(_SECONDS)
            while self._waiting:
                self._write_line(self._waiting.popleft())
        if self._file is not None:
            self._file.close()

    def _write_line(self, entry: Mapping[str, Any]) -> None:
        try:
            line = json.dumps({k: v for k, v in entry.items() if v is not None}, separators=(",", ":"), default=str).encode()
            # a line that failed half way is ended first: only that one cannot be read
            data = (b"\n" if self._cut else b"") + line + b"\n"
            if self._writer()(data) not in (None, len(data)):
                raise OSError(errno.ENOSPC, "only part of a line could be written")
            self._cut = False
        except (OSError, ValueError) as error:
            self._cut = True
            if not self._lost:
                log.warning("cannot write %s: %s; training goes on", self.path, getattr(error, "strerror", None) or error)
            self._lost += 1

    def _writer(self) -> Write:
        if self._write is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab", buffering=0)
            self._write = self._file.write
        return self._write
