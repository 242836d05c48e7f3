"""Known answers: published utilisation figures recomputed from their published inputs."""

import pytest

from traceread.measurements.flops import Recomputation, TokenFlops, flops_of_token, megatron_flops, utilisation

NONE, SELECTIVE, FULL = Recomputation


def percent(tokens_per_s, flops, gpus, peak):
    return 100 * utilisation(tokens_per_s * flops, gpus, peak)


def rounded(value, digits):
    return round(value, digits)


def test_palm_540b():
    flops = flops_of_token(540_350_000_000, 118, 48 * 256, 2048)
    assert rounded(percent(238.3e3, flops.model, 6144, 275e12), 2) == 46.23
    assert rounded(percent(238.3e3, flops.without_attention, 6144, 275e12), 2) == 45.73


def test_megatron_turing_530b_in_the_convention_of_palm():
    flops = flops_of_token(530_000_000_000, 105, 128 * 160, 2048)
    assert rounded(percent(65.43e3, flops.model, 2240, 312e12), 2) == 30.27
    assert rounded(percent(65.43e3, flops.without_attention, 2240, 312e12), 2) == 29.77


@pytest.mark.parametrize(("nodes", "seconds", "tflops"), [(280, 60.1, 125.7), (350, 50.2, 120.4), (420, 44.4, 113.5)])
def test_megatron_turing_530b_with_full_recomputation(nodes, seconds, tflops):
    flops = megatron_flops(1920, 2048, 105, 20480, 51200, FULL)
    assert rounded(flops / seconds / (nodes * 8) / 1e12, 1) == tflops


@pytest.mark.parametrize(
    ("sequences", "layers", "hidden", "gpus", "seconds", "mfu", "hfu"),
    [
        (4, 48, 6144, 8, 1.10, 41.65, 43.81),
        (64, 96, 12288, 64, 13.75, 51.39, 52.77),
        (280, 105, 20480, 280, 37.83, 56.05, 56.96),
        (512, 128, 25600, 512, 71.49, 56.27, 57.01),
    ],
)
def test_selective_recomputation_of_korthikanti(sequences, layers, hidden, gpus, seconds, mfu, hfu):
    shape = (sequences, 2048, layers, hidden, 51200)
    assert rounded(100 * utilisation(megatron_flops(*shape) / seconds, gpus, 312e12), 2) == mfu
    assert rounded(100 * utilisation(megatron_flops(*shape, SELECTIVE) / seconds, gpus, 312e12), 2) == hfu


@pytest.mark.parametrize(
    ("parameters", "layers", "width", "length", "tokens_per_s", "gpus", "mfu", "hfu"),
    [
        (64862437376, 80, 8192, 2048, 515636, 512, 41.25, 55.0),
        (29975214080, 48, 7168, 2048, 1083366, 512, 40.27, 53.69),
        (12853954560, 40, 5120, 2048, 2535811, 512, 41.12, 54.83),
        (6658859008, 32, 4096, 2048, 4951479, 512, 42.20, None),
        (6658859008, 32, 4096, 2048, 85144, 8, 46.44, None),
        (1445974016, 24, 2048, 65536, 44050, 8, 26.34, 35.12),
        (13011240960, 40, 5120, 32768, 15812, 8, 31.68, 42.24),
        (2651837440, 32, 2560, 2048, 11092218, 512, 39.24, None),
    ],
)
def test_rows_of_the_benchmark_table_of_llm_foundry(parameters, layers, width, length, tokens_per_s, gpus, mfu, hfu):
    flops = flops_of_token(parameters, layers, width, length, FULL)
    assert percent(tokens_per_s, flops.model, gpus, 989.5e12) == pytest.approx(mfu, abs=0.01)
    if hfu is not None:
        assert percent(tokens_per_s, flops.hardware, gpus, 989.5e12) == pytest.approx(hfu, abs=0.01)


@pytest.mark.parametrize(("tflops", "mfu"), [(430, 43.5), (400, 40.4), (380, 38.4)])
def test_llama_3_405b(tflops, mfu):
    assert rounded(100 * utilisation(tflops * 1e12, 1, 989e12), 1) == mfu


def test_megatron_1t_of_2021():
    assert rounded(100 * utilisation(163e12, 1, 312e12), 1) == 52.2


def test_torchtitan_llama_3_1_8b():
    flops = flops_of_token(7_504_924_672, 32, 32 * 128, 8192)
    assert rounded(flops.model / 1e9, 3) == 57.914
    assert rounded(flops.model * 5762 / 1e12, 1) == 333.7


def test_6n_alone():
    flops = flops_of_token(7_000_000_000)
    assert (flops.convention, flops.model, flops.causal) == ("6N", 42_000_000_000, None)
    assert rounded(percent(8.39e6 / 1.8, flops.model, 512, 1e15), 0) == 38


def test_1_2b_on_eight_h100():
    flops = flops_of_token(1_200_000_000, 24, 2048, 2048, FULL)
    assert flops.convention == "6N + 12LHQT"
    assert rounded(percent(400e3, flops.model, 8, 989e12), 1) == 42.5
    assert rounded(percent(400e3, flops.without_attention, 8, 989e12), 1) == 36.4
    assert rounded(percent(400e3, flops.hardware, 8, 989e12), 1) == 56.7


def test_conventions_of_one_model():
    n, attention = 6_740_000_000, 12 * 32 * 4096 * 4096
    flops = flops_of_token(n, 32, 4096, 4096, FULL)
    assert flops.model == 6 * n + attention
    assert flops.causal == 6 * n + attention // 2
    assert flops.hardware == (8 * n + 16 * 32 * 4096 * 4096)
    assert TokenFlops(n, attention, NONE).hardware == flops.model
    assert TokenFlops(n, attention, SELECTIVE).hardware == 6 * n + 2 * attention
    assert TokenFlops(n, attention).hardware is None


@pytest.mark.parametrize("shape", [(None, 4096, 4096), (32, None, 4096), (32, 4096, None)])
def test_attention_is_left_out_where_its_shape_is_not_known(shape):
    assert flops_of_token(10**9, *shape) == TokenFlops(10**9)


def test_selective_recomputation_of_attention_that_is_not_known():
    assert TokenFlops(10**9, None, SELECTIVE).hardware is None
    assert TokenFlops(10**9, None, FULL).hardware == 8 * 10**9
