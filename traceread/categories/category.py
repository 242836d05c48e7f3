"""What every GPU activity is: its category and, for compute, its family (section 2 of the time model).

Kernels are known by their names, with the rules of kernels.toml and those of the user in front. Everything else is known
by its kind, its direction and the host range it was launched in.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pkgutil import get_data  # importlib.resources takes longer to import than the file to read
from typing import Any

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.errors import ConfigError
from traceread.intervals import holds, union
from traceread.model import ActivityKind, ByteColumn, Category, CopyKind, FlagColumn, IntColumn, RangeKind, Trace
from traceread.records import record

Mask = npt.NDArray[np.bool_]

FAMILIES: tuple[str, ...] = (
    "other",
    "gemm",
    "attention",
    "convolution",
    "normalisation",
    "softmax",
    "elementwise",
    "reduction",
    "optimizer",
    "embedding",
    "sort",
    "random",
    "triton",
    "memory",
    "graph",
    "communication",
    "copy",
)
"""Names of the families; positions are the codes in `Activities.family`."""

_FAMILY = {name: code for code, name in enumerate(FAMILIES)}
_CATEGORIES = {"compute": Category.COMPUTE, "communication": Category.COMMUNICATION, "copy": Category.COPY}
_KEYS = {"pattern", "category", "family", "fused", "example"}

_LONGEST = 4096
"""Patterns see so many characters of a name: enough for the longest real ones, and a hostile one costs no more."""

_CHOICE_AND_WORD = re.compile(r"\[\w+\](\w{2,})(?![?*+{])")
"""The begin of a pattern: one of some letters, and a word that must follow it."""

_COLLECTIVE_RANGE = re.compile(
    r"^(?:nccl|rccl|xccl|gloo|ucc|mpi):"  # process groups of PyTorch, "nccl:all_reduce"
    r"|^(?:_?c10d_functional(?:_autograd)?|c10d|symm_mem)::"  # its operators
    r"|^record_param_comms"
    r"|^nccl(?:All|Reduce|Broadcast|Bcast|Send|Recv|Gather|Scatter|Group)"  # NVTX of NCCL; not ncclComm…, which sets up
    r"|^(?:AllReduce|AllGather|ReduceScatter|All[tT]oAll)$"  # NVTX of newer NCCL
)
"""Host ranges in which a copy is a collective's own."""

_LOOKS_LIKE_COMMUNICATION = re.compile(r"reduce|gather|a2a|all.?to.?all|comm", re.IGNORECASE)
_NOT_COMMUNICATION = re.compile(
    r"(?:block|warp|thread|grid|seg(?:ment)?s?|rows?|col(?:umn)?s?|partial|local|tree|split_?k|sum|max|mean)(?:wise)?_?reduce"
    r"|reduce_?(?:by_?key|sum|max|min|mean|rows?|col(?:umn)?s?|dim|op(?![a-z]))"
    r"|comm(?:a|and|ent|it|on|ut)(?![a-z])|comm(?:ands|ents|its|itted|uted)|recommend",
    re.IGNORECASE,
)
"""Local reductions, and words that merely begin with comm."""


@record
class Rule:
    """One entry of kernels.toml or of a user's `[[kernels]]`.

    Attributes:
        pattern: what is searched in the name.
        finds: whether that is found in a name.
        category: the category of a kernel it is found in.
        family: position in `FAMILIES`.
        fused: the kernel computes as well as communicates.
        example: a name it is meant for, "" if none is given.
    """

    pattern: str
    finds: Callable[[str], object]
    category: Category
    family: int
    fused: bool
    example: str


