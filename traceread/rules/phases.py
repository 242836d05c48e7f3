"""Forward, backward and optimizer: which of them launched an activity, and where in the step something stands."""

from __future__ import annotations

import numpy as np

from traceread import intervals
from traceread.model import Category, IntColumn, RangeKind
from traceread.rules.facts import Facts, Mask

FORWARD, BACKWARD, OPTIMIZER, UNKNOWN = 0, 1, 2, -1

OPTIMIZER_RANGE = r"(?i)(?:^|[^a-z])optimizer(?![a-z])|Optimizer\.step|(?:adam|sgd|lamb|lion)w?\.step|optimizer[_ ]step"
_AUTOGRAD_THREAD = "pt_autograd_"
_BACKWARD = r"^autograd::engine::evaluate_function|Backward\d*$|_backward$|[._:]post_backward|^backward$|loss\.backward"


def phases(facts: Facts) -> IntColumn:
    """For each activity the phase that launched it; UNKNOWN where that is not recorded. What is neither of the others is forward."""
    launches = facts.launches
    result = np.where(launches.known, FORWARD, UNKNOWN)
    threads = set(intervals.unique(facts.rows.thread[facts.ranges_named(_BACKWARD, (RangeKind.OP,))]).tolist())
    threads |= {i for i, t in enumerate(facts.trace.threads) if t.name.startswith(_AUTOGRAD_THREAD)}
    autograd = np.array([t for t in threads if t != facts.steps.step_thread], np.int64)
    backward = launches.known & np.isin(launches.thread, autograd)
    backward |= facts.launched_inside(facts.ranges_named(_BACKWARD))
    result[backward] = BACKWARD
    result[facts.launched_inside(facts.ranges_named(OPTIMIZER_RANGE))] = OPTIMIZER
    return result


def place_in_step(facts: Facts, which: Mask) -> str:
    """Where most of the exposed time of these activities stands, as "at the end of the backward"; "" where that is not known."""
    a = facts.trace.activities
    rows = np.flatnonzero(which & (facts.exposed_ns > 0))
    compute = np.flatnonzero((a.category == Category.COMPUTE) & (a.end_ns > a.start_ns))
    if not len(rows) or not len(compute):
        return ""
    phase = facts.phases[compute]
    if not (phase == BACKWARD).any():  # everything counts as forward where nothing says what is backward
        return ""
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
