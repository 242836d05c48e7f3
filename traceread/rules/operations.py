"""What a communication activity does and where in the step it stands, as far as names tell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import numpy as np

from traceread.measurements.evidence import ops_around
from traceread.model import Category, IntColumn, RangeKind
from traceread.rules.facts import Facts, Mask

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = "all-reduce", "reduce-scatter", "all-gather"
ALL_TO_ALL, BROADCAST, SEND_RECV = "all-to-all", "broadcast", "send/recv"
PEER_COPY, OTHER = "copies between GPUs", "communication"

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"

_OPERATIONS = (
    (ALL_TO_ALL, re.compile(r"all_?to_?all|a2a|dispatch|combine", re.IGNORECASE)),
    (REDUCE_SCATTER, re.compile(r"reduce_?scatter", re.IGNORECASE)),
    (ALL_GATHER, re.compile(r"all_?gather", re.IGNORECASE)),
    (ALL_REDUCE, re.compile(r"all_?reduce|cross_device_reduce|quickreduce|multimem_", re.IGNORECASE)),
    (BROADCAST, re.compile(r"broadcast|bcast", re.IGNORECASE)),
    (SEND_RECV, re.compile(r"send|recv", re.IGNORECASE)),
)
_ANNOTATION = re.compile(r"^(?:nccl|rccl|c10d|_c10d_functional|mpi|ucc)[:_]|^(?:nccl[A-Z]|All|ReduceScatter|record_param_comms)")
OPTIMIZER_RANGE = r"(?i)(?:^|[^a-z])optimizer(?![a-z])|Optimizer\.step|(?:adam|sgd|lamb|lion)w?\.step|optimizer[_ ]step"
_BACKWARD = r"^autograd::engine::evaluate_function|Backward\d*$|_backward$|[._:]post_backward|^backward$|loss\.backward"


def operations(facts: Facts) -> Iterator[tuple[str, Mask]]:
    """Each operation that communication of this rank does, with its activities."""
    a = facts.trace.activities
    rows = np.flatnonzero(a.category == Category.COMMUNICATION)
    if not len(rows):
        return
    around = _annotations(facts, rows)
    keys = np.stack((a.name[rows].astype(np.int64), around, a.kind[rows].astype(np.int64)), axis=1)
    pairs, of = np.unique(keys, axis=0, return_inverse=True)
    named = [_operation(facts.trace.names[n], facts.trace.names[r] if r >= 0 else "", k == 1) for n, r, k in pairs.tolist()]
    for operation in dict.fromkeys(named):
        mask = np.zeros(len(a), bool)
        mask[rows[np.array([o == operation for o in named], bool)[of.reshape(-1)]]] = True
        yield operation, mask


def _annotations(facts: Facts, rows: IntColumn) -> IntColumn:
    """For each activity the name code of the range of a collective it was launched in, -1 if none."""
    launches, trace = facts.launches, facts.trace
    result = np.full(len(rows), -1, np.int64)
    known = launches.known[rows]
    if known.any():
        around = ops_around(trace, facts.steps, launches.thread[rows[known]], launches.start_ns[rows[known]])
        says = np.array([_ANNOTATION.search(trace.names[c]) is not None if c >= 0 else False for c in around.tolist()], bool)
        result[known] = np.where(says, around, -1)
    return result


@cache
def _operation(kernel: str, annotation: str, copy: bool) -> str:
    """The operation by the recorded range, else by the kernel's name; RING_LL and the like say nothing."""
    for text in (annotation, kernel):
        for operation, pattern in _OPERATIONS:
            if text and pattern.search(text[:4096]):
                return operation
    return PEER_COPY if copy else OTHER


def phases(facts: Facts) -> IntColumn:
    """For each activity the phase that launched it: 0 forward, 1 backward, 2 optimizer; -1 where that is not recorded."""
    launches = facts.launches
    result = np.where(launches.known, 0, -1)
    threads = {int(t) for t in facts.trace.ranges.thread[facts.ranges_named(_BACKWARD, (RangeKind.OP,)) - len(facts.trace.calls)].tolist()}
    autograd = np.array([t for t in threads if t != facts.steps.step_thread], np.int64)
    backward = launches.known & np.isin(launches.thread, autograd)
    backward |= facts.launched_inside(facts.ranges_named(_BACKWARD))
    result[backward] = 1
    result[facts.launched_inside(facts.ranges_named(OPTIMIZER_RANGE))] = 2
    return result


def place_in_step(facts: Facts, which: Mask) -> str:
    """Where most of the exposed time of these activities stands, as "at the end of the backward"; "" where that is not known."""
    a = facts.trace.activities
    rows = np.flatnonzero(which & (facts.exposed_ns > 0))
    compute = np.flatnonzero((a.category == Category.COMPUTE) & (a.end_ns > a.start_ns))
    if not len(rows) or not len(compute):
        return ""
    phase = facts.phases[compute]
    after = np.searchsorted(a.start_ns[compute], a.end_ns[rows], side="left")
    following = np.where(after < len(compute), phase[np.minimum(after, len(compute) - 1)], -1)
    before = np.searchsorted(a.start_ns[compute], a.start_ns[rows], side="right") - 1
    previous = np.where(before >= 0, phase[np.maximum(before, 0)], -1)
    weight: dict[str, int] = {}
    for p, f, ns in zip(previous.tolist(), following.tolist(), facts.exposed_ns[rows].tolist(), strict=True):
        place = _PLACES.get((p, f), "")
        weight[place] = weight.get(place, 0) + ns
    best = max(weight, key=lambda k: weight[k])
    return best if 2 * weight[best] > sum(weight.values()) else ""


_PLACES = {
    (1, 2): "at the end of the backward",
    (1, 1): "within the backward",
    (0, 0): "within the forward",
    (0, 1): "between forward and backward",
    (2, 2): "within the optimizer",
    (2, 0): "before the forward",
    (1, 0): "after the backward",
}
