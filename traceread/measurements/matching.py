"""Which collectives of different ranks are one (section 6 of the time model).

Ranks of a process group do the same operations in the same order. Captures start and end at different ones, so the sequences of a
group are laid beside each other: by recorded sequence numbers, else at the offset where all that overlaps agrees in operation,
dtype, element counts and step. Where several offsets agree (training repeats itself) the one decides at which the times between
ends agree as well. Sends meet receives per pair of ranks, in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.measurements.collectives import PEER_TO_PEER, Collectives, Evidence, RankCollectives
from traceread.model import NOT_RECORDED, IntColumn, Operation, ProcessGroup
from traceread.records import record

Signatures = npt.NDArray[np.uint64]
"""What must agree of two operations, as one number each; 0 agrees with everything."""

_PREFIX = 8
_TRIED = 32  # offsets that are looked at
_RHYTHM = 32  # times between ends that are compared before that
_AS_GOOD_NS = 1_000
_UNKNOWN_NS = 1 << 61


class Unmatched(IntEnum):
    """Why an operation has no counterpart."""

    MATCHED = 0
    NO_PARTNER = 1  # no other loaded rank is known to belong to its group
    OUTSIDE = 2  # the others' captures do not reach so far
    DIFFERENT = 3  # the others did something else there
    UNKNOWN_PEER = 4  # a send or receive whose other end is not recorded

    @property
    def text(self) -> str:
        """The reason in words."""
        return _UNMATCHED_TEXT[self]


_UNMATCHED_TEXT = {
    Unmatched.MATCHED: "matched",
    Unmatched.NO_PARTNER: "no other loaded rank takes part",
    Unmatched.OUTSIDE: "outside the part that the captures share",
    Unmatched.DIFFERENT: "the other ranks did something else there",
    Unmatched.UNKNOWN_PEER: "the other end is not recorded",
}


@record
class Group:
    """A process group as the loaded ranks see it.

    Attributes:
        name, description: as recorded, "" if not.
        size: its number of ranks, -1 if not recorded.
        loaded: positions of the loaded ranks that take part, in order.
        stream: for operations without a recorded group, which of the rank's streams they are on (0 for the first); else -1.
    """

    name: str
    description: str
    size: int
    loaded: tuple[int, ...]
    stream: int = -1

    @property
    def title(self) -> str:
        """What to call it: description and name, or "not recorded"."""
        if self.stream >= 0:
            return "group not recorded" if not self.stream else f"group not recorded, stream {self.stream + 1}"
        return " ".join(part for part in (self.description, f"#{self.name}" if self.name else "") if part) or "unnamed group"

    def to_dict(self) -> dict[str, Any]:
        """The group as JSON builtins."""
        return {"name": self.name or None, "description": self.description or None, "size": self.size if self.size > 0 else None}


@record(eq=False)
class Matches:
    """The collectives of all ranks, one row each in order of rank, and which of them are one.

    Attributes:
        ranks: their collectives, as given.
        first: position of the first row of each rank, and the number of rows last.
        group: for each row the position in `groups`.
        meeting: for each row the number of the operation it takes part in, the same on every rank; -1 if it was not matched.
        unmatched: for each row an Unmatched.
        groups: the process groups.
        sender, receiver: rows of matched sends and receives, pair by pair; a row that holds many of them stands there often.
    """

    ranks: tuple[RankCollectives, ...]
    first: IntColumn
    group: IntColumn
    meeting: IntColumn
    unmatched: npt.NDArray[np.uint8]
    groups: tuple[Group, ...]
    sender: IntColumn
    receiver: IntColumn

    @property
    def rank_of(self) -> IntColumn:
        """For each row the position of its rank."""
        return np.repeat(np.arange(len(self.ranks)), np.diff(self.first))

    def column(self, name: str) -> npt.NDArray[np.int64]:
        """A column of `Collectives` over all rows."""
        return np.concatenate([getattr(r.collectives, name) for r in self.ranks] or [np.empty(0, np.int64)]).astype(np.int64)

    def counts(self) -> dict[Unmatched, int]:
        """How many rows are matched, and why the others are not."""
        found = np.bincount(self.unmatched, minlength=len(Unmatched))
        return {reason: int(found[reason]) for reason in Unmatched if found[reason]}


def match(ranks: Sequence[RankCollectives]) -> Matches:
    """The operations that ranks did together."""
    first = np.cumsum([0, *(len(r.collectives) for r in ranks)])
    keys, group = _groups(ranks)
    meeting = np.full(first[-1], NOT_RECORDED)
    unmatched = np.concatenate([_before_matching(r) for r in ranks] or [np.empty(0, np.uint8)])
    members = _members(group, first, len(keys))
    count = 0
    for of_ranks in members:
        if len(of_ranks) > 1:
            count = _match_group(_sequences(ranks, first, of_ranks), meeting, unmatched, count)
    sender, receiver = _match_peers(ranks, first, unmatched)
    loaded = [tuple(r for r, _ in of_ranks) for of_ranks in members]
    groups = tuple(Group(k.name, k.description, k.size, of, k.stream) for k, of in zip(keys, loaded, strict=True))
    return Matches(tuple(ranks), first, group, meeting, unmatched, groups, sender, receiver)


def _before_matching(rank: RankCollectives) -> npt.NDArray[np.uint8]:
    """Unmatched for each operation of a rank as long as nobody is known to share it."""
    table = rank.collectives
    lonely = np.isin(table.operation, PEER_TO_PEER) & ~_is_exchange(table)
    lonely[rank.peers.collective] = False
    return np.where(lonely, np.uint8(Unmatched.UNKNOWN_PEER), np.uint8(Unmatched.NO_PARTNER))


def _is_exchange(table: Collectives) -> npt.NDArray[np.bool_]:
    """Whether a batch of sends and receives with unknown ends looks like an exchange of everybody with everybody."""
    result: npt.NDArray[np.bool_] = (table.operation == Operation.SEND_RECV) & (table.sends > 0) & (table.sends == table.receives)
    return result


# Groups.


@record
class _Key:
    """What tells a group from another: its ranks if they are recorded, else its name and size, else the place of its stream."""

    name: str
    size: int
    ranks: tuple[int, ...]
    stream: int = -1
    description: str = ""

    @classmethod
    def of(cls, group: ProcessGroup) -> _Key:
        return cls(group.name, group.size, group.ranks)


def _groups(ranks: Sequence[RankCollectives]) -> tuple[list[_Key], IntColumn]:
    """The groups of all ranks, and for each row the position of its group."""
    positions: dict[_Key, int] = {}
    described: list[str] = []
    columns = []
    for r in ranks:
        own = np.array([_position(_Key.of(g), g.description, positions, described) for g in r.groups], np.int64)
        column = np.append(own, NOT_RECORDED)[r.collectives.group]
        nameless = np.flatnonzero(column < 0)
        streams, of = np.unique(r.collectives.stream[nameless], return_inverse=True)
        by_stream = np.array([_position(_Key("", -1, (), i), "", positions, described) for i in range(len(streams))], np.int64)
        if len(nameless):
            column[nameless] = by_stream[of]
        columns.append(column)
    keys = [_Key(k.name, k.size, k.ranks, k.stream, text) for k, text in zip(positions, described, strict=True)]
    return keys, np.concatenate(columns or [np.empty(0, np.int64)])


def _position(key: _Key, description: str, positions: dict[_Key, int], described: list[str]) -> int:
    position = positions.setdefault(key, len(positions))
    if position == len(described):
        described.append(description)
    described[position] = described[position] or description
    return position


def _members(group: IntColumn, first: IntColumn, groups: int) -> list[list[tuple[int, IntColumn]]]:
    """For each group the ranks that have operations in it, with their rows."""
    result: list[list[tuple[int, IntColumn]]] = [[] for _ in range(groups)]
    for r in range(len(first) - 1):
        own = group[first[r] : first[r + 1]]
        if not len(own):
            continue
        order = np.argsort(own, kind="stable")
        present, begins = np.unique(own[order], return_index=True)
        for g, rows in zip(present.tolist(), np.split(order, begins[1:]), strict=True):
            result[g].append((r, np.sort(rows) + first[r]))
    return result


# Operations of a whole group.


@record(eq=False)
class _Sequence:
    """Operations of one rank in one channel, in order of issue.

    Attributes:
        row: their rows in `Matches`.
        signature: what must agree between ranks.
        stepped: the same and the number of the step; equal to `signature` where steps have no numbers.
        number: recorded number within the group, -1 if none.
        end_ns: ends on the rank's own clock.
    """

    row: IntColumn
    signature: Signatures
    stepped: Signatures
    number: IntColumn
    end_ns: IntColumn

    def __len__(self) -> int:
        return len(self.row)


def _sequences(ranks: Sequence[RankCollectives], first: IntColumn, members: Sequence[tuple[int, IntColumn]]) -> list[_Sequence]:
    """The operations of each member of a group that take the whole group."""
    own = []
    for r, rows in members:
        table, at = ranks[r].collectives, rows - first[r]
        by_pair = np.zeros(len(table), bool)
        by_pair[ranks[r].peers.collective] = True
        own.append(at[~by_pair[at] & (~np.isin(table.operation[at], PEER_TO_PEER) | _is_exchange(table)[at])])
    tables = [ranks[r].collectives for r, _ in members]
    recorded = any((t.evidence[at] > Evidence.KERNEL_NAME).any() for t, at in zip(tables, own, strict=True))
    return [
        _sequence(t, at, int(first[r]), _signatures(t, at, recorded)) for (r, _), t, at in zip(members, tables, own, strict=True) if len(at)
    ]


def _sequence(table: Collectives, own: IntColumn, first: int, signature: Signatures) -> _Sequence:
    launched = (table.launch_ns[own] != NOT_RECORDED).all()
    order = np.lexsort((table.start_ns[own], table.launch_ns[own])) if launched else np.argsort(table.start_ns[own], kind="stable")
    own, signature = own[order], signature[order]
    stepped = np.where(signature == 0, signature, _mixed((signature.view(np.int64), table.step[own])))
    return _Sequence(own + first, signature, stepped, table.sequence[own], table.end_ns[own])


_PRIMES = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5, 0x85EBCA77C2B2AE63], np.uint64)


def _signatures(table: Collectives, own: IntColumn, recorded: bool) -> Signatures:
    """What must agree between ranks: operation, dtype and counts; counts may differ where ranks give and get different shares.

    `recorded`: something better than kernel names is known in this group, so that names are not believed.
    """
    operation = table.operation[own]
    uneven = np.isin(operation, (Operation.ALL_TO_ALL, Operation.GATHER, Operation.SCATTER))
    columns = (
        operation,
        table.dtype[own],
        np.where(uneven, 0, table.elements_in[own]),
        np.where(uneven, 0, table.elements_out[own]),
        table.sends[own] * 65_537 + table.receives[own],
    )
    named = table.evidence[own] == Evidence.KERNEL_NAME
    nothing = (table.evidence[own] == Evidence.NOTHING) | (named & recorded)
    return np.where(nothing, np.uint64(0), _mixed(columns))


def _mixed(columns: Sequence[npt.NDArray[np.integer]]) -> Signatures:
    """One number for equal rows of columns, never 0."""
    result = np.zeros(len(columns[0]), np.uint64)
    for values, prime in zip(columns, _PRIMES, strict=False):
        result = (result ^ values.astype(np.int64).view(np.uint64)) * prime
        result ^= result >> np.uint64(29)
    return result | np.uint64(1)


def _match_group(members: Sequence[_Sequence], meeting: IntColumn, unmatched: npt.NDArray[np.uint8], count: int) -> int:
    """Numbers the meetings of one channel from `count` on in `meeting`; returns the next free number."""
    if len(members) < 2:
        return count
    places = _by_number(members)
    if places is None:
        places = _by_alignment(members)
    low = min((int(place[place != _NOWHERE].min()) for place in places if (place != _NOWHERE).any()), default=0)
    high = max((int(place[place != _NOWHERE].max()) for place in places if (place != _NOWHERE).any()), default=-1)
    attended = np.zeros(high - low + 1, np.int64)
    for place in places:
        attended[place[place != _NOWHERE] - low] += 1
    number = np.where(attended > 1, count + np.cumsum(attended > 1) - 1, NOT_RECORDED)
    for member, place in zip(members, places, strict=True):
        there = place != _NOWHERE
        unmatched[member.row[~there]] = Unmatched.DIFFERENT
        met = number[place[there] - low]
        meeting[member.row[there]] = met
        unmatched[member.row[there]] = np.where(met >= 0, np.uint8(Unmatched.MATCHED), np.uint8(Unmatched.OUTSIDE))
    return count + int((attended > 1).sum())


_NOWHERE = np.iinfo(np.int64).min


def _by_number(members: Sequence[_Sequence]) -> list[IntColumn] | None:
    """Places by recorded sequence numbers; None where they are missing or repeat. What differs from the first of its number is nowhere."""
    if any((m.number < 0).any() or (np.diff(m.number) <= 0).any() for m in members):
        return None
    numbers = np.concatenate([m.number for m in members])
    signatures = np.concatenate([m.signature for m in members])
    order = np.lexsort((signatures == 0, numbers))
    first = np.concatenate(([True], numbers[order][1:] != numbers[order][:-1]))
    wanted = signatures[order][first][np.cumsum(first) - 1]
    agrees = np.empty(len(numbers), bool)
    agrees[order] = _agree(signatures[order], wanted)
    place = np.where(agrees, numbers, _NOWHERE)
    return np.split(place, np.cumsum([len(m) for m in members])[:-1])


def _agree(a: Signatures, b: Signatures) -> npt.NDArray[np.bool_]:
    result: npt.NDArray[np.bool_] = (a == b) | (a == 0) | (b == 0)
    return result


def _by_alignment(members: Sequence[_Sequence]) -> list[IntColumn]:
    """Places in a common sequence that starts as the longest one and grows at both ends as others stick out."""
    places: list[IntColumn] = [np.empty(0, np.int64)] * len(members)
    by_length = sorted(range(len(members)), key=lambda i: -len(members[i]))
    common = members[by_length[0]]
    origin = 0  # the place of the first element of `common`
    for i in by_length:
        member = members[i]
        place = _aligned(common, member)
        places[i] = np.where(place == _NOWHERE, place, place + origin)
        there = np.flatnonzero(place != _NOWHERE)
        if not len(there):
            continue
        before, after = max(int(-place[there[0]]), 0), max(int(place[there[-1]]) - len(common) + 1, 0)
        if before or after:
            inside = there[before : len(there) - after]
            shift = _median(member.end_ns[inside] - common.end_ns[place[inside]]) if len(inside) else 0
            common = _extended(common, member, there[:before], there[len(there) - after :], shift)
            origin -= before
    return places


def _extended(common: _Sequence, member: _Sequence, before: IntColumn, after: IntColumn, shift: int) -> _Sequence:
    """The common sequence with these elements of a member before and behind it; `shift` is how far the member's clock is ahead."""

    def joined(name: str) -> npt.NDArray[Any]:
        more = getattr(member, name) - shift if name == "end_ns" else getattr(member, name)
        return np.concatenate((more[before], getattr(common, name), more[after]))

    return _Sequence(*(joined(f.name) for f in fields(_Sequence)))


