"""Offsets between clocks: what collectives allow, what their ends say, and when clocks are not compared."""

from dataclasses import replace

import numpy as np
import pytest
from job import DRIFTS, EPOCH, MS, OFFSETS, REAL, US, moved, part, rank, simulated, steady

import traceread
from traceread.measurements.clocks import ClockSource, align_clocks
from traceread.measurements.matching import match
from traceread.model import Operation, ProcessGroup


def clocks_of(ranks):
    return align_clocks(match(ranks))


@pytest.mark.parametrize("drift_ppb", [0, 4_000, 100_000, -100_000])
@pytest.mark.parametrize("offset_ns", [0, 300 * US, -1_234_567, 50 * MS, -50 * MS])
def test_offset_and_drift_are_found_again(offset_ns, drift_ppb):
    a, b = steady(2, 120)  # a second
    clocks = clocks_of([a, part(moved(b, offset_ns, drift_ppb), 30)])
    assert clocks.comparable
    shown = part(moved(b, offset_ns, drift_ppb), 30).collectives.end_ns
    error = clocks.aligned(1, shown) - part(b, 30).collectives.end_ns
    assert np.abs(error).max() < 20 * US
    assert clocks.offsets[1].residual_ns < 20 * US


def test_ranks_whose_ends_agree_have_no_offset():
    offset = clocks_of(steady(2))  # noise of 2 µs in the ends
    assert (offset.offsets[1].offset_ns, offset.offsets[1].drift_ppb) == (0, 0)
    assert offset.offsets[1].source is ClockSource.ZERO


def test_a_small_offset_is_seen_although_collectives_would_allow_none():
    a, b = steady(2, transfer=3 * MS)
    found = clocks_of([a, moved(b, 200 * US)]).offsets[1]
    assert found.low_ns < 0 < found.high_ns
    assert abs(found.offset_ns - 200 * US) < 5 * US
    assert found.source is ClockSource.ENDS


def test_a_shared_clock_needs_no_offset_where_ends_are_merely_uneven():
    a, b = steady(2, transfer=3 * MS, host="node0", clock="host node0")
    assert clocks_of([a, moved(b, 200 * US)]).offsets[1].source is ClockSource.SHARED


def test_a_shared_clock_that_collectives_contradict_is_not_believed():
    a, b = steady(2, host="node0", clock="host node0")
    found = clocks_of([a, moved(b, 5 * MS)]).offsets[1]
    assert found.source is ClockSource.ENDS
    assert abs(found.offset_ns - 5 * MS) < 20 * US


def test_bounds_are_those_of_causality():
    a = rank(0, [(0, 100 * US), (MS, MS + 40 * US)])
    b = rank(1, [(30 * US, 102 * US), (MS - 20 * US, MS + 41 * US)])
    offset = clocks_of([a, b]).offsets[1]
    assert (offset.low_ns, offset.high_ns) == (max(30 - 100, -20 - 40) * US, min(102 - 0, 41 - 0) * US)


def test_ranks_that_cannot_be_one_clock_are_not_compared():
    """Each collective allows a narrow offset, and no two of them the same one."""
    spans = [(i * 10 * MS, i * 10 * MS + 10 * US) for i in range(4)]
    other = [(start + shift * MS, end + shift * MS) for (start, end), shift in zip(spans, (0, 3, 1, 4), strict=True)]
    clocks = clocks_of([rank(0, spans), rank(1, other)])
    assert not clocks.comparable
    assert clocks.offsets[1].source is ClockSource.NONE


def test_ranks_of_two_jobs_are_compared_among_themselves():
    spans = [(i * 10 * MS, i * 10 * MS + 10 * US) for i in range(4)]
    other = [(start + shift * MS, end + shift * MS) for (start, end), shift in zip(spans, (0, 3, 1, 4), strict=True)]
    clocks = clocks_of([rank(r, other if r in (1, 3) else spans, world=4) for r in range(4)])
    assert not clocks.comparable
    assert clocks.reference == (0, 1, 0, 1)


