"""What one rank contributes to the fix list: findings, the graph that re-times its steps, and its classes as removals."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field

import numpy as np

from traceread.categories.host import Blocker
from traceread.measurements.classes import StepClass
from traceread.measurements.replay import Removal
from traceread.measurements.replay_graph import ReplayGraph, blocked_by
from traceread.model import Category
from traceread.records import record
from traceread.rules import Facts, Rule
from traceread.rules.checking import RankFindings, check_rank, without_tables
from traceread.rules.losses import joined

_BLOCKERS = {
    StepClass.DATA_WAIT: Blocker.DATA_WAIT,
    StepClass.HOST_SYNC: Blocker.HOST_SYNC,
    StepClass.ALLOCATION: Blocker.ALLOCATION,
    StepClass.COMPILE: Blocker.COMPILE,
    StepClass.CHECKPOINT: Blocker.CHECKPOINT,
}
_CATEGORIES = {
    StepClass.COMPUTE: Category.COMPUTE,
    StepClass.EXPOSED_COMMUNICATION: Category.COMMUNICATION,
    StepClass.EXPOSED_COPY: Category.COPY,
}


@record(eq=False)
class Inspection:
    """One rank's part of the fix list.

    Attributes:
        found: findings, rules that could not look, rules that failed.
        graph: what depends on what in its steps, None where they cannot be replayed.
        classes: what replaying without a class takes away; only classes that can be taken away.
    """

    found: RankFindings = field(default_factory=RankFindings)
    graph: ReplayGraph | None = None
    classes: dict[StepClass, Removal] = field(default_factory=dict)


def inspect_rank(facts: Facts, graph: ReplayGraph | None, rules: Collection[Rule]) -> Inspection:
    """What the rules find on one rank, and what a replay of it needs."""
    classes = {} if graph is None else _whole_classes(facts, graph)  # before the rules claim their parts
    found = check_rank(facts, rules)
    kept = RankFindings(tuple(without_tables(f, graph) for f in found.findings), found.skipped, found.notices)
    return Inspection(kept, graph, classes)


def _whole_classes(facts: Facts, graph: ReplayGraph) -> dict[StepClass, Removal]:
    """Every class that can be taken away, in the replayed steps."""
    start, end = graph.start_ns, int(graph.spans.end_ns[-1])
    result = {c: Removal(host=blocked_by(graph.nodes, facts.rows, b, start, end)) for c, b in _BLOCKERS.items()}
    inferred = facts.idle_rows(StepClass.DATA_WAIT, lead_in=True)
    inferred = inferred[facts.idle.source[inferred] < 0]
    silent = facts.idle_loss(inferred, host_gone=True).removal
    result[StepClass.DATA_WAIT] = joined((result[StepClass.DATA_WAIT], silent))
    result[StepClass.LAUNCH_BOUND] = Removal(host=graph.working)
    rows = graph.work.activity
    for step_class, category in _CATEGORIES.items():
        which = np.zeros(len(facts.trace.activities), bool)
        which[rows] = facts.trace.activities.category[rows] == category
        loss = facts.kernel_loss(which) if category is Category.COMPUTE else facts.work_loss(which)
        result[step_class] = loss.removal
    return {c: result[c] for c in StepClass if result.get(c)}
