"""FLOPs and least memory traffic of operators that multiply matrices, from their recorded input dimensions.

A multiply-add counts as two FLOPs. Attention counts the whole square, also under a causal mask, as MFU does. Bytes are those of the
matrices read and written once, whatever the kernels do. What is not recorded (strides of a convolution in older traces) makes an operator
unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from traceread.model import ELEMENT_BYTES, MatrixKind

Dims = Sequence[int]

_DTYPES = {name: code for code, name in enumerate(ELEMENT_BYTES)}
_DTYPES |= {  # how the types of inputs are written
    "float": _DTYPES["Float"], "double": _DTYPES["Double"], "int": _DTYPES["Int"], "long int": _DTYPES["Long"],
    "long": _DTYPES["Long"], "short": _DTYPES["Short"], "signed char": _DTYPES["Char"], "unsigned char": _DTYPES["Byte"],
    "bool": _DTYPES["Bool"],
}  # fmt: skip
_SIZES = tuple(ELEMENT_BYTES.values())
_MOST = 1 << 62


class OperatorWork(NamedTuple):
    """What one call of an operator does: kind, dtype (position in ELEMENT_BYTES), FLOPs, least bytes of memory traffic."""

    kind: MatrixKind
    dtype: int
    flops: int
    bytes: int


class _Call(NamedTuple):
    """The recorded arguments of a call."""

    dims: Sequence[Any]
    types: Sequence[Any]
    concrete: Sequence[Any]

    def matrix(self, position: int, least: int = 2, most: int = 2) -> Dims:
        """The dimensions of a tensor.

        Raises:
            ValueError: it is no tensor of `least` to `most` dimensions.
        """
        dims = self.dims[position]
        if not isinstance(dims, list) or not least <= len(dims) <= most or not all(type(d) is int and d >= 0 for d in dims):
            raise ValueError(position)
        return dims

    def dtype(self, position: int) -> int:
        """The dtype of a tensor, 0 if not recorded."""
        name = self.types[position] if position < len(self.types) else ""
        return _DTYPES.get(name.removeprefix("c10::"), 0) if isinstance(name, str) else 0

    def numbers(self, position: int) -> list[int]:
        """A list of integers among the concrete inputs, written as "[1, 1]".

        Raises:
            ValueError: it is not recorded.
        """
        text = self.concrete[position] if position < len(self.concrete) else ""
        if not isinstance(text, str) or not text.startswith("["):
            raise ValueError(position)
        return [int(part) for part in text.strip("[]").split(",") if part.strip()]

    def flags(self, position: int) -> list[bool]:
        """Booleans among the concrete inputs, written as "True" or "[True, False]".

        Raises:
            ValueError: they are not recorded.
        """
        text = self.concrete[position] if position < len(self.concrete) else ""
        words = [word.strip().lower() for word in text.strip("[]").split(",")] if isinstance(text, str) else []
        if not words or not all(word in ("true", "false") for word in words):
            raise ValueError(position)
        return [word == "true" for word in words]


def work_of(name: str, dims: Any, types: Any, concrete: Any) -> OperatorWork | None:
    """What a call of an operator does, None if it multiplies no matrices or its shapes do not say.

    Args:
        name: as recorded, such as "aten::mm".
        dims: "Input Dims" as recorded.
        types: "Input type".
        concrete: "Concrete Inputs", None where there are none.
    """
    count = _OPERATORS.get(name)
    if count is None or not isinstance(dims, list):
        return None
    call = _Call(dims, types if isinstance(types, list) else (), concrete if isinstance(concrete, list) else ())
    try:
        work = count(call)
    except (ValueError, IndexError, ZeroDivisionError):
        return None
    return work if work.flops < _MOST and work.bytes < _MOST else None


def _product(call: _Call, a: int, b: int, dtype: int, batch: int, m: int, k: int, n: int) -> OperatorWork:
    size, output = max(_SIZES[dtype], 1), max(_SIZES[dtype], 2)  # products of one byte have outputs of two
    moved = size * (prod(call.dims[a]) + prod(call.dims[b])) + output * batch * m * n
    return OperatorWork(MatrixKind.GEMM, dtype, 2 * batch * m * k * n, moved)


def _matmul(a: int, b: int) -> Callable[[_Call], OperatorWork]:
    """Products of two matrices at these positions."""

    def count(call: _Call) -> OperatorWork:
        (m, k), (_, n) = call.matrix(a), call.matrix(b)
        return _product(call, a, b, call.dtype(a), 1, m, k, n)

    return count


def _batched(a: int, b: int) -> Callable[[_Call], OperatorWork]:
    """Products of two stacks of matrices at these positions."""

    def count(call: _Call) -> OperatorWork:
        (batch, m, k), (_, _, n) = call.matrix(a, 3, 3), call.matrix(b, 3, 3)
        return _product(call, a, b, call.dtype(a), batch, m, k, n)

    return count


def _vector(a: int, x: int) -> Callable[[_Call], OperatorWork]:
    """Products of a matrix and a vector."""

    def count(call: _Call) -> OperatorWork:
        (m, k), _ = call.matrix(a), call.matrix(x, 1, 1)
        return _product(call, a, x, call.dtype(a), 1, m, k, 1)

    return count


def _grouped(call: _Call) -> OperatorWork:
    """Products of groups of rows with a matrix each: where the groups end is on the device, their sum is not."""
    a, b = call.matrix(0, 2, 3), call.matrix(1, 2, 3)
    if len(a) == 3:
        (batch, m, k), n = a, b[-1]
        return _product(call, 0, 1, call.dtype(0), batch, m, k, n)
    (m, k), n = a, b[-1]
    return _product(call, 0, 1, call.dtype(0), 1, m, k, n)


def _convolution(call: _Call) -> OperatorWork:
    image, weight = call.matrix(0, 3, 5), call.matrix(1, 3, 5)
    stride, padding, dilation = call.numbers(3), call.numbers(4), call.numbers(5)
    [transposed] = call.flags(6)
    spatial = len(image) - 2
    stride, padding, dilation = (part * spatial if len(part) == 1 else part for part in (stride, padding, dilation))
    if transposed:
        places = image[2:]
    else:
        axes = zip(image[2:], weight[2:], stride, padding, dilation, strict=True)
        places = [(size + 2 * p - d * (kernel - 1) - 1) // s + 1 for size, kernel, s, p, d in axes]
    channels = weight[0]  # of the output; of the input where transposed
    flops = 2 * image[0] * prod(places) * prod(weight)
    return _convolved(call, 0, 1, flops, image[0] * channels * prod(places))


def _convolved(call: _Call, image: int, weight: int, flops: int, more: int) -> OperatorWork:
    dtype = call.dtype(image)
    moved = max(_SIZES[dtype], 1) * (prod(call.dims[image]) + prod(call.dims[weight]) + more)
    return OperatorWork(MatrixKind.CONVOLUTION, dtype, flops, moved)


def _convolution_backward(call: _Call) -> OperatorWork:
    """One convolution for each gradient asked for; that of the bias is a sum."""
    gradient, image, weight = call.matrix(0, 3, 5), call.matrix(1, 3, 5), call.matrix(2, 3, 5)
    [transposed], mask = call.flags(7), call.flags(10)
    places = image[2:] if transposed else gradient[2:]
    times = sum(mask[:2])
    return _convolved(call, 1, 2, times * 2 * image[0] * prod(places) * prod(weight), times * prod(gradient))


def _attention(q: int, products: tuple[int, int], *, rows_first: bool = False) -> Callable[[_Call], OperatorWork]:
    """Attention on query, key and value at `q` and the two places behind; heads before rows unless `rows_first`.

    `products` is how many products over the width of queries, and of values, each pair of rows takes.
    """

    def count(call: _Call) -> OperatorWork:
        query, key, value = (call.matrix(q + i, 4, 4) for i in range(3))
        rows, heads = (1, 2) if rows_first else (2, 1)
        pairs = query[0] * query[heads] * query[rows] * key[rows]
        flops = 2 * pairs * (products[0] * query[3] + products[1] * value[3])
        dtype = call.dtype(q)
        passes = 1 if products == _FORWARD else 2  # backward reads them and writes their gradients
        moved = max(_SIZES[dtype], 1) * passes * (2 * prod(query) + prod(key) + prod(value))
        return OperatorWork(MatrixKind.ATTENTION, dtype, flops, moved)

    return count


_FORWARD, _BACKWARD = (1, 1), (3, 2)  # backward: scores again, then the gradients of value, scores, query and key

_OPERATORS: dict[str, Callable[[_Call], OperatorWork]] = {
    "aten::mm": _matmul(0, 1),
    "aten::addmm": _matmul(1, 2),
    "aten::_addmm_activation": _matmul(1, 2),
    "aten::_scaled_mm": _matmul(0, 1),
    "aten::_int_mm": _matmul(0, 1),
    "aten::bmm": _batched(0, 1),
    "aten::baddbmm": _batched(1, 2),
    "aten::mv": _vector(0, 1),
    "aten::addmv": _vector(1, 2),
    "aten::_grouped_mm": _grouped,
    "aten::_scaled_grouped_mm": _grouped,
    "aten::convolution": _convolution,
    "aten::_convolution": _convolution,
    "aten::convolution_overrideable": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::convolution_backward_overrideable": _convolution_backward,
    "aten::_scaled_dot_product_flash_attention": _attention(0, _FORWARD),
    "aten::_scaled_dot_product_efficient_attention": _attention(0, _FORWARD),
    "aten::_scaled_dot_product_cudnn_attention": _attention(0, _FORWARD),
    "aten::_flash_attention_forward": _attention(0, _FORWARD, rows_first=True),
    "aten::_efficient_attention_forward": _attention(0, _FORWARD, rows_first=True),
    "aten::_scaled_dot_product_flash_attention_backward": _attention(1, _BACKWARD),
    "aten::_scaled_dot_product_efficient_attention_backward": _attention(1, _BACKWARD),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention(1, _BACKWARD),
    "aten::_flash_attention_backward": _attention(1, _BACKWARD, rows_first=True),
    "aten::_efficient_attention_backward": _attention(1, _BACKWARD, rows_first=True),
    "flash_attn::_flash_attn_forward": _attention(0, _FORWARD, rows_first=True),
    "flash_attn::_flash_attn_backward": _attention(1, _BACKWARD, rows_first=True),
}
"""The operators, without those that only call one of them, such as aten::linear; where one stands inside another the outer one counts."""

OPERATORS = tuple(_OPERATORS)
