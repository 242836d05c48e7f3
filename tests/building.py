"""Hand-built traces: rows are added by name, ids and codes are kept here."""

from pathlib import Path

import numpy as np

from traceread.categories.host import HostNames
from traceread.measurements.idle import explain_idle
from traceread.measurements.launches import find_launches
from traceread.measurements.partition import divide, find_busy
from traceread.measurements.steps import StepOptions, find_steps
from traceread.model import (
    Activities,
    ActivityKind,
    Calls,
    Capability,
    Category,
    CopyKind,
    Device,
    RangeKind,
    Ranges,
    StreamWaits,
    Thread,
    Trace,
)

US = 1_000
MS = 1_000_000


class Build:
    def __init__(self):
        self.names = {}
        self.threads = {}
        self.activities, self.calls, self.ranges, self.waits = [], [], [], []
        self.next_id = 1

    def code(self, name):
        return self.names.setdefault(name, len(self.names))

    def thread(self, tid):
        return self.threads.setdefault(tid, len(self.threads))

    def activity(
        self,
        start,
        end,
        kind=ActivityKind.KERNEL,
        *,
        stream=7,
        correlation=0,
        name="gemm",
        category=Category.COMPUTE,
        copy_kind=CopyKind.UNKNOWN,
        pageable=-1,
        node=0,
        size=-1,
    ):
        self.activities.append((start, end, kind, 0, stream, correlation, self.code(name), size, copy_kind, pageable, node, category, 0, 0))
        return self

    def kernel(self, start, end, *, launch=None, thread=1, call="cudaLaunchKernel", **more):
        """A kernel, with the call that launches it at (start, end) if `launch` is given."""
        correlation = more.pop("correlation", 0)
        if launch is not None:
            correlation = self.next_id
            self.next_id += 1
            self.call(*launch, call, thread=thread, correlation=correlation)
        return self.activity(start, end, correlation=correlation, **more)

    def copy(self, start, end, kind=CopyKind.HOST_TO_DEVICE, **more):
        more.setdefault("call", "cudaMemcpyAsync")
        return self.kernel(start, end, kind=ActivityKind.MEMCPY, copy_kind=kind, category=Category.COPY, name="Memcpy", **more)

    def call(self, start, end, name, *, thread=1, correlation=0):
        self.calls.append((start, end, self.thread(thread), self.code(name), correlation))
        return self

    def range(self, start, end, name, kind=RangeKind.ANNOTATION, *, thread=1, open=0):
        self.ranges.append((start, end, self.thread(thread), self.code(name), kind, open))
        return self

    def op(self, start, end, name="aten::mm", *, thread=1):
        return self.range(start, end, name, RangeKind.OP, thread=thread)

    def trace(self, rank=0, **more):
        activities = sorted(self.activities, key=lambda r: r[:2])
        calls = sorted(self.calls, key=lambda r: (r[0], -r[1]))
        ranges = sorted(self.ranges, key=lambda r: (r[0], -r[1]))
        fields = {
            "rank": rank,
            "rank_source": "order",
            "source": "kineto",
            "files": (Path("built.json"),),
            "device": Device(0, "Test GPU"),
            "host": None,
            "pid": 1,
            "world_size": None,
            "names": list(self.names),
            "threads": tuple(Thread(1, tid) for tid in self.threads),
            "activities": Activities.from_rows(activities),
            "calls": Calls.from_rows(calls),
            "ranges": Ranges.from_rows(ranges),
            "stream_waits": StreamWaits.from_rows([(*wait, -1)[:5] for wait in self.waits]),
            "recorded": frozenset(Capability),
        }
        return Trace(**(fields | more))


def analyse(trace, pattern=None, micro_steps=1, host_names=None):
    host_names = host_names or HostNames()
    launches = find_launches(trace)
    steps = find_steps(trace, launches, StepOptions(pattern, micro_steps), host_names)
    busy = find_busy(trace)
    idle = explain_idle(trace, launches, steps, busy.any, host_names)
    return launches, steps, busy, idle, divide(steps, busy, idle)


def class_times(trace, **more):
    """One dict of non-zero class times per window."""
    from traceread.measurements.classes import CLASSES

    partition = analyse(trace, **more)[-1]
    return [{name: ns for name, ns in zip(CLASSES, row.tolist(), strict=True) if ns} for row in partition.class_ns]


def arrays(*pairs):
    return np.array([p[0] for p in pairs], np.int64), np.array([p[1] for p in pairs], np.int64)
