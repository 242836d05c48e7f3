"""How far the clocks of ranks are apart (section 6 of the time model).

A collective in which everybody needs everybody cannot end on one rank before it starts on another, so each of them bounds the
offset between two clocks from both sides; and it ends nearly at once everywhere, so its ends estimate the offset within the bounds.
Alignment serves comparisons between ranks. It never changes a rank's own times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.measurements.collectives import SYMMETRIC
from traceread.measurements.matching import Matches
from traceread.model import IntColumn, Operation
from traceread.records import record

FEWEST_FOR_DRIFT = 8
LARGEST_DRIFT_PPB = 1_000_000
"""A thousandth: what drifts more is no clock."""


TIMESTAMP_ERROR_NS = 20_000
"""So far a recorded time may be off, and bounds may be missed by it: whole microseconds, conversion from the GPU's clock."""


class ClockSource(StrEnum):
    """How the offset of a rank's clock is known."""

    REFERENCE = "reference"  # the rank that the others are compared with
    SHARED = "shared"  # the same file or host, and no collective contradicts
    ZERO = "zero"  # no difference that the collectives would show
    ENDS = "ends"  # from the ends of collectives
    BOUNDS = "bounds"  # the middle of what the collectives allow
    NONE = "none"  # cannot be compared


@record
class Offset:
    """How far a clock is ahead of another: `offset_ns + (t - at_ns) · drift_ppb / 10⁹` at its own time t.

    Attributes:
        offset_ns, drift_ppb, at_ns: the estimate.
        low_ns, high_ns: what the collectives allow once the drift is taken out; None where one side is open.
        residual_ns: nothing smaller than this is told about the order of two ranks.
        p50_ns, p95_ns: how far ends disagree once aligned.
        matched: operations it rests on.
        source: how it is known.
    """

    offset_ns: int
    drift_ppb: int
    at_ns: int
    low_ns: int | None
    high_ns: int | None
    residual_ns: int
    p50_ns: int
    p95_ns: int
    matched: int
    source: ClockSource

    def ahead(self, at: IntColumn) -> IntColumn:
        """How far the clock is ahead at each of these times of its own."""
        return self.offset_ns + (at - self.at_ns) * self.drift_ppb // 1_000_000_000


_REFERENCE = Offset(0, 0, 0, 0, 0, 0, 0, 0, 0, ClockSource.REFERENCE)
_HUBS = 8
"""So many members of a group are set beside the others, where the first cannot be compared with all of them."""
_SHARED = Offset(0, 0, 0, None, None, 0, 0, 0, 0, ClockSource.SHARED)
_NONE = Offset(0, 0, 0, None, None, 0, 0, 0, 0, ClockSource.NONE)


@record(eq=False)
class Clocks:
    """The clocks of all ranks.

    Attributes:
        offsets: for each rank its offset against the reference of its set.
        reference: for each rank the position of that reference. Ranks with one reference can be compared.
    """

    offsets: tuple[Offset, ...]
    reference: tuple[int, ...]

    @property
    def comparable(self) -> bool:
        """Whether all ranks can be compared with each other."""
        return len(set(self.reference)) == 1

    def aligned(self, rank: int, at: IntColumn) -> IntColumn:
        """Times of one rank on the clock of its reference."""
        return at - self.offsets[rank].ahead(at)

    @property
    def residual_ns(self) -> int:
        """The largest residual of all ranks."""
        return max((o.residual_ns for o in self.offsets), default=0)


def align_clocks(matches: Matches) -> Clocks:
    """The offsets of all clocks, each against the lowest rank that it can be compared with.

    Ranks are compared within the largest groups first; a rank that shares no group with the reference is reached over others,
    and its residuals add up.
    """
    count = len(matches.ranks)
    edges: list[list[tuple[int, Offset]]] = [[] for _ in range(count)]
    for a, b, offset in _pairs(matches):
        edges[a].append((b, offset))
        edges[b].append((a, _reversed(offset)))
    offsets: list[Offset] = [_NONE] * count
    reference = list(range(count))
    for root in range(count):
        if offsets[root] is not _NONE:
            continue
        offsets[root] = replace(_REFERENCE, source=ClockSource.REFERENCE if edges[root] else ClockSource.NONE)
        queue = [root]
        while queue:
            a = queue.pop(0)
            for b, offset in edges[a]:
                if offsets[b] is _NONE and b != root:
                    offsets[b] = _composed(offsets[a], offset)
                    reference[b] = root
                    queue.append(b)
    return Clocks(tuple(offsets), tuple(reference))


class _Sets:
    """Which ranks can be compared with each other so far."""

    def __init__(self, count: int) -> None:
        self._above = list(range(count))

    def root(self, r: int) -> int:
        """The same rank for all of a set."""
        while self._above[r] != r:
            self._above[r] = r = self._above[self._above[r]]
        return r

    def joined(self, a: int, b: int) -> bool:
        """Whether two ranks are in one set."""
        return self.root(a) == self.root(b)

    def join(self, a: int, b: int) -> None:
        """Makes one set of two."""
        self._above[self.root(b)] = self.root(a)


