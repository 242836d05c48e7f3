import pytest

from traceread.model import ELEMENT_BYTES, MatrixKind
from traceread.readers.operator_flops import OPERATORS, work_of

BF16, FLOAT, FP8 = (list(ELEMENT_BYTES).index(name) for name in ("BFloat16", "Float", "Float8_e4m3fn"))


def flops(name, dims, concrete=None, types=None):
    work = work_of(name, dims, types or ["c10::BFloat16"] * len(dims), concrete)
    return None if work is None else work.flops


@pytest.mark.parametrize(
    ("name", "dims", "expected"),
    [
        ("aten::mm", [[8944, 1024], [1024, 2816]], 2 * 8944 * 1024 * 2816),
        ("aten::addmm", [[1024], [8944, 1024], [1024, 1024], [], []], 2 * 8944 * 1024 * 1024),
        ("aten::bmm", [[12, 64, 32], [12, 32, 48]], 2 * 12 * 64 * 32 * 48),
        ("aten::baddbmm", [[12, 64, 48], [12, 64, 32], [12, 32, 48], [], []], 2 * 12 * 64 * 32 * 48),
        ("aten::_scaled_mm", [[128, 256], [256, 512], [], []], 2 * 128 * 256 * 512),
        ("aten::mv", [[128, 256], [256]], 2 * 128 * 256),
        ("aten::_grouped_mm", [[1000, 64], [8, 64, 128], [8]], 2 * 1000 * 64 * 128),
        ("aten::_grouped_mm", [[8, 100, 64], [8, 64, 128]], 2 * 8 * 100 * 64 * 128),
        ("aten::_grouped_mm", [[64, 1000], [1000, 128], [8]], 2 * 1000 * 64 * 128),  # the gradient of the weights
    ],
)
def test_matrix_products(name, dims, expected):
    assert flops(name, dims) == expected


CONVOLUTION = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]


def test_convolutions_by_their_output():
    # 8 × 8 with stride 2 and padding 1 gives 4 × 4.
    assert flops("aten::convolution", [[2, 3, 8, 8], [4, 3, 3, 3], []], CONVOLUTION) == 2 * 2 * 16 * 4 * 3 * 9
    dilated = ["", "", "", "[1, 1]", "[0, 0]", "[2, 2]", "False", "[0, 0]", "1"]
    assert flops("aten::convolution", [[2, 3, 8, 8], [4, 3, 3, 3], []], dilated) == 2 * 2 * 16 * 4 * 3 * 9
    one = ["", "", "", "[1]", "[1]", "[1]", "False", "[0]", "1"]
    assert flops("aten::_convolution", [[2, 3, 10], [4, 3, 3], []], one) == 2 * 2 * 10 * 4 * 3 * 3


def test_grouped_convolutions_have_smaller_weights():
    grouped = [*CONVOLUTION[:8], "4"]
    assert flops("aten::convolution", [[2, 8, 8, 8], [8, 2, 3, 3], []], grouped) == 2 * 2 * 16 * 8 * 2 * 9


def test_transposed_convolutions_count_places_of_the_input():
    transposed = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "True", "[0, 0]", "1"]
    assert flops("aten::convolution", [[2, 3, 8, 8], [3, 4, 3, 3], []], transposed) == 2 * 2 * 64 * 3 * 4 * 9


@pytest.mark.parametrize(("mask", "times"), [("[True, True, False]", 2), ("[False, True, True]", 1), ("[True, True, True]", 2)])
def test_the_backward_of_a_convolution_is_one_for_each_gradient(mask, times):
    concrete = ["", "", "", "[0]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", mask]
    dims = [[2, 4, 4, 4], [2, 3, 8, 8], [4, 3, 3, 3], [], [], [], [], [], [], [], []]
    assert flops("aten::convolution_backward", dims, concrete) == times * 2 * 2 * 16 * 4 * 3 * 9


