"""Waiting and transfer: who waits until when in each kind of operation, and how exposed communication is divided."""

from dataclasses import replace

import numpy as np
import pytest
from building import MS, US, Build, analyse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job import moved, rank, simulated, table, true_waits

from traceread import intervals
from traceread.measurements.clocks import align_clocks
from traceread.measurements.collectives import Peers
from traceread.measurements.matching import match
from traceread.measurements.waiting import NOBODY, Split, find_waiting, split_exposed, unsplit
from traceread.model import Category, Operation, ProcessGroup

SHARED = {"host": "node0", "clock": "host node0"}


def waiting_of(ranks, world_size=None):
    matches = match(ranks)
    return find_waiting(matches, align_clocks(matches), world_size)


def together(starts, end=100 * US, **columns):
    """One operation of as many ranks as there are starts, all ending at once."""
    return [rank(r, [(start, end)], world=len(starts), **SHARED, **columns) for r, start in enumerate(starts)]


@pytest.mark.parametrize("operation", [Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.REDUCE_SCATTER, Operation.ALL_TO_ALL])
def test_everybody_waits_for_the_last(operation):
    waiting = waiting_of(together((5 * US, 0, 30 * US, 22 * US), operation=operation))
    assert waiting.wait_ns.tolist() == [25 * US, 30 * US, 0, 8 * US]
    assert waiting.last.tolist() == [2] * 4
    assert waiting.lead_ns.tolist() == [0, 0, 8 * US, 0]
    assert waiting.split.tolist() == [Split.SPLIT] * 4
    assert not waiting.lower_bound.any()


def test_a_barrier_is_all_waiting_for_all_but_the_last():
    waiting = waiting_of(together((0, 90 * US), operation=Operation.BARRIER, elements_in=-1, elements_out=-1))
    assert waiting.wait_ns.tolist() == [90 * US, 0]


@pytest.mark.parametrize("operation", [Operation.BROADCAST, Operation.SCATTER])
def test_who_gets_from_a_root_waits_for_it_alone(operation):
    waiting = waiting_of(together((5 * US, 20 * US, 60 * US), operation=operation, root=1))
    assert waiting.wait_ns.tolist() == [15 * US, 0, 0]
    assert waiting.last.tolist() == [1, 1, 2]


@pytest.mark.parametrize("operation", [Operation.REDUCE, Operation.GATHER])
def test_a_root_that_gathers_waits_for_all_and_nobody_for_it(operation):
    waiting = waiting_of(together((5 * US, 20 * US, 60 * US), operation=operation, root=1))
    assert waiting.wait_ns.tolist() == [0, 40 * US, 0]
    assert waiting.last.tolist() == [0, 2, 2]


def test_a_root_that_is_unknown_or_not_loaded_splits_nothing():
    unknown = waiting_of(together((0, 10 * US), operation=Operation.BROADCAST))
    assert unknown.split.tolist() == [Split.UNKNOWN_ROOT] * 2
    away = [
        replace(r, groups=(ProcessGroup("0", "", (0, 1, 2), 3),)) for r in together((0, 10 * US), operation=Operation.BROADCAST, root=2)
    ]
    assert waiting_of(away).split.tolist() == [Split.UNKNOWN_ROOT] * 2
    # to give to a root that is not loaded is no waiting
    assert (
        waiting_of([replace(r, groups=away[0].groups) for r in together((0, 9), operation=Operation.REDUCE, root=2)]).split.tolist()
        == [Split.SPLIT] * 2
    )


def test_sends_and_receives_wait_for_each_other():
    def side(number, start, operation):
        peers = Peers(np.array([0]), np.array([0]), np.array([0]), np.array([1]), np.array([64]))
        return rank(number, [(start, 100 * US)], operation=operation, source=0, destination=1, peers=peers, **SHARED)

    waiting = waiting_of([side(0, 0, Operation.SEND), side(1, 40 * US, Operation.RECV)])
    assert waiting.wait_ns.tolist() == [40 * US, 0]
    assert waiting.last.tolist() == [1, 1]


def test_a_kernel_of_many_sends_and_receives_waits_for_the_latest():
    """Three ranks in a ring, each sending to the next and receiving from the one before."""
    ranks = []
    for r, start in enumerate((0, 10 * US, 50 * US)):
        source, destination = np.array([r, (r - 1) % 3]), np.array([(r + 1) % 3, r])
        peers = Peers(np.zeros(2, int), np.zeros(2, int), source, destination, np.full(2, 64))
        ranks.append(
            rank(r, [(start, 100 * US)], world=3, operation=Operation.SEND_RECV, parts=2, sends=1, receives=1, peers=peers, **SHARED)
        )
    waiting = waiting_of(ranks)
    assert waiting.wait_ns.tolist() == [50 * US, 40 * US, 0]
    assert not waiting.lower_bound.any()
    without_the_last = waiting_of(ranks[:2])
    assert without_the_last.wait_ns.tolist() == [10 * US, 0]
    assert without_the_last.lower_bound.tolist() == [1, 1]


