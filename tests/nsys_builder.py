"""Small Nsight Systems SQLite exports for tests, in the schema of any year.

Rows are given once, in words of our own; `write` turns them into the tables and columns that an exporter of that schema would
have written. A column is listed as name, name@since or name@since-before (schema versions).
"""

import sqlite3
from pathlib import Path

VM = 1 << 48
UTC = 1_700_000_000_000_000_000
NO_EVENT = 4294967295

OLD = "none"  # 2020 and 2021: no table of metadata
FIRST = "2.9.1"  # 2022: EXPORT_META_DATA
MIDDLE = "3.7.2"  # 2023: graph nodes, green contexts
NEW = "3.25.0"  # 2026: event ids, overhead types, graphs
SCHEMAS = (OLD, FIRST, MIDDLE, NEW)

GPU = "start end deviceId contextId greenContextId@3.7 streamId correlationId globalPid"
TABLES = {
    "StringIds": "id value",
    "ThreadNames": "nameId priority globalTid",
    "PROCESSES": "globalPid@2.9 pid@2.9 name@2.9",
    "CUPTI_ACTIVITY_KIND_KERNEL": GPU
    + " demangledName shortName mangledName@2.9 gridX gridY gridZ graphNodeId graphId@3.25 tensorSizeMinusOneElements@3.25",
    "CUPTI_ACTIVITY_KIND_MEMCPY": GPU
    + " bytes copyKind srcKind dstKind srcDeviceId dstDeviceId graphNodeId virtualAddress@2.9 copyCount@3.17",
    "CUPTI_ACTIVITY_KIND_MEMSET": GPU + " value bytes graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": GPU + " graphId graphExecId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue callchainId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": GPU + " deprecatedSyncType@3.17 syncType eventId eventSyncId@3.17",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "timestamp@3.25 deviceId contextId streamId correlationId globalPid eventId eventSyncId@3.17",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "start end eventClass globalTid correlationId nameId overheadType",
    "PROFILER_OVERHEAD": "start end globalTid correlationId@0-2.9 nameId returnValue@0-3.24 overheadType@3.24",
    "NVTX_EVENTS": "start end eventType rangeId category color text globalTid endGlobalTid textId domainId binaryData@3.16",
    "OSRT_API": "start end eventClass globalTid correlationId@0-2.9 nameId returnValue nestingLevel callchainId argumentsId@3.23",
    "MPI_RANKS": "globalTid rank",
    "MPI_COLLECTIVES_EVENTS": "start end globalTid textId commHandle rootRank size",
    "DIAGNOSTIC_EVENT": "timestamp timestampType source severity text globalPid",
    "TARGET_INFO_GPU": "vmId id name totalMemory smCount cuDevice",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid",
    "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName name nameEnum value",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime localTime systemClockNs@3.24",
    "ANALYSIS_DETAILS": "globalVid duration startTime stopTime",
}
SINCE = {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "3.16", "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "2.9", "CUPTI_ACTIVITY_KIND_OVERHEAD": "3.24"}
TEXT = {"value", "name", "text", "utcTime", "localTime", "binaryData", "devStateName", "tensorSizeMinusOneElements"}

# What each exporter writes as syncType for (device, event, stream wait, stream).
SYNC_TYPES = {OLD: (1, 2, 3, 3), FIRST: (1, 2, 3, 3), MIDDLE: (1, 2, 3, 3), NEW: (4, 1, 2, 3)}


def gtid(pid, tid=None, hardware=0):
    """The 64-bit id of a thread (the main thread, if none is given), as SQLite holds it."""
    value = hardware << 56 | VM | pid << 24 | (pid if tid is None else tid)
    return value - (1 << 64) if value >= 1 << 63 else value


def gpid(pid, hardware=0):
    return gtid(pid, 0, hardware)


class NsysExport:
    """Rows of one export; methods add them and return self."""

    def __init__(self, utc=UTC, hardware=0):
        self.rows = {}
        self.utc = utc
        self.hardware = hardware
        self.strings = {}

    def add(self, table, **row):
        self.rows.setdefault(table, []).append(row)
        return self

    def string(self, text):
        return self.strings.setdefault(text, 3 * len(self.strings) + 7)

    def gtid(self, pid, tid=None):
        return gtid(pid, tid, self.hardware)

    def gpid(self, pid):
        return gpid(pid, self.hardware)

    def _gpu(self, table, start, end, pid, device, stream, correlation, **row):
        place = {"deviceId": device, "contextId": device + 1, "streamId": stream, "correlationId": correlation}
        return self.add(table, start=start, end=end, globalPid=self.gpid(pid), **place, **row)

    def kernel(self, start, end, name="gemm", *, pid=100, device=0, stream=7, correlation=None, node=None, short=None):
        names = {"demangledName": self.string(name), "shortName": self.string(short or name), "graphNodeId": node}
        return self._gpu("CUPTI_ACTIVITY_KIND_KERNEL", start, end, pid, device, stream, correlation, gridX=1, gridY=1, gridZ=1, **names)

    def copy(self, start, end, kind=1, size=64, *, src=0, dst=2, pid=100, device=0, stream=7, correlation=None, between=(None, None)):
        row = {"bytes": size, "copyKind": kind, "srcKind": src, "dstKind": dst, "srcDeviceId": between[0], "dstDeviceId": between[1]}
        return self._gpu("CUPTI_ACTIVITY_KIND_MEMCPY", start, end, pid, device, stream, correlation, **row)

    def memset(self, start, end, size=64, *, memory=2, pid=100, device=0, stream=7, correlation=None):
        return self._gpu("CUPTI_ACTIVITY_KIND_MEMSET", start, end, pid, device, stream, correlation, value=0, bytes=size, memKind=memory)

    def graph(self, start, end, graph=4, *, pid=100, device=0, stream=7, correlation=None):
        return self._gpu(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start, end, pid, device, stream, correlation, graphId=graph, graphExecId=graph + 1
        )

    def call(self, start, end, name="cudaLaunchKernel_v7000", *, pid=100, tid=None, correlation=None):
        row = {"eventClass": 1 if name.startswith("cu") and not name.startswith("cuda") else 0, "returnValue": 0}
        return self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start, end=end, globalTid=self.gtid(pid, tid), correlationId=correlation, nameId=self.string(name), **row,
        )  # fmt: skip

    def launch(self, at, start, end, name="gemm", *, correlation, pid=100, tid=None, **kernel):
        """A launch call of 5 µs and the kernel it launches."""
        self.call(at, at + 5_000, pid=pid, tid=tid, correlation=correlation)
        return self.kernel(start, end, name, pid=pid, correlation=correlation, **kernel)

    def nvtx(self, start, end, text, *, kind=59, pid=100, tid=None, registered=False, domain=0, end_tid=None):
        return self.add(
            "NVTX_EVENTS",
            start=start, end=end, eventType=kind, globalTid=self.gtid(pid, tid), domainId=domain,
            text=None if registered else text, textId=self.string(text) if registered else None,
            endGlobalTid=None if end_tid is None else self.gtid(pid, end_tid),
        )  # fmt: skip

    def os_call(self, start, end, name="poll", *, pid=100, tid=None, event_class=27):
        row = {"eventClass": event_class, "returnValue": 0, "nestingLevel": 0, "callchainId": 0, "argumentsId": 0}
        return self.add("OSRT_API", start=start, end=end, globalTid=self.gtid(pid, tid), nameId=self.string(name), **row)

    def overhead(self, start, end, name, *, pid=100, tid=None, kind=0, table="PROFILER_OVERHEAD"):
        row = {"nameId": None if name is None else self.string(name), "overheadType": kind, "returnValue": 0, "eventClass": 0}
        return self.add(table, start=start, end=end, globalTid=self.gtid(pid, tid), **row)

    def sync(self, start, end, kind, *, correlation, stream=7, pid=100, device=0, event=NO_EVENT, record=None):
        """A synchronisation row; kind is device, event, wait or stream."""
        row = {"sync_kind": ("device", "event", "wait", "stream").index(kind), "eventId": event, "eventSyncId": record}
        return self._gpu("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start, end, pid, device, stream, correlation, **row)

    def event(self, correlation, event, *, record=None, stream=7, pid=100, device=0):
        place = {"deviceId": device, "contextId": device + 1, "streamId": stream, "correlationId": correlation}
        return self.add("CUPTI_ACTIVITY_KIND_CUDA_EVENT", **place, globalPid=self.gpid(pid), eventId=event, eventSyncId=record, timestamp=0)

    def thread_name(self, name, *, pid=100, tid=None, priority=10):
        return self.add("ThreadNames", nameId=self.string(name), priority=priority, globalTid=self.gtid(pid, tid))

    def gpu(self, number, name="NVIDIA H100 80GB HBM3", memory=80 << 30, processors=132, ordinal=None):
        return self.add("TARGET_INFO_GPU", vmId=0, id=number, name=name, totalMemory=memory, smCount=processors, cuDevice=ordinal)

    def system(self, name, value):
        return self.add("TARGET_INFO_SYSTEM_ENV", globalVid=VM, devStateName="Local (CLI)", name=name, nameEnum=1, value=value)

    def environment(self, *entries, separator="\n"):
        return self.system("DeviceEnvironment", separator.join(entries))

    def diagnostic(self, text, severity=2, pid=None):
        return self.add(
            "DIAGNOSTIC_EVENT",
            timestamp=0, timestampType=1, source=1, severity=severity, text=text, globalPid=None if pid is None else self.gpid(pid),
        )  # fmt: skip

    def collected(self, duration):
        return self.add("ANALYSIS_DETAILS", globalVid=VM, duration=duration, startTime=5, stopTime=5 + duration)

    def write(self, path, schema=NEW, *, backwards=False, product="2026.2.1.210"):
        """The export as a file; `backwards` turns the order of the rows of every table around."""
        path = Path(path)
        path.unlink(missing_ok=True)
        rows = dict(self.rows)
        rows["StringIds"] = [{"id": key, "value": value} for value, key in self.strings.items()]
        rows["TARGET_INFO_SESSION_START_TIME"] = [] if self.utc is None else [{"utcEpochNs": self.utc}]
        with sqlite3.connect(path) as db:
            for table, spec in TABLES.items():
                columns = [name for name in (_column(c, schema) for c in spec.split()) if name]
                if not columns or _version(schema) < _version(SINCE.get(table, "0")) or (table not in rows and schema != FIRST):
                    continue  # tables come with their rows; around 2.9 empty ones came too
                declared = ", ".join(f'"{c}" {"TEXT" if c in TEXT else "INTEGER"}' for c in columns)
                db.execute(f"CREATE TABLE {table} ({declared})".replace('"id" INTEGER, "value"', '"id" INTEGER PRIMARY KEY, "value"'))
                ordered = reversed(rows.get(table, [])) if backwards else rows.get(table, [])
                for row in ordered:
                    if "sync_kind" in row:
                        row = row | {"syncType": SYNC_TYPES.get(schema, SYNC_TYPES[NEW])[row["sync_kind"]]}
                    db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", [row.get(column) for column in columns])
            if schema != OLD:
                meta = "META_DATA_EXPORT" if _version(schema) >= (3, 4) else "EXPORT_META_DATA"
                db.execute(f"CREATE TABLE {meta} (name TEXT NOT NULL, value TEXT)")
                values = [("EXPORT_PRODUCT_VERSION", product), ("EXPORT_SCHEMA_VERSION", schema)]
                db.executemany(f"INSERT INTO {meta} VALUES (?, ?)", values)
        db.close()
        return path


def _column(spec, schema):
    name, _, versions = spec.partition("@")
    since, _, before = versions.partition("-")
    version = _version(schema)
    return name if version >= _version(since or "0") and (not before or version < _version(before)) else None


def _version(text):
    return (0, 0) if text == OLD else tuple(map(int, (text + ".0").split(".")[:2]))