# Aligning two sequences.


def _aligned(known: _Sequence, other: _Sequence) -> IntColumn:
    """For each element of `other` its place in `known` (which may lie before its start or behind its end), _NOWHERE if it differs.

    Where all that overlaps agrees at some offset, that is it. Else records are missing: the offset at which most agrees tells how
    far the clocks are apart, and that tells the place of everything.
    """
    for name in ("stepped", "signature"):
        tried = [
            _Overlap.of(getattr(known, name), known.end_ns, getattr(other, name), other.end_ns, k) for k in _offsets(known, other, name)
        ]
        lasting = [o for o in tried if len(o.steady) > 1]
        if lasting:
            best = _best(lasting)
            return np.arange(len(other)) + best.offset if best.whole else _by_time(known, other, name, best)
    # Nothing but very short overlaps.
    return np.arange(len(other)) + tried[0].offset if tried and tried[0].whole else np.full(len(other), _NOWHERE)


@record
class _Overlap:
    """Two sequences laid beside each other at an offset.

    Attributes:
        offset: place of the first element of the other in the known one.
        length: how many elements overlap.
        whole: all of them agree.
        steady: of neighbours that both agree, how much the time between their ends differs, in ns.
        apart: the median of that.
        shift: how far the other's clock is ahead.
    """

    offset: int
    length: int
    whole: bool
    steady: IntColumn
    apart: int
    shift: int

    @classmethod
    def of(cls, known: Signatures, known_end: IntColumn, other: Signatures, other_end: IntColumn, offset: int) -> _Overlap:
        """The overlap at an offset."""
        low, high = max(offset, 0), min(offset + len(other), len(known))
        agrees = _agree(known[low:high], other[low - offset : high - offset])
        difference = other_end[low - offset : high - offset] - known_end[low:high]
        steady = np.abs(np.diff(difference))[agrees[1:] & agrees[:-1]]
        apart = _median(steady) if len(steady) else _UNKNOWN_NS
        return cls(offset, high - low, bool(agrees.all()), steady, apart, _median(difference[agrees]) if agrees.any() else 0)


