"""Single events decoded whole, out of text that holds them complete; for the few of which more is wanted than the columns keep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_SHORT, _LONG = 1 << 13, 1 << 20  # how much text is decoded to see one event
_OPENINGS = 6  # objects an argument can be nested in, the event itself included


class _Decimal(str):
    """The text of a number with a point or an exponent."""

    __slots__ = ()


_decoder = json.JSONDecoder(strict=False, parse_float=_Decimal, parse_constant=lambda _: None)


def event_around(text: bytes, at: int) -> tuple[dict[str, Any] | None, int, int]:
    """The event that holds a position of the text, decimal numbers as text, and where it begins and ends; None if it is not complete."""
    opening = at
    for _ in range(_OPENINGS):
        opening = text.rfind(b"{", 0, opening)
        if opening < 0:
            break
        for reach in (_SHORT, _LONG):
            # Bytes that are no UTF-8 come back as they were, which keeps count of them.
            part = text[opening : opening + max(reach, at - opening + reach)].decode("utf-8", "surrogateescape")
            try:
                values, length = _decoder.raw_decode(part)
            except (ValueError, RecursionError):
                continue
            event = part[:length].encode("utf-8", "surrogateescape")
            if opening + len(event) > at and isinstance(values.get("ph"), str):
                values, _ = _decoder.raw_decode(event.decode("utf-8", "replace"))
                return values, opening, opening + len(event)
            break
    return None, at, at + 1


def places(text: bytes, sign: bytes) -> Iterator[int]:
    """Where a sign stands in the text."""
    at = text.find(sign)
    while at >= 0:
        yield at
        at = text.find(sign, at + 1)
