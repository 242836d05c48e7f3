"""Waits of streams for events, from the synchronisation rows of an Nsight Systems export."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from traceread.model import NOT_RECORDED, Activities, Calls, IntColumn, StreamWaits, Table, column
from traceread.readers.nsys_export import NO_PROCESS, Export, process_of
from traceread.records import record

SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CUDA_EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"

_STREAM_WAIT = re.compile(r"cu(da)?StreamWaitEvent")


@record(eq=False)
class Synchronizations(Table):
    """Rows of SYNCHRONIZATION, whatever they wait for.

    Device and context are left out: the device was 0 for every process in files of schema 3.25, and context ids are not
    translated in all files.
    """

    start_ns: IntColumn = column("int64", "ns", "start")
    process: IntColumn = column("int64", "", "global process id")
    stream: IntColumn = column("int64", "", "stream id")
    correlation: IntColumn = column("int64", "", "correlation id of the call")
    event: IntColumn = column("int64", "", "handle of the event; handles are used again")
    sync: IntColumn = column("int64", "", "id of one record of the event, 0: none (the column came with schema 3.17)")


@record(eq=False)
class EventRecords(Table):
    """Rows of CUDA_EVENT: an event was recorded on a stream."""

    process: IntColumn = column("int64", "", "global process id")
    stream: IntColumn = column("int64", "", "stream id")
    correlation: IntColumn = column("int64", "", "correlation id of the call")
    event: IntColumn = column("int64", "", "handle of the event")
    sync: IntColumn = column("int64", "", "id of this record, 0: none")


def synchronizations(export: Export) -> Synchronizations:
    """All synchronisation rows of the file."""
    columns = {"globalPid": NO_PROCESS, "streamId": -1, "correlationId": -1, "eventId": -1, "eventSyncId": 0}
    rows = export.rows(SYNCHRONIZATION, columns)
    process = process_of(rows["globalPid"])
    return Synchronizations(rows["start"], process, rows["streamId"], rows["correlationId"], rows["eventId"], rows["eventSyncId"])


def event_records(export: Export) -> EventRecords:
    """All event records of the file."""
    columns = {"globalPid": NO_PROCESS, "streamId": -1, "correlationId": -1, "eventId": -1, "eventSyncId": 0}
    rows = export.db.integers(CUDA_EVENT, columns)
    return EventRecords(process_of(rows["globalPid"]), rows["streamId"], rows["correlationId"], rows["eventId"], rows["eventSyncId"])


def stream_waits(
    process: int,
    calls: Calls,
    names: Sequence[str],
    syncs: Synchronizations,
    records: EventRecords,
    elsewhere: Activities | None,
) -> StreamWaits:
    """The waits of the streams of one process, told by the name of their call, in order of time.

    The type column of the synchronisation rows is of no use: one API has been 0, 1, 2, 3 and 4 in the schemas seen, and in
    schema 3.17 all rows are 0. `elsewhere` is the GPU work of the process on its other devices: waits of their streams are left
    out.
    """
    codes = [code for code, name in enumerate(names) if _STREAM_WAIT.match(name)]
    of_waits = calls.correlation[np.isin(calls.name, codes)]
    waits = syncs.take((syncs.process == process) & np.isin(syncs.correlation, of_waits))
    if elsewhere is not None:
        waits = waits.take(~np.isin(waits.stream, elsewhere.stream))
    records = records.take(records.process == process)
    by_record = _latest_before(records.sync, records.correlation, waits.sync, waits.correlation)
    by_handle = _latest_before(records.event, records.correlation, waits.event, waits.correlation)
    recorded = np.where(waits.sync > 0, by_record, by_handle)
    order = np.lexsort((waits.correlation, waits.start_ns))
    return StreamWaits(waits.start_ns, waits.stream, waits.correlation, recorded, _stream_of(records, recorded)).take(order)


def _stream_of(records: EventRecords, correlation: IntColumn) -> IntColumn:
    """The stream on which each of these event records was made, -1 where there is none."""
    ids, first = np.unique(records.correlation, return_index=True)
    if not len(ids):
        return np.full(len(correlation), NOT_RECORDED, np.int64)
    at = np.minimum(np.searchsorted(ids, correlation), len(ids) - 1)
    found: IntColumn = np.where((correlation >= 0) & (ids[at] == correlation), records.stream[first[at]], NOT_RECORDED)
    return found


def _latest_before(keys: IntColumn, times: IntColumn, wanted: IntColumn, before: IntColumn) -> IntColumn:
    """For each (wanted, before) the largest time below `before` among the rows with that key, -1 if there is none."""
    if not len(keys) or not len(wanted):
        return np.full(len(wanted), NOT_RECORDED, np.int64)
    key_rank = np.unique(np.concatenate((keys, wanted)), return_inverse=True)[1]
    values, time_rank = np.unique(np.concatenate((times, before)), return_inverse=True)
    both = key_rank * len(values) + time_rank  # ranks, so that no id is too large for one number
    known, asked = np.sort(both[: len(keys)]), both[len(keys) :]
    found = known[np.maximum(np.searchsorted(known, asked) - 1, 0)]
    same_key = (found // len(values) == key_rank[len(keys) :]) & (found < asked)
    return np.where(same_key, values[found % len(values)], NOT_RECORDED)