def _best(overlaps: Sequence[_Overlap]) -> _Overlap:
    """The overlap at which the times between ends agree best; of those that are about as good the longest.

    Training repeats itself, so that many offsets may agree in everything else; but two steps never take exactly as long.
    """
    enough = max(len(o.steady) for o in overlaps) // 4
    least = min(o.apart for o in overlaps if len(o.steady) >= enough)
    good = [o for o in overlaps if len(o.steady) >= enough and o.apart <= 2 * least + _AS_GOOD_NS]
    return max(good, key=lambda o: (len(o.steady), o.length, -abs(o.offset)))


def _by_time(known: _Sequence, other: _Sequence, name: str, overlap: _Overlap) -> IntColumn:
    """Places by what ends at the same time and agrees, each place once."""
    expected = other.end_ns - overlap.shift
    order = np.argsort(known.end_ns, kind="stable")
    ends = known.end_ns[order]
    after = np.clip(np.searchsorted(ends, expected), 1, max(len(ends) - 1, 1))
    nearest = after - (np.abs(expected - ends[after - 1]) <= np.abs(expected - ends[np.minimum(after, len(ends) - 1)]))
    place = order[np.minimum(nearest, len(ends) - 1)]
    close = 4 * np.abs(expected - known.end_ns[place]) <= _median(np.diff(ends)) if len(ends) > 1 else np.ones(len(place), bool)
    place = np.where(close & _agree(getattr(known, name)[place], getattr(other, name)), place, _NOWHERE)
    taken = place[place != _NOWHERE]
    rising = len(taken) == len(intervals.unique(taken)) and bool((np.diff(taken) > 0).all())
    return place if rising else np.full(len(other), _NOWHERE)


