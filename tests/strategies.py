"""Hypothesis strategies for whole traces: any rows, sensible or not."""

from building import Build
from hypothesis import strategies as st

from traceread.model import ActivityKind, Category, CopyKind, RangeKind

US = 1_000
instants = st.one_of(st.integers(0, 3_000).map(lambda t: t * US), st.integers(0, 3_000_000))
lengths = st.one_of(st.sampled_from([0, 1, 7 * US, 25 * US, 150 * US, 1_200 * US]), st.integers(0, 400 * US))

CALLS = [
    "cudaLaunchKernel",
    "cudaMemcpyAsync",
    "cudaStreamSynchronize",
    "cudaMemcpy",
    "cudaMalloc",
    "cudaFree",
    "cuModuleLoadData",
    "cudaGraphLaunch",
    "cudaEventQuery",
]
RANGES = ["enumerate(DataLoader)#x.__next__", "save_checkpoint", "forward", "compile_fx", "gloo:all_reduce", "load_batch"]
OPS = ["aten::mm", "aten::copy_"]
FRAMES = ["train.py(12): main", "torch/utils/data/dataloader.py(1): __next__"]


@st.composite
def builds(draw, max_rows=14):
    b = Build()
    rows = draw(st.integers(0, max_rows))
    for _ in range(rows):
        start = draw(instants)
        end = start + draw(lengths)
        kind = draw(st.sampled_from(list(ActivityKind)))
        category = draw(st.sampled_from([Category.COMPUTE, Category.COMMUNICATION, Category.COPY]))
        launch_at = draw(st.one_of(st.none(), instants))
        b.kernel(
            start,
            end,
            kind=kind,
            category=category,
            stream=draw(st.sampled_from([7, 20, 24])),
            name=draw(st.sampled_from(["a", "b", "c"])),
            launch=None if launch_at is None else (launch_at, launch_at + draw(lengths)),
            thread=draw(st.integers(1, 3)),
            call=draw(st.sampled_from(CALLS)),
            copy_kind=draw(st.sampled_from(list(CopyKind))),
            pageable=draw(st.sampled_from([-1, 0, 1])),
        )
    for _ in range(draw(st.integers(0, max_rows))):
        start = draw(instants)
        kind, names = draw(
            st.sampled_from(
                [
                    (RangeKind.ANNOTATION, RANGES),
                    (RangeKind.OP, OPS),
                    (RangeKind.PYTHON, FRAMES),
                    (RangeKind.OS, ["poll"]),
                    (RangeKind.PROFILER, ["Buffer Flush"]),
                    (RangeKind.LOADING, ["Lazy Function Loading"]),
                ]
            )
        )
        b.range(start, start + draw(lengths), draw(st.sampled_from(names)), kind, thread=draw(st.integers(1, 3)))
    for _ in range(draw(st.integers(0, 6))):
        start = draw(instants)
        b.call(start, start + draw(lengths), draw(st.sampled_from(CALLS)), thread=draw(st.integers(1, 3)))
    at = draw(st.integers(0, 500_000))
    prefix = draw(st.sampled_from(["ProfilerStep#", "my step ", None]))
    for i in range(draw(st.integers(0, 4)) if prefix else 0):
        length = draw(st.integers(1, 800_000))
        b.range(at, at + length, f"{prefix}{i}")
        at += length + draw(st.integers(0, 200_000))
    return b
