"""Which rank leads the job from collective to collective, without any clock: a cross-check of the blame.

Every rank measures how long after the start of its own step it arrives at each collective. The largest of these times over the ranks
is the frontier; it grows to the length of the longest step, and every piece of it has a rank that set it (StageFrontier,
arXiv 2606.06751).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from traceread.measurements.matching import Matches
from traceread.measurements.rank_facts import RankFacts
from traceread.measurements.steps import WindowKind
from traceread.model import Operation
from traceread.records import record


@record
class Stage:
    """A piece of a step's frontier.

    Attributes:
        step: label of the step.
        until: operation at whose start it ends; "end of the step" for the last.
        rank: the rank that set it.
        increment_ns: its length; those of a step add up to the longest of its windows.
        lead_ns: how much later that rank is than the median rank.
    """

    step: str
    until: str
    rank: int
    increment_ns: int
    lead_ns: int

    def to_dict(self) -> dict[str, Any]:
        """The stage as JSON builtins."""
        return {
            "step": self.step,
            "until": self.until,
            "rank": self.rank,
            "increment_ns": self.increment_ns,
            "lead_ns": self.lead_ns,
        }


@record
class Frontier:
    """The stages of all steps that every loaded rank has."""

    stages: tuple[Stage, ...]

    @property
    def leader(self) -> int | None:
        """The rank that is ahead of the median by most, summed over its stages; None where nobody is."""
        leads: dict[int, int] = {}
        for stage in self.stages:
            leads[stage.rank] = leads.get(stage.rank, 0) + stage.lead_ns
        best = max(leads, key=lambda rank: (leads[rank], -rank), default=None)
        return best if best is not None and leads[best] > 0 else None


def find_frontier(facts: Sequence[RankFacts], matches: Matches) -> Frontier:
    """The frontier over the used steps that all ranks share, cut at the operations that all of them do; empty where there are none."""
    everybody = [g for g, group in enumerate(matches.groups) if len(group.loaded) == len(facts) > 1]
    if not everybody or not len(matches.meeting):
        return Frontier(())
    start, operation = matches.column("start_ns"), matches.column("operation")
    window = np.concatenate([f.collectives.collectives.window for f in facts])
    rows = np.flatnonzero(np.isin(matches.group, everybody) & (matches.meeting >= 0))
    _, of, count = np.unique(matches.meeting[rows], return_inverse=True, return_counts=True)
    complete = count == len(facts)
    rows, of = rows[complete[of]], of[complete[of]]
    by_rank = rows[np.lexsort((matches.rank_of[rows], of))].reshape(-1, len(facts))  # meeting × rank
    stages: list[Stage] = []
    for positions in _common_steps(facts):
        windows = [f.steps.windows[p] for f, p in zip(facts, positions, strict=True)]
        mine = by_rank[(window[by_rank] == np.array(positions)).all(axis=1)]
        begin = np.array([w.start_ns for w in windows], np.int64)
        arrival = np.sort(np.concatenate((start[mine] - begin, [[w.duration_ns for w in windows]])), axis=0)
        names = [Operation(o).title for o in operation[mine[np.argsort(start[mine[:, 0]]), 0]].tolist()] + ["end of the step"]
        frontier, leader = arrival.max(axis=1), arrival.argmax(axis=1)
        typical = np.sort(arrival, axis=1)[:, (len(facts) - 1) // 2]
        increments = np.diff(frontier, prepend=0)
        stages += [
            Stage(windows[0].label, name, facts[r].rank, inc, lead)
            for name, r, inc, lead in zip(names, leader.tolist(), increments.tolist(), (frontier - typical).tolist(), strict=True)
        ]
    return Frontier(tuple(stages))


def _common_steps(facts: Sequence[RankFacts]) -> list[tuple[int, ...]]:
    """For each step that every rank uses, its position in the windows of each."""
    by_label = [
        {w.label: i for i, (w, used) in enumerate(zip(f.steps.windows, f.steps.used, strict=True)) if used and w.kind is WindowKind.STEP}
        for f in facts
    ]
    return [tuple(positions[label] for positions in by_label) for label in by_label[0] if all(label in p for p in by_label)]
