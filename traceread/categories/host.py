"""What the names of host calls, ranges and frames mean: which of them block the host, and which put work on a stream.

The patterns are data in host.toml. Each distinct name is looked at once per kind of row.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from functools import cache
from pkgutil import get_data  # importlib.resources takes longer to import than the file to read
from typing import Any

import numpy as np
import numpy.typing as npt

from traceread.errors import ConfigError
from traceread.intervals import unique
from traceread.model import RangeKind
from traceread.records import record


class Blocker(IntEnum):
    """What blocks a host thread, in order of priority (section 5, point 4 of the time model)."""

    CHECKPOINT = 0
    DATA_WAIT = 1
    HOST_SYNC = 2
    ALLOCATION = 3
    COMPILE = 4
    NONE = 255


class CallRole(IntEnum):
    """What a call does to a stream."""

    OTHER = 0
    KERNEL_LAUNCH = 1
    GRAPH_LAUNCH = 2
    HOST_FUNCTION = 3
    CAPTURE_BEGIN = 4
    CAPTURE_END = 5


_MAX_NAME = 4096
"""Longer names are cut before matching: no real name needs more, and hostile ones must not cost time."""


@cache
def _shipped() -> dict[str, dict[str, list[dict[str, Any]]]]:
    return tomllib.loads((get_data("traceread.categories", "host.toml") or b"").decode())


@cache
def _words(meanings: tuple[str, ...], section: str) -> tuple[str, ...]:
    """The words of which one stands in every name that has one of these meanings."""
    entries = (entry for meaning in meanings for entry in _shipped().get(meaning, {}).get(section, ()))
    return tuple(dict.fromkeys(word for entry in entries for word in entry["words"]))


@cache
def _compiled(pattern: str, section: str) -> re.Pattern[str]:
    return re.compile(pattern, re.VERBOSE | (re.IGNORECASE if section == "ranges" else 0))


def _find(meanings: tuple[str, ...], section: str, name: str) -> str | None:
    short = name[:_MAX_NAME]
    folded = short.casefold()
    there = [word for word in _words(meanings, section) if word in folded]
    if not there:
        return None
    for meaning in meanings:
        for entry in _shipped().get(meaning, {}).get(section, ()):
            if not any(word in there for word in entry["words"]) or not _compiled(entry["pattern"], section).search(short):
                continue
            if "unless" not in entry or not _compiled(entry["unless"], section).search(short):
                return meaning
    return None


_BLOCKERS = tuple(b.name.lower() for b in Blocker if b is not Blocker.NONE)
_ROLES = {role.name.lower(): role for role in CallRole if role is not CallRole.OTHER}
_SECTION = {RangeKind.OP: "ranges", RangeKind.ANNOTATION: "ranges", RangeKind.LOADING: "ranges", RangeKind.PYTHON: "frames"}


@record
class HostNames:
    """Meanings of host names: the shipped ones and the user's `[ranges]` of traceread.toml.

    Attributes:
        ranges: user's range name (exact, else a regular expression for the whole name) → blocker name or "step" or "ignore".
    """

    ranges: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        valid = (*_BLOCKERS, "step", "ignore")
        for name, meaning in self.ranges.items():
            if meaning not in valid:
                raise ConfigError(f"[ranges] {name!r} = {meaning!r}: no such meaning", f"use one of {', '.join(valid)}")

    def user_meaning(self, name: str) -> str | None:
        """What the user's configuration calls this range, None if nothing."""
        if not self.ranges:
            return None
        if name in self.ranges:
            return self.ranges[name]
        for pattern, meaning in self.ranges.items():
            try:
                if re.fullmatch(pattern, name[:_MAX_NAME]):
                    return meaning
            except re.error:
                continue
        return None

    def call_blockers(self, names: Sequence[str], codes: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        """The Blocker of each call row; shape of `codes`."""
        return _per_code(codes, lambda code: _blocker(_find(_BLOCKERS, "calls", names[code])), Blocker.NONE)

    def call_roles(self, names: Sequence[str], codes: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        """The CallRole of each call row; shape of `codes`."""
        return _per_code(codes, lambda code: _ROLES.get(_find(tuple(_ROLES), "calls", names[code]) or "", CallRole.OTHER), CallRole.OTHER)

    def range_blockers(self, names: Sequence[str], codes: npt.NDArray[np.int32], kinds: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """The Blocker of each range row; shape of `codes`. OS calls and profiler rows never block by name."""
        result = np.full(len(codes), Blocker.NONE, np.uint8)
        for kind, section in _SECTION.items():
            rows = np.flatnonzero(kinds == kind)
            if len(rows):
                result[rows] = _per_code(codes[rows], lambda code, s=section: self._range_blocker(names[code], s), Blocker.NONE)
        result[kinds == RangeKind.LOADING] = Blocker.COMPILE
        return result

    def ranges_execute(self, names: Sequence[str], codes: npt.NDArray[np.int32], kinds: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """Whether each range row says that the host executes though no call or op is open (garbage collection); shape of `codes`."""
        result = np.zeros(len(codes), bool)
        rows = np.flatnonzero(kinds == RangeKind.ANNOTATION)
        if len(rows):
            result[rows] = _per_code(codes[rows], lambda code: _find(("executing",), "ranges", names[code]) is not None, False) > 0
        return result

    def _range_blocker(self, name: str, section: str) -> Blocker:
        if section == "ranges":
            meaning = self.user_meaning(name)
            if meaning is not None:
                return _blocker(meaning)
        return _blocker(_find(_BLOCKERS, section, name))


def _blocker(meaning: str | None) -> Blocker:
    return Blocker[meaning.upper()] if meaning in _BLOCKERS else Blocker.NONE


def _per_code(codes: npt.NDArray[np.int32], meaning: Any, default: int) -> npt.NDArray[np.uint8]:
    """The meaning of each row, asked once per distinct code."""
    if not len(codes):
        return np.empty(0, np.uint8)
    occurs = unique(codes)
    table = np.full(int(occurs[-1]) + 1, default, np.uint8)
    for code in occurs.tolist():
        table[code] = meaning(code)
    return table[codes]