def test_a_convolution_without_its_strides_is_not_known():
    assert flops("aten::convolution", [[2, 3, 8, 8], [4, 3, 3, 3], []]) is None
    assert flops("aten::convolution", [[2, 3, 8, 8], [4, 3, 3, 3], []], [""] * 9) is None


QUERY, KEY = [16, 8, 559, 64], [16, 2, 600, 64]
FORWARD = 2 * 16 * 8 * 559 * 600 * (64 + 64)


@pytest.mark.parametrize("kind", ["flash", "efficient", "cudnn"])
def test_attention(kind):
    """Heads are those of the query; the whole square counts; the backward does five products to the forward's two."""
    assert flops(f"aten::_scaled_dot_product_{kind}_attention", [QUERY, KEY, KEY, [], [], []]) == FORWARD
    backward = f"aten::_scaled_dot_product_{kind}_attention_backward"
    assert 2 * flops(backward, [QUERY, QUERY, KEY, KEY, QUERY]) == 5 * FORWARD


def test_attention_with_rows_before_heads():
    def turned(dims):
        return [dims[0], dims[2], dims[1], dims[3]]

    assert flops("aten::_flash_attention_forward", [turned(QUERY), turned(KEY), turned(KEY)]) == FORWARD
    assert flops("flash_attn::_flash_attn_forward", [turned(QUERY), turned(KEY), turned(KEY)]) == FORWARD
    assert flops("aten::_flash_attention_forward", [[5000, 8, 64]] * 3) is None  # lengths are on the device


def test_values_of_another_width():
    value = [16, 2, 600, 128]
    assert flops("aten::_scaled_dot_product_flash_attention", [QUERY, KEY, value]) == 2 * 16 * 8 * 559 * 600 * (64 + 128)


def test_dtype_and_bytes():
    work = work_of("aten::mm", [[100, 50], [50, 20]], ["c10::BFloat16"] * 2, None)
    assert (work.kind, work.dtype, work.bytes) == (MatrixKind.GEMM, BF16, 2 * (5000 + 1000 + 2000))
    assert work_of("aten::mm", [[100, 50], [50, 20]], ["float", "float"], None).dtype == FLOAT
    scaled = work_of("aten::_scaled_mm", [[100, 50], [50, 20]], ["c10::Float8_e4m3fn"] * 2, None)
    assert (scaled.dtype, scaled.bytes) == (FP8, 5000 + 1000 + 2 * 2000)
    assert work_of("aten::mm", [[100, 50], [50, 20]], None, None).dtype == 0


@pytest.mark.parametrize(
    "name", ["aten::linear", "aten::matmul", "aten::conv2d", "aten::scaled_dot_product_attention", "aten::einsum", "aten::add"]
)
def test_what_only_calls_another_operator_does_not_count(name):
    assert name not in OPERATORS
    assert flops(name, [[10, 10], [10, 10]]) is None


@pytest.mark.parametrize(
    "dims",
    [
        None,
        [],
        "x",
        [[10, 10]],
        [[10, 10], []],
        [[10], [10, 10]],
        [[-1, 10], [10, 10]],
        [["a", 2], [2, 3]],
        [[True, 2], [2, 3]],
        [[10**30, 10], [10, 10**30]],
    ],
)
def test_odd_shapes_are_not_known(dims):
    assert work_of("aten::mm", dims, [], []) is None


@pytest.mark.parametrize(
    "concrete", [["", "", "", "[0, 0]", "[1, 1]", "[1, 1]", "False"], ["", "", "", "[x]", "[1]", "[1]", "False"], [3] * 9, "abc"]
)
def test_odd_arguments_are_not_known(concrete):
    assert work_of("aten::convolution", [[2, 3, 8, 8], [4, 3, 3, 3]], [], concrete) is None


def test_products_of_nothing():
    assert flops("aten::mm", [[0, 10], [10, 20]]) == 0