def test_a_wait_is_never_longer_than_the_operation():
    """The last rank starts after the end that the other recorded, by no more than a timestamp may be off."""
    a = rank(0, [(0, 95 * US), (MS, MS + 100 * US), (2 * MS, 2 * MS + 105 * US)], **SHARED)
    b = rank(1, [(99 * US, 100 * US), (MS, MS + 100 * US), (2 * MS, 2 * MS + 100 * US)], **SHARED)
    assert waiting_of([a, b]).wait_ns.tolist() == [95 * US, 0, 0, 0, 0, 0]


def test_of_ranks_that_are_not_loaded_waiting_is_a_lower_bound():
    some = [replace(r, groups=(ProcessGroup("0", "", tuple(range(8)), 8),)) for r in together((0, 10 * US))]
    assert waiting_of(some).lower_bound.tolist() == [1, 1]
    nameless = [replace(r, groups=(ProcessGroup("0"),)) for r in together((0, 10 * US))]
    assert waiting_of(nameless).lower_bound.tolist() == [0, 0]
    assert waiting_of(nameless, world_size=4).lower_bound.tolist() == [1, 1]


def test_one_rank_alone_splits_nothing():
    waiting = waiting_of(together((0, 10 * US))[:1])
    assert waiting.split.tolist() == [Split.ALONE]
    assert waiting.wait_ns.tolist() == [0]
    assert waiting.last.tolist() == [NOBODY]


def test_a_group_of_one_waits_for_nobody():
    (alone,) = together((0,))
    waiting = waiting_of([replace(alone, groups=(ProcessGroup("0", "", (0,), 1),))])
    assert (waiting.split.tolist(), waiting.wait_ns.tolist(), waiting.last.tolist()) == ([Split.SPLIT], [0], [0])
    assert waiting_of([replace(alone, groups=(), collectives=alone.collectives.replace(group=np.array([-1])))], 1).split.tolist() == [0]


def test_an_operation_of_which_nothing_is_known_is_not_split():
    waiting = waiting_of(together((0, 10 * US), operation=Operation.UNKNOWN))
    assert waiting.split.tolist() == [Split.UNKNOWN_OPERATION] * 2


def test_clocks_that_cannot_be_compared_split_nothing():
    spans = [(i * 10 * MS, i * 10 * MS + 10 * US) for i in range(4)]
    other = [(s + shift * MS, e + shift * MS) for (s, e), shift in zip(spans, (0, 3, 1, 4), strict=True)]
    assert set(waiting_of([rank(0, spans), rank(1, other)]).split.tolist()) == {Split.NO_CLOCK}


def test_an_offset_of_clocks_changes_no_wait():
    ranks = [rank(r, [(i * MS + r * 30 * US * (i % 2), i * MS + 100 * US) for i in range(30)]) for r in range(2)]
    plain = waiting_of(ranks)
    assert plain.wait_ns[:30].sum() == 15 * 30 * US
    assert np.array_equal(waiting_of([ranks[0], moved(ranks[1], 50 * MS)]).wait_ns, plain.wait_ns)


# --- exposed communication ----------------------------------------------------------------------------------------------


def one_rank(compute, communication, windows=((0, MS),)):
    """Steps and busy times of a rank with kernels at these times."""
    b = Build()
    for i, (start, end) in enumerate(windows):
        b.range(start, end, f"ProfilerStep#{i}")
        b.kernel(start, start + 1, launch=(start, start + 1)).kernel(end - 1, end, launch=(start + 1, start + 2))
    for start, end in compute:
        b.kernel(start, end)
    for start, end in communication:
        b.activity(start, end, category=Category.COMMUNICATION, stream=20, name="ncclDevKernel_AllReduce")
    _, steps, busy, *_ = analyse(b.trace())
    return steps, busy


def collectives(spans):
    found = table(spans)
    return found.replace(start_ns=found.start_ns - found.start_ns + [s for s, _ in spans], end_ns=np.array([e for _, e in spans], np.int64))


def divided(compute, spans, waits, split=Split.SPLIT):
    steps, busy = one_rank(compute, spans)
    return split_exposed(steps, busy, collectives(spans), np.broadcast_to(np.uint8(split), len(spans)), np.array(waits, np.int64))


