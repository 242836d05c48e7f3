"""Hand-built timelines: a few rows each, and the class times an expert would name, worked out from the time model.

`TIMELINES` is the table. Times are ns from a common zero. `write` turns the rows of one timeline into a capture of either
format, `page` turns the table into docs/idle-causes.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kineto_builder import HOST_PID, Kineto
from nsys_builder import NsysExport

from traceread.measurements.classes import CLASSES, StepClass

# Host threads, main first. The helper pins memory; the watchdog is NCCL's.
MAIN, AUTOGRAD, HELPER, WATCHDOG = "python", "pt_autograd_0", "pt_pin_memory", "pt_nccl_watchdg"
THREADS = (MAIN, AUTOGRAD, HELPER, WATCHDOG)

GEMM = "ampere_sgemm_128x64_tn"
TRITON = "triton_poi_fused_relu_0"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
FUSED = "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<8>(int)"
DATALOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
NEXT_FRAME = "torch/utils/data/dataloader.py(701): __next__"


@dataclass(frozen=True)
class Row:
    """One recorded row. `by` is start and end of the call that launched it, `call` that call's name, None if not recorded."""

    what: str
    start: int
    end: int
    name: str = ""
    thread: str = MAIN
    stream: int = 7
    by: tuple[int, int] | None = None
    call: str = ""
    driver: tuple[int, int] | None = None  # a driver call inside the runtime call, with the same correlation id
    direction: str = ""  # of a copy
    memory: str = ""  # host side of a copy
    spans: tuple[tuple[int, int], ...] = ()  # nodes of a graph
    record: tuple[int, int] = (0, 0)  # the call that recorded the event waited for
    record_stream: int = 7


def kernel(start, end, by=None, name=GEMM, *, thread=MAIN, stream=7, call="cudaLaunchKernel", driver=None):
    return Row("kernel", start, end, name, thread, stream, by, call, driver)


def copy(start, end, by=None, direction="HtoD", memory="pinned", *, thread=MAIN, stream=7, call="cudaMemcpyAsync"):
    return Row("copy", start, end, "", thread, stream, by, call, direction=direction, memory=memory)


def memset(start, end, by=None, *, stream=7):
    return Row("memset", start, end, "", MAIN, stream, by, "cudaMemsetAsync")


def graph_nodes(by, *spans):
    """One cudaGraphLaunch and the kernels of the graph, recorded one by one."""
    return Row("graph_nodes", spans[0][0], spans[-1][1], GEMM, by=by, call="cudaGraphLaunch", spans=spans)


def whole_graph(start, end, by):
    """One cudaGraphLaunch, recorded as one row."""
    return Row("graph", start, end, by=by, call="cudaGraphLaunch")


def call(start, end, name, thread=MAIN):
    return Row("call", start, end, name, thread)


def op(start, end, name="aten::mm", thread=MAIN):
    return Row("op", start, end, name, thread)


def annotation(start, end, name, thread=MAIN):
    """A record_function or NVTX range."""
    return Row("annotation", start, end, name, thread)


def frame(start, end, name):
    return Row("frame", start, end, name)


def os_call(start, end, name):
    return Row("os", start, end, name)


def profiler(start, end, name="Buffer Flush", thread=HELPER):
    return Row("profiler", start, end, name, thread)


def loading(start, end, name="Lazy Function Loading", thread=MAIN):
    """The profiler saw code being loaded, or a launch queue that was full."""
    return Row("loading", start, end, name, thread)


def stream_wait(start, end, *, stream, record, record_stream):
    """cudaStreamWaitEvent on `stream` for an event that a call at `record` recorded on another."""
    return Row("stream_wait", start, end, "cudaStreamWaitEvent", stream=stream, record=record, record_stream=record_stream)


def sync_row(start, end, *, stream=7):
    """The row that says a stream was synchronised, drawn on the stream; the call has a row of its own."""
    return Row("sync", start, end, "Stream Sync", stream=stream)


def gpu_annotation(start, end, name):
    return Row("gpu_annotation", start, end, name)


def _unwritable(row: Row) -> dict[str, str]:
    """Formats that have no such row, with the reason."""
    if row.what == "frame":
        return {"nsys": "Nsight Systems exports hold no Python frames"}
    if row.what == "gpu_annotation":
        return {"nsys": "only PyTorch draws ranges on GPU tracks"}
    if "hip" in (row.call[:3], row.name[:3]):
        return {"nsys": "Nsight Systems does not record HIP"}
    if row.what == "os":
        return {"kineto": "PyTorch does not record calls into the operating system"}
    if row.what == "graph":
        return {"kineto": "PyTorch records graphs node by node"}
    if row.what == "loading" and row.name.startswith("dlopen"):
        return {"kineto": "PyTorch does not record dlopen"}
    if row.what == "loading" and row.thread != MAIN:
        return {"kineto": "PyTorch does not say which thread loaded code"}
    return {}


@dataclass(frozen=True)
class Timeline:
    """Rows, and what an expert says about them.

    Attributes:
        name: unique, in the words of the cause.
        section: the heading it stands under in the docs.
        says: what the rows say, in a sentence.
        verdict: what an expert calls it.
        rows: the rows.
        windows: label and class times in ns of every window, in order; classes that are not named are zero.
        recorded: classes whose idle time must be all read off rows (True) or all inferred (False).
        named: classes and a name that must stand in their evidence.
        hidden: communication and copies in ns that run beside other work, summed over the windows.
    """

    name: str
    section: str
    says: str
    verdict: str
    rows: tuple[Row, ...]
    windows: tuple[tuple[str, dict[str, int]], ...]
    recorded: dict[str, bool] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    hidden: tuple[int, int] = (0, 0)

    def unwritable(self, source: str) -> str:
        """Why this format cannot record the rows, "" if it can."""
        return next((why for row in self.rows for form, why in _unwritable(row).items() if form == source), "")


SECTIONS = {
    "launch": "The launch call was running",
    "queued": "The work was already queued",
    "unknown": "The launch is not recorded",
    "sync": "The host waited for the GPU",
    "fetch": "The host waited for data",
    "checkpoint": "The host wrote a checkpoint",
    "peers": "The host waited for its peers",
    "memory": "The host managed memory",
    "compile": "The host compiled or loaded code",
    "silence": "Nothing is recorded on the host",
    "threads": "Which thread counts",
    "profiler": "The profiler itself",
    "busy": "What keeps the GPU busy, and what only seems to",
    "ties": "What ends a gap",
    "steps": "Gaps and step boundaries",
}

TIMELINES: list[Timeline] = []


def add(section, name, says, verdict, rows, *, windows=None, recorded=None, named=None, hidden=(0, 0), **times):
    """Adds a timeline; `times` are those of its only window, the whole capture."""
    windows = windows or (("whole capture", times),)
    TIMELINES.append(Timeline(name, section, says, verdict, tuple(rows), windows, recorded or {}, named or {}, hidden))


A = kernel(0, 100_000, (-20_000, -15_000))
"""The work most timelines begin with: 100 µs, after which the GPU runs dry."""

# --- the launch call was running ------------------------------------------------------------------------------------------

add(
    "launch", "launch-latency",
    "The launch call is running when the GPU runs dry; the kernel starts 8 µs later.",
    "launch-bound: launch latency",
    [A, kernel(108_000, 158_000, (98_000, 104_000))],
    compute=150_000, launch_bound=8_000,
)  # fmt: skip
add(
    "launch", "launched-late",
    "The launch call begins 50 µs after the GPU ran dry. The host does nothing else that is recorded.",
    "launch-bound: the host was slower than the GPU",
    [A, kernel(160_000, 210_000, (150_000, 156_000))],
    compute=150_000, launch_bound=60_000,
)  # fmt: skip
add(
    "launch", "slow-launch-call",
    "A launch call takes 3 ms. The kernel has run before, so no code had to be loaded.",
    "launch-bound: slow call",
    [A, kernel(3_090_000, 3_140_000, (95_000, 3_095_000))],
    compute=150_000, launch_bound=2_990_000,
)  # fmt: skip
add(
    "launch", "first-launch-loads-code",
    "The same call of 3 ms, but this kernel runs for the first time.",
    "compile, inferred: CUDA loads a kernel's code at its first launch",
    [A, kernel(3_090_000, 3_140_000, (95_000, 3_095_000), TRITON)],
    compute=150_000, compile=2_990_000, recorded={"compile": False},
)  # fmt: skip
add(
    "launch", "first-launch-loads-code-recorded",
    "As before, and the profiler saw the loading.",
    "compile, recorded",
    [A, kernel(3_090_000, 3_140_000, (95_000, 3_095_000), TRITON), loading(95_000, 3_095_000)],
    compute=150_000, compile=2_990_000, recorded={"compile": True},
)  # fmt: skip
add(
    "launch", "first-launch-of-one-millisecond",
    "A first launch takes exactly 1 ms: that is not over 1 ms.",
    "launch-bound: launch latency",
    [A, kernel(1_090_000, 1_140_000, (95_000, 1_095_000), TRITON)],
    compute=150_000, launch_bound=990_000,
)  # fmt: skip
add(
    "launch", "first-launch-by-another-thread",
    "A launch call takes 3 ms. The kernel's first launch was quick and came from another thread of the process.",
    "launch-bound: slow call",
    [
        A,
        kernel(100_000, 130_000, (-10_000, -5_000), TRITON, thread=AUTOGRAD),
        kernel(3_115_000, 3_165_000, (120_000, 3_120_000), TRITON),
    ],
    compute=180_000, launch_bound=2_985_000,
)  # fmt: skip
add(
    "launch", "first-launch-then-latency",
    "A first launch takes 3 ms and the kernel starts 10 µs after the call returned.",
    "compile for the call, then launch-bound: launch latency",
    [A, kernel(3_105_000, 3_155_000, (95_000, 3_095_000), TRITON)],
    compute=150_000, compile=2_995_000, launch_bound=10_000,
)  # fmt: skip
add(
    "launch", "first-launch-that-begins-late",
    "The host reaches a first launch of 3 ms only 40 µs after the GPU ran dry.",
    "launch-bound until the call, compile inside it",
    [A, kernel(3_135_000, 3_185_000, (140_000, 3_140_000), TRITON)],
    compute=150_000, launch_bound=40_000, compile=2_995_000,
)  # fmt: skip
add(
    "launch", "runtime-and-driver-call",
    "A first launch is recorded twice under one id: 2 ms as runtime call, 10 µs as the driver call inside it.",
    "compile: the launch is both calls together",
    [A, kernel(2_094_000, 2_144_000, (95_000, 2_095_000), TRITON, driver=(2_080_000, 2_090_000))],
    compute=150_000, compile=1_994_000,
)  # fmt: skip
add(
    "launch", "slow-asynchronous-copy",
    "The first cudaMemcpyAsync, from pinned memory, takes 3 ms to return.",
    "launch-bound: slow call; only kernels load code, and a pinned copy does not block",
    [A, copy(3_090_000, 3_190_000, (95_000, 3_095_000))],
    compute=100_000, exposed_copy=100_000, launch_bound=2_990_000,
)  # fmt: skip
add(
    "launch", "full-launch-queue",
    "The launch call waits for room in the launch queue; the profiler writes that down.",
    "launch-bound: that row is about the queue, not about the profiler or about code",
    [A, kernel(395_000, 445_000, (95_000, 400_000)), loading(96_000, 390_000, "Command Buffer Full")],
    compute=150_000, launch_bound=295_000,
)  # fmt: skip
add(
    "launch", "graph-launched-late",
    "The graph is launched just before the GPU runs dry; its first node starts 48 µs later.",
    "launch-bound: launch latency of the graph",
    [A, graph_nodes((95_000, 150_000), (148_000, 178_000), (178_000, 198_000))],
    compute=150_000, launch_bound=48_000,
)  # fmt: skip

