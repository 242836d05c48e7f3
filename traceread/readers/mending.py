"""The text of one damaged event in, texts that may be sound out: what writers and copies are known to break.

Known from public reports: quotes and backslashes left unescaped in names (Windows paths, C++ literals), raw control
characters, bytes that are not UTF-8, commas missing or doubled. Nothing is invented: a repair adds or removes syntax only,
and the last resort keeps the event's own fields and drops its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# An unclosed string reaches to the end: trying every later quote as a start would take quadratic time.
_STRING = rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_DOUBLED_COMMA = re.compile(rb"(" + _STRING + rb")|,(?=\s*+[,}\]])", re.DOTALL)
_VALUE_END = re.compile(_STRING + rb"|[\d}\]el]", re.DOTALL)
_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|[\\"]', re.DOTALL)
_BACKSLASH = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\', re.DOTALL)
# A string value reaches to the quote after which a new key or the end of the object stands.
_VALUE = re.compile(rb'("[\w .()%/-]{1,60}"\s*+:\s*+")(.{0,4000}?)(?="\s*+(?:,\s*+"[\w .()%/-]{1,60}"\s*+:|[}\]]))', re.DOTALL)
_ARGS = re.compile(rb',?\s*+"args"\s*+:')
_WHOLE_ARGUMENT = re.compile(rb'"(device|stream|correlation|bytes|graph node id)"\s*+:\s*+(-?\d++)(?=\s*+[,}])')


_LONGEST = 1 << 16


def mended(text: bytes) -> Iterator[bytes]:
    """Candidates for the sound text of a damaged event, the most faithful first; a very long one is not repaired."""
    yield text  # broken for a strict reader only
    if len(text) > _LONGEST:
        return
    escaped = _BACKSLASH.sub(lambda m: m[0] if len(m[0]) > 1 else rb"\\", text)
    yield _with_commas(escaped)
    quoted = _VALUE.sub(lambda m: m[1] + _ESCAPE.sub(lambda e: e[0] if len(e[0]) > 1 else b"\\" + e[0], m[2]), text)
    yield quoted
    yield _with_commas(quoted)
    args = _ARGS.search(quoted)
    if args:
        rest = quoted[args.end() :]
        # A second time or list of arguments means that two events ran into each other: whose these are is not known.
        foreign = re.search(rb'"(?:args|ts|dur|ph)"\s*+:', rest)
        kept = {} if foreign else dict(_WHOLE_ARGUMENT.findall(rest))
        yield quoted[: args.start()] + b', "args": {' + b", ".join(b'"%s": %s' % item for item in kept.items()) + b"}}"


def _with_commas(text: bytes) -> bytes:
    """The text with the commas between values that JSON wants, and no others."""
    return _separated(_DOUBLED_COMMA.sub(lambda m: m[1] or b"", text))


def _separated(text: bytes) -> bytes:
    parts = []
    at = 0
    for token in _VALUE_END.finditer(text):
        following = text[token.end() : token.end() + 200].lstrip()[:1]
        if following in (b'"', b"{", b"["):
            parts.append(text[at : token.end()] + b",")
            at = token.end()
    return b"".join(parts) + text[at:]
