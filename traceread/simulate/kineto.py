"""Writes a rank's rows as a PyTorch (Kineto) Chrome trace, in the shape of several years and of both vendors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from traceread.simulate.host import Host
from traceread.simulate.identity import FIRST_CORRELATION, Identity, identity_of
from traceread.simulate.kernels import AMD_BLOCKING_COPY, amd_call
from traceread.simulate.program import Activity, Collective
from traceread.simulate.recording import Capture, Ints, Rows
from traceread.simulate.simulation import Run

BASE_UNIT_S = 7_889_238
"""Kineto counts times from the last multiple of three average months, in seconds since the epoch."""

ERAS = ("ns", "ns-epoch", "us", "2021")
BATCH = 20_000
"""Events per write."""

CATEGORIES_2021 = {
    "cpu_op": "Operator",
    "user_annotation": "Operator",
    "cuda_runtime": "Runtime",
    "cuda_driver": "Runtime",
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
}
CALLBACKS = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cuLaunchKernelEx": 652,
    "cuLaunchKernel": 307,
    "cudaMemcpyAsync": 41,
    "cudaMemcpy": 31,
    "cudaMemsetAsync": 51,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
    "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165,
    "cudaEventSynchronize": 137,
    "cudaEventQuery": 138,
    "cudaMalloc": 20,
    "cudaFree": 22,
    "cudaGraphLaunch": 311,
}
OPERAND_SHAPES = {
    "aten::mm": ([[8192, 4096], [4096, 4096]], ["c10::BFloat16", "c10::BFloat16"]),
    "aten::addmm": ([[4096], [8192, 4096], [4096, 4096], [], []], ["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar"]),
}
NVIDIA_DEVICE = {"regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448, "sharedMemPerMultiprocessor": 233472}
AMD_DEVICE = {"maxSharedMemoryPerMultiProcessor": 65536}
OPERATOR_2021 = (
    '"Input dims": [], "Input type": [], "Input names": [],\n      "Output dims": [], "Output type": [], "Output names": [],\n      '
    '"Device": {pid}, "External id": {external}, "Extra arguments": [],\n      "Trace name": "PyTorch Profiler", "Trace iteration": 0'
)
AMD_COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 3}
OTHER_SHAPE = ([[2, 4096, 4096]], ["c10::BFloat16"])
STRIDES = {1: [1], 2: [4096, 1], 3: [16777216, 4096, 1]}
_FRACTION = [f".{i:03d}" for i in range(1000)]


def file_name(rank: int, capture: Capture) -> str:
    """Name of the file of a rank."""
    return f"rank{rank}.pt.trace.json" + (".gz" if capture.compress else "")


def write(run: Run, host: Host, rows: Rows, capture: Capture, directory: Path) -> Path:
    """Write the trace of one rank into a directory; returns its path."""
    path = directory / file_name(host.rank, capture)
    with path.open("wb") as plain:
        if not capture.compress:
            _write_to(plain, run, host, rows, capture)
            return path
        from isal import igzip

        open_packed: Any = igzip.IGzipFile
        with open_packed(filename="", mode="wb", compresslevel=2, fileobj=plain, mtime=0) as packed:
            _write_to(packed, run, host, rows, capture)
    return path


def _write_to(out: BinaryIO, run: Run, host: Host, rows: Rows, capture: Capture) -> None:
    trace = _Trace(run, host, rows, capture)
    head, tail = trace.frame()
    out.write(head.encode())
    batch: list[str] = []
    separator = ""
    for event in trace.events():
        batch.append(event)
        if len(batch) >= BATCH:
            out.write((separator + ",\n".join(batch)).encode())
            separator = ",\n"
            batch.clear()
    out.write(((separator if batch else "") + ",\n".join(batch) + tail).encode())


def _times(era: str) -> tuple[Callable[[Ints], list[str]], Callable[[Ints, Ints], list[str]]]:
    """How instants and lengths are written in this era."""
    if era in ("us", "2021"):
        return (
            lambda t: [str(x) for x in (t // 1000).tolist()],
            lambda s, e: [str(x) for x in (e // 1000 - s // 1000).tolist()],
        )

    def texts(t: Ints) -> list[str]:
        return [f"{q}{_FRACTION[r]}" for q, r in zip((t // 1000).tolist(), (t % 1000).tolist(), strict=True)]

    return texts, lambda s, e: texts(e - s)


def _complete(head: str, ts: str, dur: str, arguments: str) -> str:
    """A complete event from what stands before its start, its times and its arguments."""
    return f'{head}{ts}, "dur": {dur},\n    "args": {{\n      {arguments}\n    }}\n  }}'


class _Trace:
    """Texts of one rank's events."""

    def __init__(self, run: Run, host: Host, rows: Rows, capture: Capture) -> None:
        self.run, self.host, self.rows, self.capture = run, host, rows, capture
        self.identity: Identity = identity_of(run, host.rank, capture)
        self.amd = capture.vendor == "amd"
        self.old = capture.era == "2021"
        self.base = rows.window[0] // 1_000_000_000 // BASE_UNIT_S * BASE_UNIT_S * 1_000_000_000 if capture.era == "ns" else 0
        self._text, self._length = _times(capture.era)
        kinds = [r.kind for r in run.library.ranges]
        linked = np.isin(np.array(kinds), ("op", "annotation", "step"))[rows.range_name] if len(kinds) else np.zeros(0, bool)
        self.external = np.where(linked, np.cumsum(linked), 0)
        self.correlation = rows.call_row + FIRST_CORRELATION
        self._fixed_arguments: dict[tuple[int, int], str] = {}
        self.external_key = "external id" if self.old else "External id"

    # Frame

    def frame(self) -> tuple[str, str]:
        """What stands before and after the events."""
        if self.old:
            return "[\n", "\n]\n"
        head: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [self._device(i) for i in range(self.identity.devices)]}
        if self.capture.era == "us":
            pass  # versions were not recorded yet
        elif self.amd:
            head |= {"roctracer_version": 4.1, "hip_runtime_version": 60443483, "hip_driver_version": 60443483}
        else:
            head |= {"cupti_version": 24, "cuda_runtime_version": 12060, "cuda_driver_version": 12080}
        if self.run.job.ranks > 1:
            head["distributedInfo"] = self._distributed()
        for flag, on in (("record_shapes", self.capture.shapes), ("with_stack", self.capture.stacks)):
            if on:
                head[flag] = 1
        tail: dict[str, Any] = {}
        if self.capture.era == "ns":
            head |= {"trace_id": f"{0x5EED0000 + self.host.rank:032X}", "displayTimeUnit": "ms", "baseTimeNanoseconds": self.base}
        elif self.capture.era == "ns-epoch":
            tail["displayTimeUnit"] = "ns"
        tail = {"traceName": file_name(self.host.rank, self.capture)} | tail
        text = json.dumps(head, indent=2)
        return text[:-2] + ',\n  "traceEvents": [\n', "\n  ]" + "".join(
            f",\n  {json.dumps(k)}: {json.dumps(v)}" for k, v in tail.items()
        ) + "\n}\n"

    def _device(self, number: int) -> dict[str, Any]:
        job = self.run.job
        name = "AMD Instinct MI300X" if self.amd else job.device
        return {
            "id": number,
            "name": name,
            "totalGlobalMem": 206141652992 if self.amd else job.memory,
            "computeMajor": 9,
            "computeMinor": 4 if self.amd else 0,
            "maxThreadsPerBlock": 1024,
            "maxThreadsPerMultiprocessor": 2048,
            "regsPerBlock": 65536,
            "warpSize": 64 if self.amd else 32,
            "sharedMemPerBlock": 65536 if self.amd else 49152,
            "numSms": 304 if self.amd else job.multiprocessors,
            **(AMD_DEVICE if self.amd else NVIDIA_DEVICE),
        }

    def _distributed(self) -> dict[str, Any]:
        groups = {c.group: None for c in self.run.library.collectives if self.host.rank in c.group.ranks}
        world = tuple(range(self.run.job.ranks))
        configs = [
            {"pg_name": g.name, "pg_desc": g.description, "backend_config": "cuda:nccl", "pg_size": len(g.ranks), "ranks": list(g.ranks)}
            for g in groups
        ]
        if not any(g.ranks == world for g in groups):
            configs.insert(
                0, {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": len(world), "ranks": list(world)}
            )
        return {
            "backend": "nccl",
            "rank": self.host.rank,
            "world_size": len(world),
            "pg_count": len(configs),
            "pg_config": configs,
            "nccl_version": "2.22.3",
        }

    # Events

    def events(self) -> Iterator[str]:
        """Text of every event."""
        yield from self._ranges()
        yield from self._calls_and_activities()
        if not self.old:
            yield from self._forward_backward()
        if self.capture.sync_events:
            yield from self._sync_events()
        if self.capture.era.startswith("ns"):
            yield from self._projected()
        yield from self._metadata()

    def _category(self, category: str) -> str:
        return CATEGORIES_2021.get(category, category) if self.old else category

    def _head(self, category: str, name: str, pid: object, tid: object) -> str:
        where = f'"pid": {json.dumps(pid)}, "tid": {json.dumps(tid)}'
        return f'  {{\n    "ph": "X", "cat": "{self._category(category)}", "name": {json.dumps(name)}, {where},\n    "ts": '

    def _cpu(self, thread: int) -> tuple[object, object]:
        tid = self.identity.tids[thread]
        return self.identity.pid, str(tid) if self.old else tid

    def _gpu(self, stream: int) -> tuple[object, object]:
        number = self.identity.streams[stream]
        return self.identity.device, f"stream {number}" if self.old else number

    def _ranges(self) -> Iterator[str]:
        rows, library = self.rows, self.run.library
        heads: dict[tuple[int, int], tuple[str, str]] = {}
        parents = self._parents() if self.capture.stacks else {}
        start, length = self._text(rows.range_start - self.base), self._length(rows.range_start, rows.range_end)
        columns = zip(
            rows.range_name.tolist(),
            rows.range_thread.tolist(),
            start,
            length,
            self.external.tolist(),
            rows.range_row.tolist(),
            strict=True,
        )
        for i, (name, thread, ts, dur, external, row) in enumerate(columns):
            made = heads.get((name, thread))
            if made is None:
                made = heads[name, thread] = self._range_head(library.ranges[name].text, library.ranges[name].kind, thread)
            head, kind = made
            if kind == "python":
                parent, me = parents[i]
                module = '"Python module id": 0, ' if library.ranges[name].text.startswith("nn.Module") else ""
                yield _complete(head, ts, dur, f'"Python parent id": {parent}, {module}"Python id": {me}, "Ev Idx": {i}')
            elif kind in ("profiler", "loading"):
                yield f'{head}{ts}, "dur": {dur}\n  }}'
            elif self.old:
                yield _complete(head, ts, dur, OPERATOR_2021.format(pid=self.identity.pid, external=external))
            else:
                more = self._range_arguments(kind, name, thread, row)
                yield _complete(head, ts, dur, f'"External id": {external},{more}"Ev Idx": {i}')

    def _range_head(self, text: str, kind: str, thread: int) -> tuple[str, str]:
        if kind in ("profiler", "loading"):
            return self._head("overhead", text, -1, 0), kind
        category = {"op": "cpu_op", "python": "python_function"}.get(kind, "user_annotation")
        name = self.capture.step_name(self.run.job.step_range, text) if kind == "step" else text
        return self._head(category, name, *self._cpu(thread)), kind

    def _range_arguments(self, kind: str, name: int, thread: int, row: int) -> str:
        key = (name, thread)
        if key not in self._fixed_arguments:
            self._fixed_arguments[key] = self._fixed(kind, self.run.library.ranges[name].text, thread)
        more = self._fixed_arguments[key]
        found = self.host.range_collective.get(row)
        if found is not None and self.capture.collectives and not self.old:
            code, number = found
            more += self._collective_arguments(self.run.library.collectives[code]) + ", "
            group = self.run.library.collectives[code].group.ranks
            stride = group[1] - group[0] if len(group) > 1 else 1
            more += f'"Global rank start": {group[0]}, "Global rank stride": {stride}, '
            if self.capture.era == "ns":
                more += f'"Rank": {self.host.rank}, "Seq": {number + 1}, '
        return more

    def _fixed(self, kind: str, text: str, thread: int) -> str:
        """Arguments that every range of a name and thread has."""
        more = '"Record function id": 0, ' if self.capture.era == "ns" else ""
        if kind == "op" and thread == 1:
            more += '"Sequence number": 1080, "Fwd thread id": 1, '
        if self.capture.shapes and (kind == "op" or text.startswith("nccl:")):
            dims, types = OPERAND_SHAPES.get(text, OTHER_SHAPE)
            more += f'"Input Dims": {json.dumps(dims)}, "Input type": {json.dumps(types)}, '
            if self.capture.era == "ns":
                strides = [STRIDES.get(len(d), []) for d in dims]
                more += f'"Input Strides": {json.dumps(strides)}, "Concrete Inputs": {json.dumps([""] * len(dims))}, '
        return more

    def _collective_arguments(self, c: Collective) -> str:
        ranks = ", ".join(map(str, c.group.ranks[:30])) + (", ..." if len(c.group.ranks) > 30 else "")
        arguments: dict[str, Any] = {
            "Collective name": c.operation,
            "In msg nelems": c.elements_in,
            "Out msg nelems": c.elements_out,
            "Group size": len(c.group.ranks),
            "dtype": c.dtype,
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": c.group.name,
            "Process Group Description": c.group.description,
            "Process Group Ranks": f"[{ranks}]",
        }
        if c.source >= 0:
            arguments |= {"Src Rank": c.source, "Dst Rank": c.destination}
        if c.root >= 0:
            arguments["Root Rank"] = c.root
        return json.dumps(arguments)[1:-1]

    def _parents(self) -> dict[int, tuple[str, int]]:
        """For each Python frame its parent's id, and its own."""
        rows = self.rows
        kinds = self.run.library.ranges
        stacks: dict[int, list[tuple[int, int]]] = {}
        found = {}
        for i, (name, thread, start, end) in enumerate(
            zip(rows.range_name.tolist(), rows.range_thread.tolist(), rows.range_start.tolist(), rows.range_end.tolist(), strict=True)
        ):
            if kinds[name].kind != "python":
                continue
            stack = stacks.setdefault(thread, [])
            while stack and stack[-1][1] <= start:
                stack.pop()
            found[i] = (str(stack[-1][0]) if stack else "null", i + 1)
            stack.append((i + 1, end))
        return found

    def _calls_and_activities(self) -> Iterator[str]:
        rows = self.rows
        order = np.argsort(rows.call, kind="stable")
        bounds = np.searchsorted(rows.call[order], np.arange(len(rows.call_start) + 1), side="left").tolist()
        activities = self._activity_texts()
        for i in order[: bounds[0]].tolist():
            yield activities(i, None)
        names = [amd_call(name) if self.amd else name for name in self.run.library.calls]
        heads: dict[tuple[int, int, bool], str] = {}
        pageable = np.array([a.pageable for a in self.run.library.activities])
        start, length = self._text(rows.call_start - self.base), self._length(rows.call_start, rows.call_end)
        linked = np.where(rows.call_range >= 0, self.external[rows.call_range], 0).tolist()
        columns = zip(rows.call_name.tolist(), rows.call_thread.tolist(), start, length, self.correlation.tolist(), linked, strict=True)
        order_list = order.tolist()
        for i, (name, thread, ts, dur, correlation, external) in enumerate(columns):
            own = order_list[bounds[i] : bounds[i + 1]]
            blocking = self.amd and len(own) == 1 and bool(pageable[rows.code[own[0]]])
            head = heads.get((name, thread, blocking))
            if head is None:
                text = AMD_BLOCKING_COPY if blocking else names[name]
                category = "cuda_driver" if text.startswith("cu") and not text.startswith("cuda") else "cuda_runtime"
                head = heads[name, thread, blocking] = self._head(category, text, *self._cpu(thread))
            yield _complete(head, ts, dur, self._call_arguments(name, own, correlation, external))
            for j in own:
                yield activities(j, external)
            pid, tid = self._cpu(thread)
            if own:
                yield self._flow("s", correlation, pid, self.identity.tids[thread], ts)
                for j in own:
                    yield self._flow("f", correlation, *self._gpu(int(rows.stream[j])), self._start_texts[j])
            elif external and not self.old:
                yield self._flow("f", correlation, pid, tid, ts)

    def _call_arguments(self, name: int, own: list[int], correlation: int, external: int) -> str:
        link = f'"{self.external_key}": {external}, ' if external else ""
        call = self.run.library.calls[name]
        if not self.amd:
            return f'{link}"cbid": {CALLBACKS.get(call, 200)}, "correlation": {correlation}'
        more = ""
        if len(own) == 1:
            a = self.run.library.activities[int(self.rows.code[own[0]])]
            if a.kind == "kernel":
                more = f', "kernel": {json.dumps(a.amd)}, "grid": {list(a.grid)}, "block": {list(a.block)}, "shared memory": {a.shared}'
            elif a.kind == "memcpy":
                more = f', "bytes": "{a.bytes}", "kind": "{AMD_COPY_KINDS[a.copy]}"'
        return f'{link}"cid": {CALLBACKS.get(call, 200)}, "correlation": {correlation}{more}'

    def _flow(self, phase: str, number: int, pid: object, tid: object, ts: str, name: str = "ac2g") -> str:
        where = f'"pid": {json.dumps(pid)}, "tid": {json.dumps(tid)}, "ts": {ts}'
        names = '"cat": "async", "name": "launch"' if self.old else f'"cat": "{name}", "name": "{name}"'
        return f'  {{\n    "ph": "{phase}", "id": {number}, {where},\n    {names}' + (', "bp": "e"' if phase == "f" else "") + "\n  }"

    def _activity_texts(self) -> Callable[[int, int | None], str]:
        rows = self.rows
        self._start_texts = self._text(rows.start - self.base)
        lengths = self._length(rows.start, rows.end)
        codes, streams = rows.code.tolist(), rows.stream.tolist()
        nodes = rows.node.tolist()
        spans = (rows.end - rows.start).tolist()
        correlation = (rows.launch + FIRST_CORRELATION).tolist()
        made: dict[tuple[int, int], tuple[str, Callable[[int, int, str], str]]] = {}

        def text(i: int, external: int | None) -> str:
            key = (codes[i], streams[i])
            parts = made.get(key)
            if parts is None:
                activity = self.run.library.activities[codes[i]]
                category = {"kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}[activity.kind]
                name = activity.amd if self.amd else activity.name
                parts = made[key] = (self._head(category, name, *self._gpu(streams[i])), self._activity_arguments(activity, streams[i]))
            head, arguments = parts
            link = f'"{self.external_key}": {external}, ' if external and not self.amd else ""
            node = (
                f', "graph id": {(nodes[i] >> 16) + 1}, "graph node id": {(nodes[i] >> 16) * 8192 + 4096 + (nodes[i] & 0xFFFF)}'
                if nodes[i] and self.capture.era == "ns"
                else ""
            )
            return _complete(head, self._start_texts[i], lengths[i], link + arguments(correlation[i], spans[i], node))

        return text

    def _activity_arguments(self, a: Activity, stream: int) -> Callable[[int, int, str], str]:
        """Text of an activity's arguments from its correlation, length in ns and graph node."""
        where = f'"device": {self.identity.device}, "stream": {self.identity.streams[stream]}'
        if self.amd:
            kind = "Dispatch Kernel" if a.kind == "kernel" else a.copy or "Device"
            grid = f', "grid": {list(a.grid)}, "block": {list(a.block)}' if a.kind == "kernel" else ""
            return lambda number, ns, node: f'{where}, "correlation": {number}, "kind": "{kind}"{grid}'
        context = f'"device": {self.identity.device}, "context": {self.identity.context}, "stream": {self.identity.streams[stream]}'
        if a.kind != "kernel":
            return lambda number, ns, node: (
                f'{context}, "correlation": {number}, "bytes": {a.bytes}, "memory bandwidth (GB/s)": {a.bytes / ns if ns else 0}'
            )
        if self.old:
            return lambda number, ns, node: (
                f'"queued": 0, {context}, "correlation": {number}, "registers per thread": {a.registers}, "shared memory": {a.shared}, '
                f'"warps per SM": {a.block[0] / 32:.1f}, "grid": {list(a.grid)}, "block": {list(a.block)}'
            )
        blocks = a.grid[0] * a.grid[1] * a.grid[2] / self.run.job.multiprocessors
        warps = blocks * (a.block[0] * a.block[1] * a.block[2] // 32)
        occupancy = min(int(warps / 64 * 100), 100)
        shape = (
            f'"registers per thread": {a.registers}, "shared memory": {a.shared}, "blocks per SM": {blocks:.6f}, '
            f'"warps per SM": {warps:.6f}, "grid": {list(a.grid)}, "block": {list(a.block)}, "est. achieved occupancy %": {occupancy}'
        )
        if a.collective >= 0 and self.capture.collectives and self.capture.era in ("ns", "ns-epoch"):
            shape += ", " + self._collective_arguments(self.run.library.collectives[a.collective])
        return lambda number, ns, node: f'"queued": 0, {context}, "correlation": {number}, {shape}{node}'

    def _forward_backward(self) -> Iterator[str]:
        """Arrows from operators to their autograd nodes; their ids are another number space than those of launches."""
        rows = self.rows
        text = np.array([r.text.startswith("autograd::engine") for r in self.run.library.ranges])[rows.range_name]
        op = np.array([r.kind == "op" for r in self.run.library.ranges])[rows.range_name]
        nodes, ops = np.flatnonzero(text), np.flatnonzero(op & (rows.range_thread == 0))
        starts = self._text(rows.range_start - self.base)
        for number, (node, forward) in enumerate(zip(nodes.tolist(), ops.tolist(), strict=False), start=1):
            for phase, row in (("s", forward), ("f", node)):
                yield self._flow(phase, number, *self._cpu(int(rows.range_thread[row])), starts[row], "fwdbwd")

    def _sync_events(self) -> Iterator[str]:
        """The rows of enable_cuda_sync_events: waits drawn on stream rows."""
        rows, identity = self.rows, self.identity
        place = {row: i for i, row in enumerate(rows.call_row.tolist())}
        names = {"wait": "Stream Wait Event", "stream": "Stream Sync", "event": "Event Sync", "device": "Context Sync"}
        for found in self.host.stream_rows:
            i = place.get(found.call)
            if i is None or found.kind not in names:
                continue
            name = names[found.kind]
            stream = identity.streams[found.stream] if found.stream >= 0 else -1
            link = int(self.external[rows.call_range[i]]) if rows.call_range[i] >= 0 else 0
            arguments: dict[str, Any] = ({"External id": link} if link else {}) | {"cuda_sync_kind": name}
            if found.event >= 0:
                record = place.get(found.record)
                source = next((r.stream for r in self.host.stream_rows if r.kind == "record" and r.call == found.record), -1)
                arguments |= {
                    "wait_on_stream": identity.streams[source] if source >= 0 else -1,
                    "wait_on_cuda_event_record_corr_id": int(self.correlation[record]) if record is not None else -1,
                    "wait_on_cuda_event_id": found.event % 100_000,
                }
            arguments |= {"stream": stream, "correlation": int(self.correlation[i]), "device": identity.device, "context": identity.context}
            begin, end = int(rows.call_start[i]), int(rows.call_end[i])
            ts, dur = self._text(np.array([begin - self.base]))[0], self._length(np.array([begin]), np.array([end]))[0]
            yield _complete(self._head("cuda_sync", name, identity.device, stream), ts, dur, json.dumps(arguments)[1:-1])

    def _projected(self) -> Iterator[str]:
        """gpu_user_annotation: per stream the hull of the GPU work launched in a range from its own thread, 1 ns wider at each side."""
        rows, library = self.rows, self.run.library
        kinds = np.isin(np.array([r.kind for r in library.ranges]), ("annotation", "step"))
        launched = rows.call >= 0
        launch = np.where(launched, rows.call_start[rows.call], -1)
        thread = np.where(launched, rows.call_thread[rows.call], -1)
        order = np.argsort(launch, kind="stable")
        sorted_launch = launch[order]
        for r in np.flatnonzero(kinds[rows.range_name]).tolist():
            low, high = np.searchsorted(sorted_launch, (rows.range_start[r], rows.range_end[r]))
            mine = order[low:high]
            mine = mine[thread[mine] == rows.range_thread[r]]
            for stream in np.unique(rows.stream[mine]).tolist():
                on = mine[rows.stream[mine] == stream]
                begin, end = rows.start[on].min() - 1, rows.end[on].max() + 1
                name, kind = library.ranges[int(rows.range_name[r])]
                text = self.capture.step_name(self.run.job.step_range, name) if kind == "step" else name
                ts, dur = self._text(np.array([begin - self.base]))[0], self._length(np.array([begin]), np.array([end]))[0]
                head = self._head("gpu_user_annotation", text, *self._gpu(stream))
                yield _complete(head, ts, dur, f'"External id": {self.external[r]}')

    def _metadata(self) -> Iterator[str]:
        """Names of processes and threads, the capture's own span."""
        window = np.array(self.rows.window)
        begin, end = self._text(window - self.base)
        dur = self._length(window[:1], window[1:])[0]

        def meta(name: str, pid: object, tid: object, value: dict[str, Any]) -> str:
            where = f'"pid": {json.dumps(pid)}, "tid": {json.dumps(tid)}'
            return f'  {{\n    "name": "{name}", "ph": "M", "ts": {begin}, {where},\n    "args": {json.dumps(value)}\n  }}'

        pid = self.identity.pid
        yield meta("process_name", pid, 0, {"name": "python3"})
        yield meta("process_labels", pid, 0, {"labels": "CPU"})
        yield meta("process_sort_index", pid, 0, {"sort_index": pid})
        for gpu in range(16 if not self.old else 8):
            yield meta("process_name", gpu, 0, {"name": "python3"})
            yield meta("process_labels", gpu, 0, {"labels": f"GPU {gpu}"})
            yield meta("process_sort_index", gpu, 0, {"sort_index": 5_000_000 + gpu})
        for stream in np.unique(self.rows.stream).tolist():
            device, tid = self._gpu(stream)
            yield meta("thread_name", device, tid, {"name": f"stream {self.identity.streams[stream]} "})
            yield meta("thread_sort_index", device, tid, {"sort_index": self.identity.streams[stream]})
        for thread in np.unique(np.concatenate((self.rows.call_thread, self.rows.range_thread))).tolist():
            process, tid = self._cpu(thread)
            yield meta("thread_name", process, tid, {"name": f"thread {tid} ({self.identity.thread_names[thread]})"})
            yield meta("thread_sort_index", process, tid, {"sort_index": self.identity.tids[thread]})
        spans = "Traces" if self.old else "Spans"
        if not self.old:
            yield meta("process_sort_index", spans, 0, {"sort_index": 536_870_912})
        yield (
            f'  {{\n    "ph": "X", "cat": "Trace", "ts": {begin}, "dur": {dur},\n    "pid": "{spans}", "tid": "PyTorch Profiler",\n'
            f'    "name": "PyTorch Profiler (0)",\n    "args": {{\n      "Op count": 0\n    }}\n  }}'
        )
        yield (
            f'  {{\n    "name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g",\n    "pid": "Traces", '
            f'"tid": "Trace PyTorch Profiler", "ts": {begin}\n  }}'
        )
        if not self.old:
            yield f'  {{\n    "name": "Record Window End", "ph": "i", "s": "g",\n    "pid": "", "tid": "", "ts": {end}\n  }}'