# --- the work was already queued ------------------------------------------------------------------------------------------


def queued(last_gap, *more, last_stream=7, gap=2_000):
    """Four kernels launched long before they run, 2 µs apart; a fifth after `last_gap`. The queue runs dry at 136 µs."""
    start = 136_000 + last_gap
    return [
        A,
        kernel(102_000, 112_000, (20_000, 22_000)),
        kernel(114_000, 124_000, (23_000, 25_000)),
        kernel(126_000, 136_000, (26_000, 28_000)),
        kernel(start, start + 50_000, (33_000, 36_000), stream=last_stream),
        *more,
    ]


add(
    "queued", "dispatch",
    "The next kernel was launched 75 µs before the GPU ran dry and starts after 3 µs.",
    "queued: dispatch between two kernels",
    [A, kernel(103_000, 153_000, (20_000, 25_000))],
    compute=150_000, queued=3_000,
)  # fmt: skip
add(
    "queued", "queued-without-a-cause",
    "The same, but after three gaps of 2 µs one of 100 µs, and no row says what the kernel waited for.",
    "queued for the short gaps; unattributed: cause not recorded",
    queued(100_000),
    compute=180_000, queued=6_000, unattributed=100_000,
)  # fmt: skip
add(
    "queued", "queued-while-the-host-waits-for-data",
    "The same, while the main thread waits in the DataLoader.",
    "as before: what the host does cannot hold back work that is already queued",
    queued(100_000, annotation(90_000, 240_000, DATALOADER)),
    compute=180_000, queued=6_000, unattributed=100_000,
)  # fmt: skip
add(
    "queued", "five-microseconds-are-dispatch",
    "Queued gaps of 1, 1, 1, 5 and 5.001 µs.",
    "queued up to 5 µs, whatever is usual in the capture; the last one is unattributed",
    [
        A,
        kernel(101_000, 111_000, (20_000, 21_000)),
        kernel(112_000, 122_000, (22_000, 23_000)),
        kernel(123_000, 133_000, (24_000, 25_000)),
        kernel(138_000, 148_000, (26_000, 27_000)),
        kernel(153_001, 203_001, (28_000, 29_000)),
    ],
    compute=190_000, queued=8_000, unattributed=5_001,
)  # fmt: skip
add(
    "queued", "three-medians-are-dispatch",
    "Queued gaps of 4, 4, 4, 12 and 12.001 µs.",
    "queued up to three times the usual 4 µs; the last one is unattributed",
    [
        A,
        kernel(104_000, 114_000, (20_000, 21_000)),
        kernel(118_000, 128_000, (22_000, 23_000)),
        kernel(132_000, 142_000, (24_000, 25_000)),
        kernel(154_000, 164_000, (26_000, 27_000)),
        kernel(176_001, 226_001, (28_000, 29_000)),
    ],
    compute=190_000, queued=24_000, unattributed=12_001,
)  # fmt: skip
add(
    "queued", "a-hundred-microseconds-are-no-dispatch",
    "Queued gaps of 100, 100, 100, 100 and 100.001 µs.",
    "queued up to 100 µs however usual they are; the last one is unattributed",
    [
        A,
        kernel(200_000, 210_000, (20_000, 21_000)),
        kernel(310_000, 320_000, (22_000, 23_000)),
        kernel(420_000, 430_000, (24_000, 25_000)),
        kernel(530_000, 540_000, (26_000, 27_000)),
        kernel(640_001, 690_001, (28_000, 29_000)),
    ],
    compute=190_000, queued=400_000, unattributed=100_001,
)  # fmt: skip


def after_a_collective(*more, e=(33_000, 36_000)):
    """As `queued(50_000)`, but the last thing before the gap is an all-reduce on stream 20."""
    return [
        A,
        kernel(102_000, 112_000, (20_000, 22_000)),
        kernel(114_000, 124_000, (23_000, 25_000)),
        kernel(126_000, 136_000, (26_000, 28_000), NCCL, stream=20),
        kernel(186_000, 236_000, e),
        *more,
    ]


add(
    "queued", "stream-wait-recorded",
    "A queued kernel starts 50 µs after an all-reduce ended; its stream was told to wait for the all-reduce.",
    "queued: dependency",
    after_a_collective(stream_wait(31_000, 32_000, stream=7, record=(29_000, 30_000), record_stream=20)),
    compute=170_000, exposed_communication=10_000, queued=56_000,
)  # fmt: skip
add(
    "queued", "stream-wait-on-another-stream",
    "The same, but it is a third stream that was told to wait.",
    "unattributed: nothing says what this kernel waited for",
    after_a_collective(stream_wait(31_000, 32_000, stream=13, record=(29_000, 30_000), record_stream=20)),
    compute=170_000, exposed_communication=10_000, queued=6_000, unattributed=50_000,
)  # fmt: skip
add(
    "queued", "stream-wait-after-the-kernel",
    "The same, but the wait stands behind the kernel in its stream.",
    "unattributed: a wait holds back what comes after it",
    after_a_collective(stream_wait(41_000, 42_000, stream=7, record=(29_000, 30_000), record_stream=20)),
    compute=170_000, exposed_communication=10_000, queued=6_000, unattributed=50_000,
)  # fmt: skip
add(
    "queued", "stream-wait-of-an-earlier-kernel",
    "The same, but another kernel stands between the wait and this one in the stream, and has run.",
    "unattributed: that wait was over before",
    [
        A,
        kernel(102_000, 112_000, (20_000, 22_000), NCCL, stream=20),
        stream_wait(23_500, 24_000, stream=7, record=(22_500, 23_000), record_stream=20),
        kernel(114_000, 124_000, (24_500, 25_000)),
        kernel(126_000, 136_000, (26_000, 28_000)),
        kernel(186_000, 236_000, (33_000, 36_000)),
    ],
    compute=170_000, exposed_communication=10_000, queued=6_000, unattributed=50_000,
)  # fmt: skip
add(
    "queued", "host-function-in-the-stream",
    "The host put a function of its own into the stream just before the kernel.",
    "queued: dependency on the host function",
    after_a_collective(call(31_000, 32_000, "cudaLaunchHostFunc")),
    compute=170_000, exposed_communication=10_000, queued=56_000,
)  # fmt: skip
add(
    "queued", "host-function-behind-the-kernel",
    "The same, but the function stands behind the kernel.",
    "unattributed: it holds back what comes after it",
    after_a_collective(call(41_000, 42_000, "cudaLaunchHostFunc")),
    compute=170_000, exposed_communication=10_000, queued=6_000, unattributed=50_000,
)  # fmt: skip
add(
    "queued", "host-function-before-an-earlier-kernel",
    "The same, but another kernel stands between the function and this one, and has run.",
    "unattributed: the function was over before",
    queued(50_000, call(22_300, 22_700, "cudaLaunchHostFunc")),
    compute=180_000, queued=6_000, unattributed=50_000,
)  # fmt: skip
add(
    "queued", "queued-while-code-is-loaded",
    "A queued kernel starts after 100 µs; the profiler saw code being loaded all the while.",
    "compile: loading code holds back the GPU",
    queued(100_000, loading(130_000, 240_000)),
    compute=180_000, queued=6_000, compile=100_000,
)  # fmt: skip
add(
    "queued", "queued-while-code-is-loaded-for-a-part",
    "The same, but the loading ended 36 µs before the kernel started.",
    "compile while code was loaded; unattributed for the rest",
    queued(100_000, loading(130_000, 200_000)),
    compute=180_000, queued=6_000, compile=64_000, unattributed=36_000,
)  # fmt: skip
add(
    "queued", "queued-while-a-module-is-loaded",
    "A queued kernel starts after 100 µs; all the while the host is in a call that loads a module.",
    "compile: loading code holds back the GPU",
    queued(100_000, call(130_000, 240_000, "cuModuleLoadData")),
    compute=180_000, queued=6_000, compile=100_000,
)  # fmt: skip
add(
    "queued", "queued-after-a-module-was-loaded",
    "The same, but the call ended 36 µs before the GPU ran dry.",
    "unattributed: the loading was over",
    queued(100_000, call(50_000, 100_000, "cuModuleLoadData")),
    compute=180_000, queued=6_000, unattributed=100_000,
)  # fmt: skip
add(
    "queued", "graph-nodes-back-to-back",
    "The nodes of one graph launch start 2 µs after one another.",
    "queued: dispatch",
    [A, graph_nodes((20_000, 30_000), (102_000, 112_000), (114_000, 124_000), (126_000, 176_000))],
    compute=170_000, queued=6_000,
)  # fmt: skip
add(
    "queued", "graph-nodes-not-recorded",
    "Between two nodes of one graph launch 100 µs are missing.",
    "unattributed: the profiler did not record all nodes",
    [A, graph_nodes((20_000, 30_000), (102_000, 112_000), (114_000, 124_000), (126_000, 136_000), (236_000, 286_000))],
    compute=180_000, queued=6_000, unattributed=100_000,
)  # fmt: skip
add(
    "queued", "graph-nodes-not-recorded-at-the-start",
    "The first node that is recorded starts 100 µs after the GPU ran dry, long after the graph was launched.",
    "unattributed: the profiler did not record all nodes",
    [A, graph_nodes((20_000, 30_000), (200_000, 210_000), (212_000, 222_000), (224_000, 274_000))],
    compute=170_000, queued=4_000, unattributed=100_000,
)  # fmt: skip