def _pairs(matches: Matches) -> Iterator[tuple[int, int, Offset]]:
    """Pairs of ranks whose clocks can be compared, so few that they connect what can be connected."""
    sets = _Sets(len(matches.ranks))
    contradicting = []
    start, end = matches.column("start_ns"), matches.column("end_ns")
    for members in _symmetric_groups(matches):
        for _ in range(_HUBS):
            hub = max(members, key=lambda r: (len(members[r]), -r))
            for r in members:
                measured = None if sets.joined(hub, r) else _together(matches.meeting, start, end, members[hub], members[r])
                offset = None if measured is None else estimate_offset(measured, _shared(matches, hub, r))
                if offset is not None:
                    sets.join(hub, r)
                    yield hub, r, offset
                elif measured is not None:
                    contradicting.append((hub, r))
            members = {r: rows for r, rows in members.items() if not sets.joined(hub, r)}
            if not members:
                break
    for a, b, measured in _peer_pairs(matches):
        if not sets.joined(a, b) and (offset := estimate_offset(measured, _shared(matches, a, b))) is not None:
            sets.join(a, b)
            yield a, b, offset
    for a, b in _sharing(matches):
        apart = {frozenset((sets.root(c), sets.root(d))) for c, d in contradicting}
        if not sets.joined(a, b) and {sets.root(a), sets.root(b)} not in apart:
            sets.join(a, b)
            yield a, b, _SHARED


def _sharing(matches: Matches) -> Iterator[tuple[int, int]]:
    """Each rank with the first one that has the same clock."""
    first: dict[str, int] = {}
    for r, rank in enumerate(matches.ranks):
        if rank.clock and first.setdefault(rank.clock, r) != r:
            yield first[rank.clock], r


def _shared(matches: Matches, a: int, b: int) -> bool:
    first, second = matches.ranks[a].clock, matches.ranks[b].clock
    return first != "" and first == second


@record(eq=False)
class _Measured:
    """The same operations on two ranks.

    Attributes:
        start_a, end_a, start_b, end_b: on either clock.
        a_needs_b, b_needs_a: whose data are needed, so that the one cannot end before the other starts.
        together: they end nearly at once.
    """

    start_a: IntColumn
    end_a: IntColumn
    start_b: IntColumn
    end_b: IntColumn
    a_needs_b: npt.NDArray[np.bool_]
    b_needs_a: npt.NDArray[np.bool_]
    together: bool


def _symmetric_groups(matches: Matches) -> Iterator[dict[int, IntColumn]]:
    """For each group the rows of each member in operations in which everybody needs everybody, the groups with most of them first."""
    operation = matches.column("operation")
    symmetric = np.isin(operation, (*SYMMETRIC, Operation.SEND_RECV)) & (matches.meeting >= 0)
    by_group = np.bincount(matches.group[symmetric], minlength=len(matches.groups))
    for g in np.argsort(-by_group, kind="stable").tolist():
        if not by_group[g]:
            return
        own = {r: slice(matches.first[r], matches.first[r + 1]) for r in matches.groups[g].loaded}
        yield {r: rows.start + np.flatnonzero(symmetric[rows] & (matches.group[rows] == g)) for r, rows in own.items()}


def _together(meeting: IntColumn, start: IntColumn, end: IntColumn, of_a: IntColumn, of_b: IntColumn) -> _Measured | None:
    """The operations that two members of a group have in common, None if there are none."""
    _, at_a, at_b = np.intersect1d(meeting[of_a], meeting[of_b], assume_unique=True, return_indices=True)
    if not len(at_a):
        return None
    a, b = of_a[at_a], of_b[at_b]
    everybody = np.ones(len(a), bool)
    return _Measured(start[a], end[a], start[b], end[b], everybody, everybody, True)


def _peer_pairs(matches: Matches) -> Iterator[tuple[int, int, _Measured]]:
    """Pairs of ranks that send to each other."""
    if not len(matches.sender):
        return
    start, end, rank = matches.column("start_ns"), matches.column("end_ns"), matches.rank_of
    source, destination = rank[matches.sender], rank[matches.receiver]
    low, high = np.minimum(source, destination), np.maximum(source, destination)
    pair = low * len(matches.ranks) + high
    for key in intervals.unique(pair).tolist():
        mine = np.flatnonzero(pair == key)
        a, b = divmod(key, len(matches.ranks))
        forward = source[mine] == a
        of_a = np.where(forward, matches.sender[mine], matches.receiver[mine])
        of_b = np.where(forward, matches.receiver[mine], matches.sender[mine])
        yield a, b, _Measured(start[of_a], end[of_a], start[of_b], end[of_b], ~forward, forward, False)


