"""Hand-built profiles whose reports are easy to check by eye; used by the tests of reporters and command line."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from building import MS, US, Build

from traceread.categories import Patterns, classify
from traceread.errors import Notice
from traceread.model import Capability, Device, Profile
from traceread.report import AnalysisOptions, StepRange, analyze_profile

BASE = 1_700_000_000 * 10**9
GEMM = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(Params)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, float)"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
H100 = Device(0, "NVIDIA H100 80GB HBM3", 80 << 30, 132)


def train_step(b, at, *, late=0):
    """One step of 40 ms + `late`: the batch is late, an item() drains the queue, an all-reduce sticks out at the end."""
    b.range(at, at + 5 * MS, LOADER, thread=1)
    at += 5 * MS + late
    b.copy(at + 20 * US, at + 220 * US, launch=(at, at + 10 * US), pageable=0, size=1 << 20)
    b.op(at + 40 * US, at + 300 * US, "aten::linear")
    b.kernel(at + 220 * US, at + 12 * MS, launch=(at + 50 * US, at + 60 * US), name=GEMM)
    b.kernel(at + 12 * MS, at + 15 * MS, launch=(at + 70 * US, at + 80 * US), name=ADD)
    b.op(at + 100 * US, at + 16 * MS, "aten::item").op(at + 105 * US, at + 15_900 * US, "aten::_local_scalar_dense")
    b.call(at + 110 * US, at + 15_500 * US, "cudaStreamSynchronize")
    b.kernel(at + 17 * MS, at + 27 * MS, launch=(at + 16_900 * US, at + 16_950 * US), thread=2, name=GEMM)
    b.kernel(at + 20 * MS, at + 32 * MS, launch=(at + 16_960 * US, at + 16_970 * US), thread=2, name=NCCL, stream=20)
    b.kernel(at + 32_002 * US, at + 34_800 * US, launch=(at + 16_980 * US, at + 16_990 * US), name=ADD)


def build_rank(rank=0, *, steps=4, late=0, **more):
    b = Build()
    for number in range(steps):
        at = BASE + (40 * MS + late) * number
        b.range(at, at + 40 * MS + late - 50 * US, f"ProfilerStep#{10 + number}")
        train_step(b, at, late=late)
    fields = {
        "device": H100,
        "files": (Path(f"run/rank{rank}.json"),),
        "rank_source": "distributedInfo",
        "world_size": 32,
        "host": "node01",
    }
    fields |= more
    return b.trace(rank, **fields)


def report_of(*traces, title="run/", notices=(), skipped=(), **options):
    patterns = Patterns.load(())
    profile = Profile("kineto", title, tuple(classify(t, patterns) for t in traces), tuple(notices), tuple(skipped))
    return analyze_profile(profile, AnalysisOptions(**options))


@cache
def one_rank():
    """Four steps of rank 3 of 32."""
    recorded = frozenset(Capability) - {Capability.STACKS, Capability.SYNC_EVENTS}
    return report_of(build_rank(3, recorded=recorded))


@cache
def four_ranks():
    """Ranks 0 to 3 of 32, rank 2 late with its batch; all have the same warning with other numbers."""
    traces = [build_rank(r, late=2 * MS if r == 2 else 0) for r in range(4)]
    warned = [replace(t, notices=(Notice("odd-times", f"{t.rank + 1} rows have impossible times", t.rank),)) for t in traces]
    return report_of(*warned, notices=[Notice("rank-order", "said of the whole capture")], skipped=[(Path("run/notes.txt"), "no trace")])


@cache
def many_ranks():
    """64 ranks, each a little slower than the one before."""
    return report_of(*(build_rank(r, steps=3, late=10 * US * r, world_size=64) for r in range(64)))


@cache
def whole_capture():
    """No ranges at all."""
    b = Build()
    for number in range(3):
        train_step(b, BASE + 40 * MS * number)
    trace = b.trace(device=H100, recorded=frozenset(Capability))
    ranges = trace.ranges.take(trace.ranges.kind != 1)
    return report_of(replace(trace, ranges=ranges))


@cache
def first_step_only():
    """One step, the first, complete."""
    return report_of(build_rank(steps=1))


@cache
def two_of_four_steps():
    """The user's own choice of steps."""
    return report_of(build_rank(steps=4), steps=StepRange(11, 13))


@cache
def uneven():
    """Three quick steps and a slow one."""
    b = Build()
    at = BASE
    for number, late in enumerate([0, 0, 0, 30 * MS]):
        b.range(at, at + 40 * MS + late - 50 * US, f"train_step {number}")
        train_step(b, at, late=late)
        at += 40 * MS + late
    return report_of(b.trace(device=H100))


@cache
def host_only():
    """Host rows but no GPU work."""
    b = Build()
    b.range(BASE, BASE + 90 * MS, "ProfilerStep#7").range(BASE + MS, BASE + 41 * MS, LOADER).op(BASE + 50 * MS, BASE + 60 * MS, "aten::mm")
    b.call(BASE + 51 * MS, BASE + 51 * MS + 20 * US, "cudaLaunchKernel", correlation=1)
    return report_of(b.trace(recorded=frozenset((Capability.OPS, Capability.RANGES))))


@cache
def empty_steps():
    """One step range in which nothing ran on the GPU, and work outside it."""
    b = Build()
    b.range(BASE, BASE + 5 * MS, "ProfilerStep#1")
    b.kernel(BASE + 7 * MS, BASE + 8 * MS, launch=(BASE + 6 * MS, BASE + 6 * MS + 10 * US))
    return report_of(b.trace())


HOSTILE = "\x1b]0;owned\x07\x1b[31m[bold]=cmd|'/c calc'!A1<script>alert(1)</script>\u202e`$x$`|\r\n\udc80# @all {{7*7}} [x](javascript:y)"


@cache
def hostile():
    """Names made to break out of whatever shows them."""
    b = Build()
    for number in range(3):
        at = BASE + 10 * MS * number
        b.range(at, at + 10 * MS, f"ProfilerStep#{number}")
        b.range(at + MS, at + 5 * MS, f"{LOADER}{HOSTILE}")
        b.kernel(at + 5 * MS, at + 6 * MS, launch=(at + 5 * MS - 20 * US, at + 5 * MS - 10 * US), name=HOSTILE)
        b.kernel(at + 6 * MS, at + 9 * MS, launch=(at + 5 * MS, at + 5 * MS + 10 * US), name="=1+1")
    trace = b.trace(device=Device(0, HOSTILE), host=HOSTILE, files=(Path("run/<b>.json"),), versions={"nsys": HOSTILE})
    return report_of(replace(trace, notices=(Notice("odd-times", HOSTILE, 0),)), title=HOSTILE)


def everything():
    """Every profile, by name."""
    makers = (
        one_rank,
        four_ranks,
        many_ranks,
        whole_capture,
        first_step_only,
        two_of_four_steps,
        uneven,
        host_only,
        empty_steps,
        hostile,
    )
    return {make.__name__: make for make in makers}