# --- the launch is not recorded -------------------------------------------------------------------------------------------

add(
    "unknown", "no-launch-record",
    "A short kernel without a launch record ends a gap that the DataLoader covers.",
    "unattributed: without the launch nothing says when the work was queued",
    [A, kernel(150_000, 155_000), annotation(90_000, 150_000, DATALOADER)],
    compute=105_000, unattributed=50_000,
)  # fmt: skip
add(
    "unknown", "launches-mostly-recorded",
    "Launches are known for 150 of 160 µs of GPU time; a sync drains the queue.",
    "host sync, and launch-bound for the launch latency",
    [
        A,
        kernel(100_000, 110_000),
        call(90_000, 140_000, "cudaStreamSynchronize"),
        kernel(158_000, 208_000, (150_000, 155_000)),
    ],
    compute=160_000, host_sync=40_000, launch_bound=8_000,
)  # fmt: skip
add(
    "unknown", "launches-recorded-for-nine-tenths",
    "Launches are known for 180 of 200 µs: exactly 90 %, which is not less than 90 %.",
    "host sync, and launch-bound for the launch latency",
    [
        A,
        kernel(100_000, 120_000),
        call(90_000, 140_000, "cudaStreamSynchronize"),
        kernel(158_000, 238_000, (150_000, 155_000)),
    ],
    compute=200_000, host_sync=30_000, launch_bound=8_000,
)  # fmt: skip
add(
    "unknown", "launches-mostly-missing",
    "Launches are known for only 150 of 170 µs of GPU time.",
    "unattributed: what the host did says nothing about launches that are not recorded",
    [
        A,
        kernel(100_000, 120_000),
        call(90_000, 140_000, "cudaStreamSynchronize"),
        kernel(158_000, 208_000, (150_000, 155_000)),
    ],
    compute=170_000, unattributed=38_000,
)  # fmt: skip

# --- the host waited for the GPU ------------------------------------------------------------------------------------------


def drained(start, end, name="cudaStreamSynchronize", *, at=150_000, more=()):
    """A call at (start, end) and a launch at `at`; the GPU has run dry at 100 µs, the kernel starts 7 µs after `at`."""
    return [A, call(start, end, name), *more, kernel(at + 7_000, at + 57_000, (at, at + 5_000))]


add(
    "sync", "sync-drains-the-queue",
    "The host sits in cudaStreamSynchronize until 5 µs after the GPU ran dry and launches 3 µs later.",
    "host sync for the wait and the restart; launch-bound for the launch latency",
    drained(50_000, 105_000, at=108_000),
    compute=150_000, host_sync=8_000, launch_bound=7_000, named={"host_sync": "cudaStreamSynchronize"},
)  # fmt: skip
add(
    "sync", "sync-while-the-gpu-is-busy",
    "The sync ends 40 µs before the GPU runs dry.",
    "launch-bound: a sync under a busy GPU costs nothing",
    drained(10_000, 60_000, at=130_000),
    compute=150_000, launch_bound=37_000,
)  # fmt: skip
add(
    "sync", "sync-ended-15-us-before",
    "The sync ended 15 µs before the GPU ran dry; the next launch comes 20 µs after.",
    "host sync for the restart",
    drained(40_000, 85_000, at=120_000),
    compute=150_000, host_sync=20_000, launch_bound=7_000,
)  # fmt: skip
add(
    "sync", "sync-ended-20-us-before",
    "The sync ended exactly 20 µs before.",
    "host sync for the restart",
    drained(40_000, 80_000, at=120_000),
    compute=150_000, host_sync=20_000, launch_bound=7_000,
)  # fmt: skip
add(
    "sync", "sync-ended-more-than-20-us-before",
    "The sync ended 20.001 µs before.",
    "launch-bound: the queue did not run dry because of that sync",
    drained(40_000, 79_999, at=120_000),
    compute=150_000, launch_bound=27_000,
)  # fmt: skip
add(
    "sync", "sync-ended-25-us-before",
    "The sync ended 25 µs before.",
    "launch-bound",
    drained(40_000, 75_000, at=120_000),
    compute=150_000, launch_bound=27_000,
)  # fmt: skip
add(
    "sync", "short-sync-before-a-long-gap",
    "A sync of 15 µs ended 15 µs before a gap of 307 µs.",
    "host sync for 15 µs, as long as it lasted; launch-bound for the rest",
    drained(70_000, 85_000, at=400_000),
    compute=150_000, host_sync=15_000, launch_bound=292_000,
)  # fmt: skip
add(
    "sync", "tiny-sync-in-launch-bound-code",
    "A sync of 7 µs covers the start of a gap of 706 µs in which the host runs operators.",
    "launch-bound but for 7 µs of host sync",
    [
        A,
        call(96_000, 103_000, "cudaStreamSynchronize"),
        op(104_000, 795_000, "aten::add"),
        kernel(806_000, 856_000, (800_000, 805_000)),
    ],
    compute=150_000, host_sync=7_000, launch_bound=699_000,
)  # fmt: skip
add(
    "sync", "second-sync-in-the-gap",
    "A sync of 20 µs drains the queue, and a second one of 30 µs finds nothing to wait for.",
    "host sync for both and for a restart as long as the first had waited before the gap; launch-bound for the rest",
    [
        A,
        call(90_000, 110_000, "cudaStreamSynchronize"),
        call(150_000, 180_000, "cudaStreamSynchronize"),
        kernel(207_000, 257_000, (200_000, 205_000)),
    ],
    compute=150_000, host_sync=50_000, launch_bound=57_000,
)  # fmt: skip
add(
    "sync", "sync-begins-in-the-gap",
    "A sync of 10 µs begins 20 µs after the GPU ran dry.",
    "host sync for the call alone: it did not let the queue run dry",
    drained(120_000, 130_000),
    compute=150_000, host_sync=10_000, launch_bound=47_000,
)  # fmt: skip
add(
    "sync", "nested-waits",
    "MPI_Waitall, 60 µs, holds an event synchronisation of 38 µs; both cover the start of the gap.",
    "host sync for the wait and 40 µs of restart, by the longer of the two",
    [
        A,
        annotation(60_000, 120_000, "MPI_Waitall"),
        call(80_000, 118_000, "cudaEventSynchronize"),
        kernel(207_000, 257_000, (200_000, 205_000)),
    ],
    compute=150_000, host_sync=60_000, launch_bound=47_000,
)  # fmt: skip
add(
    "sync", "covering-wait-goes-first",
    "A sync of 50 µs ended 10 µs before the gap; a fetch of 5 µs covers its start.",
    "data wait for 5 µs: the wait that covers the start decides; launch-bound for the rest",
    [
        A,
        call(40_000, 90_000, "cudaStreamSynchronize"),
        annotation(98_000, 103_000, DATALOADER),
        kernel(207_000, 257_000, (200_000, 205_000)),
    ],
    compute=150_000, data_wait=5_000, launch_bound=102_000,
)  # fmt: skip
add(
    "sync", "two-waits-just-ended",
    "A fetch of 10 µs and a sync of 68 µs both ended less than 20 µs before the gap.",
    "data wait for 10 µs: fetching goes before synchronising; launch-bound for the rest",
    [
        A,
        call(20_000, 88_000, "cudaStreamSynchronize"),
        annotation(88_500, 98_500, DATALOADER),
        kernel(157_000, 207_000, (150_000, 155_000)),
    ],
    compute=150_000, data_wait=10_000, launch_bound=47_000,
)  # fmt: skip
add(
    "sync", "two-syncs-just-ended",
    "Two syncs in a row, 62 and 2 µs long, both ended less than 20 µs before the gap.",
    "host sync for 2 µs: the wait that ended last let the queue run dry; launch-bound for the rest",
    [
        A,
        call(20_000, 82_000, "cudaStreamSynchronize"),
        call(83_000, 85_000, "cudaStreamSynchronize"),
        kernel(157_000, 207_000, (150_000, 155_000)),
    ],
    compute=150_000, host_sync=2_000, launch_bound=55_000,
)  # fmt: skip
add(
    "sync", "polling",
    "The host asks cudaEventQuery again and again.",
    "launch-bound: asking does not block",
    [
        A,
        call(90_000, 200_000, "cudaEventQuery"),
        call(201_000, 300_000, "cudaEventQuery"),
        call(301_000, 398_000, "cudaEventQuery"),
        kernel(407_000, 457_000, (400_000, 405_000)),
    ],
    compute=150_000, launch_bound=307_000,
)  # fmt: skip
add(
    "sync", "device-synchronize",
    "cudaDeviceSynchronize, 50 µs, returns 40 µs after the GPU ran dry.",
    "host sync for the call and a restart of 10 µs",
    drained(90_000, 140_000, "cudaDeviceSynchronize"),
    compute=150_000, host_sync=50_000, launch_bound=7_000,
)  # fmt: skip
add(
    "sync", "item",
    "The same in aten::item: the sync stands inside two operators.",
    "host sync for the sync and a restart of 10 µs",
    drained(90_000, 140_000, more=(op(85_000, 142_000, "aten::item"), op(87_000, 141_000, "aten::_local_scalar_dense"))),
    compute=150_000, host_sync=50_000, launch_bound=7_000, named={"host_sync": "cudaStreamSynchronize"},
)  # fmt: skip
add(
    "sync", "stream-wait-event-does-not-block",
    "The same time in cudaStreamWaitEvent.",
    "launch-bound: it makes a stream wait, not the host",
    drained(90_000, 140_000, "cudaStreamWaitEvent"),
    compute=150_000, launch_bound=57_000,
)  # fmt: skip