@record
class Patterns:
    """The rules that name what a kernel is, in order: the first whose pattern is found in the name decides."""

    rules: tuple[Rule, ...]

    @classmethod
    def load(cls, extra: Sequence[Mapping[str, Any]] = ()) -> Patterns:
        """The user's rules (`[[kernels]]` of traceread.toml, entries as in kernels.toml) followed by the shipped ones.

        Raises:
            ConfigError: an entry of `extra` cannot be understood; the message names it.
        """
        return cls((*_rules(extra, "traceread.toml"), *_shipped()))

    def first_match(self, names: Sequence[str]) -> IntColumn:
        """For each name the position of the rule that decides, -1 where none does. Each distinct name is looked at once."""
        tests = [rule.finds for rule in self.rules]

        def decide(name: str) -> int:
            head = name[:_LONGEST]
            for position, finds in enumerate(tests):
                if finds(head):
                    return position
            return -1

        decided = {name: decide(name) for name in dict.fromkeys(names)}
        return np.fromiter((decided[name] for name in names), np.int64, len(names))

    def classify_names(self, names: Sequence[str]) -> tuple[ByteColumn, ByteColumn, FlagColumn]:
        """Category, family and fused flag of the kernel with each name; compute, "other", 0 where no rule decides."""
        unknown = Rule("", bool, Category.COMPUTE, _FAMILY["other"], False, "")
        rules = (*self.rules, unknown)  # position -1
        at = self.first_match(names)
        return (
            np.array([r.category for r in rules], np.uint8)[at],
            np.array([r.family for r in rules], np.uint8)[at],
            np.array([r.fused for r in rules], np.int8)[at],
        )


def possible_communication(names: Sequence[str], patterns: Patterns | None = None) -> Mask:
    """Where a kernel name is known to no rule and still reads like communication; shape of `names`.

    Such kernels count as compute. A report that shows them says "possible communication", so that the user can add a rule.
    """
    suspects = [i for i, name in enumerate(names) if _suspicious(name[:_LONGEST])]
    found = np.zeros(len(names), bool)
    found[suspects] = (patterns or Patterns.load()).first_match([names[i] for i in suspects]) < 0
    return found


def _suspicious(name: str) -> bool:
    """Whether a word of communication is left in the name once the local ones are taken out."""
    looks_like = _LOOKS_LIKE_COMMUNICATION.search
    return looks_like(name) is not None and looks_like(_NOT_COMMUNICATION.sub(" ", name)) is not None


def classify(trace: Trace, patterns: Patterns | None = None) -> Trace:
    """The trace with category, family and fused flag of every activity filled in (section 2 of the time model)."""
    rows = trace.activities
    category, family, fused = _kernels_by_name(trace, patterns or Patterns.load())

    family[rows.kind == ActivityKind.GRAPH] = _FAMILY["graph"]
    family[rows.kind == ActivityKind.MEMSET] = _FAMILY["memory"]

    copy = rows.kind == ActivityKind.MEMCPY
    family[copy] = _FAMILY["memory"]  # inside one device: HBM work in stream order
    host_side = copy & (rows.copy_kind != CopyKind.DEVICE_TO_DEVICE) & (rows.copy_kind != CopyKind.PEER)
    category[host_side], family[host_side] = Category.COPY, _FAMILY["copy"]
    collective = copy & (rows.copy_kind == CopyKind.PEER)
    collective |= _launched_in_a_collective(trace, copy)
    category[collective], family[collective] = Category.COMMUNICATION, _FAMILY["communication"]

    return dataclasses.replace(trace, activities=rows.replace(category=category, family=family, fused=fused))


def _kernels_by_name(trace: Trace, patterns: Patterns) -> tuple[ByteColumn, ByteColumn, FlagColumn]:
    """Category, family and fused flag per activity: kernels by name, everything else compute, "other", 0."""
    rows = trace.activities
    kernel = rows.kind == ActivityKind.KERNEL
    used = intervals.unique(rows.name[kernel & (rows.name >= 0)])
    by_code = np.zeros((3, len(trace.names) + 1), np.uint8)  # compute, "other", not fused; the last one for names not recorded
    by_code[:, used] = patterns.classify_names([trace.names[code] for code in used.tolist()])
    category, family, fused = by_code[:, np.where(kernel, rows.name, -1)]
    return category, family, fused.astype(np.int8)


def _launched_in_a_collective(trace: Trace, which: Mask) -> Mask:
    """Which of these activities were launched by a call that begins while a range of a collective is open on its thread."""
    found = np.zeros(len(which), bool)
    ranges = trace.ranges.take(_is_collective_range(trace))
    launched, call = _first_call(trace, np.flatnonzero(which)) if len(ranges) else (np.empty(0, np.int64),) * 2
    if not len(launched):
        return found
    start, thread = trace.calls.start_ns[call], trace.calls.thread[call]

    # One number line for all threads: instants as ranks, a stretch of the line per thread.
    instants, rank = np.unique(np.concatenate((ranges.start_ns, ranges.end_ns, start)), return_inverse=True)
    opened, closed, asked = np.split(rank, [len(ranges), 2 * len(ranges)])
    line = ranges.thread.astype(np.int64) * len(instants)
    open_at = union(line + opened, line + closed)
    asked = thread.astype(np.int64) * len(instants) + asked
    found[launched] = holds(open_at, asked)
    return found


