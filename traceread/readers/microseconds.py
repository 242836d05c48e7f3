"""Text of microseconds in, integer nanoseconds out, never through a float.

A trace writes `1712195495519689.047`: nineteen digits, three more than a double holds. What a text says beyond
nanoseconds is rounded to the nearest, ties to the even one. Three weeks of 2024 nightlies wrote decimals without zeros in
front ("12.7" for 12 µs and 7 ns); nothing in a file tells them apart, so ".7" is read as 700 ns everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

LIMIT_NS = 1 << 62
"""Times reach up to here on either side, so that a start plus a duration still fits int64."""

_WIDTH = 24
_TEXT = re.compile(rb'\s*(?:"\s*)?([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,9}))?(?:\s*")?\s*')


def nanoseconds(texts: Sequence[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The times in ns and whether each could be read: JSON numbers or strings of µs; unreadable ones are 0, False."""
    if not texts:
        return np.empty(0, np.int64), np.empty(0, np.bool_)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    width = min(_WIDTH, int(lengths.max(initial=1)))
    # One row per text, zero-padded, then column after column: Horner over all texts at once.
    padded = np.array(texts, dtype=f"S{width}").view(np.uint8).reshape(len(texts), width)
    value = np.zeros(len(texts), np.uint64)
    decimals = np.zeros(len(texts), np.uint8)
    point = np.zeros(len(texts), np.bool_)
    plain = (lengths > 0) & (lengths <= width)
    for character in np.ascontiguousarray(padded.T):
        digit = character - np.uint8(ord("0"))
        is_digit = digit < 10
        is_point = character == ord(".")
        plain &= is_digit | (is_point & ~point) | (character == 0)
        value = np.where(is_digit, value * np.uint64(10) + digit, value)
        decimals += is_digit & point
        point |= is_point
    # Nineteen digits fit uint64; signs, exponents, quotes and decimals beyond ns take the exact way one by one.
    plain &= (decimals <= 3) & (point == (decimals > 0)) & (lengths - point + 3 - decimals <= 19)
    ns = value * np.array([1000, 100, 10, 1], np.uint64)[np.minimum(decimals, 3)]
    readable = plain & (ns < LIMIT_NS)
    result = np.where(readable, ns, np.uint64(0)).astype(np.int64)
    for i in np.flatnonzero(~plain).tolist():
        one = _exact(texts[i])
        if one is not None:
            result[i], readable[i] = one, True
    return result, readable


def _exact(text: bytes) -> int | None:
    """The ns of one text, None if it is no number or beyond the limit."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    sign, whole, decimals, exponent = match[1], match[2], match[3] or b"", int(match[4] or 0)
    if not whole and not decimals:
        return None
    digits = (whole + decimals).lstrip(b"0")
    kept = len(digits) - len(decimals) + exponent + 3  # how many digits stand before the nanosecond point
    if not digits or kept < 0:
        return 0
    if kept > 19:
        return None
    ns = int((digits[:kept] + b"0" * (kept - len(digits))) or b"0")
    rest = digits[kept:].rstrip(b"0")
    if rest and (rest > b"5" or (rest == b"5" and ns % 2)):
        ns += 1
    if ns >= LIMIT_NS:
        return None
    return -ns if sign == b"-" else ns
