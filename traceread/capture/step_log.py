"""The step log: JSON lines from a bounded queue that another thread writes, so that a slow or full disk never holds training up."""

from __future__ import annotations

import errno
import json
import queue
import threading
from collections.abc import Callable, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from traceread.capture.files import log

CAPACITY = 1024
_CLOSE_SECONDS = 10.0

Write = Callable[[bytes], int | None]
"""Takes bytes and returns how many of them; None: all."""


class StepLog:
    """A log under way. Each line reaches the operating system at once: a killed job leaves all lines but perhaps the last.

    Attributes:
        path: the file.
        dropped: lines that are lost: the queue was full, or the disk took none.
    """

    def __init__(self, path: Path, *, capacity: int = CAPACITY, write: Write | None = None) -> None:
        self.path = path
        self.dropped = 0
        self._queue: queue.Queue[bytes | None] = queue.Queue(capacity)
        self._write = write
        self._file: FileIO | None = None
        self._cut = False  # the last line may be half there
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="traceread-step-log", daemon=True)
        self._thread.start()

    def put(self, entry: Mapping[str, Any]) -> None:
        """Takes a line and returns at once."""
        try:
            self._queue.put_nowait(json.dumps({k: v for k, v in entry.items() if v is not None}, separators=(",", ":")).encode())
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Writes what waits, for a few seconds at most."""
        try:
            self._queue.put(None, timeout=_CLOSE_SECONDS)
        except queue.Full:
            return
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while (line := self._queue.get()) is not None:
            try:
                # a line that failed half way is ended first: only that one cannot be read
                data = (b"\n" if self._cut else b"") + line + b"\n"
                if self._writer()(data) not in (None, len(data)):
                    raise OSError(errno.ENOSPC, "only part of a line could be written")
                self._cut = False
            except OSError as error:
                self._cut = True
                self.dropped += 1
                if not self._warned:
                    log.warning("cannot write %s: %s; training goes on", self.path, error.strerror or error)
                self._warned = True
        if self._file is not None:
            self._file.close()

    def _writer(self) -> Write:
        if self._write is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab", buffering=0)
            self._write = self._file.write
        return self._write
