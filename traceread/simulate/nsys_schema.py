"""Tables of Nsight Systems SQLite exports in three versions, as far as the simulator fills them.

A column is written `name`, with `:text` or `:real` unless it is an integer and `!` where it must not be NULL. `@middle` and `@new`
say from which version on it exists, `@old-` and `@middle-` until which. Versions: "old" is an export of 2021 without any
metadata table, "middle" schema 3.7.2 (nsys 2023.4), "new" schema 3.25.0 (nsys 2026.2). Columns are found by name; the order here is ours.
"""

from __future__ import annotations

from typing import NamedTuple

VERSIONS = ("old", "middle", "new")

PRODUCT = {"middle": ("2023.4.4.54", "3.7.2"), "new": ("2026.2.1.210", "3.25.0")}
"""Product and schema version in META_DATA_EXPORT."""

SYNC_TYPES = {
    "old": {"device": 1, "event": 2, "query": 2, "wait": 3, "stream": 3},
    "middle": {"device": 1, "event": 2, "query": 2, "wait": 3, "stream": 3},
    "new": {"device": 4, "event": 1, "query": 1, "wait": 2, "stream": 3},
}
"""The numbers that exporters of the time put into syncType; only "new" agrees with the enumeration in the file."""

_DEVICE = "deviceId! contextId! streamId! greenContextId@middle globalPid correlationId"
_TIME = "start! end!"

_TABLES = {
    "StringIds": "id!# value:text!",
    "ThreadNames": "globalTid nameId! priority",
    "ProcessStreams": "globalPid! filenameId! contentId!",
    "PROCESSES@middle": "pid globalPid name:text",
    "META_DATA_CAPTURE@middle": "name:text! value:text",
    "META_DATA_EXPORT@middle": "name:text! value:text",
    "TARGET_INFO_SYSTEM_ENV@middle": "globalVid name:text! value:text! nameEnum! devStateName:text!",
    "TARGET_INFO_SESSION_START_TIME@middle": "utcEpochNs utcTime:text localTime:text systemClockNs@new",
    "ANALYSIS_DETAILS@middle": "globalVid! startTime! stopTime! duration!",
    "DIAGNOSTIC_EVENT@new": "timestamp! timestampType! severity! source! text:text! globalPid",
    "TARGET_INFO_GPU": (
        "id! vmId! cuDevice name:text chipName:text uuid:text busLocation:text totalMemory memoryBandwidth smCount clockRate l2CacheSize "
        "computeMajor computeMinor smMajor smMinor isDiscrete pwGpuId luid ctxswDevPath:text ctrlDevPath:text revision nodeMask "
        "constantMemory "
        "maxIPC maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin maxShmemPerSm maxRegistersPerSm threadsPerWarp asyncEngines "
        "maxWarpsPerSm maxBlocksPerSm maxThreadsPerBlock maxBlockDimX maxBlockDimY maxBlockDimZ maxGridDimX maxGridDimY maxGridDimZ"
    ),
    "TARGET_INFO_CUDA_DEVICE@new": "pid! cudaId! gpuId uuid:text numMultiprocessors",
    "TARGET_INFO_CUDA_NULL_STREAM@old-": "processId! deviceId! contextId! streamId! hwId! vmId!",
    "TARGET_INFO_CUDA_CONTEXT_INFO@middle": (
        "processId! deviceId! contextId! nullStreamId! hwId! vmId! parentContextId isGreenContext numMultiprocessors@new numTpcs@new "
        "tpcMask:text@new workqueueResourceId@new workqueueConcurrencyLimit@new workqueueSharingScope@new"
    ),
    "TARGET_INFO_CUDA_STREAM": "processId! contextId! streamId! hwId! vmId! priority! flag!",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        f"{_TIME} {_DEVICE} shortName! demangledName! mangledName@middle gridX! gridY! gridZ! blockX! blockY! "
        "blockZ! registersPerThread! "
        "staticSharedMemory! dynamicSharedMemory! sharedMemoryExecuted sharedMemoryLimitConfig localMemoryPerThread! "
        "localMemoryTotal! gridId! "
        "launchType cacheConfig graphNodeId graphId@new qmdBulkReleaseDone@new qmdPreexitDone@new qmdLastCtaDone@new "
        "clusterX@new clusterY@new "
        "clusterZ@new clusterSchedulingPolicy@new maxPotentialClusterSize@new maxActiveClusters@new sharedMemoryRequestedPercentage@new "
        "tensorSizeMinusOneElements:text!@new"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        f"{_TIME} {_DEVICE} bytes! copyKind! srcKind dstKind deprecatedSrcId srcDeviceId srcContextId "
        "dstDeviceId dstContextId migrationCause "
        "graphNodeId virtualAddress@middle copyCount@new"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_TIME} {_DEVICE} bytes! value! memKind graphNodeId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_TIME} {_DEVICE} syncType! eventId! deprecatedSyncType@new eventSyncId@new",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT@middle": f"{_DEVICE} eventId! eventSyncId@new timestamp@new",
    "CUPTI_ACTIVITY_KIND_RUNTIME": f"{_TIME} globalTid correlationId nameId! eventClass! returnValue! callchainId",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE@new": f"{_TIME} {_DEVICE} graphId! graphExecId!",
    "CUPTI_ACTIVITY_KIND_OVERHEAD@new": f"{_TIME} eventClass! globalTid correlationId nameId overheadType!",
    "CUDA_GRAPH_EVENTS@middle": (
        f"{_TIME} globalTid nameId! eventClass! graphNodeId!@middle- originalGraphNodeId@middle- graphId@new "
        "originalGraphId@new graphExecId@new"
    ),
    "CUDA_GRAPH_NODE_EVENTS@new": f"{_TIME} globalTid nameId! eventClass! graphNodeId! originalGraphNodeId",
    "NVTX_EVENTS": (
        "start! end globalTid endGlobalTid eventType! domainId category color rangeId text:text textId jsonText:text jsonTextId "
        "int32Value "
        "uint32Value int64Value uint64Value floatValue:real doubleValue:real binaryData:text@new"
    ),
    "NVTX_PAYLOAD_SCHEMAS@new": "domainId schemaId name:text type flags numEntries payloadSize alignTo",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES@new": "domainId! schemaId! idx! flags type name:text description:text arrayOrUnionDetail offset",
    "OSRT_API": f"{_TIME} globalTid nameId! eventClass! returnValue! nestingLevel callchainId! correlationId@old- argumentsId!@new",
    "PROFILER_OVERHEAD": f"{_TIME} globalTid nameId! correlationId@old- returnValue!@middle- overheadType!@new",
    "ENUM_NSYS_EVENT_CLASS@middle": "id!# name:text label:text",
    "ENUM_CUDA_MEMCPY_OPER@middle": "id!# name:text label:text",
    "ENUM_CUDA_MEM_KIND@middle": "id!# name:text label:text",
    "ENUM_CUPTI_SYNC_TYPE@middle": "id!# name:text label:text",
    "ENUM_CUPTI_OVERHEAD_TYPE@new": "id!# name:text label:text",
    "ENUM_DIAGNOSTIC_SEVERITY_LEVEL@new": "id!# name:text label:text",
}

