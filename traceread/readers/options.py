"""What a reader may use, and whom it tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Progress = Callable[[int, int | None], None]
"""Called with (bytes done, bytes in total); the total is None where it is not known."""


@dataclass(frozen=True)
class ReadOptions:
    """Limits against hostile or broken files, and a place to report progress.

    Attributes:
        max_uncompressed_bytes: largest size of one file once unpacked (`--max-uncompressed`); beyond it LimitExceeded is raised.
        max_event_bytes: largest size of a single event of a JSON file, and of what is kept of the text beside the events; a
            larger event is dropped and counted as damage, so that nothing larger is ever held.
        chunk_bytes: how much unpacked text is decoded at a time. Results do not depend on it.
        compiled: use the compiled scanner of events where it was built. Results do not depend on it.
        threads: how many scan at once, 0: one for each CPU that may be used, up to 8. Results do not depend on it.
        nsys_timeout_s: how long `nsys export` may take on a `.nsys-rep` report.
        cache: directory in which what was read is kept for the next time, None for nowhere. Results do not depend on it.
        progress: called from time to time with (bytes done, bytes in total or None).
    """

    max_uncompressed_bytes: int = 64 << 30
    max_event_bytes: int = 16 << 20
    chunk_bytes: int = 1 << 20
    compiled: bool = True
    threads: int = 0
    nsys_timeout_s: float = 1800.0
    cache: Path | None = None
    progress: Progress | None = None


DEFAULTS = ReadOptions()
