"""The text of one damaged event in, texts that may be sound out: what writers and copies are known to break.

Known from public reports: quotes and backslashes left unescaped in names (Windows paths, C++ literals), raw control
characters, bytes that are not UTF-8, commas missing or doubled. Nothing is invented: a repair adds or removes syntax only,
and the last resort keeps the event's own fields and drops its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Compiled when a damaged event is met: most files have none.
# An unclosed string reaches to the end: trying every later quote as a start would take quadratic time.
_STRING = rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_DOUBLED_COMMA = rb"(?s)(" + _STRING + rb")|,(?=\s*+[,}\]])"
_VALUE_END = rb"(?s)" + _STRING + rb"|[\d}\]el]"
_ESCAPE = rb'(?s)\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|[\\"]'
_BACKSLASH = rb'(?s)\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\'
# A string value reaches to the quote after which a new key or the end of the object stands.
_VALUE = rb'(?s)("[\w .()%/-]{1,60}"\s*+:\s*+")(.{0,4000}?)(?="\s*+(?:,\s*+"[\w .()%/-]{1,60}"\s*+:|[}\]]))'
_ARGS = rb',?\s*+"args"\s*+:'
_WHOLE_ARGUMENT = rb'"(device|stream|correlation|bytes|graph node id)"\s*+:\s*+(-?\d++)(?=\s*+[,}])'


_LONGEST = 1 << 16


def mended(text: bytes) -> Iterator[bytes]:
    """Candidates for the sound text of a damaged event, the most faithful first; a very long one is not repaired."""
    yield text  # broken for a strict reader only
    if len(text) > _LONGEST:
        return
    escaped = re.sub(_BACKSLASH, lambda m: m[0] if len(m[0]) > 1 else rb"\\", text)
    yield _with_commas(escaped)
    quoted = re.sub(_VALUE, lambda m: m[1] + re.sub(_ESCAPE, lambda e: e[0] if len(e[0]) > 1 else b"\\" + e[0], m[2]), text)
    yield quoted
    yield _with_commas(quoted)
    args = re.search(_ARGS, quoted)
    if args:
        rest = quoted[args.end() :]
        # A second time or list of arguments means that two events ran into each other: whose these are is not known.
        foreign = re.search(rb'"(?:args|ts|dur|ph)"\s*+:', rest)
        kept = {} if foreign else dict(re.findall(_WHOLE_ARGUMENT, rest))
        yield quoted[: args.start()] + b', "args": {' + b", ".join(b'"%s": %s' % item for item in kept.items()) + b"}}"


def _with_commas(text: bytes) -> bytes:
    """The text with the commas between values that JSON wants, and no others."""
    return _separated(re.sub(_DOUBLED_COMMA, lambda m: m[1] or b"", text))


def _separated(text: bytes) -> bytes:
    parts = []
    at = 0
    for token in re.finditer(_VALUE_END, text):
        following = text[token.end() : token.end() + 200].lstrip()[:1]
        if following in (b'"', b"{", b"["):
            parts.append(text[at : token.end()] + b",")
            at = token.end()
    return b"".join(parts) + text[at:]
