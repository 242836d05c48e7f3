"""Recorded names made fit to be shown: nothing in them can steer a terminal, and long ones keep both their ends."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise

_LONGEST = 4096
_ESCAPE_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # colours, cursor
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links, clipboard
    r"|\x1b[ -/]*[0-~]?"
)
_SPACES = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")
_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)

_CLONE = re.compile(r"\s*\[clone [^\]]*\]$|\.kd$")
_NAMESPACES = re.compile(r"(?:\(anonymous namespace\)|<unnamed>)::|\b(?:at::native|at::cuda|c10|std)::")
_POINTERS = re.compile(r", *(?:\w+::)*[Aa]rray<(?:char|void) ?\*, ?\d+\w*>(?= ?[,>])")
_CASTS = re.compile(r"\((?:bool|(?:unsigned )?(?:char|short|int|long|long long))\)(?=-?\d)")
_DATA_LOADER = re.compile(r"enumerate\(DataLoader\)#\w+\.(\w+)")
_DIGITS = re.compile(r"\d+")


def clean(text: str) -> str:
    """The text without escape sequences, control characters, text direction marks and lone surrogates, on one line."""
    text = _ESCAPE_SEQUENCES.sub("", text[:_LONGEST])
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", _SPACES.sub(" ", text))


def shorten(text: str, width: int) -> str:
    """The text in at most `width` characters, the middle left out where it is longer."""
    if len(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    tail = (width - 1) // 3
    return text[: width - 1 - tail] + "…" + text[len(text) - tail :]


def path_title(path: str, width: int) -> str:
    """A path in at most `width` characters: its last parts, the beginning left out."""
    parts = clean(path).split("/")
    endings = [clean(path), *(f"…/{'/'.join(parts[first:])}" for first in range(1, len(parts)))]
    return next((ending for ending in endings if len(ending) <= width), shorten(parts[-1] or clean(path), width))


def kernel_title(name: str) -> str:
    """A kernel's name without return type, parameter list, clone suffix, casts, arrays of pointers and the namespaces every kernel has."""
    title = _CLONE.sub("", clean(name))
    title = _CASTS.sub("", _NAMESPACES.sub("", _POINTERS.sub("", without_parameters(title.removeprefix("void ")))))
    return title or clean(name)


def row_title(name: str) -> str:
    """A host row's name in fewer words: "enumerate(DataLoader)#_X.__next__" is "DataLoader __next__"."""
    return _DATA_LOADER.sub(r"DataLoader \1", clean(name))


def without_parameters(name: str) -> str:
    """The name without a final "(…)" that directly follows it: "Memcpy DtoH (Device -> Pinned)" keeps its own."""
    if not name.endswith(")"):
        return name
    depth = 0
    for position in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[position], 0)
        if not depth:
            follows_a_name = position > 0 and (name[position - 1].isalnum() or name[position - 1] in "_>")
            return name[:position] if follows_a_name else name
    return name


def step_list(labels: Sequence[str]) -> str:
    """Step labels in a few words: "ProfilerStep#12-16", "step_3, 7", "train_step × 5"."""
    families: dict[tuple[str, str], list[int | None]] = {}
    for label in labels:
        numbers = list(_DIGITS.finditer(label))
        if numbers and len(numbers[-1].group()) <= 12:
            at = numbers[-1]
            families.setdefault((label[: at.start()], label[at.end() :]), []).append(int(at.group()))
        else:
            families.setdefault((label, ""), []).append(None)
    parts = [_family(clean(before), clean(after), numbers) for (before, after), numbers in families.items()]
    return and_more(parts, 3, ", ")


def _family(before: str, after: str, numbers: list[int | None]) -> str:
    before, after = shorten(before, 40), shorten(after, 20)
    given = [n for n in numbers if n is not None]
    if not given:
        return before if len(numbers) == 1 else f"{before} × {len(numbers)}"
    return f"{before}{number_list(given)}{after}"


def number_list(numbers: Sequence[int], most: int = 6) -> str:
    """Numbers with runs joined: "0-3, 7"; at most so many runs, "and 5 more" numbers."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return _run_list(runs, most)


def missing_list(present: Collection[int], count: int, most: int = 6) -> str:
    """The numbers below `count` that are not there, as in `number_list`; in time and memory of those that are."""
    known = [-1, *sorted(n for n in set(present) if 0 <= n < count), count]
    return _run_list([[a + 1, b - 1] for a, b in pairwise(known) if b - a > 1], most)


def _run_list(runs: Sequence[Sequence[int]], most: int) -> str:
    shown = [f"{a}" if a == b else f"{a}–{b}" if b > a + 1 else f"{a}, {b}" for a, b in runs[:most]]
    left = sum(b - a + 1 for a, b in runs[most:])
    return ", ".join(shown) + (f" and {left} more" if left else "")


def and_more(parts: Sequence[str], most: int, separator: str) -> str:
    """The first `most` parts joined, "and 3 more" after them where there are more."""
    if len(parts) <= most:
        return separator.join(parts)
    return separator.join(parts[:most]) + f" and {len(parts) - most} more"
