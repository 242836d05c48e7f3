"""Writes ranks' rows as an Nsight Systems SQLite export, with the peculiarities that real exports have."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from traceread.simulate.host import Host
from traceread.simulate.identity import FIRST_CORRELATION, Identity, identity_of
from traceread.simulate.kernels import COLLECTIVE_OPS
from traceread.simulate.nsys_schema import ENUMS, PRODUCT, SYNC_TYPES, Column, tables
from traceread.simulate.recording import EPOCH_NS, Capture, Rows
from traceread.simulate.simulation import Run

ODDITIES = ("aborted", "bad-text", "data-loss", "user-columns")
"""Peculiarities on request: an export that was cut off, text that is not UTF-8, a warning of lost events, columns somebody added."""

LEAD_NS = 155_000_000_000
"""Collections begin this long before the simulation: times in exports are far from zero."""
VM = 1 << 48
NONE = 4_294_967_295
FOREIGN = 120
"""Processes of the machine that have nothing to do with the job."""

CALL_VERSIONS = {
    "cudaLaunchKernel": "_v7000",
    "cudaLaunchKernelExC": "_v11060",
    "cudaGraphLaunch": "_v10000",
    "cuLaunchKernel": "",
    "cuLaunchKernelEx": "",
    "cudaDeviceSynchronize": "_v3020",
}
COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8}
PAGEABLE, PINNED, DEVICE = 0, 1, 2
PUSH_POP, DOMAIN = 59, 75
NCCL_DOMAIN = 1
OS_CALL, OS_MARKER = 27, 31
BUFFER_FLUSH, LAZY_LOADING, UNKNOWN_OVERHEAD = 3, 7, 1


@dataclass(frozen=True)
class Part:
    """One rank of an export."""

    host: Host
    rows: Rows
    identity: Identity


def file_name(run: Run, rank: int, capture: Capture) -> str:
    """Name of the file that a rank goes into."""
    if capture.files == "job" and len(run.job.nodes) == 1:
        return "report.sqlite"
    if capture.files in ("job", "host"):
        return f"report_{run.job.nodes[run.job.node(rank, run.job.ranks)].name}.sqlite"
    return f"report_rank{rank}.sqlite"


def write(run: Run, recorded: Sequence[tuple[Host, Rows]], capture: Capture, path: Path) -> Path:
    """Write an export of one or several ranks of one machine; returns its path."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        parts = [Part(host, rows, identity_of(run, host.rank, capture)) for host, rows in recorded]
        _Export(connection, run, parts, capture).write()
        connection.commit()
    return path


