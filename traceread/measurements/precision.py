"""The number format of matrix products, as far as kernel names tell."""

from __future__ import annotations

import re
from collections.abc import Iterable

_FORMATS = (
    ("fp8", re.compile(r"e4m3|e5m2|fp8|float8|nvjet_(?:sm\d+_)?q|Cijk_\w{4}_\w{4}_F8", re.IGNORECASE)),
    ("bf16", re.compile(r"bf16|bfloat16|nvjet_(?:sm\d+_)?t|Cijk_\w{4}_\w{4}_B", re.IGNORECASE)),
    ("fp16", re.compile(r"f16|fp16|half_t|__half|hgemm|h\d+gemm|h884|s884|nvjet_(?:sm\d+_)?h|Cijk_\w{4}_\w{4}_H", re.IGNORECASE)),
    ("tf32", re.compile(r"tf32|s1688", re.IGNORECASE)),
    ("fp32", re.compile(r"sgemm|scudnn|f32f32|ffma|simt|Cijk_\w{4}_\w{4}_S", re.IGNORECASE)),
)
"""In order: half-precision kernels of Volta to Ampere accumulate in fp32 and say so too (s16816gemm_f16, s884gemm_fp16)."""


def format_of_kernel(name: str) -> str | None:
    """The format that a kernel of matrix products works in, None where its name does not say."""
    return next((precision for precision, pattern in _FORMATS if pattern.search(name[:1024])), None)


def prevailing_format(kernels: Iterable[tuple[str, int]]) -> str | None:
    """The format in which nine tenths of the time of these (name, ns) is spent; None where that is no single one, or names do not say."""
    times: dict[str | None, int] = {}
    for name, ns in kernels:
        precision = format_of_kernel(name)
        times[precision] = times.get(precision, 0) + ns
    silent = times.pop(None, 0)
    told = sum(times.values())
    if not told or told < silent:
        return None
    best = max(times, key=lambda precision: (times[precision], str(precision)))
    return best if 10 * times[best] >= 9 * told else None
