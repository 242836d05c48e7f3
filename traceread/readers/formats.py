"""What format a file has, told by its first bytes and never by its name (only an nsys report has no public signature)."""

from __future__ import annotations

import json
import re
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from traceread.errors import TracereadError
from traceread.readers.options import DEFAULTS
from traceread.readers.unpacking import Unpacked

KINETO = "kineto"
NSYS = "nsys"
SQLITE_MAGIC = b"SQLite format 3\0"
REPORT_SUFFIXES = (".nsys-rep", ".qdrep")

_HEAD_BYTES = 1 << 16
_JSON_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\{\s*(?:[\"}]|$)|\[\s*(?:[\[{\]]|$))")
# One of them stands near the top of every Chrome trace: a key of the object, or of its first event.
_TRACE_KEYS = re.compile(
    rb'"(?:traceEvents|schemaVersion|deviceProperties|distributedInfo|displayTimeUnit|baseTimeNanoseconds|traceName|ph)"\s*:'
)


def format_of(path: Path) -> tuple[str, str]:
    """The format of a file, "kineto", "nsys" or "", and for "" what it is instead; nothing but a regular file is ever opened.

    JSON that does not look like a trace from its head is "" too; `is_json` tells whether a reader may try it all the same.
    """
    try:
        status = path.stat()
    except OSError as error:
        return "", f"cannot be read: {error.strerror}"
    if not stat.S_ISREG(status.st_mode):
        return "", "not a regular file"
    if not status.st_size:
        return "", "empty"
    try:
        with path.open("rb") as file:
            magic = file.read(len(SQLITE_MAGIC))
    except OSError as error:
        return "", f"cannot be read: {error.strerror}"
    if magic == SQLITE_MAGIC:
        return _format_of_database(path)
    if path.suffix in REPORT_SUFFIXES:
        return NSYS, ""
    if path.suffix == ".qdstrm":
        return (
            "",
            "what nsys leaves where it finds no importer; its QdstrmImporter -i FILE makes a report of it",
        )
    head = head_of(path)
    if head.startswith(SQLITE_MAGIC):
        return "", "a compressed SQLite file, which has to be unpacked first"
    if not is_json(head):
        return "", "neither JSON nor SQLite"
    return (KINETO, "") if _TRACE_KEYS.search(head) else ("", "JSON, but not a trace")


def head_of(path: Path) -> bytes:
    """The first bytes of a file once unpacked, none if it cannot be unpacked."""
    try:
        with closing(Unpacked(path, replace(DEFAULTS, chunk_bytes=_HEAD_BYTES)).blocks()) as blocks:
            return next(blocks, b"")[:_HEAD_BYTES]
    except TracereadError:
        return b""


def is_json(head: bytes) -> bool:
    """Whether a file with this head may be JSON."""
    return _JSON_START.match(head) is not None


def rank_in_head(head: bytes) -> int | None:
    """The rank that a PyTorch trace states before its events, None if it states it later or not at all."""
    text = head.decode("utf-8", "replace").partition('"traceEvents"')[0]
    key = re.search(r'"distributedInfo"\s*:\s*(?=\{)', text)
    if key is None:
        return None
    plain = re.compile(r'\{[^{}\[\]]*"rank"\s*:\s*(\d{1,9})\b').match(text, key.end())
    if plain is not None:  # before the lists of process groups, which may be longer than the head
        return int(plain[1])
    try:
        job, _ = json.JSONDecoder().raw_decode(text, key.end())
    except (ValueError, RecursionError):
        return None
    rank = job.get("rank")
    return rank if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0 else None


def _format_of_database(path: Path) -> tuple[str, str]:
    from traceread.readers import sqlite  # PyTorch traces do without

    try:
        with sqlite.opened(path) as db:
            if not db.has("StringIds"):
                return "", "a SQLite database, but not an export of Nsight Systems"
    except TracereadError:
        pass  # damaged, which its reader will say
    return NSYS, ""
