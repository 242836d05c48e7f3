"""Refuses files that claim more than any capture holds: their analysis would take the machine for hours."""

from __future__ import annotations

from pathlib import Path

from traceread.errors import LimitExceeded


def refuse_more(path: Path, count: int, limit: int, things: str) -> None:
    """Nothing, if a file holds no more of something than the limit.

    Raises:
        LimitExceeded: it does.
    """
    if count > limit:
        raise LimitExceeded(f"{path} holds {count} {things}, and no more than {limit} are read", "If you trust the file: --trust reads it")
