"""Whether one rank holds the others up, and what about it is slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from traceread.measurements.blame import Cause, Charges
from traceread.measurements.classes import StepClass
from traceread.measurements.evidence import sum_reasons
from traceread.measurements.rank_facts import RankFacts
from traceread.records import record

NOTICEABLE = 50
"""A rank is a straggler from where it costs the others one part in so many of their steps."""
MOSTLY = (3, 5)
"""And where so much of all waiting is charged to it; less is imbalance, which has no culprit."""
SLOWER_KERNELS = (103, 100)
SLOWER_LAUNCHES = (12, 10)
_ALIKE = (4, 5)
"""So much of the time compared must be in names that are slower each by themselves."""


@record
class Slowness:
    """A rank against the median of all for the same work, as a fraction `own_ns / typical_ns`.

    Attributes:
        own_ns, typical_ns: the two times.
        everywhere: nearly all of the work is slower, not some of it.
    """

    own_ns: int
    typical_ns: int
    everywhere: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The ratio as JSON builtins."""
        return {"own_ns": self.own_ns, "typical_ns": self.typical_ns, "everywhere": self.everywhere}


@record
class Straggler:
    """The rank that the others wait for.

    Attributes:
        rank: its number.
        charged_ns: exposed waiting of the others that it is to blame for, over the used steps.
        others_ns: length of the others' used steps.
        waiting_ns: exposed waiting of all ranks.
        causes: what it is late with, the largest first; they add up to `charged_ns`.
        evidence: names of rows that say so for the largest cause, "" if none does.
        kernels: its kernels against those of the other ranks at equal counts, None where nothing can be compared or they are not slower.
        launches: its host's time from launch to launch, None likewise.
    """

    rank: int
    charged_ns: int
    others_ns: int
    waiting_ns: int
    causes: tuple[tuple[Cause, int], ...]
    evidence: str = ""
    kernels: Slowness | None = None
    launches: Slowness | None = None

    @property
    def cause(self) -> Cause:
        """What it is mostly late with."""
        return self.causes[0][0]

    def to_dict(self) -> dict[str, Any]:
        """The straggler as JSON builtins."""
        return {
            "rank": self.rank,
            "cause": self.cause.key,
            "charged_ns": self.charged_ns,
            "share_of_others": self.charged_ns / self.others_ns if self.others_ns else 0.0,
            "causes": {cause.key: ns for cause, ns in self.causes},
            "evidence": self.evidence or None,
            "kernels": self.kernels.to_dict() if self.kernels else None,
            "launches": self.launches.to_dict() if self.launches else None,
        }


def name_straggler(facts: Sequence[RankFacts], charges: Charges) -> Straggler | None:
    """The rank that holds the others up, None if none does by much or most of the waiting is nobody's."""
    blamed = charges.blamed >= 0
    total = np.zeros(len(facts), np.int64)
    np.add.at(total, charges.blamed[blamed], charges.exposed_ns[blamed])
    waiting = int(charges.exposed_ns[charges.cause != Cause.BUBBLE].sum())
    if not total.any():
        return None
    worst = int(total.argmax())
    charged = int(total[worst])
    others = sum(f.window_ns for r, f in enumerate(facts) if r != worst)
    if charged * NOTICEABLE < others or charged * MOSTLY[1] < waiting * MOSTLY[0]:
        return None
    by_cause = np.zeros(len(Cause), np.int64)
    mine = charges.blamed == worst
    np.add.at(by_cause, charges.cause[mine], charges.exposed_ns[mine])
    causes = sorted(((Cause(c), ns) for c, ns in enumerate(by_cause.tolist()) if ns), key=lambda pair: (-pair[1], pair[0]))
    return Straggler(
        rank=facts[worst].rank,
        charged_ns=charged,
        others_ns=others,
        waiting_ns=waiting,
        causes=tuple(causes),
        evidence=_evidence(facts[worst], causes[0][0]),
        kernels=_slower_kernels(facts, worst),
        launches=_slower_launches(facts, worst),
    )


def _evidence(rank: RankFacts, cause: Cause) -> str:
    """The row that explains most of the rank's longest gaps of this class, else of all its idle time of this class."""
    if cause >= len(StepClass) or cause <= Cause.COPY:
        return ""
    named: dict[str, int] = {}
    for part in (part for gap in rank.gaps for part in gap.causes if part.step_class == int(cause) and part.names):
        named[part.names[0]] = named.get(part.names[0], 0) + part.duration_ns
    if not named:
        for reason in sum_reasons(rank.idle, rank.idle_names, rank.used.tolist()):
            if reason.step_class == int(cause) and reason.name:
                named[reason.name] = named.get(reason.name, 0) + reason.total_ns
    return max(named, key=lambda name: (named[name], name), default="")


def _slower_kernels(facts: Sequence[RankFacts], worst: int) -> Slowness | None:
    """The compute kernels that every rank runs equally often per step."""
    tables = [{(k.name, k.count): k.total_ns for k in f.kernels.rows if k.category == "compute"} for f in facts]
    common = [key for key in tables[worst] if all(key in t for t in tables)]
    own = typical = slower = 0
    for key in common:
        peers = sorted(t[key] for r, t in enumerate(tables) if r != worst)
        middle = peers[(len(peers) - 1) // 2]
        own, typical = own + tables[worst][key], typical + middle
        if tables[worst][key] * 100 >= middle * 102:
            slower += tables[worst][key]
    if not typical or own * SLOWER_KERNELS[1] < typical * SLOWER_KERNELS[0]:
        return None
    return Slowness(own, typical, slower * _ALIKE[1] >= own * _ALIKE[0])


def _slower_launches(facts: Sequence[RankFacts], worst: int) -> Slowness | None:
    peers = sorted(f.launch_pace_ns for r, f in enumerate(facts) if r != worst and f.launch_pace_ns > 0)
    own = facts[worst].launch_pace_ns
    if not peers or own <= 0:
        return None
    middle = peers[(len(peers) - 1) // 2]
    return Slowness(own, middle) if own * SLOWER_LAUNCHES[1] >= middle * SLOWER_LAUNCHES[0] else None