def copied(direction, memory, name):
    """A copy call from 90 to 400 µs whose copy runs from 200 to 380 µs, then a launch."""
    return [
        A,
        copy(200_000, 380_000, (90_000, 400_000), direction, memory, call=name),
        kernel(417_000, 467_000, (410_000, 415_000)),
    ]


for name, says, direction, memory, function in (
    ("pageable-copy", "cudaMemcpyAsync from pageable memory takes 310 µs, the copy 180 of them.", "HtoD", "pageable", "cudaMemcpyAsync"),
    ("pageable-copy-to-the-host", "The same to pageable memory.", "DtoH", "pageable", "cudaMemcpyAsync"),
    ("synchronous-copy", "The same with cudaMemcpy, pinned.", "DtoH", "pinned", "cudaMemcpy"),
    ("hip-copy-with-stream", "The same with hipMemcpyWithStream.", "DtoH", "", "hipMemcpyWithStream"),
):  # fmt: skip
    add(
        "sync", name, says,
        "host sync for the rest of the call and the restart: the call returns when the copy is done",
        copied(direction, memory, function),
        compute=150_000, exposed_copy=180_000, host_sync=130_000, launch_bound=7_000,
    )  # fmt: skip
add(
    "sync", "pinned-asynchronous-copy",
    "The same with cudaMemcpyAsync from pinned memory.",
    "launch-bound: the call is slow, but it does not wait for the copy",
    copied("HtoD", "pinned", "cudaMemcpyAsync"),
    compute=150_000, exposed_copy=180_000, launch_bound=137_000,
)  # fmt: skip
add(
    "sync", "synchronous-copy-in-the-gap",
    "cudaMemcpy begins 30 µs after the GPU ran dry; its copy starts 20 µs later.",
    "launch-bound until the call, host sync inside it and for the restart",
    [
        A,
        copy(150_000, 290_000, (130_000, 300_000), "DtoH", call="cudaMemcpy"),
        kernel(312_000, 362_000, (305_000, 310_000)),
    ],
    compute=150_000, exposed_copy=140_000, host_sync=35_000, launch_bound=37_000,
)  # fmt: skip

# --- the host waited for data ---------------------------------------------------------------------------------------------


def covered(row, *more):
    """A row from 90 to 500 µs; the next launch at 520 µs, its kernel at 530 µs. The GPU has run dry at 100 µs."""
    return [A, row, *more, kernel(530_000, 580_000, (520_000, 525_000))]


WAITED = {"compute": 150_000, "launch_bound": 20_000}  # of the 430 µs 400 are the wait and 10 the restart charged to it
NOT_WAITED = {"compute": 150_000, "launch_bound": 430_000}

