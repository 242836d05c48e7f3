"""Events as they were recorded: copied from the files of PyTorch, or made from tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from traceread.measurements.launches import find_launches
from traceread.model import Activities, ActivityKind, Calls, IntColumn, RangeKind, Ranges, Trace
from traceread.readers.microseconds import nanoseconds
from traceread.readers.options import DEFAULTS
from traceread.readers.raw_events import RawEvent, base_ns, raw_events
from traceread.reporters.perfetto.document import AT_ONCE, Clocks, Event, Processes, encodable, microseconds, said
from traceread.reporters.perfetto.spans import Spans, kept

_PHASES_WITH_ID = frozenset((b'"s"', b'"t"', b'"f"', b'"b"', b'"n"', b'"e"'))
_UNPRINTABLE = re.compile(rb"[^\x20-\x7e]")
_scalar = msgspec.json.Decoder(int | str | float | None).decode
_AGAIN = DEFAULTS.trusting()
"""The file was read before, within the limits that were wanted then."""

_ACTIVITIES = {
    ActivityKind.KERNEL: "kernel",
    ActivityKind.MEMCPY: "gpu_memcpy",
    ActivityKind.MEMSET: "gpu_memset",
    ActivityKind.GRAPH: "cuda_graph",
}
_RANGES = {
    RangeKind.OP: "cpu_op",
    RangeKind.ANNOTATION: "user_annotation",
    RangeKind.PYTHON: "python_function",
    RangeKind.OS: "os_call",
    RangeKind.PROFILER: "overhead",
    RangeKind.LOADING: "overhead",
    RangeKind.QUEUE_FULL: "overhead",
}


# From files: processes and flows get numbers that no two ranks share, times go to the document's clock, all else stays.


def copied_events(file: Path, rank: int, clocks: Clocks, processes: Processes, spans: Spans | None) -> Iterator[Event]:
    """The events of one file.

    Raises:
        InputError: it cannot be read.
    """
    base = base_ns(file, _AGAIN)
    for batch in raw_events(file, _AGAIN):
        start, timed = nanoseconds([bytes(event.get("ts", b"")) for event in batch])
        start += base
        length, _ = nanoseconds([bytes(event.get("dur", b"0")) for event in batch])
        is_label = np.array([bytes(event.get("ph", b"")) == b'"M"' for event in batch], bool)
        keep = timed & ~is_label
        keep[keep] = clocks.inside(rank, start[keep])
        keep[keep] = kept(start[keep], (start + np.maximum(length, 0))[keep], spans)
        stamps = iter(clocks.stamps(rank, start[keep]))
        for event, label, used in zip(batch, is_label.tolist(), keep.tolist(), strict=True):
            if label:
                yield _label(event, rank, processes)
            elif used:
                yield _renamed(event, rank, next(stamps), processes)


def _renamed(event: RawEvent, rank: int, stamp: msgspec.Raw, processes: Processes) -> Event:
    changed: Event = {**event, "ts": stamp}
    if "pid" in event:
        changed["pid"] = processes.number(rank, _process(event))
    if "id" in event and bytes(event["ph"]) in _PHASES_WITH_ID:
        number = _UNPRINTABLE.sub(b"", bytes(event["id"])).strip(b'" ').decode()
        changed["id"] = f"{rank}.{number}"
    return changed


def _process(event: RawEvent) -> object:
    try:
        return _scalar(event["pid"])
    except msgspec.MsgspecError:
        return str(bytes(event["pid"]))


def _label(event: RawEvent, rank: int, processes: Processes) -> Event:
    """What an event says about a process or thread; the rank goes before the names of processes, and their order is ours."""
    pid = processes.number(rank, _process(event)) if "pid" in event else 0
    name = bytes(event.get("name", b""))
    if name == b'"process_sort_index"':
        return said("process_labels", pid, labels="")
    changed: Event = {**event, "pid": pid}
    changed.pop("ts", None)
    if name == b'"process_name"':
        processes.named.add(pid)
        changed["args"] = {"name": encodable(f"rank {rank}: {_argument(event, 'name') or _process(event)}")}
    return changed


def _argument(event: RawEvent, key: str) -> str:
    try:
        args = msgspec.json.decode(event.get("args", b"{}"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return str(args.get(key, "")) if isinstance(args, dict) else ""


# From tables.


def table_events(trace: Trace, rank: int, clocks: Clocks, processes: Processes, spans: Spans | None) -> Iterator[Event]:
    """GPU work, calls and ranges of one rank, and the arrows from calls to what they launched."""
    gpu, host = processes.number(rank, "gpu"), processes.number(rank, "host")
    processes.named |= {gpu, host}
    yield said("process_name", gpu, name=encodable(f"rank {rank}: {trace.device.name or 'GPU'}"))
    yield said("process_name", host, name=f"rank {rank}: host{'' if trace.pid is None else f' process {trace.pid}'}")
    for stream in np.unique(trace.activities.stream).tolist():
        yield said("thread_name", gpu, int(stream), name=f"stream {stream}")
    for position, thread in enumerate(trace.threads):
        yield said("thread_name", host, position, name=encodable(thread.name or f"thread {thread.tid}"))
    yield from _activities(trace, rank, gpu, host, clocks, spans)
    yield from _calls(trace, rank, host, clocks, spans)
    yield from _ranges(trace, rank, host, clocks, spans)


def _activities(trace: Trace, rank: int, gpu: int, host: int, clocks: Clocks, spans: Spans | None) -> Iterator[Event]:
    launches = find_launches(trace)
    for rows in _chunks(trace.activities, spans):
        a = trace.activities.take(rows)
        stamps, launched = clocks.stamps(rank, a.start_ns), clocks.stamps(rank, launches.start_ns[rows])
        columns = (rows, a.kind, a.name, a.stream, a.end_ns - a.start_ns, a.correlation, a.bytes, a.graph_node, launches.thread[rows])
        for stamp, begun, row, kind, name, stream, ns, correlation, size, node, thread in zip(
            stamps, launched, *(c.tolist() for c in columns), strict=True
        ):
            args = {"correlation": correlation, "stream": stream, "device": trace.device.index, "duration_ns": ns}
            args |= ({"bytes": size} if size >= 0 else {}) | ({"graph node id": node} if node > 0 else {})
            yield _slice(_ACTIVITIES[ActivityKind(kind)], trace.names[name], gpu, stream, stamp, ns, args)
            if thread >= 0:
                arrow = {"cat": "launch", "name": "launch", "id": f"{rank}.{row}"}
                yield {"ph": "s", "pid": host, "tid": thread, "ts": begun, **arrow}
                yield {"ph": "f", "bp": "e", "pid": gpu, "tid": stream, "ts": stamp, **arrow}


def _calls(trace: Trace, rank: int, host: int, clocks: Clocks, spans: Spans | None) -> Iterator[Event]:
    for rows in _chunks(trace.calls, spans):
        c = trace.calls.take(rows)
        columns = (c.name, c.thread, c.end_ns - c.start_ns, c.correlation)
        for stamp, name, thread, ns, correlation in zip(clocks.stamps(rank, c.start_ns), *(c.tolist() for c in columns), strict=True):
            args = {"duration_ns": ns} | ({"correlation": correlation} if correlation > 0 else {})
            yield _slice("cuda_runtime", trace.names[name], host, thread, stamp, ns, args)


def _ranges(trace: Trace, rank: int, host: int, clocks: Clocks, spans: Spans | None) -> Iterator[Event]:
    for rows in _chunks(trace.ranges, spans):
        r = trace.ranges.take(rows)
        columns = (r.kind, r.name, r.thread, r.end_ns - r.start_ns)
        for stamp, kind, name, thread, ns in zip(clocks.stamps(rank, r.start_ns), *(c.tolist() for c in columns), strict=True):
            yield _slice(_RANGES[RangeKind(kind)], trace.names[name], host, thread, stamp, ns, {"duration_ns": ns})


def _chunks(table: Activities | Calls | Ranges, spans: Spans | None) -> Iterator[IntColumn]:
    """Positions of the rows that are kept, some thousands at a time."""
    rows = np.flatnonzero(kept(table.start_ns, table.end_ns, spans))
    for at in range(0, len(rows), AT_ONCE):
        yield rows[at : at + AT_ONCE]


def _slice(category: str, name: str, pid: int, tid: int, stamp: msgspec.Raw, ns: int, args: dict[str, Any]) -> Event:
    return {"ph": "X", "cat": category, "name": encodable(name), "pid": pid, "tid": tid, "ts": stamp, "dur": microseconds(ns), "args": args}
