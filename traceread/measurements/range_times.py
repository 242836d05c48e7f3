"""What the user's own ranges cost: for each path of annotations the host time in it, and the GPU time of what was launched in it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.measurements.evidence import parents_of
from traceread.measurements.launches import Launches
from traceread.measurements.steps import Steps
from traceread.model import IntColumn, RangeKind, Trace
from traceread.records import record

DEEPEST = 6
"""Levels of a path; what lies deeper counts in the range around it."""

_MOST = 200
_DIGITS = re.compile(r"\d+")
_LONGEST_NAME = 200


@record
class RangeTime:
    """One path of annotations over the used steps of a rank.

    Attributes:
        path: names from the outermost to this one, numbers replaced by "#".
        count: ranges that begin in a used step.
        host_ns: how long they were open, summed.
        gpu_ns: how long the GPU was busy with what was launched while they were open, by whichever thread.
    """

    path: tuple[str, ...]
    count: int
    host_ns: int
    gpu_ns: int

    def to_dict(self) -> dict[str, Any]:
        """The range as JSON builtins."""
        return {"path": list(self.path), "count": self.count, "host_ns": self.host_ns, "gpu_ns": self.gpu_ns}


def sum_ranges(trace: Trace, launches: Launches, steps: Steps) -> tuple[RangeTime, ...]:
    """The annotations of the thread that runs the steps, by path, longest on the GPU first; at most 200 of them."""
    rows = _rows(trace, steps)
    if not len(rows):
        return ()
    r = trace.ranges
    start, end = r.start_ns[rows], r.end_ns[rows]
    parent = parents_of(start, end)
    codes, name = intervals.distinct(r.name[rows])
    title = [_DIGITS.sub("#", trace.names[c][:_LONGEST_NAME]) for c in codes.tolist()]
    paths, path_at = _paths([title[i] for i in name.tolist()], parent)
    own = path_at[np.arange(len(rows)), (path_at >= 0).sum(axis=1) - 1]
    deepest = np.ones(len(rows), bool)
    deepest[(parent >= 0) & (own == own[parent])] = False  # folded into the range around it
    count = np.bincount(own[deepest], minlength=len(paths))
    host = np.zeros(len(paths), np.int64)
    np.add.at(host, own[deepest], (end - start)[deepest])
    gpu = _gpu_time(trace, launches, steps, (start, end, parent), path_at, len(paths))
    found = [RangeTime(path, int(count[i]), int(host[i]), int(gpu[i])) for i, path in enumerate(paths)]
    return tuple(sorted(found, key=lambda t: (-t.gpu_ns, -t.host_ns, t.path))[:_MOST])


def _rows(trace: Trace, steps: Steps) -> npt.NDArray[np.int64]:
    """Annotations of the step thread that begin in the host time of a used window, but for the steps themselves."""
    r = trace.ranges
    used = [w for w, keep in zip(steps.windows, steps.used, strict=True) if keep]
    mine = np.flatnonzero((r.kind == RangeKind.ANNOTATION) & (r.thread == steps.step_thread) & (r.end_ns > r.start_ns))
    labels = {w.label for w in steps.windows}
    codes = [c for c in intervals.unique(r.name[mine]).tolist() if trace.names[c] in labels]
    mine = mine[~np.isin(r.name[mine], codes)]
    host = intervals.union([w.host_start_ns for w in used], [w.host_end_ns for w in used])
    return mine[intervals.holds(host, r.start_ns[mine])] if len(host.start) else mine


def _paths(names: list[str], parent: IntColumn) -> tuple[list[tuple[str, ...]], npt.NDArray[np.int64]]:
    """The distinct paths, and for each row the path at every level down to its own, -1 below it."""
    known: dict[tuple[int, str], int] = {}  # from the chain of paths of the range around it, and its name, to its own chain
    chains: list[tuple[int, ...]] = [()]
    of: list[int] = []
    listed: list[tuple[str, ...]] = []
    for name, above in zip(names, parent.tolist(), strict=True):
        outer = of[above] if above >= 0 else 0
        chain = known.get((outer, name))
        if chain is None:
            chain, levels = outer, chains[outer]
            if len(levels) < DEEPEST and not (levels and listed[levels[-1]][-1] == name):
                chain = len(chains)
                chains.append((*levels, len(listed)))
                listed.append((*(listed[levels[-1]] if levels else ()), name))
            known[outer, name] = chain
        of.append(chain)
    at = np.full((len(chains), DEEPEST), -1, np.int64)
    for i, levels in enumerate(chains):
        at[i, : len(levels)] = levels
    return listed, at[np.array(of, np.int64)]


def _gpu_time(
    trace: Trace,
    launches: Launches,
    steps: Steps,
    ranges: tuple[IntColumn, IntColumn, IntColumn],
    path_at: npt.NDArray[np.int64],
    count: int,
) -> IntColumn:
    """For each path the time in which anything launched in it ran."""
    start, end, parent = ranges
    a = trace.activities
    mine = np.flatnonzero(launches.known & _of_used_steps(steps, len(a)))
    at = launches.start_ns[mine]
    inner = np.searchsorted(start, at, side="right") - 1
    open_ones = np.arange(len(mine))
    while len(open_ones):
        open_ones = open_ones[(inner[open_ones] >= 0) & (end[inner[open_ones]] <= at[open_ones])]
        inner[open_ones] = parent[inner[open_ones]]
    mine, inner = mine[inner >= 0], inner[inner >= 0]
    total = np.zeros(count, np.int64)
    for level in range(DEEPEST):
        group = path_at[inner, level]
        here = mine[group >= 0]
        begins, ends, of = intervals.union_per_group(a.start_ns[here], a.end_ns[here], group[group >= 0])
        np.add.at(total, of, ends - begins)
    return total


def _of_used_steps(steps: Steps, activities: int) -> npt.NDArray[np.bool_]:
    if len(steps.window_of) != activities or not len(steps.used):
        return np.ones(activities, bool)
    result: npt.NDArray[np.bool_] = np.array([*steps.used, False], bool)[steps.window_of]  # -1: in no window
    return result
