import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceread import intervals

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def the_set(rows):
    return intervals.union([a for a, _ in rows], [b for _, b in rows])


def instants(these):
    return {t for a, b in zip(these.start.tolist(), these.end.tolist(), strict=True) for t in range(a, b)}


def covered_by(rows):
    return {t for a, b in rows for t in range(a, b)}


@given(pairs)
def test_union_covers_the_same_instants_and_is_disjoint(rows):
    these = the_set(rows)
    assert instants(these) == covered_by(rows)
    assert np.all(these.start < these.end)
    assert np.all(these.start[1:] > these.end[:-1])
    assert these.total == len(covered_by(rows))


@given(pairs, pairs)
def test_intersect_subtract(a, b):
    one, two = the_set(a), the_set(b)
    assert instants(intervals.intersect(one, two)) == covered_by(a) & covered_by(b)
    assert instants(intervals.subtract(one, two)) == covered_by(a) - covered_by(b)
    assert intervals.intersect(one, two).total + intervals.subtract(one, two).total == one.total


@given(pairs, st.integers(-5, 70), st.integers(0, 40))
def test_clip_and_gaps_tile_a_window(rows, start, length):
    these, end = the_set(rows), start + length
    inside, outside = intervals.clip(these, start, end), intervals.gaps(these, start, end)
    assert instants(inside) == covered_by(rows) & set(range(start, end))
    assert instants(inside) | instants(outside) == set(range(start, end))
    assert inside.total + outside.total == length


@given(pairs, st.lists(st.tuples(st.integers(-5, 70), st.integers(0, 40)), min_size=1, max_size=6))
def test_covered_is_the_length_inside_each_window(rows, windows):
    start = np.array([s for s, _ in windows], np.int64)
    end = start + np.array([n for _, n in windows], np.int64)
    expected = [len(covered_by(rows) & set(range(s, e))) for s, e in zip(start.tolist(), end.tolist(), strict=True)]
    assert intervals.covered(the_set(rows), start, end).tolist() == expected


def test_epoch_times_stay_exact():
    base = 1_712_195_495_519_689_047
    these = intervals.union([base, base + 1], [base + 2, base + 7])
    assert (these.start.tolist(), these.end.tolist()) == ([base], [base + 7])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 12)), max_size=14), st.sampled_from([1, 2**59]))
def test_union_per_group_is_the_union_of_each_group(rows, scale):
    group = np.array([g for g, _, _ in rows], np.int64)
    start = np.array([s * scale // 64 for _, s, _ in rows], np.int64)
    end = start + np.array([n for _, _, n in rows], np.int64)
    starts, ends, of = intervals.union_per_group(start, end, group)
    for g in range(4):
        expected = intervals.union(start[group == g], end[group == g])
        assert (starts[of == g].tolist(), ends[of == g].tolist()) == (expected.start.tolist(), expected.end.tolist())


@given(st.lists(pairs, max_size=4))
def test_edges_are_all_starts_and_ends_once_in_order(sets):
    expected = sorted({edge for rows in sets for these in [the_set(rows)] for part in these for edge in part.tolist()})
    assert intervals.edges(map(the_set, sets)).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-3, 3), st.integers(0, 1)), max_size=40))
def test_time_order_is_a_stable_sort_by_its_keys(rows):
    start, then, last = (np.array([row[i] for row in rows], np.int64) for i in (0, 1, 2))
    assert intervals.time_order(start, then).tolist() == np.lexsort((then, start)).tolist()
    assert intervals.time_order(start, then, last).tolist() == np.lexsort((last, then, start)).tolist()


@given(pairs, st.lists(st.integers(-5, 80)))
def test_holds_is_membership(rows, at):
    held = intervals.holds(the_set(rows), np.array(at, np.int64))
    assert held.tolist() == [instant in covered_by(rows) for instant in at]


@given(st.lists(st.integers(-5, 5) | st.integers(-(2**60), 2**60), max_size=30))
def test_distinct_is_unique_with_its_inverse(values):
    column = np.array(values, np.int64)
    assert [part.tolist() for part in intervals.distinct(column)] == [part.tolist() for part in np.unique(column, return_inverse=True)]


@given(st.lists(st.integers(-5, 5) | st.integers(-(2**60), 2**60), max_size=30))
def test_unique_is_that_of_numpy(values):
    column = np.array(values, np.int64)
    assert intervals.unique(column).tolist() == np.unique(column).tolist()


@given(st.lists(st.integers(-9, 9)), st.lists(st.one_of(st.integers(-9, 9), st.integers(-(1 << 62), 1 << 62))))
def test_among_is_isin(values, these):
    values, these = np.array(values, np.int64), np.array(these, np.int64)
    assert intervals.among(values, these).tolist() == np.isin(values, these).tolist()
    assert intervals.among(these, values).tolist() == np.isin(these, values).tolist()


def test_large_tables_are_not_sparse(monkeypatch):
    monkeypatch.setattr(intervals, "_LARGEST", 8)
    sparse, dense = np.array([3, 33, 3, 33]), np.array([3, 13, 3, 13])
    assert intervals._there(sparse, 64)[1] is None
    assert intervals._there(dense, 64)[1] is not None
    assert intervals.unique(sparse).tolist() == [3, 33]
    assert [part.tolist() for part in intervals.distinct(sparse)] == [[3, 33], [0, 1, 0, 1]]


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3) | st.just(2**40)), max_size=30))
def test_distinct_pairs_are_sorted_with_their_inverse(rows):
    pairs = np.array(rows, np.int64).reshape(-1, 2)
    first, second, of = intervals.distinct_pairs(pairs[:, 0], pairs[:, 1])
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == sorted(set(rows))
    assert np.column_stack((first[of], second[of])).tolist() == pairs.tolist()


@given(st.lists(st.integers(0, 300), max_size=40))
def test_group_order_is_a_stable_sort(group):
    column = np.array(group, np.int64)
    assert intervals.group_order(column, 301).tolist() == np.argsort(column, kind="stable").tolist()


@given(st.lists(st.integers(-3, 9), max_size=30), st.integers(0, 12))
def test_longest_are_the_first_of_a_stable_sort(length, count):
    column = np.array(length, np.int64)
    assert intervals.longest(column, count).tolist() == np.argsort(-column, kind="stable")[:count].tolist()


@given(st.lists(st.integers(0, 20), min_size=1, max_size=40), st.data())
def test_last_reaching_is_the_last_that_is_large_enough(values, data):
    asked = data.draw(st.lists(st.tuples(st.integers(-1, len(values) - 1), st.integers(0, 25)), max_size=20))
    found = intervals.last_reaching(intervals.maxima_of(np.array(values)), *np.array(asked, np.int64).reshape(-1, 2).T)
    assert found.tolist() == [max((i for i in range(at + 1) if values[i] >= least), default=-1) for at, least in asked]


@pytest.mark.parametrize("size", [0, 5, 20_000])
def test_either_of_two_columns_of_rows(size):
    one, two = np.arange(0, 3 * size, 3), np.arange(0, 2 * size, 2)[::-1]
    found = intervals.either(one, two)
    assert found.tolist() == sorted(set(one.tolist()) | set(two.tolist()))
    assert found.dtype == np.int64