def test_exposed_communication_is_waiting_then_transfer():
    e = divided([(100, 150)], [(100, 200), (300, 400)], [70, 100])
    assert e.own_wait_ns.tolist() == [20, 100]  # of the first 50 are hidden
    assert e.own_transfer_ns.tolist() == [30, 0]
    assert (e.wait_ns.sum(), e.transfer_ns.sum(), e.not_split_ns.sum()) == (120, 30, 0)
    assert e.waits.start.tolist() == [150, 300]


def test_where_collectives_overlap_moving_data_wins():
    e = divided([], [(100, 300), (200, 400)], [200, 50])
    # the second moves data from 250 on
    assert (e.own_wait_ns.tolist(), e.own_transfer_ns.tolist()) == ([150, 0], [0, 150])


def test_what_is_not_split_stays_beside():
    e = divided([], [(100, 200)], [0], Split.ALONE)
    assert (e.wait_ns.sum(), e.transfer_ns.sum(), e.not_split_ns.sum(), e.own_not_split_ns.tolist()) == (0, 0, 100, [100])


def test_communication_that_is_no_kernel_belongs_to_no_collective():
    steps, busy = one_rank([], [(100, 200), (500, 600)])
    e = unsplit(steps, busy, collectives([(100, 200)]))
    assert (e.other_ns, e.own_not_split_ns.tolist(), e.not_split_ns.sum()) == (100, [100], 200)


spans = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 60)).map(lambda p: (p[0], p[0] + p[1])), max_size=8)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(compute=spans, communication=spans, data=st.data())
def test_parts_add_up_exactly(compute, communication, data):
    communication.sort()
    steps, busy = one_rank(compute, communication, ((0, 150), (150, 400)))
    split = np.array([data.draw(st.sampled_from((Split.SPLIT, Split.ALONE))) for _ in communication], np.uint8)
    waits = np.array(
        [data.draw(st.integers(0, e - s)) if k == Split.SPLIT else 0 for (s, e), k in zip(communication, split, strict=True)], np.int64
    )
    e = split_exposed(steps, busy, collectives(communication), split, waits)
    exposed = intervals.subtract(busy.communication, busy.compute)
    start, end = (np.array([getattr(w, name) for w in steps.windows], np.int64) for name in ("start_ns", "end_ns"))
    assert np.array_equal(e.wait_ns + e.transfer_ns + e.not_split_ns, intervals.covered(exposed, start, end))
    used = np.array(steps.used)
    assert e.own_wait_ns.sum() == e.wait_ns[used].sum()
    assert e.own_transfer_ns.sum() == e.transfer_ns[used].sum()
    assert e.own_not_split_ns.sum() + e.other_ns == e.not_split_ns[used].sum()
    assert all((part >= 0).all() for part in (e.wait_ns, e.transfer_ns, e.not_split_ns, e.own_wait_ns, e.own_transfer_ns))


# --- simulated ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ranks", "steps"), [("straggler-data", 4, 3), ("fsdp-tail", 4, 2), ("pipeline-1f1b", None, 2), ("moe-imbalance", None, 2)]
)
def test_simulated_waits_are_those_of_the_truth(name, ranks, steps):
    report, truth = simulated(name, ranks=ranks, steps=steps)
    t = report.rank_table
    for r, line in enumerate(t.lines):
        own = slice(t.matches.first[r], t.matches.first[r + 1])
        known = t.waiting.split[own] == Split.SPLIT
        expected = np.array(true_waits(truth, line.rank))
        assert known.mean() > 0.9
        error = np.abs(t.waiting.wait_ns[own][known] - expected[known])
        assert error.max() <= t.clocks.residual_ns
        assert error.sum() <= 0.005 * expected.sum()


@pytest.mark.parametrize("how", [{"format": "nsys"}, {"collectives": False}])
def test_simulated_waits_are_within_two_percent_with_less_metadata(how):
    report, truth = simulated("straggler-data", ranks=4, steps=3, **how)
    total = sum(row["wait_ns"] for row in truth["collectives"])
    assert abs(int(report.rank_table.waiting.wait_ns.sum()) - total) <= 0.02 * total


@pytest.mark.parametrize(("name", "ranks", "steps"), [("straggler-compute", 4, 8), ("two-hosts", 8, 30)])
def test_simulated_waits_are_within_two_percent_where_clocks_differ(name, ranks, steps):
    report, truth = simulated(name, ranks=ranks, nodes=4, steps=steps)
    total = sum(row["wait_ns"] for row in truth["collectives"])
    assert abs(int(report.rank_table.waiting.wait_ns.sum()) - total) <= 0.02 * total