for name, says, label in (
    ("dataloader", "The main thread waits 410 µs in the DataLoader's `__next__`, until 400 µs after the GPU ran dry.", DATALOADER),
    ("dataloader-without-workers", "The same without worker processes.", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
    ("torchrec-wait-for-batch", "The same in torchrec's range.", "## wait_for_batch ##"),
    ("lightning-dataloader-next", "The same in Lightning's range.", "[pl][profile][_TrainingEpochLoop].train_dataloader_next"),
    ("get-batch", "The same in a range the user called get_batch.", "get_batch"),
    ("data-loading", "The same in a range the user called data loading.", "data loading"),
):
    add(
        "fetch", name, says,
        "data wait for the fetch and the restart; launch-bound beyond what the fetch had waited before the gap",
        covered(annotation(90_000, 500_000, label)), **WAITED, data_wait=410_000, named={"data_wait": label},
    )  # fmt: skip
add(
    "fetch", "copy-of-a-batch",
    "The range is called copy_batch_to_gpu.",
    "launch-bound: handing over a batch is not waiting for one",
    covered(annotation(90_000, 500_000, "## copy_batch_to_gpu ##")), **NOT_WAITED,
)  # fmt: skip
add(
    "fetch", "dataloader-frame",
    "No range, but the Python frame of the DataLoader's `__next__`.",
    "data wait",
    covered(frame(90_000, 500_000, NEXT_FRAME)), **WAITED, data_wait=410_000, named={"data_wait": NEXT_FRAME},
)  # fmt: skip
add(
    "fetch", "frame-in-a-folder-called-dataloader",
    "The frame of a user's function in a folder called dataloader.",
    "launch-bound: a path is no evidence",
    covered(frame(90_000, 500_000, "/home/me/dataloader/model.py(3): forward")), **NOT_WAITED,
)  # fmt: skip
add(
    "fetch", "dataloader-holds-a-sync",
    "The DataLoader's range holds a stream synchronisation.",
    "data wait: the fetch is the outer reason",
    covered(annotation(90_000, 500_000, DATALOADER), call(150_000, 300_000, "cudaStreamSynchronize")), **WAITED, data_wait=410_000,
)  # fmt: skip
add(
    "fetch", "dataloader-on-the-pin-memory-thread",
    "The DataLoader's range is open on the thread that pins memory; the main thread runs operators.",
    "launch-bound: that thread launches nothing",
    covered(annotation(90_000, 500_000, DATALOADER, HELPER), op(80_000, 526_000)), **NOT_WAITED,
)  # fmt: skip
add(
    "fetch", "dataloader-on-a-worker-while-main-is-silent",
    "The DataLoader's range is open on a helper thread for 2.4 ms, and nothing is recorded on the main thread.",
    "unattributed: the main thread may have waited for the batch, but no row of it says so",
    [A, annotation(90_000, 2_500_000, DATALOADER, HELPER), kernel(2_530_000, 2_580_000, (2_520_000, 2_525_000))],
    compute=150_000, unattributed=2_420_000, launch_bound=10_000,
)  # fmt: skip

# --- the host wrote a checkpoint ------------------------------------------------------------------------------------------

add(
    "checkpoint", "checkpoint-range",
    "A range called save_checkpoint covers the start of the gap.",
    "checkpoint for the range and the restart",
    covered(annotation(90_000, 500_000, "save_checkpoint")), **WAITED, checkpoint=410_000,
)  # fmt: skip
add(
    "checkpoint", "torch-save-frame",
    "No range, but the Python frame of torch.save.",
    "checkpoint",
    covered(frame(90_000, 500_000, "torch/serialization.py(849): save")), **WAITED, checkpoint=410_000,
)  # fmt: skip
add(
    "checkpoint", "activation-checkpointing",
    "The operator is the backward of activation checkpointing.",
    "launch-bound: it computes activations again and writes nothing",
    covered(op(90_000, 526_000, "CheckpointFunctionBackward")), **NOT_WAITED,
)  # fmt: skip
add(
    "checkpoint", "checkpoint-over-fetch-over-sync",
    "A checkpoint holds a fetch that holds a sync; all three cover the start of the gap.",
    "checkpoint: the outer reason, also for the restart",
    [
        A,
        annotation(60_000, 300_000, "save_checkpoint"),
        annotation(80_000, 250_000, DATALOADER),
        call(90_000, 200_000, "cudaStreamSynchronize"),
        kernel(327_000, 377_000, (320_000, 325_000)),
    ],
    compute=150_000, checkpoint=220_000, launch_bound=7_000,
)  # fmt: skip
add(
    "checkpoint", "checkpoint-then-fetch",
    "A checkpoint covers the start of the gap; a fetch follows.",
    "checkpoint and data wait, each for its range; the restart goes to the one that let the queue run dry",
    [
        A,
        annotation(60_000, 200_000, "save_checkpoint"),
        annotation(200_000, 300_000, DATALOADER),
        kernel(327_000, 377_000, (320_000, 325_000)),
    ],
    compute=150_000, checkpoint=120_000, data_wait=100_000, launch_bound=7_000,
)  # fmt: skip

# --- the host waited for its peers ----------------------------------------------------------------------------------------

for name, says, row in (
    ("mpi-allreduce", "The main thread is in MPI_Allreduce.", annotation(90_000, 500_000, "MPI_Allreduce")),
    ("gloo-all-reduce", "The main thread is in an all-reduce of gloo.", annotation(90_000, 500_000, "gloo:all_reduce")),
    ("barrier", "The main thread is in c10d::barrier.", op(90_000, 500_000, "c10d::barrier")),
):
    add("peers", name, says, "host sync: the host waits for its peers", covered(row), **WAITED, host_sync=410_000)
add(
    "peers", "mpi-allreduce-before-a-sync",
    "The main thread is in MPI_Allreduce; later, under a busy GPU, it synchronises.",
    "as before: the later sync costs nothing",
    covered(annotation(90_000, 500_000, "MPI_Allreduce"), call(540_000, 550_000, "cudaStreamSynchronize")), **WAITED, host_sync=410_000,
)  # fmt: skip
add(
    "peers", "nccl-range",
    "The range is that of an NCCL collective.",
    "launch-bound: it only puts the collective into a stream",
    covered(annotation(90_000, 526_000, "nccl:all_reduce")), **NOT_WAITED,
)  # fmt: skip

# --- the host managed memory ----------------------------------------------------------------------------------------------

for function in ("cudaMalloc", "cudaHostAlloc", "cudaFreeAsync", "cuMemMap"):
    add(
        "memory", function,
        f"The host is in {function} until 40 µs after the GPU ran dry and launches 10 µs later.",
        "allocation for the call; launch-bound after it: only waits are charged with the restart",
        drained(95_000, 140_000, function),
        compute=150_000, allocation=40_000, launch_bound=17_000, named={"allocation": function},
    )  # fmt: skip
add(
    "memory", "cudaFree",
    "The same in cudaFree.",
    "host sync: cudaFree waits for the device",
    drained(95_000, 140_000, "cudaFree"),
    compute=150_000, host_sync=45_000, launch_bound=12_000,
)  # fmt: skip

# --- the host compiled or loaded code -------------------------------------------------------------------------------------

add(
    "compile", "dynamo",
    "A range of Dynamo's compiler covers 4.9 ms of the gap.",
    "compile; launch-bound after it",
    [
        A,
        annotation(95_000, 5_000_000, "_compile.compile_inner (dynamo_timed)"),
        kernel(5_017_000, 5_067_000, (5_010_000, 5_015_000)),
    ],
    compute=150_000, compile=4_900_000, launch_bound=17_000,
)  # fmt: skip
add(
    "compile", "compiled-region",
    "The operator is a region that was compiled before.",
    "launch-bound: it runs compiled code",
    covered(op(90_000, 526_000, "Torch-Compiled Region: 0/0")), **NOT_WAITED,
)  # fmt: skip
add(
    "compile", "module-load",
    "The host is in cuModuleLoadData.",
    "compile for the call",
    drained(95_000, 400_000, "cuModuleLoadData", at=410_000),
    compute=150_000, compile=300_000, launch_bound=17_000,
)  # fmt: skip
add(
    "compile", "module-loading-noticed",
    "No call, but the profiler noticed a module being loaded.",
    "compile, recorded",
    [A, loading(95_000, 400_000, "Runtime Triggered Module Loading"), kernel(417_000, 467_000, (410_000, 415_000))],
    compute=150_000, compile=300_000, launch_bound=17_000, recorded={"compile": True},
)  # fmt: skip
add(
    "compile", "module-loading-on-another-thread",
    "The same, noticed on a helper thread.",
    "launch-bound: that thread launches nothing",
    [A, loading(95_000, 400_000, "Runtime Triggered Module Loading", HELPER), kernel(417_000, 467_000, (410_000, 415_000))],
    compute=150_000, launch_bound=317_000,
)  # fmt: skip
add(
    "compile", "dlopen",
    "The profiler noticed a library being opened.",
    "compile: loading a library",
    [A, loading(95_000, 400_000, "dlopen(libcudnn_ops.so.9)"), kernel(417_000, 467_000, (410_000, 415_000))],
    compute=150_000, compile=300_000, launch_bound=17_000,
)  # fmt: skip
add(
    "compile", "allocation-inside-compilation",
    "The compiler's range holds a cudaMalloc of 100 µs.",
    "allocation for the call, compile around it",
    [
        A,
        annotation(95_000, 500_000, "triton compile"),
        call(200_000, 300_000, "cudaMalloc"),
        kernel(517_000, 567_000, (510_000, 515_000)),
    ],
    compute=150_000, allocation=100_000, compile=300_000, launch_bound=17_000,
)  # fmt: skip

# --- nothing is recorded on the host --------------------------------------------------------------------------------------


def silent(end, *more, since=100_000):
    """An operator until `since`, then nothing until a launch at `end`; its kernel starts 7 µs later."""
    return [A, op(50_000, since), *more, kernel(end + 7_000, end + 57_000, (end, end + 5_000))]


add(
    "silence", "silent-for-one-millisecond",
    "After an operator nothing is recorded on the host for exactly 1 ms.",
    "launch-bound: Python between two launches",
    silent(1_100_000),
    compute=150_000, launch_bound=1_007_000,
)  # fmt: skip
add(
    "silence", "silent-for-longer",
    "The same for 1 ms and 1 ns.",
    "unattributed: no row says that the host was on its way to a launch",
    silent(1_100_001),
    compute=150_000, unattributed=1_000_001, launch_bound=7_000,
)  # fmt: skip
add(
    "silence", "silent-since-before-the-gap",
    "The host is silent for 1.312 ms; the GPU runs dry in the middle, 700 µs before the silence ends.",
    "launch-bound: what counts is the silence inside the gap, and that is no longer than other code takes",
    [A, kernel(100_000, 600_000, (-14_000, -12_000)), kernel(1_307_000, 1_357_000, (1_300_000, 1_305_000))],
    compute=650_000, launch_bound=707_000,
)  # fmt: skip
add(
    "silence", "silent-around-a-buffer-flush",
    "Silent for 1.8 ms; in the middle the profiler empties a buffer for 10 µs on another thread.",
    "profiler for 10 µs; launch-bound before and after: each stretch that is left is counted for itself, and none exceeds 1 ms",
    silent(1_900_000, profiler(990_000, 1_000_000)),
    compute=150_000, profiler=10_000, launch_bound=1_797_000,
)  # fmt: skip
add(
    "silence", "an-operator-is-open",
    "The host is inside an operator for 5 ms.",
    "launch-bound",
    [A, op(50_000, 5_110_000, "aten::index"), kernel(5_107_000, 5_157_000, (5_100_000, 5_105_000))],
    compute=150_000, launch_bound=5_007_000,
)  # fmt: skip
add(
    "silence", "a-call-is-open",
    "The host is inside a call that neither blocks, allocates nor loads, for 5 ms.",
    "launch-bound",
    drained(50_000, 5_090_000, "cudaFuncGetAttributes", at=5_100_000),
    compute=150_000, launch_bound=5_007_000,
)  # fmt: skip
add(
    "silence", "a-frame-begins-in-the-middle",
    "Silent for 1.8 ms, but for a Python function that runs in the middle.",
    "launch-bound: the interpreter was running",
    silent(1_900_000, frame(-100_000, 3_000_000, "train.py(10): main"), frame(1_000_000, 1_010_000, "train.py(20): prepare")),
    compute=150_000, launch_bound=1_807_000,
)  # fmt: skip
add(
    "silence", "one-frame-covers-the-silence",
    "Silent for 1.8 ms inside one Python function.",
    "unattributed, named by the function",
    silent(1_900_000, frame(-100_000, 3_000_000, "train.py(10): main")),
    compute=150_000, unattributed=1_800_000, launch_bound=7_000, named={"unattributed": "train.py(10): main"},
)  # fmt: skip
add(
    "silence", "one-frame-in-a-folder-called-dataloader",
    "The function of a folder called dataloader runs for 2.4 ms of the gap.",
    "unattributed, named by the function; still no data wait",
    [
        A,
        frame(90_000, 2_500_000, "/home/me/dataloader/model.py(3): forward"),
        kernel(2_530_000, 2_580_000, (2_520_000, 2_525_000)),
    ],
    compute=150_000, unattributed=2_400_000, launch_bound=30_000,
    named={"unattributed": "/home/me/dataloader/model.py(3): forward"},
)  # fmt: skip
add(
    "silence", "named-by-an-operating-system-call",
    "Silent for 2 ms, all of it in poll.",
    "unattributed, named poll",
    silent(2_100_000, os_call(100_000, 2_100_000, "poll")),
    compute=150_000, unattributed=2_000_000, launch_bound=7_000, named={"unattributed": "poll"},
)  # fmt: skip
add(
    "silence", "short-wait-in-the-operating-system",
    "Silent for 500 µs, 300 of them in sem_wait.",
    "launch-bound: a call into the operating system is no cause by itself",
    silent(600_000, os_call(150_000, 450_000, "sem_wait")),
    compute=150_000, launch_bound=507_000,
)  # fmt: skip
add(
    "silence", "named-by-a-label",
    "Silent for 2 ms, all of it under a label that means nothing to traceread.",
    "unattributed, named by the label",
    silent(2_100_000, annotation(100_000, 2_100_000, "tokenize")),
    compute=150_000, unattributed=2_000_000, launch_bound=7_000, named={"unattributed": "tokenize"},
)  # fmt: skip
add(
    "silence", "garbage-collection",
    "A range called gc covers a gap of 507 µs up to the launch call.",
    "launch-bound, named gc",
    silent(600_000, annotation(100_000, 600_000, "gc")),
    compute=150_000, launch_bound=507_000, named={"launch_bound": "gc"},
)  # fmt: skip
add(
    "silence", "long-garbage-collection",
    "The same for 4.9 ms.",
    "launch-bound, named gc: the host is known to have been at work",
    silent(5_000_000, annotation(100_000, 5_000_000, "gc")),
    compute=150_000, launch_bound=4_907_000, named={"launch_bound": "gc"},
)  # fmt: skip

add(
    "silence", "long-garbage-collection-on-another-thread",
    "The same on a helper thread.",
    "unattributed: that thread launches nothing",
    silent(5_000_000, annotation(100_000, 5_000_000, "gc", HELPER)),
    compute=150_000, unattributed=4_900_000, launch_bound=7_000,
)  # fmt: skip

FIRST_STEP = (annotation(-30_000, 105_000, "ProfilerStep#1"), A)
FIRST_WINDOW = ("ProfilerStep#1", {"compute": 100_000, "launch_bound": 30_000})  # 30 µs from the range to the first kernel


def second_step(end, *rows):
    return [*FIRST_STEP, annotation(105_000, end, "ProfilerStep#2"), *rows]


def input_copy(busy_until, silent_until):
    """An operator until `busy_until`, then nothing until the step's first copy to the device is launched."""
    at = silent_until
    return [
        op(60_000, busy_until),
        copy(at + 8_000, at + 28_000, (at, at + 5_000)),
        kernel(at + 30_000, at + 80_000, (at + 10_000, at + 15_000)),
    ]


def second_window(**times):
    return (FIRST_WINDOW, ("ProfilerStep#2", {"compute": 50_000, **times}))


add(
    "silence", "silent-before-the-input-copy",
    "In a step, 156 µs of silence end with the launch of the step's first copy to the device.",
    "data wait, inferred: a loader that leaves no mark",
    second_step(600_000, *input_copy(104_000, 260_000)),
    windows=second_window(exposed_copy=20_000, launch_bound=12_000, data_wait=156_000, queued=2_000),
    recorded={"data_wait": False},
)  # fmt: skip
add(
    "silence", "silent-for-100-us-before-the-input-copy",
    "The silence lasts exactly 100 µs.",
    "data wait, inferred",
    second_step(600_000, *input_copy(160_000, 260_000)),
    windows=second_window(exposed_copy=20_000, launch_bound=68_000, data_wait=100_000, queued=2_000),
)  # fmt: skip
add(
    "silence", "silent-for-less-before-the-input-copy",
    "The silence lasts 99.999 µs.",
    "launch-bound",
    second_step(600_000, *input_copy(160_001, 260_000)),
    windows=second_window(exposed_copy=20_000, launch_bound=168_000, queued=2_000),
)  # fmt: skip
add(
    "silence", "silent-for-5-ms-before-the-input-copy",
    "The silence lasts 5.156 ms.",
    "data wait, inferred",
    second_step(5_600_000, *input_copy(104_000, 5_260_000)),
    windows=second_window(exposed_copy=20_000, launch_bound=12_000, data_wait=5_156_000, queued=2_000),
)  # fmt: skip
add(
    "silence", "silent-after-the-input-copy",
    "The batch is copied at once; 285 µs of silence follow.",
    "launch-bound: the batch was there",
    second_step(
        600_000,
        op(60_000, 108_000),
        copy(118_000, 138_000, (110_000, 115_000)),
        kernel(408_000, 458_000, (400_000, 405_000)),
    ),
    windows=second_window(exposed_copy=20_000, launch_bound=288_000),
)  # fmt: skip
add(
    "silence", "silent-for-5-ms-after-the-input-copy",
    "The same with 5.285 ms of silence.",
    "unattributed: host silent",
    second_step(
        5_600_000,
        op(60_000, 108_000),
        copy(118_000, 138_000, (110_000, 115_000)),
        kernel(5_408_000, 5_458_000, (5_400_000, 5_405_000)),
    ),
    windows=second_window(exposed_copy=20_000, launch_bound=26_000, unattributed=5_262_000),
)  # fmt: skip
add(
    "silence", "silent-in-a-step-without-input-copy",
    "The step copies nothing to the device.",
    "launch-bound",
    second_step(600_000, op(60_000, 104_000), kernel(268_000, 318_000, (260_000, 265_000))),
    windows=second_window(launch_bound=168_000),
)  # fmt: skip
add(
    "silence", "silent-before-a-copy-to-the-host",
    "The only copy of the step goes to the host.",
    "launch-bound: that copy is no input",
    second_step(
        600_000,
        op(60_000, 104_000),
        copy(268_000, 288_000, (260_000, 265_000), "DtoH"),
        kernel(290_000, 340_000, (270_000, 275_000)),
    ),
    windows=second_window(exposed_copy=20_000, launch_bound=168_000, queued=2_000),
)  # fmt: skip
add(
    "silence", "silent-before-a-copy-without-steps",
    "156 µs of silence before the first copy to the device, in a capture without steps.",
    "launch-bound: without a step there is no first copy of a step",
    [A, *input_copy(104_000, 260_000)],
    compute=150_000, exposed_copy=20_000, launch_bound=168_000, queued=2_000,
)  # fmt: skip

# --- which thread counts --------------------------------------------------------------------------------------------------

add(
    "threads", "backward-while-main-waits",
    "The autograd thread runs an operator and launches; the main thread sits in a sync all the while.",
    "launch-bound: the thread that launches was at work",
    [
        A,
        call(90_000, 149_000, "cudaStreamSynchronize"),
        op(80_000, 156_000, "autograd::engine::evaluate_function: MmBackward0", AUTOGRAD),
        kernel(157_000, 207_000, (150_000, 155_000), thread=AUTOGRAD),
    ],
    compute=150_000, launch_bound=57_000,
)  # fmt: skip
add(
    "threads", "launching-thread-has-not-begun",
    "The autograd thread launches, but does nothing before; the main thread, which launched last, was in a sync.",
    "host sync for the sync and a restart of 10 µs: the next thread in line decides",
    [
        A,
        call(90_000, 140_000, "cudaStreamSynchronize"),
        kernel(157_000, 207_000, (150_000, 155_000), thread=AUTOGRAD),
    ],
    compute=150_000, host_sync=50_000, launch_bound=7_000,
)  # fmt: skip
add(
    "threads", "launching-thread-begins-during-the-wait",
    "The same, but an operator begins on the autograd thread 20 µs into the gap, while the main thread still waits.",
    "host sync until the autograd thread begins, then 10 µs of restart, then launch-bound",
    [
        A,
        call(90_000, 140_000, "cudaStreamSynchronize"),
        op(120_000, 156_000, "autograd::engine::evaluate_function: MmBackward0", AUTOGRAD),
        kernel(157_000, 207_000, (150_000, 155_000), thread=AUTOGRAD),
    ],
    compute=150_000, host_sync=30_000, launch_bound=27_000,
)  # fmt: skip
add(
    "threads", "step-thread-decides-last",
    "Neither the thread that launches nor the one that launched last has a row; the thread with most launches fetches a batch.",
    "data wait for the fetch and the restart it may be charged with",
    [
        kernel(0, 50_000, (-20_000, -15_000)),
        kernel(50_000, 80_000, (-14_000, -12_000)),
        kernel(80_000, 100_000, (-10_000, -5_000), thread=AUTOGRAD),
        annotation(90_000, 500_000, DATALOADER),
        kernel(530_000, 580_000, (520_000, 525_000), thread=AUTOGRAD),
        kernel(580_000, 600_000, (560_000, 565_000)),
    ],
    compute=170_000, data_wait=410_000, launch_bound=20_000,
)  # fmt: skip
add(
    "threads", "thread-of-the-step-range-decides-last",
    "In a step all launches come from the autograd thread; a fetch of 390 µs stands on the thread of the step's range.",
    "data wait for the fetch; launch-bound before and after it",
    [
        annotation(-30_000, 105_000, "ProfilerStep#1"),
        kernel(0, 100_000, (-20_000, -15_000), thread=AUTOGRAD),
        annotation(105_000, 600_000, "ProfilerStep#2"),
        annotation(110_000, 500_000, DATALOADER),
        kernel(530_000, 580_000, (520_000, 525_000), thread=AUTOGRAD),
    ],
    windows=second_window(data_wait=390_000, launch_bound=40_000),
)  # fmt: skip
add(
    "threads", "watchdog-waits",
    "NCCL's watchdog sits in cudaEventSynchronize; the main thread has no row.",
    "launch-bound: the watchdog launches nothing",
    [A, call(90_000, 149_000, "cudaEventSynchronize", WATCHDOG), kernel(157_000, 207_000, (150_000, 155_000))],
    compute=150_000, launch_bound=57_000,
)  # fmt: skip

# --- the profiler itself --------------------------------------------------------------------------------------------------

add(
    "profiler", "buffer-flush-in-the-gap",
    "The profiler empties a buffer for 30 µs of a gap in which the host runs an operator.",
    "profiler for 30 µs, launch-bound for the rest",
    [A, profiler(120_000, 150_000), op(90_000, 206_000), kernel(207_000, 257_000, (200_000, 205_000))],
    compute=150_000, profiler=30_000, launch_bound=77_000,
)  # fmt: skip
add(
    "profiler", "buffer-flush-over-a-fetch",
    "The same during a fetch.",
    "profiler for 30 µs, data wait for the rest of the fetch and the restart",
    [
        A,
        profiler(120_000, 150_000, "Activity Buffer Request"),
        annotation(90_000, 190_000, DATALOADER),
        kernel(207_000, 257_000, (200_000, 205_000)),
    ],
    compute=150_000, profiler=30_000, data_wait=70_000, launch_bound=7_000,
)  # fmt: skip
add(
    "profiler", "buffer-flush-without-launch-record",
    "The profiler works for 20 of 50 µs before a kernel without a launch record.",
    "profiler for 20 µs, unattributed for the rest",
    [A, profiler(110_000, 130_000), kernel(150_000, 155_000)],
    compute=105_000, profiler=20_000, unattributed=30_000,
)  # fmt: skip
add(
    "profiler", "buffer-flush-while-the-gpu-is-busy",
    "The profiler works while the GPU does.",
    "nothing: it cost no GPU time",
    [A, profiler(20_000, 80_000), kernel(103_000, 153_000, (85_000, 90_000))],
    compute=150_000, queued=3_000,
)  # fmt: skip

# --- what keeps the GPU busy ----------------------------------------------------------------------------------------------

add(
    "busy", "exposed-communication",
    "An all-reduce runs for 100 µs, the first 20 of them beside a kernel.",
    "exposed communication for 80 µs",
    [
        A,
        kernel(80_000, 180_000, (-10_000, -8_000), NCCL, stream=20),
        kernel(180_000, 230_000, (5_000, 8_000)),
    ],
    compute=150_000, exposed_communication=80_000, hidden=(20_000, 0),
)  # fmt: skip
add(
    "busy", "hidden-communication",
    "The all-reduce runs beside kernels only.",
    "nothing exposed",
    [A, kernel(20_000, 80_000, (-10_000, -8_000), NCCL, stream=20), kernel(100_000, 150_000, (5_000, 8_000))],
    compute=150_000, hidden=(60_000, 0),
)  # fmt: skip
add(
    "busy", "communication-on-the-compute-stream",
    "The all-reduce runs on the stream of the kernels.",
    "exposed communication: the stream says nothing",
    [A, kernel(100_000, 150_000, (-10_000, -8_000), NCCL), kernel(150_000, 200_000, (5_000, 8_000))],
    compute=150_000, exposed_communication=50_000,
)  # fmt: skip
add(
    "busy", "fused-kernel",
    "A kernel that reduces over the ranks and normalises.",
    "exposed communication: what computes and communicates is communication",
    [A, kernel(100_000, 140_000, (-10_000, -8_000), FUSED), kernel(140_000, 190_000, (5_000, 8_000))],
    compute=150_000, exposed_communication=40_000,
)  # fmt: skip
add(
    "busy", "copy-beside-compute",
    "A copy from the host runs for 80 µs, the first 50 beside a kernel.",
    "exposed copy for 30 µs",
    [A, copy(50_000, 130_000, (-10_000, -8_000), stream=13), kernel(130_000, 180_000, (5_000, 8_000))],
    compute=150_000, exposed_copy=30_000, hidden=(0, 50_000),
)  # fmt: skip
add(
    "busy", "copy-beside-communication",
    "A copy of 100 µs begins under an all-reduce and ends 20 µs after it.",
    "exposed communication while both run, exposed copy after it",
    [
        A,
        kernel(100_000, 200_000, (-10_000, -8_000), NCCL, stream=20),
        copy(120_000, 220_000, (-5_000, -4_000), stream=13),
        kernel(220_000, 270_000, (5_000, 8_000)),
    ],
    compute=150_000, exposed_communication=100_000, exposed_copy=20_000, hidden=(0, 80_000),
)  # fmt: skip
add(
    "busy", "copy-inside-the-device",
    "A copy inside the device and a memset.",
    "compute: both are work of the device's memory",
    [
        A,
        copy(100_000, 140_000, (-10_000, -8_000), "DtoD", "device"),
        memset(140_000, 150_000, (-7_000, -5_000)),
        kernel(150_000, 200_000, (5_000, 8_000)),
    ],
    compute=200_000,
)  # fmt: skip
add(
    "busy", "copy-between-devices",
    "A copy to another GPU.",
    "exposed communication",
    [A, copy(100_000, 140_000, (-10_000, -8_000), "PtoP", "device"), kernel(140_000, 190_000, (5_000, 8_000))],
    compute=150_000, exposed_communication=40_000,
)  # fmt: skip
add(
    "busy", "copy-of-a-collective",
    "A copy inside the device, launched inside the range of an all-gather.",
    "exposed communication: a collective done by a copy engine",
    [
        A,
        annotation(-14_000, -4_000, "nccl:all_gather"),
        copy(100_000, 140_000, (-10_000, -8_000), "DtoD", "device"),
        kernel(140_000, 190_000, (5_000, 8_000)),
    ],
    compute=150_000, exposed_communication=40_000,
)  # fmt: skip
add(
    "busy", "two-streams-fill-each-others-gaps",
    "Each of two streams is idle for a while, never both.",
    "compute throughout",
    [A, kernel(50_000, 200_000, (-10_000, -8_000), stream=13), kernel(200_000, 250_000, (5_000, 8_000))],
    compute=250_000,
)  # fmt: skip
add(
    "busy", "kernels-overlap-on-one-stream",
    "A kernel starts 2 µs before the one in front of it ends (programmatic dependent launch).",
    "compute, counted once",
    [A, kernel(98_000, 150_000, (5_000, 8_000))],
    compute=150_000,
)  # fmt: skip
add(
    "busy", "whole-graph-in-one-row",
    "A graph of 200 µs is recorded as one row.",
    "compute: what is inside is not known, but the GPU was busy; then launch-bound",
    [A, whole_graph(102_000, 302_000, (20_000, 30_000)), kernel(318_000, 368_000, (310_000, 315_000))],
    compute=350_000, queued=2_000, launch_bound=16_000,
)  # fmt: skip
add(
    "busy", "range-drawn-on-the-gpu",
    "A range that PyTorch draws on the stream covers the gap.",
    "launch-bound: the range is no work",
    [A, gpu_annotation(0, 350_000, "forward"), op(90_000, 306_000), kernel(307_000, 357_000, (300_000, 305_000))],
    compute=150_000, launch_bound=207_000,
)  # fmt: skip
add(
    "busy", "sync-drawn-on-the-stream",
    "A synchronisation of 200 µs is drawn on the stream.",
    "host sync for the call and a restart of 10 µs: the row on the stream is no work",
    [
        A,
        call(90_000, 290_000, "cudaStreamSynchronize"),
        sync_row(91_000, 289_000),
        kernel(307_000, 357_000, (300_000, 305_000)),
    ],
    compute=150_000, host_sync=200_000, launch_bound=7_000,
)  # fmt: skip

# --- what ends a gap ------------------------------------------------------------------------------------------------------

add(
    "ties", "earliest-launch-decides",
    "Two kernels start at once after 3 µs: one was launched long ago, the other just now.",
    "queued: the GPU could have started the first at any time",
    [A, kernel(103_000, 153_000, (98_000, 102_000)), kernel(103_000, 123_000, (20_000, 25_000), stream=13)],
    compute=150_000, queued=3_000,
)  # fmt: skip
add(
    "ties", "recorded-launch-decides",
    "Two kernels start at once; only one has a launch record.",
    "launch-bound, by the launch that is recorded",
    [A, kernel(150_000, 155_000, stream=13), kernel(150_000, 200_000, (140_000, 145_000))],
    compute=150_000, launch_bound=50_000,
)  # fmt: skip
add(
    "ties", "zero-length-activity-in-the-gap",
    "A memset of no length and without a launch record stands in the middle of the gap.",
    "launch-bound throughout: it ends no gap",
    [A, memset(150_000, 150_000), kernel(208_000, 258_000, (200_000, 205_000))],
    compute=150_000, launch_bound=108_000,
)  # fmt: skip
add(
    "ties", "zero-length-activity-at-the-end-of-the-gap",
    "A kernel of no length that was queued long ago starts together with the one that ends the gap.",
    "launch-bound: it ends no gap",
    [A, kernel(208_000, 208_000, (20_000, 25_000), stream=13), kernel(208_000, 258_000, (200_000, 205_000))],
    compute=150_000, launch_bound=108_000,
)  # fmt: skip
add(
    "ties", "kernel-before-its-launch",
    "The clocks disagree: the kernel starts 5 µs before its launch call. Within the gap the host is in cudaMalloc for 30 µs.",
    "allocation for 30 µs, launch-bound for the rest",
    [A, call(110_000, 140_000, "cudaMalloc"), kernel(150_000, 200_000, (155_000, 160_000))],
    compute=150_000, allocation=30_000, launch_bound=20_000,
)  # fmt: skip
add(
    "ties", "kernel-long-before-its-launch",
    "The clocks disagree: the kernel starts 60 µs before its launch, more than the gap is long. Within the gap the host is in cudaMalloc.",
    "unattributed: what the host did meanwhile is recorded as of another time",
    [A, call(110_000, 140_000, "cudaMalloc"), kernel(150_000, 200_000, (210_000, 215_000))],
    compute=150_000, unattributed=50_000,
)  # fmt: skip

# --- gaps and step boundaries ---------------------------------------------------------------------------------------------

add(
    "steps", "wait-falls-in-the-step-that-waits",
    "A fetch of 290 µs at the start of the second step, after the first step's work ended.",
    "data wait of the second step",
    second_step(600_000, annotation(110_000, 400_000, DATALOADER), kernel(418_000, 468_000, (410_000, 415_000))),
    windows=second_window(data_wait=290_000, launch_bound=28_000),
)  # fmt: skip
add(
    "steps", "evaluation-between-steps",
    "Between two steps an evaluation launches 50 µs of work; a fetch reaches over the start of the second step.",
    "the evaluation and 40 µs of the fetch lie between the steps, 10 µs of the fetch in the second",
    [
        annotation(-30_000, 50_000, "train_step 1"),
        kernel(0, 500_000, (-20_000, -15_000)),
        kernel(500_000, 550_000, (60_000, 65_000)),
        annotation(560_000, 610_000, DATALOADER),
        annotation(600_000, 700_000, "train_step 2"),
        kernel(620_000, 1_120_000, (610_000, 615_000)),
    ],
    windows=(
        ("train_step 1", {"compute": 500_000, "launch_bound": 30_000}),
        ("between steps", {"compute": 50_000, "launch_bound": 10_000, "data_wait": 40_000}),
        ("train_step 2", {"compute": 500_000, "data_wait": 10_000, "launch_bound": 10_000}),
    ),
)  # fmt: skip
add(
    "steps", "silence-between-steps",
    "Between two steps, silence of 200 µs and a copy to the device for the evaluation.",
    "launch-bound: between steps no batch of a step is awaited",
    [
        annotation(-30_000, 530_000, "train_step 1"),
        kernel(0, 500_000, (-20_000, -15_000)),
        op(450_000, 520_000),
        copy(728_000, 748_000, (720_000, 725_000)),
        kernel(750_000, 770_000, (727_000, 730_000)),
        annotation(765_000, 900_000, "train_step 2"),
        kernel(788_000, 1_288_000, (780_000, 785_000)),
    ],
    windows=(
        ("train_step 1", {"compute": 500_000, "launch_bound": 30_000}),
        ("between steps", {"compute": 20_000, "exposed_copy": 20_000, "queued": 2_000, "launch_bound": 228_000}),
        ("train_step 2", {"compute": 500_000, "launch_bound": 18_000}),
    ),
)  # fmt: skip
add(
    "steps", "copy-runs-on-into-the-next-step",
    "An asynchronous copy to the host, launched in the first step, still runs when the second one's turn comes.",
    "exposed copy of the second step, in which it runs",
    second_step(
        600_000,
        copy(20_000, 150_000, (-10_000, -8_000), "DtoH", stream=13),
        kernel(150_000, 250_000, (110_000, 115_000)),
    ),
    windows=(FIRST_WINDOW, ("ProfilerStep#2", {"compute": 100_000, "exposed_copy": 50_000})),
    hidden=(0, 80_000),
)  # fmt: skip
add(
    "steps", "work-launched-before-the-first-step",
    "A kernel launched before the first step's range runs into it.",
    "left out: the first step begins when that work ends",
    [
        annotation(-30_000, 105_000, "ProfilerStep#1"),
        kernel(-20_000, 60_000, (-50_000, -45_000)),
        kernel(60_000, 160_000, (-20_000, -15_000)),
    ],
    windows=(("ProfilerStep#1", {"compute": 100_000}),),
)  # fmt: skip
add(
    "steps", "work-from-before-the-capture",
    "The same, but the capture began after that kernel was launched.",
    "left out: the first step begins when that work ends",
    [
        annotation(-30_000, 105_000, "ProfilerStep#1"),
        kernel(-50_000, 40_000),
        kernel(40_000, 140_000, (-20_000, -15_000)),
    ],
    windows=(("ProfilerStep#1", {"compute": 100_000}),),
)  # fmt: skip


# --- both formats ---------------------------------------------------------------------------------------------------------

ZERO = 1_000_000_000
"""Where the common zero lies, in ns after the start of the session."""
PID = 100

_DIRECTIONS = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "PtoP": 10}
_MEMORY = {"pageable": 0, "pinned": 1, "device": 2}
_OVERHEAD_TYPES = {"Buffer Flush": 3, "Runtime Triggered Module Loading": 6, "Lazy Function Loading": 7, "Command Buffer Full": 8}


