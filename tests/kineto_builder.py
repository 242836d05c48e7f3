"""A small builder of PyTorch traces for tests: events in ns in, JSON text as the various torch versions write it out."""

from __future__ import annotations

import gzip
import json
import random
import re
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HOST_PID = 4000
MAIN = 4000
BASE_NS = 1_767_189_312_000_000_000

_EXACT = re.compile(r'"@(-?[0-9.eE+-]+)@"')


def exact(text: str) -> str:
    """A number that stands in the JSON exactly as written here."""
    return f"@{text}@"


def us(ns: int, decimals: bool = True) -> str:
    """The text of a time as Kineto writes it; without decimals as torch before 2.3 did."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    if not decimals:
        assert ns % 1000 == 0
        return exact(f"{sign}{ns // 1000}")
    return exact(f"{sign}{ns // 1000}.{ns % 1000:03d}")


@dataclass
class Kineto:
    """One capture. Times given to its methods are ns after `base_ns`; `text` writes it all out."""

    base_ns: int = BASE_NS
    era: str = "base"  # "base": relative with a base; "epoch": absolute with decimals; "us": absolute whole µs
    top: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)

    def time(self, ns: int) -> str:
        return us(ns if self.era == "base" else ns + self.base_ns, self.era != "us")

    def event(self, **fields: Any) -> dict[str, Any]:
        self.events.append(fields)
        return fields

    def complete(self, cat: str, name: str, start_ns: int, dur_ns: int, *, pid: Any, tid: Any, **args: Any) -> dict[str, Any]:
        times = {"ts": self.time(start_ns), "dur": us(dur_ns, self.era != "us")}
        return self.event(ph="X", cat=cat, name=name, pid=pid, tid=tid, **times, **({"args": args} if args else {}))

    def gpu(self, cat: str, name: str, start_ns: int, dur_ns: int, **args: Any) -> dict[str, Any]:
        args = {"device": 0, "stream": 7, "correlation": 0, **args}
        return self.complete(cat, name, start_ns, dur_ns, pid=args["device"], tid=args["stream"], **args)

    def kernel(self, name: str, start_ns: int, dur_ns: int, **args: Any) -> dict[str, Any]:
        return self.gpu("kernel", name, start_ns, dur_ns, **args)

    def memcpy(self, name: str, start_ns: int, dur_ns: int, **args: Any) -> dict[str, Any]:
        return self.gpu("gpu_memcpy", name, start_ns, dur_ns, **args)

    def memset(self, start_ns: int, dur_ns: int, **args: Any) -> dict[str, Any]:
        return self.gpu("gpu_memset", "Memset (Device)", start_ns, dur_ns, **args)

    def call(self, name: str, start_ns: int, dur_ns: int, *, correlation: int = 0, tid: Any = MAIN, pid: Any = HOST_PID) -> dict[str, Any]:
        return self.complete("cuda_runtime", name, start_ns, dur_ns, pid=pid, tid=tid, cbid=211, correlation=correlation)

    def op(self, name: str, start_ns: int, dur_ns: int, *, tid: Any = MAIN, pid: Any = HOST_PID, **args: Any) -> dict[str, Any]:
        return self.complete("cpu_op", name, start_ns, dur_ns, pid=pid, tid=tid, **args)

    def annotation(self, name: str, start_ns: int, dur_ns: int, *, tid: Any = MAIN, pid: Any = HOST_PID) -> dict[str, Any]:
        return self.complete("user_annotation", name, start_ns, dur_ns, pid=pid, tid=tid)

    def python(self, name: str, start_ns: int, dur_ns: int, *, tid: Any = MAIN, pid: Any = HOST_PID) -> dict[str, Any]:
        return self.complete("python_function", name, start_ns, dur_ns, pid=pid, tid=tid, **{"Python id": 1})

    def overhead(self, name: str, start_ns: int, dur_ns: int) -> dict[str, Any]:
        return self.complete("overhead", name, start_ns, dur_ns, pid=-1, tid=0)

    def wait_event(self, start_ns: int, *, stream: int, record: int, **args: Any) -> dict[str, Any]:
        args = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": record, "stream": stream, **args}
        return self.gpu("cuda_sync", "Stream Wait Event", start_ns, 1000, **args)

    def label(self, event_name: str, pid: Any, tid: Any, **args: Any) -> dict[str, Any]:
        return self.event(name=event_name, ph="M", ts=self.time(0), pid=pid, tid=tid, args=args)

    def flow(self, ph: str, number: int, start_ns: int) -> dict[str, Any]:
        return self.event(ph=ph, id=number, pid=HOST_PID, tid=MAIN, ts=self.time(start_ns), cat="ac2g", name="ac2g")

    def labels(self) -> None:
        """The metadata events of a usual trace: one host process, GPU rows, thread names."""
        self.label("process_name", HOST_PID, 0, name="python")
        self.label("process_labels", HOST_PID, 0, labels="CPU")
        self.label("process_name", 0, 0, name="python")
        self.label("process_labels", 0, 0, labels="GPU 0")
        self.label("thread_name", HOST_PID, MAIN, name=f"thread {MAIN} (pt_main_thread)")
        self.label("thread_name", 0, 7, name="stream 7 ")

    def span(self, start_ns: int, dur_ns: int) -> dict[str, Any]:
        return self.complete("Trace", "PyTorch Profiler (0)", start_ns, dur_ns, pid="Spans", tid="PyTorch Profiler", **{"Op count": 0})

    def text(self, layout: str = "kineto", form: str = "object", metadata: str = "first", seed: int = 0) -> bytes:
        """The file's bytes.

        Layouts: "kineto" as the profiler writes, "compact" one line, "indent" four spaces, "shuffled" with keys in any order.
        Metadata stands "first" or "last".
        """
        events, top = self.events, {"schemaVersion": 1, **self.top}
        if self.era == "base":
            top["baseTimeNanoseconds"] = self.base_ns
        if layout == "shuffled":
            rng = random.Random(seed)
            events = [{key: e[key] for key in rng.sample(list(e), len(e))} for e in events]
        if form == "list":
            whole: Any = events
        elif metadata == "first":
            whole = {**top, "traceEvents": events}
        else:
            whole = {"traceEvents": events, **top}
        if layout == "kineto":
            marker = "@@events@@"
            shell = json.dumps(marker if form == "list" else {**whole, "traceEvents": marker}, indent=2)
            body = ",\n".join("  {\n" + ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in e.items()) + "\n  }" for e in events)
            text = "\n" + shell.replace(f'"{marker}"', f"[\n{body}\n  ]")
        elif layout == "compact":
            text = json.dumps(whole, separators=(",", ":"))
        else:
            text = json.dumps(whole, indent=4 if layout == "indent" else None)
        return _EXACT.sub(r"\1", text).encode()

    def write(self, path: Path, packing: str = "plain", **how: Any) -> Path:
        """Writes the file, "plain", "gzip", "members" (gzip in two) or "zip", and returns its path."""
        text = self.text(**how)
        if packing == "gzip":
            path.write_bytes(gzip.compress(text))
        elif packing == "members":
            path.write_bytes(gzip.compress(text[: len(text) // 2]) + gzip.compress(text[len(text) // 2 :]))
        elif packing == "zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("trace.json", text)
        else:
            path.write_bytes(text)
        return path


def two_steps(era: str = "base") -> Kineto:
    """Two training steps with an op, launches, a copy, waits, Python frames and profiler rows; every kind of row is in it."""
    k = Kineto(era=era)
    k.top = {
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, "numSms": 132}],
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "nccl_version": "2.27.5"},
        "cuda_runtime_version": 12040,
        "cuda_driver_version": 13000,
        "cupti_version": 22,
        "host_name": "node17",
        "trace_id": "77C6",
    }
    for step in range(2):
        t = step * 1_000_000
        k.annotation(f"ProfilerStep#{step + 5}", t, 900_000)
        k.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t + 10_000, 90_000)
        k.python("train.py(41): main", t + 1_000, 880_000)
        k.op("aten::mm", t + 100_000, 50_000, **{"External id": step, "Input Dims": [[64, 32], [32, 16]]})
        k.call("cudaLaunchKernel", t + 110_000, 8_000, correlation=10 * step + 1)
        k.flow("s", 10 * step + 1, t + 110_000)
        k.kernel('ampere_sgemm<"f32"> {lambda(float)#1}', t + 130_000, 300_000, correlation=10 * step + 1)
        k.flow("f", 10 * step + 1, t + 130_000)
        k.call("cudaMemcpyAsync", t + 160_000, 9_000, correlation=10 * step + 2)
        k.memcpy("Memcpy HtoD (Pageable -> Device)", t + 450_000, 20_000, correlation=10 * step + 2, bytes=4096)
        k.call("cudaMemsetAsync", t + 170_000, 3_000, correlation=10 * step + 3)
        k.memset(t + 480_000, 2_000, correlation=10 * step + 3, bytes=512)
        k.wait_event(t + 200_000, stream=20, correlation=10 * step + 4, record=10 * step + 1)
        k.op("record_param_comms", t + 210_000, 30_000, **{"Collective name": "allreduce", "Comms Id": 10159970886766084423})
        k.complete("gpu_user_annotation", "ProfilerStep#5", t + 120_000, 800_000, pid=0, tid=7, stream=7)
        k.overhead("Activity Buffer Request", t + 300_000, 40_000)
        k.event(name="[memory]", ph="i", s="t", ts=k.time(t + 320_000), pid=HOST_PID, tid=MAIN, args={"Bytes": 512})
    k.labels()
    k.span(0, 2_000_000)
    return k
