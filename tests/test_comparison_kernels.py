"""Kernels and ranges of two sides find each other although their names changed."""

import pytest
from comparing import kernel, side

from traceread.comparison.kernel_names import shapeless, spelling, untyped
from traceread.comparison.kernels import BY_NAME, BY_OP, BY_SHAPE, BY_TEMPLATE, compare_families, compare_kernels
from traceread.comparison.ranges import compare_ranges

GEMM_A = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn"
GEMM_B = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("void gemm(int, float)", "gemm"),
        ("void f<(int)4, (bool)1>(int)", "f<4,1>"),
        ("at::native::(anonymous namespace)::softmax<float, 3ul>(float*)", "at::native::<unnamed>::softmax<float, 3>"),
        ("f<g<int> >(x)", "f<g<int>>"),
        ("f(int) [clone .kd]", "f(int)"),
    ],
)
def test_the_same_kernel_however_it_is_spelled(one, other):
    assert spelling(one) == spelling(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (GEMM_A, GEMM_B),
        ("void flash_fwd<Traits<128, 64, 64, 4, false>, true>(P)", "void flash_fwd<Traits<96, 128, 32, 8, false>, true>(P)"),
        ("triton_poi_fused_add_mul_12", "triton_poi_fused_add_mul_7"),
        ("sm90_xmma_gemm_bf16_nn_n_tilesize128x128x64_stage4", "sm90_xmma_gemm_bf16_nn_n_tilesize64x256x64_stage3"),
    ],
)
def test_shapes_do_not_make_another_kernel(one, other):
    assert spelling(one) != spelling(other)
    assert shapeless(one) == shapeless(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("flash_fwd<Traits<128, false>, true>", "flash_fwd<Traits<128, false>, false>"),
        ("ampere_bf16_s16816gemm_bf16_128x256_nn", "ampere_bf16_s16816gemm_bf16_128x256_nt"),
        ("ampere_fp16_gemm_64x64", "ampere_bf16_gemm_64x64"),
        ("triton_poi_fused_add_1", "triton_poi_fused_mul_1"),
        ("Memcpy DtoH (Device -> Pinned)", "Memcpy DtoH (Device -> Pageable)"),
    ],
)
def test_other_kernels_stay_other_kernels(one, other):
    assert shapeless(one) != shapeless(other)


def test_template_arguments_can_be_left_out():
    assert untyped("void add<float, 4>(int)") == untyped("void add<c10::BFloat16, 8>(int)") == "add"


def changed(before, after):
    return compare_kernels(side([100], kernels=before), side([100], kernels=after))


@pytest.mark.parametrize(
    ("one", "other", "way"),
    [
        (kernel("void f<4>(int)"), kernel("f<4>"), BY_NAME),
        (kernel(GEMM_A), kernel(GEMM_B), BY_SHAPE),
        (kernel("add<float>"), kernel("add<double>"), BY_TEMPLATE),
        (kernel("volta_sgemm", op="aten::mm"), kernel("nvjet_tst", op="aten::mm"), BY_OP),
    ],
)
def test_the_nearest_way_matches(one, other, way):
    [change] = changed([one], [other])
    assert (change.matched_by, change.status, change.difference_ns) == (way, "both", 0)


def test_a_name_on_both_sides_is_never_given_to_another():
    changes = changed([kernel(GEMM_A, total=5), kernel(GEMM_B, total=7)], [kernel(GEMM_A, total=6)])
    assert [(c.matched_by, c.status, c.difference_ns) for c in changes] == [("", "removed", -7), (BY_NAME, "both", 1)]


def test_categories_are_not_mixed():
    changes = changed([kernel("f", category="compute")], [kernel("f", category="communication")])
    assert {c.status for c in changes} == {"added", "removed"}


def test_kernels_of_no_op_are_not_one_another():
    changes = changed([kernel("a")], [kernel("b")])
    assert {(c.name, c.status) for c in changes} == {("a", "removed"), ("b", "added")}


def test_several_kernels_of_an_op_become_one():
    before = [kernel("gemm1", op="aten::mm", count=2, total=10), kernel("reduce1", op="aten::mm", count=4, total=30)]
    [change] = changed(before, [kernel("fused", op="aten::mm", count=3, total=25)])
    assert (change.name, change.matched_by, change.difference_ns) == ("aten::mm", BY_OP, -15)
    assert change.before.names == ("reduce1", "gemm1")
    assert (change.before.count, change.before.launch_ns) == (6, 7)


def test_everything_is_per_step_and_per_launch():
    before = side([100] * 2, kernels=[kernel("f", count=20, total=1000)])
    after = side([100] * 5, kernels=[kernel("f", count=25, total=4000)])
    [change] = compare_kernels(before, after)
    assert (change.before.step_ns, change.before.launches, change.before.launch_ns) == (500, 10, 50)
    assert (change.after.step_ns, change.after.launches, change.after.launch_ns) == (800, 5, 160)
    assert change.difference_ns == 300


def test_the_largest_change_comes_first():
    changes = changed([kernel("a", total=10), kernel("b", total=10)], [kernel("a", total=12), kernel("b", total=3)])
    assert [c.name for c in changes] == ["b", "a"]


def test_families():
    before = side([100], families=[kernel("gemm", total=10), kernel("copy", category="copy", family="copy", total=5)])
    after = side([100], families=[kernel("gemm", total=4), kernel("attention", family="attention", total=3)])
    found = {c.name: (c.status, c.difference_ns) for c in compare_families(before, after)}
    assert found == {"gemm": ("both", -6), "copy": ("removed", -5), "attention": ("added", 3)}


def opened(*path, count=1, host=10, gpu=20):
    return {"path": list(path), "count": count, "host_ns": host, "gpu_ns": gpu}


def test_ranges_match_by_path_then_by_a_name_that_only_one_has():
    before = side([100], ranges=[opened("forward", gpu=50), opened("forward", "attention", gpu=30), opened("old", gpu=5)])
    after = side([100], ranges=[opened("forward", gpu=40), opened("model", "forward", "attention", gpu=35), opened("new", gpu=4)])
    found = {c.path: (c.before is None, c.after is None, c.gpu_difference_ns) for c in compare_ranges(before, after)}
    assert found == {
        ("forward",): (False, False, -10),
        ("model", "forward", "attention"): (False, False, 5),
        ("old",): (False, True, -5),
        ("new",): (True, False, 4),
    }


def test_ranges_are_per_step():
    [change] = compare_ranges(side([100] * 2, ranges=[opened("f", host=20, gpu=8)]), side([100] * 4, ranges=[opened("f", host=20, gpu=8)]))
    assert (change.host_difference_ns, change.gpu_difference_ns) == (-5, -2)
