"""Numbers as text: the only place where ns, bytes and shares become strings."""

from __future__ import annotations

_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))


def unit_for(ns: int) -> tuple[int, str]:
    """The unit (ns per unit, name) in which a time has between one and three digits before the point."""
    for scale, name in _UNITS:
        if abs(ns) >= scale:
            return scale, name
    return _UNITS[-1]


def duration(ns: int, unit: tuple[int, str] | None = None) -> str:
    """A time with three significant digits, such as "2.90 s"; in a given unit, three decimals: "0.400 s".

    Whole ns have no decimals, and a time too short for the unit is "< 0.001 s", never 0.
    """
    if unit is not None:
        scale, name = unit
        if scale == 1:
            return f"{ns} ns"
        text = _rounded(ns, scale, 3)
        return f"< {_rounded(1, 1000, 3)} {name}" if ns > 0 and text == _rounded(0, scale, 3) else f"{text} {name}"
    scale, name = unit_for(ns)
    if scale == 1:
        return f"{ns} ns"
    for decimals in (2, 1, 0):
        text = _rounded(ns, scale, decimals)
        if len(text.lstrip("-").replace(".", "")) <= 3 or decimals == 0:
            break
    if text.lstrip("-") == "1000" and name != "s":  # 999.6 µs reads 1.00 ms
        return duration((1 if ns > 0 else -1) * scale * 1000)
    return f"{text} {name}"


def _rounded(value: int, scale: int, decimals: int) -> str:
    """The quotient value / scale with this many decimals, half away from zero, without going through a float."""
    sign = "-" if value < 0 else ""
    hundredths = (2 * abs(value) * 10**decimals + scale) // (2 * scale)
    if not decimals:
        return f"{sign}{hundredths}"
    whole, part = divmod(hundredths, 10**decimals)
    if not hundredths:
        sign = ""
    return f"{sign}{whole}.{part:0{decimals}d}"


def at_least(text: str) -> str:
    """A lower bound of what a text says: "≥ 2.90 s", and "> 0 s" for "< 0.001 s"."""
    return f"> 0 {text.rpartition(' ')[2]}" if text.startswith("<") else f"≥ {text}"


def percent(part: int, whole: int, decimals: int = 1) -> str:
    """A share such as "11.1 %"; "0 %" and "100 %" only when exact, a whole of zero is "n/a"."""
    if whole == 0:
        return "n/a"
    if part == 0:
        return "0 %"
    if part == whole:
        return "100 %"
    text = _rounded(part * 100, whole, decimals)
    least = f"{0:.{decimals}f}"
    if text.lstrip("-") == least:
        return f"< {_rounded(1, 10**decimals, decimals)} %" if part > 0 else f"-< {_rounded(1, 10**decimals, decimals)} %"
    if text == f"{100:.{decimals}f}" and part < whole:
        return f"> {_rounded(10 ** (decimals + 2) - 1, 10**decimals, decimals)} %"
    return f"{text} %"


def ratio(part: int, whole: int, decimals: int = 3) -> str:
    """A quotient with three decimals, such as "1.003"; "n/a" for a whole of zero."""
    return _rounded(part, whole, decimals) if whole > 0 else "n/a"


def size(count: int) -> str:
    """Bytes in powers of 1024, such as "80.0 GiB"."""
    for power, name in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(count) >= 1024**power:
            return f"{_rounded(count, 1024**power, 1)} {name}"
    return f"{count} B"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """A count with its noun, such as "5 steps"."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


_PREFIXES = ((10**18, "E"), (10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def quantity(value: float, unit: str = "") -> str:
    """An amount with three significant digits and a decimal prefix, such as "39.2 GB", "989 TFLOP/s", "291 k"."""
    for scale, prefix in _PREFIXES:
        if abs(value) >= 0.9995 * scale:
            return f"{_three_digits(value / scale)} {prefix}{unit}"
    return f"{_three_digits(value)} {unit}".rstrip()


def _three_digits(value: float) -> str:
    """A number below a thousand with three significant digits, whole ones as they are."""
    if value == int(value):
        return str(int(value))
    size = abs(value)
    scale, decimals = (100, 2) if size < 9.995 else (10, 1) if size < 99.95 else (1, 0)
    return _rounded(round(value * scale * 10**6), scale * 10**6, decimals)


def part(share: float, decimals: int = 1) -> str:
    """A share given as a number, such as "43.1 %"."""
    return percent(round(share * 10**9), 10**9, decimals)


def long_time(seconds: float) -> str:
    """Seconds, minutes, hours or days, whichever has a few of them: "90 s", "19.3 min", "16.7 h", "5.36 days"."""
    for least, scale, name in ((2 * 86_400, 86_400, "days"), (2 * 3_600, 3_600, "h"), (120, 60, "min")):
        if seconds >= least:
            value = seconds / scale
            return f"{value:,.0f} {name}" if value >= 999.5 else f"{_three_digits(value)} {name}"
    return f"{_three_digits(seconds)} s"
