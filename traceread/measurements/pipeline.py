"""Pipeline bubbles and the load of experts: waiting that the layout of a job brings along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from traceread.measurements.classes import StepClass
from traceread.measurements.collectives import PEER_TO_PEER
from traceread.measurements.matching import Group, Matches
from traceread.measurements.rank_facts import RankFacts
from traceread.measurements.waiting import ExposedSplit
from traceread.model import Operation
from traceread.records import record


@record
class Pipeline:
    """A group whose ranks send to each other in a chain, over the used steps.

    Attributes:
        group: the process group.
        stages: number of its ranks, loaded or not.
        sends, steps: messages from one stage to the next (the most of any two loaded ones), and steps; their quotient is the number
            of microbatches (interleaved schedules send each of them more than once).
        ranks: the loaded ranks, in order of stage.
        bubble_ns: for each of them the exposed waiting in sends and receives.
        window_ns: for each of them the length of its steps.
        compute_ns: for each of them the time it computes.
    """

    group: Group
    stages: int
    sends: int
    steps: int
    ranks: tuple[int, ...]
    bubble_ns: tuple[int, ...]
    window_ns: tuple[int, ...]
    compute_ns: tuple[int, ...]

    @property
    def bubble(self) -> tuple[int, int]:
        """The bubble's share of the steps, over all loaded stages, as a fraction."""
        return sum(self.bubble_ns), sum(self.window_ns)

    @property
    def ideal(self) -> tuple[int, int]:
        """What one forward, one backward without interleaving costs at least: (p-1)/(m+p-1), as a fraction."""
        more = (self.stages - 1) * max(self.steps, 1)
        return more, self.sends + more

    @property
    def imbalance(self) -> tuple[int, int]:
        """Most and median computing time of a stage."""
        ordered = sorted(self.compute_ns)
        return ordered[-1], ordered[(len(ordered) - 1) // 2]

    def to_dict(self) -> dict[str, Any]:
        """The pipeline as JSON builtins."""
        part, whole = self.bubble
        over, under = self.ideal
        most, middle = self.imbalance
        return {
            "group": self.group.to_dict(),
            "stages": self.stages,
            "microbatches": self.sends / max(self.steps, 1),
            "bubble_share": part / whole if whole else 0.0,
            "ideal_bubble_share": over / under if under else 0.0,
            "stage_imbalance": most / middle if middle else 1.0,
            "ranks": [
                {"rank": r, "bubble_ns": b, "window_ns": w, "compute_ns": c}
                for r, b, w, c in zip(self.ranks, self.bubble_ns, self.window_ns, self.compute_ns, strict=True)
            ],
        }


def find_pipelines(facts: Sequence[RankFacts], matches: Matches, exposed: Sequence[ExposedSplit]) -> tuple[Pipeline, ...]:
    """The groups in which ranks send to each other, one entry each."""
    operation, rank = matches.column("operation"), matches.rank_of
    waits = np.concatenate([e.own_wait_ns for e in exposed] or [np.empty(0, np.int64)])
    used = np.concatenate([f.in_used_windows() for f in facts] or [np.empty(0, bool)])
    found = []
    for g, group in enumerate(matches.groups):
        mine = used[matches.sender] & (matches.group[matches.sender] == g)
        pairs = np.stack((rank[matches.sender[mine]], rank[matches.receiver[mine]]), axis=1)
        if not len(pairs):
            continue
        distinct, count = np.unique(pairs, axis=0, return_counts=True)
        stages = np.unique(distinct).tolist()
        bubble = [int(waits[(rank == r) & (matches.group == g) & np.isin(operation, PEER_TO_PEER)].sum()) for r in stages]
        found.append(
            Pipeline(
                group=group,
                stages=max(group.size, len(stages)),
                sends=int(count.max()),
                steps=max(len(facts[r].used) for r in stages),
                ranks=tuple(facts[r].rank for r in stages),
                bubble_ns=tuple(bubble),
                window_ns=tuple(facts[r].window_ns for r in stages),
                compute_ns=tuple(int(facts[r].partition.class_ns[facts[r].used, StepClass.COMPUTE].sum()) for r in stages),
            )
        )
    return tuple(found)


@record
class ExpertLoad:
    """All-to-alls in which ranks get different amounts, over the used steps.

    Attributes:
        group: the process group.
        count: operations compared.
        most, total, parts: elements of the rank (or peer) with most, of all, and how many share them; summed over the operations.
        rank: the rank that has most most often, None where one rank's split sizes are all that is known.
        times: how often.
    """

    group: Group
    count: int
    most: int
    total: int
    parts: int
    rank: int | None
    times: int

    @property
    def imbalance(self) -> tuple[int, int]:
        """Most against mean, as a fraction."""
        return self.most * self.parts, self.total

    def to_dict(self) -> dict[str, Any]:
        """The load as JSON builtins."""
        over, under = self.imbalance
        return {
            "group": self.group.to_dict(),
            "count": self.count,
            "max_over_mean": over / under if under else 1.0,
            "rank": self.rank,
            "times": self.times,
        }


def expert_load(facts: Sequence[RankFacts], matches: Matches) -> tuple[ExpertLoad, ...]:
    """The imbalance of all-to-alls whose element counts differ between ranks, or between the peers of one rank."""
    used = np.concatenate([f.in_used_windows() for f in facts] or [np.empty(0, bool)])
    elements, largest = matches.column("elements_out"), matches.column("largest_out")
    mine = used & (matches.column("operation") == Operation.ALL_TO_ALL) & (elements >= 0)
    found = []
    for g, group in enumerate(matches.groups):
        rows = np.flatnonzero(mine & (matches.group == g) & (matches.meeting >= 0))
        rows = rows[np.argsort(matches.meeting[rows], kind="stable")]
        _, begins, count = np.unique(matches.meeting[rows], return_index=True, return_counts=True)
        complete = np.flatnonzero(count == len(group.loaded)) if len(group.loaded) > 1 else np.empty(0, np.int64)
        if len(complete):
            table = rows[begins[complete][:, None] + np.arange(len(group.loaded))]
            amounts = elements[table]
            winner = np.bincount(matches.rank_of[table[np.arange(len(table)), amounts.argmax(axis=1)]], minlength=len(facts))
            uneven = amounts.max(axis=1) > amounts.min(axis=1)
            if uneven.any():
                most, total = int(amounts.max(axis=1).sum()), int(amounts.sum())
                best = int(winner.argmax())
                found.append(ExpertLoad(group, len(table), most, total, len(group.loaded), facts[best].rank, int(winner[best])))
                continue
        split = np.flatnonzero(mine & (matches.group == g) & (largest >= 0) & (group.size > 1))
        if len(split) and (largest[split] * group.size > elements[split]).any():
            found.append(ExpertLoad(group, len(split), int(largest[split].sum()), int(elements[split].sum()), group.size, None, 0))
    return tuple(found)
