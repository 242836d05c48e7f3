"""Operators that multiply matrices in a PyTorch trace, with what their recorded shapes say they do, decoded while the text goes by."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from traceread.model import MatrixOps
from traceread.readers.event_columns import Scalar, WholeEvent
from traceread.readers.microseconds import LIMIT_NS, nanoseconds
from traceread.readers.operator_flops import OperatorWork, work_of

SHAPES = (b'"Input Dims"', b'"Input dims"')
"""One of these stands in the text of every event that tells the shapes of its inputs."""
_HOST = ("cpu_op", "Operator")
_ROWS = 8192  # rows kept as Python objects at once
_SHAPES_KEPT = 1 << 14


class _Args(msgspec.Struct, gc=False):
    dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input Dims")
    older_dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input type")
    concrete: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Concrete Inputs")


class _Event(WholeEvent, gc=False):
    args: _Args | None = None


_decode = msgspec.json.Decoder(_Event).decode
_REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class MatrixEvents:
    """Collects operators that multiply matrices, some 50 bytes for each."""

    def __init__(self) -> None:
        self._times: list[tuple[bytes, bytes]] = []
        self._works: list[tuple[int, OperatorWork]] = []
        self._tracks: dict[tuple[Scalar, Scalar], int] = {}
        self._parts: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        self._known: dict[tuple[str, bytes, bytes, bytes], OperatorWork | None] = {}

    def look(self, event: bytes) -> None:
        """Keeps what the text of one event says about such an operator, if it is one."""
        if SHAPES[0] in event or SHAPES[1] in event or b"\\u" in event:  # which may stand for a letter of the others
            with suppress(*_REFUSED):
                self._keep(_decode(event))

    def _keep(self, event: _Event) -> None:
        args = event.args
        if event.ph != "X" or event.cat not in _HOST or args is None:
            return
        key = (event.name, bytes(args.dims or args.older_dims), bytes(args.types), bytes(args.concrete))
        if key not in self._known:
            if len(self._known) >= _SHAPES_KEPT:
                self._known.clear()
            self._known[key] = work_of(event.name, *(_value(part) for part in key[1:]))
        work = self._known[key]
        if work is None:
            return
        track = self._tracks.setdefault((event.pid, event.tid), len(self._tracks))
        self._times.append((bytes(event.ts), bytes(event.dur)))
        self._works.append((track, work))
        if len(self._times) >= _ROWS:
            self._pack()

    def _pack(self) -> None:
        """Makes columns of the rows kept as objects: start, duration, track, kind, dtype, FLOPs, bytes; drops those without a time."""
        start, start_read = nanoseconds([ts for ts, _ in self._times])
        dur, dur_read = nanoseconds([dur for _, dur in self._times])
        work = np.array([(track, *work) for track, work in self._works], np.int64).reshape(-1, 5)
        self._parts.append(np.column_stack((start, np.maximum(dur, 0), work))[start_read & dur_read])
        self._times, self._works = [], []

    def table(self, thread_of: Callable[[Scalar, Scalar], int], base_ns: int) -> MatrixOps:
        """The operators in order of start.

        Args:
            thread_of: position of the thread of a (pid, tid), -1 if it has none.
            base_ns: what times count from.
        """
        self._pack()
        start, dur, track, *work = np.concatenate(self._parts).T
        start = start + base_ns
        threads = np.array([thread_of(*track) for track in self._tracks] or [-1], np.int32)
        table = MatrixOps(start, start + dur, threads[track], *work)
        usable = np.flatnonzero((np.abs(start) < LIMIT_NS) & (table.thread >= 0))
        return table.take(usable[np.lexsort((-table.end_ns[usable], table.start_ns[usable]))])


def _value(text: bytes) -> Any:
    """What a part of an event says; None where it is not there or not sound: the event was taken apart without a look inside."""
    try:
        return msgspec.json.decode(text) if text else None
    except _REFUSED:
        return None
