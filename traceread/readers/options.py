"""What a reader may use, and whom it tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[int, int | None], None]
"""Called with (bytes done, bytes in total); the total is None where it is not known."""


@dataclass(frozen=True)
class ReadOptions:
    """Limits against hostile or broken files, and a place to report progress. Passing a limit raises LimitExceeded.

    Attributes:
        max_uncompressed_bytes: largest size of one file once unpacked (`--max-uncompressed`).
        max_event_bytes: largest size of a single event or metadata value of a JSON file; nothing larger is ever buffered.
        max_depth: deepest nesting of JSON arrays and objects that is read; a deeper event is dropped and counted.
        chunk_bytes: how much unpacked text is decoded at a time. Results never depend on it.
        nsys_timeout_s: how long `nsys export` may take on a `.nsys-rep` report.
        progress: called from time to time with (bytes done, bytes in total or None), both of the file as stored.
    """

    max_uncompressed_bytes: int = 64 << 30
    max_event_bytes: int = 256 << 20
    max_depth: int = 200
    chunk_bytes: int = 4 << 20
    nsys_timeout_s: float = 1800.0
    progress: Progress | None = None