def write(timeline: Timeline, source: str, folder: Path) -> Path:
    """The timeline as a capture in this format; the file."""
    return (write_kineto if source == "kineto" else write_nsys)(timeline, folder)


def write_nsys(timeline: Timeline, folder: Path) -> Path:
    export = NsysExport()
    tid = {thread: PID + i for i, thread in enumerate(THREADS)}
    for thread in THREADS:
        export.thread_name(thread, pid=PID, tid=tid[thread])

    def called(start, end, name, thread, correlation):
        version = "_v7000" if name.startswith("cuda") else ""
        export.call(start + ZERO, end + ZERO, name + version, pid=PID, tid=tid[thread], correlation=correlation)

    for number, row in enumerate(timeline.rows, 1):
        start, end, correlation = row.start + ZERO, row.end + ZERO, 10 * number
        place = {"pid": PID, "stream": row.stream, "correlation": correlation}
        host = {"pid": PID, "tid": tid[row.thread]}
        if row.by is not None:
            called(*row.by, row.call, row.thread, correlation)
        if row.driver is not None:
            called(*row.driver, "cuLaunchKernel", row.thread, correlation)
        if row.what == "kernel":
            export.kernel(start, end, row.name, **place)
        elif row.what == "copy":
            host_side, device = _MEMORY[row.memory], _MEMORY["device"]
            memory = (device, host_side) if row.direction == "DtoH" else (host_side, device)
            between = (0, 1) if row.direction == "PtoP" else (None, None)
            export.copy(start, end, _DIRECTIONS[row.direction], src=memory[0], dst=memory[1], between=between, **place)
        elif row.what == "memset":
            export.memset(start, end, **place)
        elif row.what == "graph_nodes":
            for node, (node_start, node_end) in enumerate(row.spans, 1):
                export.kernel(node_start + ZERO, node_end + ZERO, row.name, node=node, **place)
        elif row.what == "graph":
            export.graph(start, end, **place)
        elif row.what == "call":
            called(row.start, row.end, row.name, row.thread, correlation)
        elif row.what == "op":
            export.nvtx(start, end, f"{row.name}, op_id = {number}", **host)
        elif row.what == "annotation":
            export.nvtx(start, end, row.name, **host)
        elif row.what == "os":
            export.os_call(start, end, row.name, **host)
        elif row.what in ("profiler", "loading"):
            export.overhead(start, end, row.name, kind=_OVERHEAD_TYPES.get(row.name, 0), **host)
        elif row.what == "stream_wait":
            called(*row.record, "cudaEventRecord", row.thread, correlation - 1)
            export.event(correlation - 1, 5, record=number, stream=row.record_stream, pid=PID)
            called(row.start, row.end, row.name, row.thread, correlation)
            export.sync(start, end, "wait", event=5, record=number, **place)
        elif row.what == "sync":
            export.sync(start, end, "stream", **place)
        else:
            raise ValueError(row.what)
    return export.write(folder / f"{timeline.name}.sqlite")


