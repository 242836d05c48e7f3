"""Traces of small training loops, written as the script would run: a host that launches, streams that execute in order."""

from contextlib import contextmanager

from building import MS, US, Build

from traceread.categories import Patterns, classify
from traceread.categories.host import HostNames
from traceread.measurements.evidence import name_idle
from traceread.measurements.host_time import host_rows
from traceread.measurements.kernels import sum_kernels
from traceread.model import (
    NOT_RECORDED,
    ActivityKind,
    Capability,
    CollectiveRecords,
    CopyKind,
    Device,
    Operation,
    Profile,
    RangeKind,
)
from traceread.report import AnalysisOptions, analyze_profile
from traceread.rules import Facts

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int, float)"
NORM = "void at::native::vectorized_layer_norm_kernel<float, float>(int)"
SOFTMAX = "void softmax_warp_forward<float, float, float, 10, false>(float*)"
SGEMM = "ampere_sgemm_128x64_tn"
ADAM = "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4> >(float)"
CAST = "void at::native::unrolled_elementwise_kernel<bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
NCCL = "ncclDevKernel_{}_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_REDUCE, REDUCE_SCATTER = NCCL.format("AllReduce"), NCCL.format("ReduceScatter")
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
BROADCAST = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
BACKWARD = "autograd::engine::evaluate_function: MmBackward0"
LOADER = "enumerate(DataLoader)#_{}DataLoaderIter.__next__"
A100 = Device(0, "NVIDIA A100-SXM4-80GB", 80 << 30, 108)

LATENCY, PAUSE, RETURN = 4 * US, 1 * US, 5 * US
BETWEEN = 5 * US


