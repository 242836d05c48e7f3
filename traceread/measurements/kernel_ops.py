"""Which op or annotation launches the kernels of each name: how kernels are recognised after their names changed."""

from __future__ import annotations

import numpy as np

from traceread import intervals
from traceread.measurements.evidence import ops_around
from traceread.measurements.launches import Launches
from traceread.measurements.steps import Steps
from traceread.model import Trace

_SAMPLED = 16
"""Launches of each name that are looked at."""


def launching_ops(trace: Trace, launches: Launches, steps: Steps) -> dict[str, str]:
    """For each activity name the op (else the annotation) open around most of its first launches; names launched in none are left out."""
    known = np.flatnonzero(launches.known)
    order = known[intervals.group_order(trace.activities.name[known] + 1, len(trace.names) + 1)]
    name = trace.activities.name[order]
    if not len(order):
        return {}
    first = np.flatnonzero(np.concatenate(([True], name[1:] != name[:-1])))
    nth = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    sampled, of = order[nth < _SAMPLED], name[nth < _SAMPLED]
    op = ops_around(trace, steps, launches.thread[sampled], launches.start_ns[sampled])
    kernels, ops, pair = intervals.distinct_pairs(of[op >= 0], op[op >= 0])
    found: dict[str, tuple[int, str]] = {}
    for kernel, around, times in zip(kernels.tolist(), ops.tolist(), np.bincount(pair).tolist(), strict=True):
        best = found.get(trace.names[kernel], (0, ""))
        found[trace.names[kernel]] = max(best, (times, trace.names[around]), key=lambda pair: pair[0])
    return {kernel: around for kernel, (_, around) in found.items()}
