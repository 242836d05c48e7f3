"""Names of kernels made comparable: the same kernel is spelled in many ways, and its tiles and template arguments change with shapes."""

from __future__ import annotations

import re

from traceread.names import without_parameters

_CLONE = re.compile(r"\s*\[clone [^\]]*\]$|\.kd$")
_NAMESPACES = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\b(?:at::native|at::cuda|c10|std)::")
_CASTS = re.compile(r"\((?:bool|(?:unsigned )?(?:char|short|int|long|long long))\)(?=-?\d)")
_SUFFIXES = re.compile(r"(?<=\d)(?:ull|ul|u|ll|l)\b", re.IGNORECASE)
_SPACES = re.compile(r"\s+")
_TILES = re.compile(
    r"(?<=stages)_?\d+(?:x\d+)*|(?<=stage)_?\d+|(?<=align)\d+|(?<=ldg)\d+|(?<=splitk)_?\d+|(?<=warp)\d+"
    r"|(?<!\d)\d+x\d+(?:x\d+)*"  # 128x256, 64x3
    r"|(?<=instance )\d+"
)
_TRITON_NUMBER = re.compile(r"^(triton_.*?)(?:_?\d+)+(?:d\w*)?$")  # the number Inductor gives, and the hash of the mangled name
_NUMBERS = re.compile(r"(?<![\w#])-?\d+(?![\w#])")

Key = str


def spelling(name: str) -> Key:
    """The name without what only its spelling adds: return type, parameters, casts, spaces, namespaces every kernel has, clone suffix."""
    key = _CLONE.sub("", name.strip()).removeprefix("void ")
    key = _CASTS.sub("", _NAMESPACES.sub("", without_parameters(key)))
    return _SPACES.sub("", _SUFFIXES.sub("", key)) or name


def shapeless(name: str) -> Key:
    """The name without what follows from shapes: tiles, stages, alignment, numbers of template arguments and of Triton kernels."""
    key = _TILES.sub("#", _TRITON_NUMBER.sub(r"\1", spelling(name)))
    plain, inside = _split(key)
    return plain + _NUMBERS.sub("#", inside)


def untyped(name: str) -> Key:
    """The name without its template arguments."""
    return _split(_TILES.sub("#", _TRITON_NUMBER.sub(r"\1", spelling(name))))[0]


def _split(key: str) -> tuple[str, str]:
    """The name outside its template arguments, and the arguments."""
    outside: list[str] = []
    inside: list[str] = []
    depth = 0
    for c in key:
        if c == "<":
            depth += 1
        (inside if depth else outside).append(c)
        if c == ">":
            depth = max(depth - 1, 0)
    return "".join(outside), "".join(inside)
