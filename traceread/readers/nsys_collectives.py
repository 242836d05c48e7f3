"""Collective operations in an Nsight Systems export: ranges of NCCL and PyTorch that name one, with NCCL's payloads where exported.

NCCL writes each of its functions as a range. Sizes and communicators stand in the range's payload, a blob that is only there
after `nsys export --include-blobs=true`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from traceread.model import NOT_RECORDED, CollectiveRecords, Operation, ProcessGroup, RangeKind, Ranges, Thread
from traceread.readers.nsys_export import NVTX, THREAD_BITS, Export, of_processes
from traceread.readers.operation_names import operation_of_range, peers_of_range
from traceread.readers.sqlite import Database
from traceread.records import record

SCHEMA_ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"

_HEADER = struct.Struct("<4Q")  # domain, schema, size of the payload, size of what precedes it
_SIZES = {5: "<i", 18: "<Q", 22: "<Q"}  # NVTX payload entry types: int, 64-bit id, size
_COMMUNICATOR, _BYTES, _ROOT, _PEER, _RANKS = "NCCL communicator ID", "Message size [bytes]", "Root", "Peer rank", "No. of ranks"

FIELD_NAMES = frozenset((_COMMUNICATOR, _BYTES, _ROOT, _PEER, _RANKS))
"""The fields of payloads that are read."""

Payload = dict[str, int]
Fields = dict[tuple[int, int], list[tuple[str, str, int]]]
"""The fields of a payload by domain and schema: name, form, offset."""


@record
class Payloads:
    """What NCCL wrote beside its ranges.

    Attributes:
        of_range: payload of the range that starts on a global thread id at a time.
        sizes: number of ranks of each communicator whose creation was recorded.
    """

    of_range: dict[tuple[int, int], Payload]
    sizes: dict[int, int]


def payloads(export: Export, processes: Sequence[int]) -> Payloads:
    """The payloads of the ranges of these processes; empty where the export has no blobs."""
    found: dict[tuple[int, int], Payload] = {}
    sizes: dict[int, int] = {}
    entries = payload_fields(export.db)
    if not entries or "binaryData" not in export.db.columns(NVTX):
        return Payloads(found, sizes)
    of_these = [condition.sql() for condition in of_processes(processes)]
    for start, thread, blob in export.db.rows(
        NVTX, ("start", "globalTid", "binaryData"), " AND ".join(["binaryData IS NOT NULL", *of_these])
    ):
        if isinstance(start, int) and isinstance(thread, int):
            payload = _decoded(blob, entries)
            found[thread, start + export.base_ns] = payload
            if _COMMUNICATOR in payload and payload.get(_RANKS, 0) > 0:
                sizes[payload[_COMMUNICATOR]] = payload[_RANKS]
    return Payloads(found, sizes)


def payload_fields(db: Database) -> Fields:
    """What the export says about the layout of payloads, as far as it is understood."""
    entries: Fields = {}
    for domain, schema, kind, name, offset in db.rows(SCHEMA_ENTRIES, ("domainId", "schemaId", "type", "name", "offset")):
        if kind in _SIZES and isinstance(name, str) and isinstance(domain, int) and isinstance(schema, int):
            entries.setdefault((domain, schema), []).append((name, _SIZES[kind], offset if isinstance(offset, int) else 0))
    return entries


def only_known_fields(blob: object, entries: Fields) -> bytes | None:
    """A payload with the fields that are read and zeros elsewhere, None if it has none of them."""
    fields = _decoded(blob, entries)
    if not isinstance(blob, bytes) or not fields.keys() & FIELD_NAMES:
        return None
    domain, schema, _, _ = _HEADER.unpack_from(blob)
    placed = [(name, form, offset) for name, form, offset in entries[domain, schema] if name in fields.keys() & FIELD_NAMES and offset >= 0]
    if not placed:
        return None
    size = max(offset + struct.calcsize(form) for _, form, offset in placed)
    kept = bytearray(_HEADER.pack(domain, schema, size, _HEADER.size) + bytes(size))
    for name, form, offset in placed:
        struct.pack_into(form, kept, _HEADER.size + offset, fields[name])
    return bytes(kept)


def _decoded(blob: object, entries: Fields) -> Payload:
    """The fields of a payload by name; empty for what does not look like one."""
    if not isinstance(blob, bytes) or len(blob) < _HEADER.size:
        return {}
    domain, schema, _, _ = _HEADER.unpack_from(blob)
    result = {}
    for name, form, offset in entries.get((domain, schema), ()):
        at = _HEADER.size + offset
        if 0 <= at <= len(blob) - struct.calcsize(form):
            result[name] = struct.unpack_from(form, blob, at)[0]
    return result


def records(
    process: int, ranges: Ranges, names: Sequence[str], threads: Sequence[Thread], written: Payloads
) -> tuple[CollectiveRecords, tuple[ProcessGroup, ...]]:
    """The collectives that the ranges of one process name, with their communicators."""
    used = np.flatnonzero(np.bincount(ranges.name))
    operation_of = np.zeros(max(len(names), 1), np.uint8)
    peers_of = np.full((max(len(names), 1), 2), NOT_RECORDED)
    for code in used.tolist():
        operation_of[code] = operation_of_range(names[code])
        peers_of[code] = peers_of_range(names[code]) or NOT_RECORDED
    host = (ranges.kind == RangeKind.OP) | (ranges.kind == RangeKind.ANNOTATION)
    rows = np.flatnonzero(host & (operation_of[ranges.name] != Operation.UNKNOWN))
    source, destination = peers_of[ranges.name[rows]].T
    group, size, root = np.full((3, len(rows)), NOT_RECORDED)
    groups: dict[int, int] = {}
    if written.of_range:
        starts, operations, of_thread = ranges.start_ns[rows], operation_of[ranges.name[rows]], ranges.thread[rows]
        for i, (start, operation, thread) in enumerate(zip(starts.tolist(), operations.tolist(), of_thread.tolist(), strict=True)):
            payload = written.of_range.get((process | threads[thread].tid & THREAD_BITS, start), {})
            communicator = payload.get(_COMMUNICATOR)
            group[i] = NOT_RECORDED if communicator is None else groups.setdefault(communicator, len(groups))
            size[i], root[i] = payload.get(_BYTES, NOT_RECORDED), payload.get(_ROOT, NOT_RECORDED)
            if operation == Operation.RECV:
                source[i] = payload.get(_PEER, source[i])
            elif operation == Operation.SEND:
                destination[i] = payload.get(_PEER, destination[i])
    nothing = np.full(len(rows), NOT_RECORDED)
    table = CollectiveRecords(
        start_ns=ranges.start_ns[rows],
        end_ns=ranges.end_ns[rows],
        thread=ranges.thread[rows],
        correlation=nothing,
        operation=operation_of[ranges.name[rows]],
        group=group.astype(np.int32),
        sequence=nothing,
        dtype=np.zeros(len(rows), np.uint8),
        elements_in=nothing,
        elements_out=nothing,
        bytes=size,
        source=source,
        destination=destination,
        root=root,
        largest_in=nothing,
        largest_out=nothing,
    )
    known = tuple(ProcessGroup(f"{communicator:#018x}", size=written.sizes.get(communicator, NOT_RECORDED)) for communicator in groups)
    return table, known