def test_ranks_of_different_groups_are_reached_over_a_common_one():
    a, b = steady(2, 30)
    _, c = steady(2, 30, seed=5)
    b_too = steady(2, 30, seed=5)[0]
    group = lambda *ranks: ProcessGroup("-".join(map(str, ranks)), "", ranks, len(ranks))  # noqa: E731

    def joined(first, second, groups):
        columns = {
            name: np.concatenate((values, getattr(second.collectives, name)))
            for name, values in first.collectives.columns()
            if name != "group"
        }
        in_second = np.repeat([0, 1], [len(first.collectives), len(second.collectives)])
        table = type(first.collectives)(**columns, group=in_second)
        return replace(first, groups=groups, collectives=table.take(np.argsort(table.start_ns, kind="stable")))

    first = replace(a, groups=(group(0, 1),))
    middle = moved(joined(b, b_too, (group(0, 1), group(1, 2))), 7 * MS)
    last = moved(replace(c, rank=2, groups=(group(1, 2),)), -3 * MS)
    clocks = clocks_of([first, middle, last])
    assert clocks.comparable
    assert [abs(o.offset_ns - truth) < 20 * US for o, truth in zip(clocks.offsets, (0, 7 * MS, -3 * MS), strict=True)] == [True] * 3


def test_broadcasts_do_not_align_clocks():
    a, b = steady(2, operation=Operation.BROADCAST, root=0)
    assert not clocks_of([a, b]).comparable


def test_ranks_on_one_clock_are_compared_without_a_common_collective():
    a, b = steady(2, operation=Operation.BROADCAST, root=0, clock="host node0")
    clocks = clocks_of([a, b])
    assert clocks.comparable
    assert (clocks.offsets[1].source, clocks.offsets[1].residual_ns, clocks.offsets[1].matched) == (ClockSource.SHARED, 0, 0)


def test_a_shared_clock_that_no_offset_can_save_is_not_believed():
    spans = [(i * 10 * MS, i * 10 * MS + 10 * US) for i in range(4)]
    other = [(start + shift * MS, end + shift * MS) for (start, end), shift in zip(spans, (0, 3, 1, 4), strict=True)]
    assert not clocks_of([rank(0, spans, clock="one"), rank(1, other, clock="one")]).comparable


def test_one_rank_is_its_own_reference():
    clocks = clocks_of(steady(1))
    assert clocks.reference == (0,)
    assert clocks.aligned(0, np.array([EPOCH])).tolist() == [EPOCH]


@pytest.mark.parametrize(("ranks", "nodes", "steps"), [(8, 8, 16), (16, 4, 8)])
def test_simulated_clocks_are_recovered(ranks, nodes, steps):
    report, truth = simulated("two-hosts", ranks=ranks, nodes=nodes, steps=steps)
    table = report.rank_table
    start = 1_772_698_215_000_000_000  # true time at which simulations begin

    def on_clock(true_ns, rank):
        node = rank * nodes // ranks
        return start + true_ns + OFFSETS[node] + true_ns * DRIFTS[node] // 10**9

    errors = []
    for r, line in enumerate(table.lines):
        true_ns = np.arange(0, 500 * MS, 50 * MS) + 60 * MS
        errors.append(table.clocks.aligned(r, on_clock(true_ns, line.rank)) - on_clock(true_ns, table.lines[0].rank))
    assert len(truth["clocks"]) == ranks
    assert np.abs(errors).max() < 20 * US


def test_dlrm_ends_agree_within_a_few_microseconds():
    path = REAL / "kineto" / "dlrm_8rank"
    if not path.exists():
        pytest.skip("real traces are not here")
    table = traceread.analyze(path).rank_table
    assert [line.clock.offset_ns for line in table.lines] == [0] * 8
    assert 0 < table.clocks.residual_ns <= 5 * US
    ends = table.matches.column("end_ns")
    spread = [np.ptp(ends[table.matches.meeting == m]) for m in range(8)]
    assert max(spread) <= 10 * US