def write_kineto(timeline: Timeline, folder: Path) -> Path:
    trace = Kineto()
    tid = {thread: HOST_PID + i for i, thread in enumerate(THREADS)}
    for thread, number in tid.items():
        trace.label("thread_name", HOST_PID, number, name=f"thread {number} ({thread})")

    def called(start, end, name, thread, correlation):
        driver = name.startswith("cu") and not name.startswith("cuda")
        place = {"pid": HOST_PID, "tid": tid[thread], "correlation": correlation}
        trace.complete("cuda_driver" if driver else "cuda_runtime", name, start + ZERO, end - start, **place)

    for number, row in enumerate(timeline.rows, 1):
        start, length, correlation = row.start + ZERO, row.end - row.start, 10 * number
        place = {"stream": row.stream, "correlation": correlation}
        if row.by is not None:
            called(*row.by, row.call, row.thread, correlation)
        if row.driver is not None:
            called(*row.driver, "cuLaunchKernel", row.thread, correlation)
        if row.what == "kernel":
            trace.kernel(row.name, start, length, **place)
        elif row.what == "copy":
            between = {"fromDevice": 0, "toDevice": 1} if row.direction == "PtoP" else {}
            trace.memcpy(_copy_name(row), start, length, bytes=64, **place, **between)
        elif row.what == "memset":
            trace.memset(start, length, bytes=64, **place)
        elif row.what == "graph_nodes":
            for node, (node_start, node_end) in enumerate(row.spans, 1):
                trace.kernel(row.name, node_start + ZERO, node_end - node_start, graph_node_id=node, **place)
        elif row.what == "call":
            called(row.start, row.end, row.name, row.thread, correlation)
        elif row.what in _HOST_CATEGORIES:
            trace.complete(_HOST_CATEGORIES[row.what], row.name, start, length, pid=HOST_PID, tid=tid[row.thread])
        elif row.what in ("profiler", "loading"):
            trace.overhead(row.name, start, length)
        elif row.what == "stream_wait":
            called(*row.record, "cudaEventRecord", row.thread, correlation - 1)
            called(row.start, row.end, row.name, row.thread, correlation)
            trace.wait_event(start, record=correlation - 1, **place)
        elif row.what == "sync":
            trace.complete("cuda_sync", row.name, start, length, pid=0, tid=row.stream, device=0, **place)
        elif row.what == "gpu_annotation":
            trace.complete("gpu_user_annotation", row.name, start, length, pid=0, tid=row.stream)
        else:
            raise ValueError(row.what)
    return trace.write(folder / f"{timeline.name}.json")


