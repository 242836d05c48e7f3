import pytest
from building import MS, US, Build, analyse

from traceread.categories import FAMILIES
from traceread.measurements.matrix_work import KindWork, MatrixWork, find_matrix_work
from traceread.model import ELEMENT_BYTES, MatrixKind, MatrixOps

BF16, FLOAT, FP8, HALF = (list(ELEMENT_BYTES).index(name) for name in ("BFloat16", "Float", "Float8_e4m3fn", "Half"))
GEMM, ADD, TF32 = "sm90_xmma_gemm_bf16bf16", "vectorized_elementwise_kernel", "cutlass_80_tensorop_s1688gemm_256x64"


def traced(ops, kernels, *, steps=2):
    """Steps of 10 ms; ops as (start, end, kind, dtype, flops, bytes), kernels as (launch, start, end, name, family), times in µs."""
    b = Build()
    rows = []
    for step in range(steps):
        at = step * 10 * MS
        b.range(at, at + 10 * MS, f"ProfilerStep#{step + 1}")
        for launch, start, end, name, _ in kernels:
            b.kernel(at + start * US, at + end * US, launch=(at + launch * US, at + launch * US + 500), name=name)
        rows += [(at + start * US, at + end * US, 0, *more) for start, end, *more in ops]
    trace = b.trace()
    families = {name: FAMILIES.index(family) for *_, name, family in kernels}
    family = [families[trace.names[code]] for code in trace.activities.name.tolist()]
    return trace.__class__(
        **{**vars(trace), "activities": trace.activities.replace(family=family), "matrix_ops": MatrixOps.from_rows(rows)}
    )


def worked(*args, **more):
    trace = traced(*args, **more)
    launches, steps, *_ = analyse(trace)
    return find_matrix_work(trace, launches, steps)


KERNELS = [
    (110, 200, 1200, GEMM, "gemm"),
    (120, 1200, 1300, ADD, "elementwise"),
    (310, 2000, 2500, GEMM, "gemm"),
    (510, 3000, 3500, GEMM, "gemm"),
]
OPS = [
    (100, 150, MatrixKind.GEMM, BF16, 8_000_000, 1_000),
    (105, 140, MatrixKind.GEMM, BF16, 5_000_000, 1_000),  # inside the one before
    (300, 350, MatrixKind.GEMM, BF16, 2_000_000, 3_000),
    (700, 750, MatrixKind.GEMM, BF16, 9_000_000, 1_000),  # launches nothing: it ran on the CPU
]


def test_flops_time_and_rate_of_operators():
    work = worked(OPS, KERNELS)
    [gemm] = work.kinds
    assert work.steps == 1  # the first step is left out
    assert (gemm.operators, gemm.flops, gemm.bytes) == (2, {"bf16": 10_000_000}, 4_000)
    assert gemm.ns == 1_600 * US  # with the elementwise kernel that one of them launches
    assert (gemm.kernel_ns, gemm.known_ns) == (2_000 * US, 1_500 * US)
    assert work.coverage == 0.75
    assert gemm.rate == pytest.approx(10_000_000 / 1.6e-3)
    assert gemm.intensity == 2_500
    assert work.flops == 10_000_000


def test_means_of_several_steps():
    work = worked(OPS, KERNELS, steps=4)
    assert (work.steps, work.flops, work.kinds[0].operators) == (3, 10_000_000, 6)
    value = work.to_dict({"bf16": 1e12})
    assert value["flops"] == 10_000_000
    assert value["kinds"][0]["operators"] == 2
    assert value["kinds"][0]["peak_share"] == pytest.approx(10_000_000 / 1e12 / 1.6e-3)


def test_number_formats():
    kernels = [
        (110, 200, 1200, GEMM, "gemm"),
        (210, 1200, 1300, TF32, "gemm"),
        (310, 2000, 2500, "volta_sgemm_64x64_nt", "gemm"),
    ]
    ops = [
        (100, 150, MatrixKind.GEMM, FP8, 100, 1),
        (200, 250, MatrixKind.GEMM, FLOAT, 10, 1),
        (300, 350, MatrixKind.GEMM, FLOAT, 1, 1),
    ]
    [gemm] = worked(ops, kernels).kinds
    assert gemm.flops == {"fp8": 100, "tf32": 10, "fp32": 1}
    peaks = {"fp8": 1e6, "tf32": 1e5, "fp32": 1e4}
    assert gemm.peak_share(peaks) == pytest.approx((1e-4 + 1e-4 + 1e-4) / 1.6e-3)
    assert gemm.peak_share({"fp8": 1e6}) is None


def test_kinds_beside_each_other():
    kernels = [
        (110, 200, 1200, "flash_fwd_kernel", "attention"),
        (210, 1200, 1300, GEMM, "gemm"),
        (310, 2000, 2100, "cudnn_conv", "convolution"),
    ]
    ops = [(100, 150, MatrixKind.ATTENTION, HALF, 1_000, 10), (200, 250, MatrixKind.GEMM, HALF, 10, 10)]
    work = worked(ops, kernels)
    assert [(k.kind, k.operators, k.flops) for k in work.kinds] == [
        (MatrixKind.ATTENTION, 1, {"fp16": 1_000}),
        (MatrixKind.GEMM, 1, {"fp16": 10}),
        (MatrixKind.CONVOLUTION, 0, {}),
    ]
    assert work.coverage == pytest.approx(1_100 / 1_200)


def test_without_shapes_nothing_is_known():
    work = worked([], KERNELS)
    assert (work.flops, work.coverage) == (0, 0.0)
    assert work.to_dict({}) is None
    assert (work.kinds[0].rate, work.kinds[0].intensity, work.kinds[0].peak_share({})) == (None, None, None)


def test_without_kernels_that_multiply():
    assert worked([], [(110, 200, 1200, ADD, "elementwise")]).kinds == ()
    assert MatrixWork().to_dict({}) is None


def test_the_prevailing_number_format():
    def work(**flops):
        return MatrixWork((KindWork(MatrixKind.GEMM, 1, flops, 1, 1, 1, 1),), 1)

    assert work(bf16=90, fp32=10).precision == "bf16"
    assert work(bf16=89, fp8=11).precision is None
    assert work(**{"": 100}).precision is None
    assert MatrixWork().precision is None


def test_rates_need_time():
    assert KindWork(MatrixKind.GEMM, 1, {"bf16": 5}, 0, 0, 0, 0).rate is None