def _is_collective_range(trace: Trace) -> Mask:
    """Which ranges are those of collectives: ops and annotations with such a name."""
    ranges = trace.ranges
    host = (ranges.kind == RangeKind.OP) | (ranges.kind == RangeKind.ANNOTATION)
    by_code = np.zeros(len(trace.names) + 1, bool)  # the last one for names not recorded
    used = intervals.unique(ranges.name[host & (ranges.name >= 0)])
    by_code[used] = [_COLLECTIVE_RANGE.search(trace.names[code]) is not None for code in used.tolist()]
    return by_code[np.where(host, ranges.name, -1)]


def _first_call(trace: Trace, activities: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Those of these activities whose correlation id a call carries, and the earliest such call of each (rows of `calls`)."""
    calls = np.flatnonzero(trace.calls.correlation > 0)  # ids that are not positive never join
    calls = calls[np.argsort(trace.calls.correlation[calls], kind="stable")]  # calls are sorted by start: the earliest stays first
    ids = trace.calls.correlation[calls]
    wanted = trace.activities.correlation[activities]
    at = np.searchsorted(ids, wanted)
    known = at < len(ids)
    known[known] = ids[at[known]] == wanted[known]
    return activities[known], calls[at[known]]


@cache
def _shipped() -> tuple[Rule, ...]:
    text = (get_data("traceread.categories", "kernels.toml") or b"").decode()
    return _rules(tomllib.loads(text)["kernels"], "kernels.toml")


def _rules(entries: Sequence[Mapping[str, Any]], file: str) -> tuple[Rule, ...]:
    return tuple(_rule(entry, f"{file}: entry {number} of [[kernels]]") for number, entry in enumerate(entries, 1))


def _rule(entry: object, where: str) -> Rule:
    """The rule an entry describes. Raises ConfigError, naming the entry, where it cannot be understood."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("pattern"), str):
        raise _not_understood(where, "it needs a pattern, a text")
    where = f"{where} (pattern {entry['pattern']!r})"
    if unknown := sorted(set(entry) - _KEYS):
        raise _not_understood(where, f"it has {', '.join(unknown)}; known are {', '.join(sorted(_KEYS))}")
    category = _one_of(_CATEGORIES, entry.get("category", "compute"), f"{where}: category")
    own = "other" if category is Category.COMPUTE else str(entry["category"])  # communication and copy are families as well
    family = _one_of(_FAMILY, entry.get("family", own), f"{where}: family")
    if (FAMILIES[family] in ("communication", "copy") or category is not Category.COMPUTE) and FAMILIES[family] != own:
        raise _not_understood(where, f"family {FAMILIES[family]!r} does not go with category {category.name.lower()!r}")
    fused, example = entry.get("fused", False), entry.get("example", "")
    if not isinstance(fused, bool) or not isinstance(example, str):
        raise _not_understood(where, "fused is true or false, example a text")
    if fused and category is not Category.COMMUNICATION:
        raise _not_understood(where, "only communication can be fused")
    try:
        finds = _finder(entry["pattern"])
    except (re.error, OverflowError, RecursionError) as reason:
        raise _not_understood(where, f"the pattern is no regular expression: {reason}") from reason
    if example and not finds(example[:_LONGEST]):
        raise _not_understood(where, f"the pattern is not found in its example {example!r}")
    return Rule(entry["pattern"], finds, category, family, fused, example)


def _finder(pattern: str) -> Callable[[str], object]:
    """Whether a regular expression is found in a text. Words are looked for as such first, which is twenty times quicker."""
    if pattern.replace("_", "").replace(":", "").isalnum():
        return lambda text: pattern in text
    search = re.compile(pattern).search
    begins = _CHOICE_AND_WORD.match(pattern)
    if begins is None or "|" in pattern:
        return search
    word = begins[1]
    return lambda text: word in text and search(text)


def _one_of(known: Mapping[str, Any], value: object, where: str) -> Any:
    if not isinstance(value, str) or value not in known:
        raise _not_understood(where, f"{value!r} is none of {', '.join(known)}")
    return known[value]


def _not_understood(where: str, why: str) -> ConfigError:
    return ConfigError(f"{where}: {why}", "Correct the entry and run the command again. Families: " + ", ".join(FAMILIES))