_HOST_CATEGORIES = {"op": "cpu_op", "annotation": "user_annotation", "frame": "python_function"}
_SIDES = {"H": "Host", "D": "Device", "P": "Device"}


def _copy_name(row: Row) -> str:
    """As libkineto names copies: with the memory of both sides, on AMD with the sides alone."""
    source, target = (_SIDES[side] for side in row.direction.split("to"))
    if row.memory in ("pageable", "pinned"):
        source, target = ({"Host": row.memory.capitalize()}.get(side, side) for side in (source, target))
    return f"Memcpy {row.direction} ({source} -> {target})"


# --- the table for users --------------------------------------------------------------------------------------------------

_INTRODUCTION = """\
# Why the GPU was idle, by example

Each line is a small capture built by hand: a few rows, and what somebody who reads traces for a living would call the time. The tests
write every one of them as a PyTorch trace and as an Nsight Systems export, and the report must give these times to the nanosecond.

Unless a line says otherwise, the GPU works for the first 100 µs and then runs dry, the next launch call takes 5 µs, and its kernel
runs for 50 µs. "The gap" is the time in which the GPU has nothing to do. Times are those of the whole capture, or of each window where
the rows name steps; they sum to its length. The rules behind the table are in [time-model.md](time-model.md).

"""

_ONLY = {"kineto": "PyTorch", "nsys": "Nsight Systems"}
SOURCES = tuple(_ONLY)


def page() -> str:
    """The table as docs/idle-causes.md."""
    parts = [_INTRODUCTION]
    for section, title in SECTIONS.items():
        parts.append(f"## {title}\n\n| what the rows say | what it is | times | name |\n|---|---|---|---|\n")
        parts += [_line(timeline) for timeline in TIMELINES if timeline.section == section]
        parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"


def _line(timeline: Timeline) -> str:
    forms = [source for source in SOURCES if not timeline.unwritable(source)]
    only = f" ({_ONLY[forms[0]]} only)" if len(forms) == 1 else ""
    times = "; ".join((f"{label}: " if len(timeline.windows) > 1 else "") + _times(of_window) for label, of_window in timeline.windows)
    return f"| {timeline.says}{only} | {timeline.verdict} | {times} | {timeline.name} |\n"


def _times(of_window: dict[str, int]) -> str:
    return ", ".join(f"{StepClass[name.upper()].title} {_exact(of_window[name])}" for name in CLASSES if of_window.get(name))


def _exact(ns: int) -> str:
    """The time with all its digits."""
    whole, rest = divmod(ns, 1_000)
    return f"{whole:,}{f'.{rest:03}'.rstrip('0') if rest else ''} µs"
