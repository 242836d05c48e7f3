"""GPU rows of an Nsight Systems export: kernels, copies, memsets and whole graphs as one table of activities.

Copies and memsets get the names that Kineto writes, so that both formats give equal tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from traceread.model import NOT_RECORDED, Activities, ActivityKind, Category, CodeColumn, CopyKind, IntColumn
from traceread.readers.nsys_export import GRAPH_TRACE, KERNEL, MEMCPY, MEMSET, NO_PROCESS, Export, Rows, distinct, process_of, stacked

# ENUM_CUDA_MEMCPY_OPER: direction as Kineto spells it, and what it is. 11 to 13 are migrations of unified memory.
_COPIES = {
    1: ("HtoD", CopyKind.HOST_TO_DEVICE),
    2: ("DtoH", CopyKind.DEVICE_TO_HOST),
    3: ("HtoA", CopyKind.HOST_TO_DEVICE),
    4: ("AtoH", CopyKind.DEVICE_TO_HOST),
    5: ("AtoA", CopyKind.DEVICE_TO_DEVICE),
    6: ("AtoD", CopyKind.DEVICE_TO_DEVICE),
    7: ("DtoA", CopyKind.DEVICE_TO_DEVICE),
    8: ("DtoD", CopyKind.DEVICE_TO_DEVICE),
    9: ("HtoH", CopyKind.HOST_TO_HOST),
    10: ("PtoP", CopyKind.PEER),
    11: ("HtoD", CopyKind.HOST_TO_DEVICE),
    12: ("DtoH", CopyKind.DEVICE_TO_HOST),
    13: ("DtoD", CopyKind.DEVICE_TO_DEVICE),
}
_UNKNOWN_COPY = ("<unknown>", CopyKind.UNKNOWN)
_COPY_KINDS = np.array([_COPIES.get(operation, _UNKNOWN_COPY)[1] for operation in range(max(_COPIES) + 1)], np.uint8)

# ENUM_CUDA_MEM_KIND, in Kineto's words. CUPTI itself has "unknown" first and counts the others from 1.
_MEMORY = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown")
_PAGEABLE, _PINNED, _UNKNOWN_MEMORY = 0, 1, 7


def activities(export: Export) -> tuple[Activities, IntColumn]:
    """All GPU rows of the file, unsorted, and the global process id of each."""
    parts = [_kernels(export), _copies(export), _memsets(export), _graphs(export)]
    return stacked(Activities, [table for table, _ in parts]), np.concatenate([process for _, process in parts])


def _rows(export: Export, table: str, columns: dict[str, int]) -> Rows:
    common = {"deviceId": -1, "streamId": NOT_RECORDED, "correlationId": NOT_RECORDED, "globalPid": NO_PROCESS, "graphNodeId": 0}
    rows = export.rows(table, common | columns)
    believable = (rows["deviceId"] >= 0) & (rows["deviceId"] < 1 << 31)
    return rows | {"deviceId": np.where(believable, rows["deviceId"], -1), "globalPid": process_of(rows["globalPid"])}


def _table(rows: Rows, kind: ActivityKind, name: CodeColumn, **columns: npt.NDArray[Any]) -> tuple[Activities, IntColumn]:
    count = len(rows["start"])
    defaults = {
        "kind": kind,
        "bytes": NOT_RECORDED,
        "copy_kind": CopyKind.UNKNOWN,
        "pageable": NOT_RECORDED,
        "category": Category.UNCLASSIFIED,
        "family": 0,
        "fused": 0,
    }
    table: dict[str, npt.NDArray[Any]] = {name: np.broadcast_to(np.int64(value), count) for name, value in defaults.items()}
    table |= columns
    table |= {"start_ns": rows["start"], "end_ns": rows["end"], "device": rows["deviceId"], "stream": rows["streamId"]}
    table |= {"correlation": rows["correlationId"], "graph_node": np.maximum(rows["graphNodeId"], 0), "name": name}
    return Activities(**table), rows["globalPid"]


def _kernels(export: Export) -> tuple[Activities, IntColumn]:
    rows = _rows(export, KERNEL, {"demangledName": -1, "shortName": -1})
    name = np.where(rows["demangledName"] >= 0, rows["demangledName"], rows["shortName"])
    return _table(rows, ActivityKind.KERNEL, export.codes(name))


def _copies(export: Export) -> tuple[Activities, IntColumn]:
    memory = {"srcKind": _UNKNOWN_MEMORY, "dstKind": _UNKNOWN_MEMORY}
    rows = _rows(export, MEMCPY, {"bytes": NOT_RECORDED, "copyKind": 0, "srcDeviceId": -1, "dstDeviceId": -1} | memory)
    source, target = _memory(rows["srcKind"]), _memory(rows["dstKind"])
    operation = np.where((rows["copyKind"] >= 0) & (rows["copyKind"] < len(_COPY_KINDS)), rows["copyKind"], 0)
    kind = _COPY_KINDS[operation]
    # A copy from one device to another may be called device to device too; the two ids tell.
    apart = (rows["srcDeviceId"] >= 0) & (rows["dstDeviceId"] >= 0) & (rows["srcDeviceId"] != rows["dstDeviceId"])
    kind = np.where((kind == CopyKind.DEVICE_TO_DEVICE) & apart, np.uint8(CopyKind.PEER), kind)
    host_side = np.select(
        [kind == CopyKind.HOST_TO_DEVICE, kind == CopyKind.DEVICE_TO_HOST, kind == CopyKind.HOST_TO_HOST],
        [source, target, np.minimum(source, target)],  # within the host: pageable if either side is
        _UNKNOWN_MEMORY,
    )
    pageable = np.select([host_side == _PAGEABLE, host_side == _PINNED], [1, 0], NOT_RECORDED)
    keys, position = distinct((operation * 8 + source) * 8 + target)
    names = np.array([export.code(_copy_name(key // 64, key // 8 % 8, key % 8)) for key in keys.tolist()], np.int32)
    return _table(rows, ActivityKind.MEMCPY, names[position], bytes=rows["bytes"], copy_kind=kind, pageable=pageable)


def _copy_name(operation: int, source: int, target: int) -> str:
    direction = _COPIES.get(operation, _UNKNOWN_COPY)[0]
    if operation > 10:  # Kineto has no such rows
        return f"Memcpy {direction} (Unified Memory)"
    return f"Memcpy {direction} ({_MEMORY[source]} -> {_MEMORY[target]})"


def _memsets(export: Export) -> tuple[Activities, IntColumn]:
    rows = _rows(export, MEMSET, {"bytes": NOT_RECORDED, "memKind": _UNKNOWN_MEMORY})
    kinds, position = distinct(_memory(rows["memKind"]))
    names = np.array([export.code(f"Memset ({_MEMORY[kind]})") for kind in kinds.tolist()], np.int32)
    return _table(rows, ActivityKind.MEMSET, names[position], bytes=rows["bytes"])


def _graphs(export: Export) -> tuple[Activities, IntColumn]:
    """Whole graph launches. In graph mode this table alone holds the GPU time of their kernels (seen since schema 3.16)."""
    rows = _rows(export, GRAPH_TRACE, {"graphId": -1})
    ids, position = distinct(rows["graphId"])
    names = np.array([export.code(f"CUDA graph {key}" if key >= 0 else "CUDA graph") for key in ids.tolist()], np.int32)
    return _table(rows, ActivityKind.GRAPH, names[position])


def _memory(values: IntColumn) -> IntColumn:
    return np.where((values >= 0) & (values < len(_MEMORY)), values, _UNKNOWN_MEMORY)
