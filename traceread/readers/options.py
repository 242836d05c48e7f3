"""What a reader may use, and whom it tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from traceread.engine import cpus
from traceread.records import record

if TYPE_CHECKING:
    from traceread.readers.file_parts import HeadStart

NO_LIMIT = 1 << 62
UNPACKED_FREELY = 1 << 30
"""A file may unpack to so many bytes, however small it is."""

_MOST_THREADS = 8  # unpacking and collecting are serial; more threads would wait for them

Progress = Callable[[int, int | None], None]
"""Called with (bytes done, bytes in total); the total is None where it is not known."""


@record
class ReadOptions:
    """Limits against hostile or broken files, and a place to report progress.

    Attributes:
        max_uncompressed_bytes: largest size of one file once unpacked (`--max-uncompressed`); beyond it LimitExceeded is raised.
        max_unpacked_ratio: how many times its packed size a file may unpack to, beyond the first GiB (`--max-uncompressed` lifts it).
        max_gpus, max_threads: how many GPUs, and host threads, one file may hold (`--trust` lifts it).
        max_event_bytes: largest size of a single event of a JSON file, and of what is kept of the text beside the events; a
            larger event is dropped and counted as damage, so that nothing larger is ever held.
        chunk_bytes: how much unpacked text is decoded at a time. Results do not depend on it, but around events beyond the limit.
        compiled: use the compiled scanner of events where it was built. Results do not depend on it.
        threads: how many scan at once, 0: one for each CPU that may be used, up to 8. Results do not depend on it.
        nsys_timeout_s: how long `nsys export` may take on a `.nsys-rep` report.
        cache: directory in which what was read is kept for the next time, None for nowhere. Results do not depend on it.
        progress: called from time to time with (bytes done, bytes in total or None).
        head_start: what has been begun of the file, None for nothing. Results do not depend on it.
    """

    max_uncompressed_bytes: int = 64 << 30
    max_unpacked_ratio: int = 64
    max_gpus: int = 256
    max_threads: int = 4096
    max_event_bytes: int = 16 << 20
    chunk_bytes: int = 1 << 20
    compiled: bool = True
    threads: int = 0
    nsys_timeout_s: float = 1800.0
    cache: Path | None = None
    progress: Progress | None = None
    head_start: HeadStart | None = None

    @property
    def scanning_threads(self) -> int:
        """How many threads scan a file."""
        return self.threads or min(cpus(), _MOST_THREADS)

    @property
    def limits(self) -> tuple[int, ...]:
        """What decides whether a file is refused or read in part."""
        return (self.max_uncompressed_bytes, self.max_unpacked_ratio, self.max_gpus, self.max_threads, self.max_event_bytes)

    def trusting(self) -> ReadOptions:
        """The same without the limits on whole files; a single event stays bounded."""
        return replace(self, max_uncompressed_bytes=NO_LIMIT, max_unpacked_ratio=NO_LIMIT, max_gpus=NO_LIMIT, max_threads=NO_LIMIT)


DEFAULTS = ReadOptions()