class Script:
    """Runs a loop and records it. Times are ns; one host thread runs at a time."""

    def __init__(self, *, call=4 * US):
        self.b = Build()
        self.now = 100 * US
        self.thread = 1
        self.tail = {}
        self.begun = None
        self.call_ns = call
        self.collectives = []

    # The loop

    def steps(self, count, body, first=3):
        """Runs `body(self, number)` so many times, each in a ProfilerStep."""
        for number in range(first, first + count):
            begin = self.now
            body(self, number)
            self.b.range(begin, self.now, f"ProfilerStep#{number}", thread=1)
            self.now += 10 * US
        return self

    @contextmanager
    def inside(self, name, kind=RangeKind.ANNOTATION):
        begin, thread = self.now, self.thread
        yield self
        self.b.range(begin, self.now, name, kind, thread=thread)

    @contextmanager
    def on(self, thread):
        """Another thread goes on while this one waits for it."""
        before, self.thread = self.thread, thread
        self.now += 20 * US
        yield self
        self.thread = before
        self.now += 20 * US

    def host(self, ns):
        self.now += ns
        return self

    def launch(
        self,
        ns,
        name=GEMM,
        *,
        stream=7,
        op="aten::mm",
        call="cudaLaunchKernel",
        call_ns=None,
        after=(),
        between=BETWEEN,
        blocks=False,
        **more,
    ):
        """A kernel of `ns`, launched from an op, that also waits for the streams in `after`; a call that `blocks` ends after it."""
        begin = self.now
        called = begin + 2 * US
        returned = called + (call_ns or self.call_ns)
        start = max([returned - self.call_ns + LATENCY, *(self.tail[s] + PAUSE for s in (stream, *after) if s in self.tail)])
        returned = max(returned, start + ns + 2 * US) if blocks else returned
        self.b.kernel(start, start + ns, launch=(called, returned), thread=self.thread, call=call, name=name, stream=stream, **more)
        self.tail[stream] = start + ns
        self.now = returned + 1 * US
        if op:
            self.b.op(begin, self.now, op, thread=self.thread)
        self.now += between
        return self

    def copy(self, ns, kind=CopyKind.HOST_TO_DEVICE, *, size=1 << 20, pageable=0, stream=7, blocks=False, op="aten::copy_", after=()):
        """A copy; one that blocks returns when it is done."""
        begin = self.now
        called = begin + 2 * US
        start = max([called + LATENCY, *(self.tail[s] + PAUSE for s in (stream, *after) if s in self.tail)])
        returned = start + ns + RETURN if blocks else called + self.call_ns
        self.b.copy(start, start + ns, kind, launch=(called, returned), thread=self.thread, size=size, pageable=pageable, stream=stream)
        self.tail[stream] = start + ns
        self.now = returned + 1 * US
        if op:
            self.b.op(begin, self.now, op, thread=self.thread)
        self.now += BETWEEN
        return self

    def sync(self, call="cudaStreamSynchronize", *, stream=7, op=None):
        """A call that waits for a stream, or for all of them (stream=None)."""
        ends = list(self.tail.values()) if stream is None else [self.tail.get(stream, 0)]
        begin = self.now
        end = max([begin + 2 * US, *(e + RETURN for e in ends)])
        self.b.call(begin, end, call, thread=self.thread)
        if op:
            self.b.op(begin - 1 * US, end + 1 * US, op, thread=self.thread)
        self.now = end + 2 * US
        return self

    def item(self):
        """tensor.item(): a small copy and a synchronisation."""
        begin = self.now
        self.now += 1 * US
        self.copy(1 * US, CopyKind.DEVICE_TO_HOST, size=4, op="aten::_local_scalar_dense")
        self.sync()
        self.b.op(begin, self.now, "aten::item", thread=self.thread)
        self.now += 1 * US
        return self

    def call(self, ns, name, op=None):
        """A call that takes its time."""
        self.b.call(self.now, self.now + ns, name, thread=self.thread)
        if op:
            self.b.op(self.now - 1 * US, self.now + ns + 1 * US, op, thread=self.thread)
        self.now += ns + 2 * US
        return self

    def collective(self, ns, name=ALL_REDUCE, *, operation=None, stream=20, after=(7,), wait=True, **more):
        """A collective that waits for the compute stream; with `wait` the compute stream waits for it."""
        begin = self.now
        self.launch(ns, name, stream=stream, after=after, op=None, call="cudaLaunchKernelExC", **more)
        if operation is not None:
            self.collectives.append((begin, self.now, self.thread, operation))
        if wait:
            self.tail[7] = max(self.tail.get(7, 0), self.tail[stream])
        return self

    # What comes out

    def trace(self, rank=0, **more):
        rows = [
            (s, e, self.b.thread(t), NOT_RECORDED, op, NOT_RECORDED, NOT_RECORDED, 0, *(NOT_RECORDED,) * 8)
            for s, e, t, op in self.collectives
        ]
        fields = {"device": A100, "collective_records": CollectiveRecords.from_rows(rows)} | more
        return classify(self.b.trace(rank, **fields), Patterns.load())

    def facts(self, **more):
        return facts_of(self.trace(**more))

    def report(self, **more):
        return analyze_profile(Profile("kineto", "script", (self.trace(**more),)), AnalysisOptions())


def facts_of(trace):
    from building import analyse

    launches, steps, busy, idle, partition = analyse(trace)
    rows = host_rows(trace, launches, HostNames())
    return Facts(trace, launches, steps, partition, busy, idle, name_idle(trace, steps, idle), sum_kernels(trace, steps, busy), rows)


def without(*capabilities):
    return frozenset(Capability) - set(capabilities)


__all__ = [
    "ADAM", "ADD", "ALL_GATHER", "ALL_REDUCE", "BACKWARD", "BROADCAST", "CAST", "GEMM", "LOADER", "MS", "NORM", "REDUCE_SCATTER",
    "SEND_RECV", "SGEMM", "SOFTMAX", "US", "ActivityKind", "CopyKind", "Operation", "RangeKind", "Script", "facts_of", "without",
]  # fmt: skip