def _median(values: IntColumn) -> int:
    """The middle value, the lower one of two; never through a float."""
    return int(np.partition(values, (len(values) - 1) // 2)[(len(values) - 1) // 2])


def _offsets(known: _Sequence, other: _Sequence, name: str) -> list[int]:
    """Offsets at which the sequences may agree, those with the longest overlap first.

    Where they overlap, either the start of `other` lies in `known` or the other way round; so the first few elements are looked
    for, and the last few, in case records are missing in between.
    """
    a, b = getattr(known, name), getattr(other, name)
    found = {*_found_in(a, b), *(-at for at in _found_in(b, a))}
    backwards = {*_found_in(a[::-1], b[::-1]), *(-at for at in _found_in(b[::-1], a[::-1]))}
    found |= {len(a) - len(b) - at for at in backwards}
    overlap = {offset: min(offset + len(b), len(a)) - max(offset, 0) for offset in found}
    by_overlap = sorted(overlap, key=lambda offset: (-overlap[offset], abs(offset)))
    if len(by_overlap) <= _TRIED:
        return by_overlap
    by_time = _by_rhythm(known.end_ns, other.end_ns, np.array(by_overlap))
    return sorted({*by_overlap[: _TRIED // 2], *by_time[: _TRIED // 2].tolist()}, key=lambda offset: (-overlap[offset], abs(offset)))


def _by_rhythm(known_end: IntColumn, other_end: IntColumn, offsets: IntColumn) -> IntColumn:
    """Offsets in order of how well a few times between ends agree: at the start, in the middle or at the end of `other`."""
    rhythm, pattern = np.diff(known_end), np.diff(other_end)
    length = min(_RHYTHM, len(rhythm) // 4, len(pattern) // 4)
    if not length:
        return offsets
    windows = np.lib.stride_tricks.sliding_window_view(rhythm, length)
    cost = np.full(len(offsets), np.iinfo(np.int64).max)
    for at in (0, (len(pattern) - length) // 2, len(pattern) - length):
        differs = np.sort(np.abs(windows - pattern[at : at + length]), axis=1)[:, length // 2]
        inside = (offsets + at >= 0) & (offsets + at < len(windows))
        cost[inside] = np.minimum(cost[inside], differs[offsets[inside] + at])
    return offsets[np.argsort(cost, kind="stable")]


def _found_in(text: Signatures, start: Signatures) -> list[int]:
    """Where the first elements of `start` stand in `text`, also where `text` ends before they do."""
    length = min(_PREFIX, len(start), len(text))
    windows = np.lib.stride_tricks.sliding_window_view(text, length)
    at: list[int] = np.flatnonzero(_agree(windows, start[:length]).all(axis=1)).tolist()
    for cut in range(1, length):
        if _agree(text[-cut:], start[:cut]).all():
            at.append(len(text) - cut)
    return at


# Sends and receives.


def _match_peers(ranks: Sequence[RankCollectives], first: IntColumn, unmatched: npt.NDArray[np.uint8]) -> tuple[IntColumn, IntColumn]:
    """Rows of sends and the receives they meet; notes in `unmatched` what became of rows with peers."""
    channels: dict[tuple[object, ...], dict[int, _Sequence]] = {}
    position = {r.rank: i for i, r in enumerate(ranks)}
    for i, r in enumerate(ranks):
        if not len(r.peers):
            continue
        names = [_Key.of(g) for g in r.groups]
        ids = np.stack((r.peers.group.astype(np.int64), r.peers.source, r.peers.destination), axis=1)
        distinct, of = np.unique(ids, axis=0, return_inverse=True)
        table = r.collectives
        for channel, (group, source, destination) in enumerate(distinct.tolist()):
            mine = np.flatnonzero(of.ravel() == channel)
            other = destination if source == r.rank else source
            if other in position:
                own = r.peers.collective[mine]
                signature = _mixed((r.peers.elements[mine], table.dtype[own].astype(np.int64)))
                key = (names[group] if group >= 0 else None, source, destination)
                channels.setdefault(key, {})[i] = _sequence(table, own, int(first[i]), signature)
            rows = r.peers.collective[mine] + first[i]
            unmatched[rows] = Unmatched.OUTSIDE if other in position else Unmatched.NO_PARTNER
    pairs = [_pairs(ends, position[source], position[destination]) for (_, source, destination), ends in channels.items()]  # type: ignore[index]
    sender = np.concatenate([p[0] for p in pairs] or [np.empty(0, np.int64)])
    receiver = np.concatenate([p[1] for p in pairs] or [np.empty(0, np.int64)])
    unmatched[sender] = unmatched[receiver] = Unmatched.MATCHED
    return sender, receiver


def _pairs(ends: dict[int, _Sequence], source: int, destination: int) -> tuple[IntColumn, IntColumn]:
    if source not in ends or destination not in ends:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    sends, receives = ends[source], ends[destination]
    place = _aligned(sends, receives)
    there = (place >= 0) & (place < len(sends))
    return sends.row[place[there]], receives.row[there]