class _Strings:
    """Ids of strings: sparse and in no particular order."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        found = self.ids.get(text)
        if found is None:
            found = self.ids[text] = 17 + 3 * len(self.ids) + len(self.ids) // 40 * 1_000
        return found


class _Export:
    """One file."""

    def __init__(self, connection: sqlite3.Connection, run: Run, parts: Sequence[Part], capture: Capture) -> None:
        self._db = connection
        self._run = run
        self._parts = parts
        self._first = parts[0].identity
        self._capture = capture
        self._version = capture.schema
        self._tables: dict[str, list[Column]] = tables(capture.schema)
        self._made: set[str] = set()
        self._string = _Strings()
        self._zero = EPOCH_NS + run.job.nodes[self._first.node].offset_ns - LEAD_NS - 1_000_003 * parts[0].host.rank

    def write(self) -> None:
        """Every table that has rows; a few exist without."""
        self._make("StringIds")
        self._make("ProcessStreams")
        if "aborted" in self._capture.oddities:
            self._insert("StringIds", {"id": [17], "value": ["[NSys]"]})
            return
        for table in (self._gpus, self._session, self._environment, self._metadata, self._bystanders):
            table()
        for part in self._parts:
            self._process(part)
            self._activities(part)
            self._calls(part)
            self._streams(part)
            self._ranges(part)
            self._graphs(part)
        self._insert("StringIds", {"id": list(self._string.ids.values()), "value": list(self._string.ids)})
        if "user-columns" in self._capture.oddities:
            self._db.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN myNote TEXT")
            self._db.execute("CREATE TABLE SystemInfo (key TEXT, val TEXT)")

    # Tables

    def _make(self, table: str) -> None:
        if table not in self._made:
            self._made.add(table)
            columns = ", ".join(f'"{c.name}" {c.declaration}' for c in self._tables[table])
            self._db.execute(f"CREATE TABLE {table} ({columns})")

    def _insert(self, table: str, columns: dict[str, Any]) -> None:
        """Insert rows given by column; a value that is no list stands for every row; columns the version lacks are left out."""
        known = self._tables.get(table)
        count = max((len(v) for v in columns.values() if isinstance(v, list)), default=1)
        if known is None or not count:
            return
        self._make(table)
        names = [c.name for c in known if c.name in columns]
        values: list[Iterable[Any]] = [columns[n] if isinstance(columns[n], list) else [columns[n]] * count for n in names]
        quoted = ", ".join(f'"{n}"' for n in names)
        self._db.executemany(f"INSERT INTO {table} ({quoted}) VALUES ({', '.join('?' * len(names))})", zip(*values, strict=True))  # noqa: S608

    # The machine and the collection

    def _gpus(self) -> None:
        job = self._run.job
        devices = range(self._first.devices)
        zero_uuid = "00000000-0000-0000-0000-000000000000"
        self._insert(
            "TARGET_INFO_GPU",
            {
                "id": [len(devices) - 1 - d for d in devices],  # the numbering of the driver's tool, not that of CUDA
                "cuDevice": list(devices),
                "vmId": VM,
                "name": job.device,
                "chipName": "GH100",
                "totalMemory": job.memory,
                "uuid": [zero_uuid if self._version == "old" else f"6161e0f3-67ae-555b-f069-dbe4b0f7{d:04x}" for d in devices],
                "busLocation": [f"0000:{0x18 + d:02X}:00.0" for d in devices],
                "smCount": job.multiprocessors,
                "memoryBandwidth": 3_352_320_000_000,
                "clockRate": 1_980_000_000,
                "computeMajor": 9,
                "computeMinor": 0,
                "smMajor": 9,
                "smMinor": 0,
                "isDiscrete": 1,
                "threadsPerWarp": 32,
                "maxWarpsPerSm": 64,
                "maxThreadsPerBlock": 1024,
                "asyncEngines": 3,
                "ctxswDevPath": "",
                "ctrlDevPath": "",
            },
        )

    def _session(self) -> None:
        end = max(part.rows.window[1] for part in self._parts) - self._zero
        clock = 28_254_349_605
        self._insert("ANALYSIS_DETAILS", {"globalVid": VM, "startTime": clock, "stopTime": clock + end, "duration": end})
        self._insert(
            "TARGET_INFO_SESSION_START_TIME",
            {"utcEpochNs": self._zero, "utcTime": "2026-03-05T08:07:40", "localTime": "2026-03-05T09:07:40", "systemClockNs": clock},
        )

    def _environment(self) -> None:
        job, first = self._run.job, self._first
        environment = {
            "CpuCores": "96",
            "NvDriverVersion": "570.86.15",
            "CudaDriverVersion": "12080",
            "Hostname": job.nodes[first.node].name,
        }
        if len(self._parts) == 1:
            rank = self._parts[0].host.rank
            environment["DeviceEnvironment"] = (
                f"PATH=/usr/bin\nRANK={rank}\nLOCAL_RANK={first.local_rank}\nWORLD_SIZE={job.ranks}\nEXAMPLE_TOKEN=not-a-real-secret\n"
            )
        self._insert(
            "TARGET_INFO_SYSTEM_ENV",
            {
                "globalVid": VM,
                "devStateName": "Local (CLI)",
                "name": list(environment),
                "value": list(environment.values()),
                "nameEnum": list(range(1, len(environment) + 1)),
            },
        )

    def _metadata(self) -> None:
        if self._version != "old":
            product, schema = PRODUCT[self._version]
            numbers = schema.split(".")
            export = {
                "EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems",
                "EXPORT_PRODUCT_VERSION": product,
                "EXPORT_SCHEMA_VERSION": schema,
                "EXPORT_SCHEMA_VERSION_MAJOR": numbers[0],
                "EXPORT_SCHEMA_VERSION_MINOR": numbers[1],
                "EXPORT_SCHEMA_VERSION_MICRO": numbers[2],
            }
            self._insert("META_DATA_EXPORT", {"name": list(export), "value": list(export.values())})
            if "bad-text" in self._capture.oddities:
                self._db.execute("INSERT INTO META_DATA_EXPORT (name, value) VALUES ('EXPORT_TIME_ZONE', CAST(x'4D45535AE9' AS TEXT))")
            prefix = "PROCESS_0:" if self._version == "middle" else ""
            capture = {
                "START_TRIGGER": "Immediate",
                "STOP_TRIGGER": "Delayed",
                "CUDA_SKIP_SOME_API_CALLS": "true",
                f"{prefix}CUDA_GRAPH_TRACE_OPTIONS:MODE": self._capture.graphs.capitalize(),
            }
            self._insert("META_DATA_CAPTURE", {"name": list(capture), "value": list(capture.values())})
        for table, rows in ENUMS.items():
            self._insert(table, {"id": list(rows), "name": [n for n, _ in rows.values()], "label": [label for _, label in rows.values()]})

    def _bystanders(self) -> None:
        """Other processes of the machine, and what the profiler says about them."""
        foreign = [9_000 + 13 * i for i in range(FOREIGN)]
        self._insert("PROCESSES", {"pid": foreign, "globalPid": [_global(pid) for pid in foreign], "name": ["kworker"] * FOREIGN})
        self._insert(
            "ThreadNames", {"globalTid": [_global(pid, pid) for pid in foreign], "nameId": self._string("kworker/u64"), "priority": 20}
        )
        messages = [(1, "Profiling has started."), (2, "No CUDA events collected. Does the process use CUDA?")]
        if "data-loss" in self._capture.oddities:
            messages.append((2, "Not all CUDA events might have been collected."))
        self._insert(
            "DIAGNOSTIC_EVENT",
            {
                "timestamp": [-90_514_564_082 + i for i in range(len(messages))],
                "timestampType": 1,
                "source": 3,
                "severity": [s for s, _ in messages],
                "text": [t for _, t in messages],
                "globalPid": _global(foreign[0]),
            },
        )

    def _process(self, part: Part) -> None:
        who, job = part.identity, self._run.job
        self._insert("PROCESSES", {"pid": who.pid, "globalPid": _global(who.pid), "name": "python3"})
        names = [*who.thread_names, "[NSys]", "CUPTI worker thread"]
        tids = [*who.tids, who.pid + 60, who.pid + 61]
        self._insert(
            "ThreadNames", {"globalTid": [_global(who.pid, t) for t in tids], "nameId": [self._string(n) for n in names], "priority": 20}
        )
        context = {"processId": who.pid, "deviceId": who.device, "contextId": who.context, "hwId": 0, "vmId": 1}
        self._insert("TARGET_INFO_CUDA_CONTEXT_INFO", context | {"nullStreamId": who.streams[0], "parentContextId": 0, "isGreenContext": 0})
        self._insert("TARGET_INFO_CUDA_NULL_STREAM", context | {"streamId": who.streams[0]})
        self._insert("TARGET_INFO_CUDA_STREAM", context | {"streamId": list(who.streams), "priority": 0, "flag": 2})
        self._insert(
            "TARGET_INFO_CUDA_DEVICE",
            {
                "pid": who.pid,
                "cudaId": list(range(who.devices)),
                "gpuId": [who.devices - 1 - d for d in range(who.devices)],
                "numMultiprocessors": job.multiprocessors,
            },
        )
        main = _global(who.pid, who.tids[0])
        self._insert(
            "PROFILER_OVERHEAD",
            {
                "start": [-9_000_000_000],
                "end": [-8_703_000_000],
                "globalTid": main,
                "correlationId": 0,
                "nameId": self._string("dlopen(libcudart.so.12)"),
                "returnValue": 0,
                "overheadType": UNKNOWN_OVERHEAD,
            },
        )
        self._insert(
            "OSRT_API",
            {
                "start": [16_685_376],
                "end": [16_685_376],
                "eventClass": OS_MARKER,
                "globalTid": main,
                "returnValue": 0,
                "nameId": self._string("OS runtime libraries profiling started."),
                "correlationId": 0,
                "callchainId": 0,
                "argumentsId": 0,
            },
        )

    # Rows of a rank

    def _activities(self, part: Part) -> None:
        rows, who, library = part.rows, part.identity, self._run.library
        kinds = np.array([a.kind for a in library.activities])[rows.code] if len(rows.code) else np.zeros(0, str)
        kinds = np.where(rows.graph, "graph", kinds)
        stream = np.array(who.streams)[rows.stream]

        def common(mine: Any) -> dict[str, Any]:
            return {
                "start": (rows.start[mine] - self._zero).tolist(),
                "end": (rows.end[mine] - self._zero).tolist(),
                "deviceId": who.device,
                "contextId": who.context,
                "streamId": stream[mine].tolist(),
                "greenContextId": 0,
                "globalPid": _global(who.pid),
                "correlationId": (rows.launch[mine] + FIRST_CORRELATION).tolist(),
            }

        mine = np.flatnonzero(kinds == "kernel")
        described = [library.activities[c] for c in rows.code[mine].tolist()]
        nodes = rows.node[mine].tolist()
        self._insert(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            common(mine)
            | {
                "shortName": [self._string(a.short or a.name) for a in described],
                "demangledName": [self._string(a.name) for a in described],
                "gridX": [a.grid[0] for a in described],
                "gridY": [a.grid[1] for a in described],
                "gridZ": [a.grid[2] for a in described],
                "blockX": [a.block[0] for a in described],
                "blockY": [a.block[1] for a in described],
                "blockZ": [a.block[2] for a in described],
                "registersPerThread": [a.registers for a in described],
                "dynamicSharedMemory": [a.shared for a in described],
                "staticSharedMemory": 0,
                "sharedMemoryExecuted": 32_768,
                "sharedMemoryLimitConfig": 0,
                "localMemoryPerThread": 0,
                "localMemoryTotal": 250_871_808,
                "gridId": list(range(1, len(mine) + 1)),
                "launchType": 1,
                "cacheConfig": 1,
                "clusterX": 0,
                "clusterY": 0,
                "clusterZ": 0,
                "tensorSizeMinusOneElements": "[]",
                "graphNodeId": [_node(n) for n in nodes],
                "graphId": [(n >> 16) + 1 if n else None for n in nodes],
            },
        )
        mine = np.flatnonzero(kinds == "memcpy")
        described = [library.activities[c] for c in rows.code[mine].tolist()]
        memory = [PAGEABLE if a.pageable else PINNED for a in described]
        self._insert(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            common(mine)
            | {
                "bytes": [a.bytes for a in described],
                "copyKind": [COPY_KINDS[a.copy] for a in described],
                "copyCount": 1,
                "srcKind": [m if a.copy == "HtoD" else DEVICE for a, m in zip(described, memory, strict=True)],
                "dstKind": [m if a.copy == "DtoH" else DEVICE for a, m in zip(described, memory, strict=True)],
            },
        )
        mine = np.flatnonzero(kinds == "memset")
        described = [library.activities[c] for c in rows.code[mine].tolist()]
        self._insert("CUPTI_ACTIVITY_KIND_MEMSET", common(mine) | {"bytes": [a.bytes for a in described], "value": 0, "memKind": DEVICE})
        mine = np.flatnonzero(rows.graph)
        graphs = [(n >> 16) + 1 for n in rows.node[mine].tolist()]
        self._insert("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", common(mine) | {"graphId": graphs, "graphExecId": [g + 1 for g in graphs]})

    def _calls(self, part: Part) -> None:
        rows, who, library = part.rows, part.identity, self._run.library
        order = np.argsort(rows.call_start, kind="stable")
        names = [self._string(name + CALL_VERSIONS.get(name, "_v3020")) for name in library.calls]
        driver = [int(name.startswith("cu") and not name.startswith("cuda")) for name in library.calls]
        tids = np.array([_global(who.pid, t) for t in who.tids])
        called = rows.call_name[order].tolist()
        self._insert(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            {
                "start": (rows.call_start[order] - self._zero).tolist(),
                "end": (rows.call_end[order] - self._zero).tolist(),
                "globalTid": tids[rows.call_thread[order]].tolist(),
                "correlationId": (rows.call_row[order] + FIRST_CORRELATION).tolist(),
                "nameId": [names[c] for c in called],
                "eventClass": [driver[c] for c in called],
                "returnValue": [600 if library.calls[c] == "cudaEventQuery" else 0 for c in called],
            },
        )

    def _streams(self, part: Part) -> None:
        """Synchronisations and events: the part of a blocking call that waits for the device is shorter than the call."""
        rows, who = part.rows, part.identity
        place = {row: i for i, row in enumerate(rows.call_row.tolist())}
        types = SYNC_TYPES[self._version]
        syncs: list[tuple[int, ...]] = []
        events: list[tuple[int, ...]] = []
        for found in part.host.stream_rows:
            i = place.get(found.call)
            if i is None:
                continue
            stream = who.streams[found.stream] if found.stream >= 0 else NONE
            number = found.call + FIRST_CORRELATION
            event = found.event % 8_192 if found.event >= 0 else NONE
            if found.kind == "record":
                events.append((stream, number, event, found.call + 1))
            else:
                begin, end = int(rows.call_start[i]) - self._zero, int(rows.call_end[i]) - self._zero
                quarter = (end - begin) // 4
                recorded = found.record + 1 if found.record >= 0 else 0
                syncs.append((begin + min(quarter, 2_000), end - min(quarter, 1_000), stream, number, types[found.kind], event, recorded))
        device = {"deviceId": who.device, "contextId": who.context, "globalPid": _global(who.pid)}
        if syncs:
            start, stop, stream_, number_, kind, event_, recorded_ = (list(c) for c in zip(*syncs, strict=True))
            self._insert(
                "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
                device
                | {
                    "start": start,
                    "end": stop,
                    "streamId": stream_,
                    "correlationId": number_,
                    "syncType": kind,
                    "eventId": event_,
                    "eventSyncId": recorded_,
                    "deprecatedSyncType": None,
                },
            )
        if events:
            stream_, number_, event_, sync = (list(c) for c in zip(*events, strict=True))
            self._insert(
                "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
                device | {"streamId": stream_, "correlationId": number_, "eventId": event_, "eventSyncId": sync, "timestamp": 0},
            )

    def _ranges(self, part: Part) -> None:
        rows, who, library = part.rows, part.identity, self._run.library
        kind = np.array([r.kind for r in library.ranges])[rows.range_name] if len(rows.range_name) else np.zeros(0, str)
        tids = np.array([_global(who.pid, t) for t in who.tids])[rows.range_thread]
        start, end = rows.range_start - self._zero, rows.range_end - self._zero
        marked = np.flatnonzero(np.isin(kind, ("op", "annotation", "step")))
        backward = rows.range_thread == 1
        texts = []
        for i in marked.tolist():
            text, of = library.ranges[int(rows.range_name[i])]
            if of == "step":
                text = self._capture.step_name(self._run.job.step_range, text)
            elif of == "op":
                sequence = f", seq = {4_000 + i}" if backward[i] else ""
                text = f"{text}{sequence}, op_id = {990_000 + i}"
            texts.append(text)
        ends = [e if not o else None for e, o in zip(end[marked].tolist(), rows.range_open[marked].tolist(), strict=True)]
        self._insert(
            "NVTX_EVENTS",
            {
                "start": [-10_600_000_000],
                "end": [None],
                "eventType": DOMAIN,
                "text": "NCCL",
                "domainId": NCCL_DOMAIN,
                "globalTid": _global(who.pid, who.tids[0]),
            },
        )
        self._insert(
            "NVTX_EVENTS",
            {
                "start": start[marked].tolist(),
                "end": ends,
                "eventType": PUSH_POP,
                "text": texts,
                "domainId": 0,
                "globalTid": tids[marked].tolist(),
            },
        )
        self._nccl_ranges(part, start, end, tids)
        for entry in ((0, "NCCL communicator ID", 18), (1, "Message size [bytes]", 22)):
            self._insert(
                "NVTX_PAYLOAD_SCHEMA_ENTRIES",
                {
                    "domainId": NCCL_DOMAIN,
                    "schemaId": 16_777_218,
                    "idx": entry[0],
                    "name": entry[1],
                    "type": entry[2],
                    "offset": 8 * entry[0] or None,
                },
            )
        self._insert(
            "NVTX_PAYLOAD_SCHEMAS", {"domainId": NCCL_DOMAIN, "schemaId": 16_777_218, "type": 1, "numEntries": 2, "payloadSize": 16}
        )
        os = np.flatnonzero(kind == "os")
        self._insert(
            "OSRT_API",
            {
                "start": start[os].tolist(),
                "end": end[os].tolist(),
                "globalTid": tids[os].tolist(),
                "eventClass": OS_CALL,
                "nameId": [self._string(library.ranges[n].text) for n in rows.range_name[os].tolist()],
                "returnValue": 0,
                "nestingLevel": 0,
                "callchainId": 0,
                "correlationId": 0,
                "argumentsId": 0,
            },
        )
        own = np.flatnonzero(kind == "profiler")
        self._insert(
            "PROFILER_OVERHEAD",
            {
                "start": start[own].tolist(),
                "end": end[own].tolist(),
                "globalTid": tids[own].tolist(),
                "nameId": self._string("CUDA profiling data flush overhead"),
                "returnValue": 0,
                "correlationId": 0,
                "overheadType": BUFFER_FLUSH,
            },
        )
        loading = np.flatnonzero(kind == "loading")
        self._insert(
            "CUPTI_ACTIVITY_KIND_OVERHEAD",
            {
                "start": start[loading].tolist(),
                "end": end[loading].tolist(),
                "eventClass": 0,
                "globalTid": tids[loading].tolist(),
                "overheadType": LAZY_LOADING,
                "nameId": self._string("Lazy function loading"),
            },
        )

    def _nccl_ranges(self, part: Part, start: Any, end: Any, tids: Any) -> None:
        """NCCL's own ranges: registered strings in a domain of their own, no payload kept."""
        functions = {annotation: function for _, annotation, function in COLLECTIVE_OPS.values()}
        named = {code: functions[r.text] for code, r in enumerate(self._run.library.ranges) if r.text in functions}
        mine = [i for i, name in enumerate(part.rows.range_name.tolist()) if name in named]
        if mine:
            inside = np.array(mine)
            margin = (end[inside] - start[inside]) // 10
            self._insert(
                "NVTX_EVENTS",
                {
                    "start": (start[inside] + margin).tolist(),
                    "end": (end[inside] - margin).tolist(),
                    "eventType": PUSH_POP,
                    "domainId": NCCL_DOMAIN,
                    "textId": [self._string(named[part.rows.range_name[i]]) for i in mine],
                    "globalTid": tids[inside].tolist(),
                    "binaryData": None,
                },
            )

    def _graphs(self, part: Part) -> None:
        """The creation of graphs and their nodes, long before the capture."""
        who, graphs = part.identity, self._run.library.graphs
        tid = _global(who.pid, who.tids[0])
        for number, graph in enumerate(graphs):
            begin = -20_182_384_393 + number
            if self._version == "new":
                self._insert(
                    "CUDA_GRAPH_EVENTS",
                    {
                        "start": begin,
                        "end": begin,
                        "globalTid": tid,
                        "eventClass": 95,
                        "graphId": number + 1,
                        "nameId": self._string("CUDA Graph Creation"),
                    },
                )
            nodes = [_node((number << 16) + i + 1) for i in range(len(graph.nodes))]
            table = "CUDA_GRAPH_NODE_EVENTS" if self._version == "new" else "CUDA_GRAPH_EVENTS"
            self._insert(
                table,
                {
                    "start": begin,
                    "end": begin,
                    "globalTid": tid,
                    "eventClass": 94,
                    "graphNodeId": nodes,
                    "nameId": self._string("CUDA Graph Node Creation"),
                },
            )


def _global(pid: int, tid: int = 0) -> int:
    """A process or thread id as exports write it: machine, process and thread in one number."""
    return VM | (pid & 0xFFFFFF) << 24 | (tid & 0xFFFFFF)


def _node(node: int) -> int | None:
    """Recorded id of a graph node, None outside graphs."""
    return (node >> 16) * 8_192 + 4_096 + (node & 0xFFFF) if node else None
