"""Successive captures of one rank as one trace: a profiler with a repeating schedule writes a file per cycle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from traceread.errors import Notice
from traceread.model import (
    Activities,
    Calls,
    CodeColumn,
    CollectiveRecords,
    Elsewhere,
    IntColumn,
    MatrixOps,
    ProcessGroup,
    RangeKind,
    Ranges,
    StreamWaits,
    Table,
    Thread,
    Trace,
)

_T = TypeVar("_T", bound=Table)
_Tables = tuple[Activities, Calls, Ranges, StreamWaits, CollectiveRecords, MatrixOps, Elsewhere]
_LARGEST_ID = 1 << 62


def extent(trace: Trace) -> tuple[int, int] | None:
    """First start and last end of everything recorded, None if there is nothing."""
    tables = [table for table in (trace.activities, trace.calls, trace.ranges) if len(table)]
    if not tables:
        return None
    return min(int(table.start_ns.min()) for table in tables), max(int(table.end_ns.max()) for table in tables)


def outline(trace: Trace) -> Trace:
    """The trace without its rows, but for one range that reaches as far as they do: all that telling captures apart needs."""
    span = extent(trace)
    tables: dict[str, Any] = {f.name: type(table).empty() for f in fields(trace) if isinstance(table := getattr(trace, f.name), Table)}
    tables["ranges"] = Ranges.from_rows([] if span is None else [(*span, 0, 0, RangeKind.ANNOTATION, 0)])
    return replace(trace, names=("",), threads=(Thread(0, 0),), groups=(), **tables)


def captures(traces: Sequence[Trace]) -> list[list[Trace]]:
    """The traces in groups, in order of their first: captures of one process on one GPU that do not overlap in time are together.

    A trace without a process id, or without rows, stays alone.
    """
    groups: list[list[Trace]] = []
    spans: dict[tuple[int, int, str | None], list[tuple[list[Trace], list[tuple[int, int]]]]] = {}
    for trace in traces:
        span = extent(trace)
        if trace.pid is None or span is None:
            groups.append([trace])
            continue
        alike = spans.setdefault((trace.pid, trace.device.index, trace.host), [])
        for group, taken in alike:
            if all(span[1] <= start or end <= span[0] for start, end in taken):
                group.append(trace)
                taken.append(span)
                break
        else:
            groups.append([trace])
            alike.append((groups[-1], [span]))
    return groups


def joined(traces: Sequence[Trace]) -> Trace:
    """One trace with the rows of successive captures of one rank, in order of time; `windows_ns` tells them apart.

    Correlation ids of a later capture that were used before are moved out of the way: each capture counts anew.
    """
    traces = sorted(traces, key=lambda trace: extent(trace) or (0, 0))
    names: dict[str, int] = {}
    threads: dict[tuple[int, int], Thread] = {}
    groups: dict[ProcessGroup, int] = {}
    parts: list[_Tables] = []
    highest = 0
    for trace in traces:
        name = np.array([names.setdefault(text, len(names)) for text in trace.names], np.int32)
        for thread in trace.threads:
            known = threads.setdefault((thread.pid, thread.tid), thread)
            if not known.name:
                threads[thread.pid, thread.tid] = thread
        positions = list(threads)
        thread_of = np.array([positions.index((thread.pid, thread.tid)) for thread in trace.threads], np.int32)
        group_of = np.array([groups.setdefault(group, len(groups)) for group in trace.groups], np.int32)
        part, highest = _recoded(trace, name, thread_of, group_of, highest)
        parts.append(part)
    activities, calls, ranges, waits, records, matrices, elsewhere = zip(*parts, strict=True)
    spans = [trace.capture_ns or extent(trace) or (0, 0) for trace in traces]
    files = tuple(dict.fromkeys(file for trace in traces for file in trace.files))
    shown = ", ".join(file.name for file in files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    message = f"{len(traces)} captures of one process were joined ({shown}); between them nothing was recorded"
    versions: dict[str, str] = {}
    for trace in reversed(traces):
        versions |= trace.versions
    return replace(
        traces[0],
        files=files,
        device=next((trace.device for trace in traces if trace.device.name), traces[0].device),
        world_size=next((trace.world_size for trace in traces if trace.world_size is not None), None),
        names=tuple(names),
        threads=tuple(threads.values()),
        activities=_stacked(activities),
        calls=_stacked(calls),
        ranges=_stacked(ranges),
        stream_waits=_stacked(waits),
        collective_records=_stacked(records),
        groups=tuple(groups),
        matrix_ops=_stacked(matrices),
        elsewhere=_stacked(elsewhere),
        recorded=frozenset().union(*(trace.recorded for trace in traces)),
        versions=versions,
        notices=(*dict.fromkeys(notice for trace in traces for notice in trace.notices), Notice("joined-windows", message)),
        capture_ns=(min(start for start, _ in spans), max(end for _, end in spans)),
        windows_ns=tuple(spans),
        truncated=any(trace.truncated for trace in traces),
    )


def _recoded(trace: Trace, name: CodeColumn, thread_of: CodeColumn, group_of: CodeColumn, used: int) -> tuple[_Tables, int]:
    """The tables of a trace with these codes and positions, correlation ids above `used` if any was used; and the highest id."""
    activities, calls, ranges, waits = trace.activities, trace.calls, trace.ranges, trace.stream_waits
    ids = np.concatenate((activities.correlation, calls.correlation, waits.correlation))
    ids = ids[ids > 0]
    lowest, highest = (int(ids.min()), int(ids.max())) if len(ids) else (0, 0)
    offset = used if 0 < lowest <= used < _LARGEST_ID and highest < _LARGEST_ID else 0

    def moved(correlation: IntColumn) -> IntColumn:
        return np.where(correlation > 0, correlation + offset, correlation)

    activities = activities.replace(name=name[activities.name], correlation=moved(activities.correlation))
    calls = calls.replace(name=name[calls.name], thread=thread_of[calls.thread], correlation=moved(calls.correlation))
    ranges = ranges.replace(name=name[ranges.name], thread=thread_of[ranges.thread])
    waits = waits.replace(correlation=moved(waits.correlation), event_correlation=moved(waits.event_correlation))
    records = trace.collective_records
    thread, group = np.append(thread_of, np.int32(-1)), np.append(group_of, np.int32(-1))  # -1 stays -1
    records = records.replace(thread=thread[records.thread], group=group[records.group], correlation=moved(records.correlation))
    matrices = trace.matrix_ops.replace(thread=thread[trace.matrix_ops.thread])
    elsewhere = Elsewhere.of(moved(trace.elsewhere.correlation))
    return (activities, calls, ranges, waits, records, matrices, elsewhere), max(used, highest + offset)


def _stacked(tables: Sequence[_T]) -> _T:
    columns = [dict(table.columns()) for table in tables]
    return type(tables[0])(**{name: np.concatenate([c[name] for c in columns]) for name in columns[0]})