ENUMS: dict[str, dict[int, tuple[str, str]]] = {
    "ENUM_NSYS_EVENT_CLASS": {
        0: ("TRACE_PROCESS_EVENT_CUDA_RUNTIME", "CUDA runtime"),
        1: ("TRACE_PROCESS_EVENT_CUDA_DRIVER", "CUDA driver"),
    },
    "ENUM_CUDA_MEMCPY_OPER": {
        1: ("CUDA_MEMCPY_KIND_HTOD", "Host-to-Device"),
        2: ("CUDA_MEMCPY_KIND_DTOH", "Device-to-Host"),
        8: ("CUDA_MEMCPY_KIND_DTOD", "Device-to-Device"),
    },
    "ENUM_CUDA_MEM_KIND": {
        0: ("CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", "Pageable"),
        1: ("CUDA_MEMOPR_MEMORY_KIND_PINNED", "Pinned"),
        2: ("CUDA_MEMOPR_MEMORY_KIND_DEVICE", "Device"),
    },
    "ENUM_CUPTI_SYNC_TYPE": {
        0: ("CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_UNKNOWN", "Unknown"),
        1: ("CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE", "Event sync"),
        2: ("CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT", "Stream wait sync"),
        3: ("CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE", "Stream sync"),
        4: ("CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE", "Context sync"),
    },
    "ENUM_CUPTI_OVERHEAD_TYPE": {
        2: ("OVERHEAD_DRIVER_COMPILER", "Driver JIT compiler (CUDA)"),
        3: ("OVERHEAD_BUFFER_FLUSH", "Buffer flush"),
        6: ("OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING", "Module loading"),
        7: ("OVERHEAD_LAZY_FUNCTION_LOADING", "Lazy function loading"),
        8: ("OVERHEAD_COMMAND_BUFFER_FULL", "Command buffer full"),
    },
    "ENUM_DIAGNOSTIC_SEVERITY_LEVEL": {1: ("Info", "Info"), 2: ("Warning", "Warning"), 3: ("Error", "Error")},
}
"""Rows of the enumerations."""


class Column(NamedTuple):
    """A column of a table."""

    name: str
    declaration: str


def tables(version: str) -> dict[str, list[Column]]:
    """Every table of a version with its columns."""
    result = {}
    for heading, text in _TABLES.items():
        name, _, span = heading.partition("@")
        if _exists(span, version):
            result[name] = [column for part in text.split() if (column := _column(part, version)) is not None]
    return result


def _exists(span: str, version: str) -> bool:
    if not span:
        return True
    place = VERSIONS.index(version)
    if span.endswith("-"):
        return place <= VERSIONS.index(span[:-1])
    return place >= VERSIONS.index(span)


def _column(text: str, version: str) -> Column | None:
    text, _, span = text.partition("@")
    if not _exists(span, version):
        return None
    name, _, kind = text.rstrip("!#").partition(":")
    declaration = kind.rstrip("!").upper() or "INTEGER"
    if "!" in text:
        declaration += " NOT NULL"
    if "#" in text:
        declaration += " PRIMARY KEY"
    return Column(name, declaration)
