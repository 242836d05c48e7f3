"""The document that events are written to: its clock, its processes, its text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any

import msgspec
import numpy as np
import numpy.typing as npt

import traceread
from traceread.model import IntColumn
from traceread.report import Report

Event = dict[str, Any]

AT_ONCE = 10_000
"""Events in memory at a time."""
_MARGIN_NS = 10**9
"""Some recorded events, of kinds that are not read, are earlier than the first row."""


class Output:
    """One JSON document of events, to be used in a with statement."""

    def __init__(self, file: IO[bytes], *, packed: bool) -> None:
        from isal import igzip

        self._file: Any = igzip.IGzipFile(mode="wb", compresslevel=2, fileobj=file, mtime=0) if packed else file  # type: ignore[no-untyped-call]
        self._packed = packed
        self._empty = True

    def __enter__(self) -> Output:
        self._file.write(b'{"displayTimeUnit":"ms","traceEvents":[')
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._packed:
            self._file.close()

    def write(self, events: Iterable[Event]) -> None:
        """Appends events."""
        batch: list[Event] = []
        for event in events:
            batch.append(event)
            if len(batch) == AT_ONCE:
                self._append(batch)
                batch = []
        self._append(batch)

    def _append(self, events: list[Event]) -> None:
        if events:
            self._file.write((b"\n" if self._empty else b",\n") + msgspec.json.encode(events)[1:-1])
            self._empty = False

    def finish(self, report: Report, left_out: int) -> None:
        """Ends the document with a word about it."""
        about = {"traceread": traceread.__version__, "title": encodable(report.title), "events_before_the_capture_left_out": left_out}
        self._file.write(b'\n],"otherData":' + msgspec.json.encode(about) + b"}\n")


class Clocks:
    """Times of all ranks on one clock, counted from a second before the earliest row, so that µs with three decimals are exact.

    Attributes:
        left_out: recorded events that lie before that, such as those without a time.
    """

    def __init__(self, report: Report) -> None:
        lines = {line.rank: line.clock for line in report.rank_table.lines}
        self._offsets = {r.rank: lines.get(r.rank) for r in report.ranks}
        self._start_ns = 0
        self._start_ns = min((int(self.shifted(r.rank, np.array([r.first_ns]))[0]) for r in report.ranks), default=0) - _MARGIN_NS
        self.left_out = 0

    def shifted(self, rank: int, at: IntColumn) -> IntColumn:
        """Times of a rank's own clock, in ns of the document."""
        offset = self._offsets.get(rank)
        return (at if offset is None else at - offset.ahead(at)) - self._start_ns

    def stamps(self, rank: int, at: IntColumn) -> list[msgspec.Raw]:
        """Times of a rank's own clock as JSON numbers of µs."""
        return [microseconds(ns) for ns in self.shifted(rank, at).tolist()]

    def inside(self, rank: int, at: IntColumn) -> npt.NDArray[np.bool_]:
        """Which times lie within the document; counts the others as left out."""
        result: npt.NDArray[np.bool_] = self.shifted(rank, at) >= 0
        self.left_out += int((~result).sum())
        return result


def microseconds(ns: int) -> msgspec.Raw:
    """A time of at least zero ns as a JSON number of µs, exactly."""
    whole, rest = divmod(ns, 1000)
    return msgspec.Raw(f"{whole}.{rest:03d}".encode() if rest else b"%d" % whole)


def encodable(name: str) -> str:
    """The name without lone surrogates, which UTF-8 cannot hold."""
    return name.encode("utf-8", "replace").decode()


def said(what: str, pid: int, tid: int = 0, **args: object) -> Event:
    """An event that says something about a process or thread."""
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


@dataclass
class Processes:
    """Numbers for processes that no two ranks share, and what is to be said about them.

    Attributes:
        numbers: by rank and process as recorded; for the tracks made here the process is None.
        named: processes whose name was recorded.
    """

    numbers: dict[tuple[int, object], int] = field(default_factory=dict)
    named: set[int] = field(default_factory=set)

    def number(self, rank: int, process: object) -> int:
        """The number of a process of a rank; a negative one stays negative: the profiler writes it where it does not know the process."""
        number = len(self.numbers) + 1
        return self.numbers.setdefault((rank, process), -number if isinstance(process, int) and process < 0 else number)

    def descriptions(self) -> Iterator[Event]:
        """The names of processes that have none, and the order of all: by rank, ours first."""
        ordered = sorted(self.numbers.items(), key=lambda item: (item[0][0], item[0][1] is not None, item[1]))
        for order, ((rank, process), number) in enumerate(ordered):
            if number not in self.named:
                text = "steps and findings" if process is None else f"process {process}"
                yield said("process_name", number, name=encodable(f"rank {rank}: {text}"))
            yield said("process_sort_index", number, sort_index=order)