def estimate_offset(measured: _Measured, shared: bool) -> Offset | None:
    """The offset of clock b against clock a, None if the operations allow none.

    Zero where the clock is known to be shared and zero is allowed, or where nothing speaks against it: zero is allowed, and the
    ends differ by no more than among themselves. Else what the ends say, if that is allowed; else the middle of what is allowed.
    """
    m = measured
    difference = m.end_b - m.end_a
    tight = np.argsort((m.end_a - m.start_a) + (m.end_b - m.start_b), kind="stable")[: max((len(difference) + 1) // 2, 1)]
    at = _median(m.end_b)
    middle, drift = _line(difference[tight], m.end_b[tight] - at) if m.together else (_median(difference), 0)
    left = difference - (m.end_b - at) * drift // 1_000_000_000
    low, high = _bounds(m, (m.end_b - at) * drift // 1_000_000_000)
    p50, p95 = (int(np.percentile(np.abs(left - middle), q, method="higher")) for q in (50, 95))
    slack = min(p95, TIMESTAMP_ERROR_NS) if m.together else 0

    def allowed(offset: int) -> bool:
        return (low is None or low - slack <= offset) and (high is None or offset <= high + slack)

    bounded = low is not None and high is not None
    if shared and _allows_zero(m, slack):
        offset, drift, source = 0, 0, ClockSource.SHARED
        left, (low, high) = difference, _bounds(m, np.zeros(len(difference), np.int64))
    elif bounded and not drift and allowed(0) and (not m.together or abs(middle) <= p95):
        offset, source = 0, ClockSource.ZERO
    elif m.together and allowed(middle):
        offset, source = middle, ClockSource.ENDS
    elif low is not None and high is not None and low <= high:
        offset, source = (low + high) // 2, ClockSource.BOUNDS
    else:
        return None
    p50, p95 = (int(np.percentile(np.abs(left - offset), q, method="higher")) for q in (50, 95))
    half = max(high - low, 0) // 2 if low is not None and high is not None else p95
    residual = min(half, p95) if m.together or shared else half
    return Offset(offset, drift, at, low, high, residual, p50, p95, len(difference), source)


def _line(difference: IntColumn, at: IntColumn) -> tuple[int, int]:
    """Median of the differences and their drift in parts per 10⁹, 0 where a drift explains nothing."""
    middle = _median(difference)
    if len(difference) < FEWEST_FOR_DRIFT or at.max() == at.min():
        return middle, 0
    seconds, apart = at / 1e9, (difference - middle).astype(np.float64)
    keep = np.ones(len(at), bool)
    for _ in range(2):
        slope, intercept = np.polyfit(seconds[keep], apart[keep], 1)
        off = np.abs(apart - slope * seconds - intercept)
        keep = off <= np.quantile(off, 0.9)
    before, after = np.median(np.abs(apart)), np.median(off)
    if abs(slope) > LARGEST_DRIFT_PPB or 2 * after > before:
        return middle, 0
    drift = round(float(slope))
    return _median(difference - at * drift // 1_000_000_000), drift


def _median(values: IntColumn) -> int:
    """The middle value, the lower one of two; never through a float."""
    return int(np.partition(values, (len(values) - 1) // 2)[(len(values) - 1) // 2])


def _bounds(m: _Measured, drifted: IntColumn) -> tuple[int | None, int | None]:
    """The largest lower and the smallest upper bound of the offset, None where there is none."""
    lower = (m.start_b - m.end_a - drifted)[m.a_needs_b]
    upper = (m.end_b - m.start_a - drifted)[m.b_needs_a]
    return int(lower.max()) if len(lower) else None, int(upper.min()) if len(upper) else None


def _allows_zero(m: _Measured, slack: int) -> bool:
    low, high = _bounds(m, np.zeros(len(m.start_a), np.int64))
    return (low is None or low - slack <= 0) and (high is None or high + slack >= 0)


def _reversed(offset: Offset) -> Offset:
    """The offset of a against b, from that of b against a."""
    low = None if offset.high_ns is None else -offset.high_ns
    high = None if offset.low_ns is None else -offset.low_ns
    return replace(
        offset, offset_ns=-offset.offset_ns, drift_ppb=-offset.drift_ppb, at_ns=offset.at_ns - offset.offset_ns, low_ns=low, high_ns=high
    )


def _composed(outer: Offset, inner: Offset) -> Offset:
    """The offset of c against a, from that of b against a and that of c against b."""
    if outer.source is ClockSource.REFERENCE:
        return inner
    at_b = np.array([inner.at_ns - inner.offset_ns])
    return replace(
        inner,
        offset_ns=inner.offset_ns + int(outer.ahead(at_b)[0]),
        drift_ppb=inner.drift_ppb + outer.drift_ppb,
        low_ns=None,
        high_ns=None,
        residual_ns=inner.residual_ns + outer.residual_ns,
    )
