"""A loss: time of one rank with one cause, and what a fix would take away."""

from __future__ import annotations

from dataclasses import field
from functools import reduce

import numpy as np

from traceread import intervals
from traceread.measurements.replay import Removal
from traceread.measurements.replay_graph import HostIntervals
from traceread.model import IntColumn
from traceread.records import record

_NONE = np.empty(0, np.int64)


@record(eq=False)
class Loss:
    """Time with one cause. Rows are positions in the tables of the rank, each row counts once.

    Attributes:
        idle: rows of Idle.
        activities, ns: activities, and how much of the used steps each of them costs.
        host_rows: calls (position), and ranges (number of calls + position), that are to blame.
        removal: what a fix takes away.
        beside: what runs beside other work in the ideal case, None where that is no choice.
        names: names worth showing beside those of the rows.
    """

    idle: IntColumn = field(default_factory=lambda: _NONE)
    activities: IntColumn = field(default_factory=lambda: _NONE)
    ns: IntColumn = field(default_factory=lambda: _NONE)
    host_rows: IntColumn = field(default_factory=lambda: _NONE)
    removal: Removal = field(default_factory=Removal)
    beside: Removal | None = None
    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return len(self.idle) > 0 or len(self.activities) > 0 or len(self.host_rows) > 0

    def __add__(self, other: Loss) -> Loss:
        """Both losses as one."""
        beside = [b for b in (self.beside, other.beside) if b is not None]
        return Loss(
            idle=intervals.either(self.idle, other.idle),
            activities=np.concatenate((self.activities, other.activities)),
            ns=np.concatenate((self.ns, other.ns)),
            host_rows=intervals.either(self.host_rows, other.host_rows),
            removal=joined((self.removal, other.removal)),
            beside=joined(beside) if beside else None,
            names=tuple(dict.fromkeys(self.names + other.names)),
        )


def joined(removals: list[Removal] | tuple[Removal, ...]) -> Removal:
    """Removals of one kind as one."""
    some = [r for r in removals if r]
    if not some:
        return Removal(beside=bool(removals) and removals[0].beside)

    def two(a: Removal, b: Removal) -> Removal:
        hosts = zip((c for _, c in a.host.columns()), (c for _, c in b.host.columns()), strict=True)
        return Removal(
            host=HostIntervals(*(np.concatenate(pair) for pair in hosts)),
            activities=np.concatenate((a.activities, b.activities)),
            off_ns=np.concatenate((a.off_ns, b.off_ns)),
            beside=a.beside,
            keep=a.keep,
        )

    return reduce(two, some)
