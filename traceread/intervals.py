"""Half-open interval algebra on int64 nanoseconds: union, intersect, subtract, gaps, total.

A *set* of intervals is a pair of arrays (starts, ends) that is sorted, disjoint and not touching; `union` makes one from
anything. The other functions take and return sets. Empty intervals vanish.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


class Intervals(NamedTuple):
    """Sorted, disjoint, non-touching half-open intervals."""

    start: IntArray
    end: IntArray

    @property
    def total(self) -> int:
        """Sum of the lengths in ns."""
        return int((self.end - self.start).sum())


_FEW = 1 << 12
"""Numbers that are sorted sooner than looked up."""
_SPARSE = 16
"""A table of positions with so many entries for each number is quicker than sorting the numbers; one of flags with four times as many."""
_LARGEST = 1 << 26
"""Entries of a table that may be sparse; a larger one has at most four for each number, or it would be most of the memory."""

EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: npt.ArrayLike, end: npt.ArrayLike) -> Intervals:
    """The set covered by these intervals, in any order, overlapping or not; empty and inverted ones are ignored."""
    s = np.asarray(start, np.int64)
    e = np.asarray(end, np.int64)
    keep = e > s
    if not keep.all():
        s, e = s[keep], e[keep]
    if not len(s):
        return EMPTY
    if np.any(s[1:] < s[:-1]):
        order = np.argsort(s, kind="stable")
        s, e = s[order], e[order]
    reach = np.maximum.accumulate(e)
    first = np.empty(len(s), bool)
    first[0] = True
    np.greater(s[1:], reach[:-1], out=first[1:])
    at = np.flatnonzero(first)
    last = np.append(at[1:], len(s)) - 1
    return Intervals(s[at], reach[last])


def edges(sets: Iterable[Intervals]) -> IntArray:
    """Every instant at which an interval of these sets starts or ends, once, sorted."""
    runs = [np.column_stack(these).reshape(-1) for these in sets]  # each is sorted, which a stable sort makes use of
    at = np.sort(np.concatenate(runs), kind="stable") if runs else EMPTY.start
    first = np.ones(len(at), bool)
    np.not_equal(at[1:], at[:-1], out=first[1:])
    return at[first]


def time_order(start: IntArray, *then: IntArray) -> npt.NDArray[np.intp]:
    """The order of rows by start, equal ones by further keys, the rest as they stand: `np.lexsort((*reversed(then), start))`.

    Recorded rows are nearly in order, and those that begin together mostly stand as they should: it sorts by start, which is quick, and
    then only the groups of equal starts that are not in order.
    """
    order = np.argsort(start, kind="stable")
    by_start = start[order]
    pair = np.flatnonzero(by_start[1:] == by_start[:-1])
    first, second = order[pair], order[pair + 1]
    wrong, undecided = np.zeros(len(pair), bool), np.ones(len(pair), bool)
    for key in then:
        one, other = key[first], key[second]
        wrong |= undecided & (one > other)
        undecided &= one == other
    if wrong.any():
        group = np.cumsum(np.concatenate(([False], pair[1:] != pair[:-1] + 1)))
        again = np.zeros(group[-1] + 1, bool)
        again[group[wrong]] = True
        at = pair[again[group]]
        at = unique(np.concatenate((at, at + 1)))
        rows = order[at]
        order[at] = rows[np.lexsort((*(key[rows] for key in reversed(then)), start[rows]))]
    return order


def clip(these: Intervals, start: int, end: int) -> Intervals:
    """The part of a set inside `[start, end)`."""
    lo = int(np.searchsorted(these.end, start, side="right"))
    hi = int(np.searchsorted(these.start, end, side="left"))
    if lo >= hi:
        return EMPTY
    return Intervals(np.maximum(these.start[lo:hi], start), np.minimum(these.end[lo:hi], end))


def holds(these: Intervals, at: IntArray) -> npt.NDArray[np.bool_]:
    """For each instant whether a set covers it; shape of `at`."""
    if not len(these.start):
        return np.zeros(len(at), bool)
    begun = np.searchsorted(these.start, at, side="right")
    inside: npt.NDArray[np.bool_] = at < _ends(these)[begun]
    return inside


def _ends(these: Intervals) -> IntArray:
    """The ends by the number of intervals that have begun: with none the least integer."""
    return np.concatenate(([np.iinfo(np.int64).min], these.end))


def distinct(values: npt.NDArray[np.integer[Any]]) -> tuple[IntArray, npt.NDArray[np.intp]]:
    """`np.unique(values, return_inverse=True)` of one column; by a look-up table where the values lie close together."""
    low, there = _there(values, _SPARSE)
    if there is None:
        return np.unique(values, return_inverse=True)
    found = np.flatnonzero(there)
    position = np.empty(len(there), np.intp)
    position[found] = np.arange(len(found))
    return found + low, position[values - low if low else values]


def unique(values: npt.NDArray[np.integer[Any]]) -> IntArray:
    """`np.unique(values)` of one column; by a look-up table where the values lie close together, sorted otherwise.

    np.unique hashes: ten times slower where most values differ, and it imports the masked arrays of numpy first.
    """
    low, there = _there(values, 4 * _SPARSE)
    if there is not None:
        return np.flatnonzero(there) + low
    ordered = np.sort(values)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]


def among(values: npt.NDArray[np.integer[Any]], these: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
    """`np.isin(values, these)` of integers, without np.unique."""
    ordered = unique(these)
    at = np.searchsorted(ordered, values)
    found = at < len(ordered)
    found[found] = ordered[at[found]] == values[found]
    return found


def distinct_pairs(
    first: npt.NDArray[np.integer[Any]], second: npt.NDArray[np.integer[Any]]
) -> tuple[IntArray, IntArray, npt.NDArray[np.intp]]:
    """The pairs that occur in two columns, once, sorted by the first and then the second, and for each row the position of its pair."""
    ones, one = distinct(first)
    others, other = distinct(second)
    keys, of = distinct(one * len(others) + other)
    return ones[keys // max(len(others), 1)], others[keys % max(len(others), 1)], of


def _there(values: npt.NDArray[np.integer[Any]], sparse: int) -> tuple[int, npt.NDArray[np.bool_] | None]:
    """An integer and, for each from it to the largest of these values, whether it is among them.

    None where there are more than `sparse` integers for each value, or too many.
    """
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, -1)
    if low > 0 and high < sparse * len(values):
        low = 0  # then they are positions as they are
    if high - low >= sparse * len(values) or high - low > max(_LARGEST, 4 * len(values)):
        return low, None
    there = np.zeros(high - low + 1, bool)
    there[values - low if low else values] = True
    return low, there


def longest(length: IntArray, count: int) -> npt.NDArray[np.intp]:
    """The positions of the `count` largest of these, the largest first, equal ones as they stand."""
    at = np.arange(len(length))
    if len(length) > count > 0:
        at = np.flatnonzero(length >= np.partition(length, -count)[-count])
    return at[np.argsort(-length[at], kind="stable")][:count]


def maxima_of(values: IntArray) -> list[IntArray]:
    """The largest of each of these values, of each block of 2 of them, of 4, 8, ... until one block holds all."""
    maxima = [values]
    while len(maxima[-1]) > 1:
        wide = maxima[-1]
        paired = np.maximum(wide[:-1:2], wide[1::2])
        maxima.append(np.append(paired, wide[-1]) if len(wide) % 2 else paired)
    return maxima


def last_reaching(maxima: Sequence[IntArray], at: IntArray, least: IntArray) -> IntArray:
    """For each of these positions the last one at or before it with at least such a value, -1 if none; shape of `at`.

    Up the `maxima_of` the values to the smallest block that holds one, then down to the last one in it.
    """
    block, level = at.astype(np.int64), np.full(len(at), -1)
    left = np.flatnonzero(block >= 0)
    for i, highest in enumerate(maxima):
        found = highest[block[left]] >= least[left]
        level[left[found]] = i
        left = left[~found]
        block[left] = (block[left] - 1) >> 1  # the one before may be half of it: the other half is known not to hold any
        left = left[block[left] >= 0]
    for i in range(len(maxima) - 1, 0, -1):
        inside = np.flatnonzero(level >= i)
        later = np.minimum(2 * block[inside] + 1, len(maxima[i - 1]) - 1)
        block[inside] = np.where(maxima[i - 1][later] >= least[inside], later, 2 * block[inside])
    block[level < 0] = -1
    return block


def group_order(group: npt.NDArray[np.integer[Any]], count: int) -> npt.NDArray[np.intp]:
    """The order of rows by group, `0 <= group < count`, those of one group as they stand."""
    return np.argsort(group.astype(np.min_scalar_type(max(count - 1, 0))), kind="stable")  # a byte is sorted at a glance


def either(*positions: IntArray) -> IntArray:
    """Every position in these columns of row numbers, once, sorted; by a mask where there are many."""
    every = np.concatenate(positions)
    if len(every) < _FEW:
        return unique(every)
    there = np.zeros(int(every.max()) + 1, bool)
    there[every] = True
    return np.flatnonzero(there)


def gaps(these: Intervals, start: int, end: int) -> Intervals:
    """The part of `[start, end)` that a set does not cover."""
    inside = clip(these, start, end)
    s = np.concatenate(([start], inside.end))
    e = np.concatenate((inside.start, [end]))
    keep = e > s
    return Intervals(s[keep], e[keep])


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """What both sets cover."""
    if not len(a.start) or not len(b.start):
        return EMPTY
    first = np.searchsorted(b.end, a.start, side="right")
    stop = np.searchsorted(b.start, a.end, side="left")
    counts = np.maximum(stop - first, 0)
    of_a = np.repeat(np.arange(len(a.start)), counts)
    of_b = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    return Intervals(np.maximum(a.start[of_a], b.start[of_b]), np.minimum(a.end[of_a], b.end[of_b]))


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """What the first set covers and the second does not."""
    if not len(a.start):
        return EMPTY
    return intersect(a, gaps(b, int(a.start[0]), int(a.end[-1])))


def covered(these: Intervals, start: IntArray, end: IntArray) -> IntArray:
    """For each window `[start, end)` the ns of it that a set covers; shape of `start`."""
    if not len(these.start):
        return np.zeros(len(start), np.int64)
    whole, ends = np.concatenate(([0], np.cumsum(these.end - these.start))), _ends(these)

    def up_to(t: IntArray) -> IntArray:
        begun = np.searchsorted(these.start, t, side="right")
        reached: IntArray = whole[begun] - (np.maximum(ends[begun], t) - t)
        return reached

    result: IntArray = np.maximum(up_to(end) - up_to(start), 0)
    return result


def reach_per_group(start: IntArray, end: IntArray, group: IntArray) -> IntArray:
    """For each interval the latest end among the earlier ones of its group, its own start if there are none.

    Rows must be sorted by (group, start); groups are small non-negative integers.
    """
    if not len(start):
        return end
    first = np.concatenate(([True], group[1:] != group[:-1]))
    base = int(start.min())
    span = max(int(end.max()) - base, 0) + 1
    if span * (int(group[-1]) + 1) < 2**62:
        # one running maximum over all groups: each is moved behind the one before it
        reach = np.maximum.accumulate(end - base + group * span) - group * span + base
    else:
        reach = end.copy()
        for lo, hi in _runs(first):
            reach[lo:hi] = np.maximum.accumulate(end[lo:hi])
    return np.where(first, start, np.concatenate(([0], reach[:-1])))


def union_per_group(start: IntArray, end: IntArray, group: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """The union of the intervals of each group, in any order: starts, ends and groups, sorted by (group, start)."""
    keep = end > start
    start, end, group = start[keep], end[keep], group[keep]
    if not len(start):
        return start, end, group
    in_order = not np.any(start[1:] < start[:-1])
    order = group_order(group, int(group.max()) + 1) if in_order else np.lexsort((start, group))
    start, end, group = start[order], end[order], group[order]
    reach = reach_per_group(start, end, group)
    begins = np.concatenate(([True], (group[1:] != group[:-1]) | (start[1:] > reach[1:])))
    at = np.flatnonzero(begins)
    last = np.append(at[1:], len(start)) - 1
    return start[at], np.maximum(end[last], reach[last]), group[at]


def _runs(first: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    at = np.flatnonzero(first).tolist()
    return list(zip(at, [*at[1:], len(first)], strict=True))
