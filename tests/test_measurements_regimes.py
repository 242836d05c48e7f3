import numpy as np
import pytest
from building import MS, US, Build, analyse

from traceread.measurements.matrix_work import KindWork
from traceread.measurements.peaks import load_gpus
from traceread.measurements.regimes import PHASES, Pace, Regime, Regimes, busy_share, find_paces, find_regimes
from traceread.model import MatrixKind

[H100] = [gpu for gpu in load_gpus() if gpu.key == "H100 SXM"]


def test_two_microseconds_against_three_point_six():
    assert busy_share(2_000, 3_600) == pytest.approx(0.556, abs=0.0005)
    assert Pace("gemm", 10, 20_000, 3_600).busy_share == pytest.approx(0.556, abs=0.0005)


def test_long_kernels_can_keep_the_gpu_busy():
    assert busy_share(5_000_000, 14_000) == 1.0
    assert busy_share(0, 0) == 0.0
    assert Pace("gemm", 1, 5_000, -1).busy_share is None


def test_a_launch_of_many_kernels_is_spread_over_them():
    b = Build()
    for step in range(2):
        at = step * 10 * MS
        b.range(at, at + 10 * MS, f"ProfilerStep#{step + 1}")
        for i in range(4):
            b.kernel(at + (100 + 20 * i) * US, at + (110 + 20 * i) * US, launch=(at + 40 * i * US, at + 40 * i * US + 900))
        graph = b.next_id
        b.kernel(at + 300 * US, at + 305 * US, launch=(at + 160 * US, at + 161 * US), call="cudaGraphLaunch", node=1)
        for i in range(1, 10):
            b.activity(at + (300 + 6 * i) * US, at + (305 + 6 * i) * US, correlation=graph, node=1 + i)
        b.kernel(at + 400 * US, at + 410 * US, launch=(at + 200 * US, at + 201 * US))
    trace = b.trace()
    launches, steps, *_ = analyse(trace)
    phases = np.where(trace.activities.graph_node > 0, 1, 0)
    [family], of_phase = find_paces(trace, launches, steps, phases)
    assert (family.name, family.kernels) == ("other", 15)
    assert family.launch_ns == 40 * US * 6 // 15
    forward, backward = of_phase
    assert (forward.name, forward.kernels, forward.kernel_ns, forward.launch_ns) == ("forward", 5, 10 * US, 40 * US)
    assert (backward.name, backward.kernels, backward.kernel_ns, backward.launch_ns) == ("backward", 10, 5 * US, 4 * US)
    assert forward.busy_share == 0.25
    assert backward.busy_share == 1.0


def test_phases_are_told_apart_or_left_out():
    b = Build()
    for step in range(2):
        b.range(step * MS, (step + 1) * MS, f"ProfilerStep#{step + 1}")
        b.kernel(step * MS + 100 * US, step * MS + 200 * US, launch=(step * MS, step * MS + 900))
    trace = b.trace()
    launches, steps, *_ = analyse(trace)
    _, of_phase = find_paces(trace, launches, steps, np.zeros(len(trace.activities), np.int64))
    assert of_phase == ()
    assert PHASES == ("forward", "backward", "optimizer")


def regimes(families, *, kinds=(), gpu=H100, launching=0, step=10_000_000):
    return find_regimes(families, (), kinds, gpu, step, launching, 1)


def work(flops, moved, precision="bf16", ns=1):
    return KindWork(MatrixKind.GEMM, 1, {precision: flops}, moved, ns, 1, 1)


SHORT, LONG = Pace("gemm", 1000, 2_000_000, 3_600), Pace("gemm", 10, 5_000_000, 3_600)


def test_kernels_shorter_than_their_launches():
    [bound] = regimes([SHORT], launching=1_600_000).families
    assert (bound.regime, bound.measured) == (Regime.OVERHEAD, True)


def test_short_kernels_that_run_ahead_hides_are_bound_by_something_else():
    assert regimes([SHORT], launching=50_000).families[0].regime is Regime.COMPUTE
    assert regimes([LONG], launching=1_600_000).families[0].regime is Regime.COMPUTE


@pytest.mark.parametrize(("intensity", "regime"), [(607, Regime.COMPUTE), (296, Regime.COMPUTE), (295, Regime.MEMORY), (10, Regime.MEMORY)])
def test_flops_and_bytes_decide_where_shapes_are_recorded(intensity, regime):
    [bound] = regimes([LONG], kinds=[work(intensity * 1000, 1000)]).families
    assert (bound.regime, bound.measured) == (regime, True)
    assert f"{intensity} FLOP a byte" in bound.evidence
    assert "295 of the H100 SXM in bf16" in bound.evidence


def test_kernels_far_below_both_roofs_are_bound_by_neither():
    [bound] = regimes([LONG], kinds=[work(989_400_000, 335_000, ns=10_000)]).families  # a tenth of the peak, a hundredth of the bandwidth
    assert (bound.regime, bound.measured) == (Regime.UNKNOWN, True)
    assert bound.evidence.startswith("10.0 % of the peak and 1.0 % of the bandwidth")
    [bound] = regimes([LONG], kinds=[work(989_400_000, 335_000, ns=2_000)]).families
    assert bound.regime is Regime.COMPUTE
    [bound] = regimes([LONG], kinds=[work(98_940_000, 10_000_000, ns=10_000)]).families
    assert bound.regime is Regime.MEMORY


def test_by_kind_without_shapes_or_without_a_known_gpu():
    names = ("gemm", "attention", "convolution", "elementwise", "normalisation", "optimizer", "memory", "triton", "graph", "other")
    found = {b.pace.name: b.regime for b in regimes([Pace(n, 1, 1000, -1) for n in names]).families}
    assert [found[n] for n in names] == [Regime.COMPUTE] * 3 + [Regime.MEMORY] * 4 + [Regime.UNKNOWN] * 3
    [bound] = regimes([LONG], kinds=[work(10, 1000)], gpu=None).families
    assert (bound.regime, bound.measured) == (Regime.COMPUTE, False)
    [bound] = regimes([LONG], kinds=[work(10, 1000, precision="fp4")]).families
    assert not bound.measured


def test_the_step_is_bound_by_what_takes_most_of_it():
    found = regimes([LONG, Pace("elementwise", 10, 2_000_000, 3_600)], launching=1_000_000)
    assert found.shares == {Regime.OVERHEAD: 0.1, Regime.MEMORY: 0.2, Regime.COMPUTE: 0.5, Regime.UNKNOWN: 0.0}
    assert found.step is Regime.COMPUTE
    assert regimes([SHORT], launching=5_000_000).step is Regime.OVERHEAD
    assert Regimes().step is None
    assert regimes([]).step is None


def test_as_builtins():
    value = regimes([SHORT, Pace("other", 1, 1000, -1)], launching=1_600_000).to_dict()
    assert value["step"] == "overhead-bound"
    assert value["families"][0]["busy_share"] == pytest.approx(0.556, abs=0.0005)
    assert value["families"][1]["launch_ns"] is None
