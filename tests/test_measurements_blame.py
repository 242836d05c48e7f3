"""Who is charged with waiting, and with what: shares that add up, lateness carried over and passed on, nobody where nothing is clear."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from building import Build, analyse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job import MS, US, rank, simulated

from traceread import intervals
from traceread.measurements.blame import Between, Cause, charge, previous, share_out, time_between
from traceread.measurements.classes import StepClass
from traceread.measurements.clocks import align_clocks
from traceread.measurements.collectives import Peers
from traceread.measurements.matching import match
from traceread.measurements.waiting import NOBODY, ExposedSplit, find_waiting
from traceread.model import Category, Operation, ProcessGroup

SHARED = {"host": "node0", "clock": "host node0"}


def charged(ranks, did, *, exposed=None, residual=None, elsewhere=None):
    """Charges as {(row, blamed, cause): (wait, exposed)}.

    Args:
        ranks: their collectives.
        did: for each rank, for each of its collectives, class → ns since the group's collective before.
        exposed: for each row how much of its wait nothing hides; all, if not given.
        residual: of the second clock.
        elsewhere: for each row its rank's waiting in other groups since the collective before.
    """
    matches = match(ranks)
    clocks = align_clocks(matches)
    if residual is not None:
        clocks = replace(clocks, offsets=(clocks.offsets[0], replace(clocks.offsets[1], residual_ns=residual)))
    waiting = find_waiting(matches, clocks)
    seen = waiting.wait_ns if exposed is None else np.array(exposed, np.int64)
    between, splits = [], []
    for r, rows in enumerate(did):
        own = slice(matches.first[r], matches.first[r + 1])
        amounts = np.zeros((len(rows), len(StepClass)), np.int64)
        for i, row in enumerate(rows):
            for step_class, ns in row.items():
                amounts[i, step_class] = ns
        nothing = np.zeros(len(rows), np.int64)
        waits = nothing if elsewhere is None else np.array(elsewhere[r], np.int64)
        between.append(Between(amounts, waits, nothing))
        splits.append(ExposedSplit(*(nothing,) * 3, seen[own], *(nothing,) * 2, seen[own], nothing, 0, intervals.EMPTY))
    result = charge(matches, waiting, clocks, previous(matches), between, splits)
    total, of_exposed = np.zeros(len(seen), np.int64), np.zeros(len(seen), np.int64)
    np.add.at(total, result.row, result.wait_ns)
    np.add.at(of_exposed, result.row, result.exposed_ns)
    assert np.array_equal(total, waiting.wait_ns)
    assert np.array_equal(of_exposed, seen)
    rows = zip(result.row.tolist(), result.blamed.tolist(), map(Cause, result.cause.tolist()), strict=True)
    return dict(zip(rows, zip(result.wait_ns.tolist(), result.exposed_ns.tolist(), strict=True), strict=True))


def three(second):
    """Two collectives of three ranks; the last rank is late by `second` for the second."""
    return [rank(r, [(0, 100 * US), (10 * MS + (second if r == 2 else 0), 12 * MS)], world=3, **SHARED) for r in range(3)]


BUSY = {StepClass.COMPUTE: 8 * MS, StepClass.DATA_WAIT: 1 * MS, StepClass.LAUNCH_BOUND: 1 * MS}


def test_a_late_rank_is_charged_with_what_it_did_more_of():
    late = BUSY | {StepClass.DATA_WAIT: 1 * MS + 600 * US, StepClass.LAUNCH_BOUND: 1 * MS + 200 * US}
    found = charged(three(800 * US), [[{}, BUSY], [{}, BUSY], [{}, late]])
    assert found == {
        (1, 2, Cause.DATA_WAIT): (600 * US, 600 * US),
        (1, 2, Cause.LAUNCH_BOUND): (200 * US, 200 * US),
        (3, 2, Cause.DATA_WAIT): (600 * US, 600 * US),
        (3, 2, Cause.LAUNCH_BOUND): (200 * US, 200 * US),
    }


def test_what_it_did_less_of_is_no_excuse():
    late = BUSY | {StepClass.COMPUTE: 7 * MS, StepClass.DATA_WAIT: 3 * MS}
    assert {cause for _, _, cause in charged(three(MS), [[{}, BUSY], [{}, BUSY], [{}, late]])} == {Cause.DATA_WAIT}


def test_peers_are_represented_by_their_median():
    slow, quick = BUSY | {StepClass.COMPUTE: 50 * MS}, BUSY | {StepClass.COMPUTE: 1 * MS}
    late = BUSY | {StepClass.COMPUTE: 9 * MS, StepClass.DATA_WAIT: 2 * MS}
    ranks = [rank(r, [(0, 100 * US), (10 * MS + (MS if r == 4 else 0), 12 * MS)], world=5, **SHARED) for r in range(5)]
    found = charged(ranks, [[{}, slow], [{}, quick], [{}, BUSY], [{}, BUSY], [{}, late]])
    assert {key[1:]: ns for key, ns in found.items()} == {
        (4, Cause.COMPUTE): (500 * US, 500 * US),
        (4, Cause.DATA_WAIT): (500 * US, 500 * US),
    }


def test_lateness_without_any_excess_is_unexplained():
    assert {(b, c) for _, b, c in charged(three(MS), [[{}, BUSY]] * 3)} == {(2, Cause.UNEXPLAINED)}


def test_before_the_first_collective_nothing_is_explained():
    ranks = [rank(r, [(MS if r == 2 else 0, 2 * MS)], world=3, **SHARED) for r in range(3)]
    late = {StepClass.DATA_WAIT: 50 * MS}
    assert charged(ranks, [[{}], [{}], [late]]) == {
        (0, 2, Cause.UNEXPLAINED): (MS, MS),
        (1, 2, Cause.UNEXPLAINED): (MS, MS),
    }


def test_hidden_waiting_costs_nothing_but_keeps_its_cause():
    late = BUSY | {StepClass.DATA_WAIT: 2 * MS}
    found = charged(three(MS), [[{}, BUSY], [{}, BUSY], [{}, late]], exposed=[0, 300 * US, 0, 0, 0, 0])
    assert found == {(1, 2, Cause.DATA_WAIT): (MS, 300 * US), (3, 2, Cause.DATA_WAIT): (MS, 0)}


def test_hidden_lateness_is_carried_over_to_the_next_collective():
    """Two buckets, the waiting for the first hidden by compute: who waits for the second waits for the same lateness again."""
    spans = [[(0, 10 * US), (10 * MS, 11 * MS), (10 * MS + 500 * US, 11 * MS + 500 * US)]] * 2
    spans.append([(0, 10 * US), (10 * MS + 900 * US, 11 * MS), (11 * MS + 400 * US, 11 * MS + 500 * US)])
    ranks = [rank(r, s, world=3, **SHARED) for r, s in enumerate(spans)]
    late = BUSY | {StepClass.DATA_WAIT: 2 * MS}
    again = {StepClass.COMPUTE: 500 * US}
    waits = [0, 0, 900 * US, 0, 0, 900 * US, 0, 0, 0]  # of rows: only the second bucket's is exposed
    found = charged(ranks, [[{}, BUSY, again], [{}, BUSY, again], [{}, late, again]], exposed=waits)
    assert {cause for _, _, cause in found} == {Cause.DATA_WAIT}


def two_groups(late_ns):
    """Ranks 0 and 1 in one group, 1 and 2 in another: 2 makes 1 wait, and so 0."""
    pair = lambda a, b: ProcessGroup(f"{a}{b}", "", (a, b), 2)  # noqa: E731
    first = [(0, 10 * US), (10 * MS + late_ns, 12 * MS)]
    other = [(20 * US, 30 * US), (9 * MS, 9 * MS + late_ns)]
    zero = rank(0, [(0, 10 * US), (10 * MS, 12 * MS)], groups=(pair(0, 1),), **SHARED)
    spans = sorted([(s, 0) for s in first] + [(s, 1) for s in other])
    one = rank(1, [s for s, _ in spans], groups=(pair(0, 1), pair(1, 2)), group=np.array([g for _, g in spans]), **SHARED)
    two = rank(2, [(20 * US, 30 * US), (9 * MS + late_ns - 10 * US, 9 * MS + late_ns)], groups=(pair(1, 2),), **SHARED)
    return [zero, one, two]


def test_waiting_in_another_group_is_passed_on_to_its_cause():
    late = {StepClass.CHECKPOINT: 3 * MS}
    did = [[{}, {}], [{}, {}, {}, {}], [{}, late]]
    found = charged(two_groups(2 * MS), did, elsewhere=[[0, 0], [0, 0, 0, 2 * MS - 10 * US], [0, 0]])
    causes = Counter({(row, blamed, cause): ns for (row, blamed, cause), (ns, _) in found.items()})
    assert causes[4, 2, Cause.CHECKPOINT] == 2 * MS - 10 * US  # the third operation of rank 1 waits for rank 2
    assert causes[1, 2, Cause.CHECKPOINT] == 2 * MS  # and so rank 0 waits for rank 2, although rank 1 was last
    assert set(causes) == {(4, 2, Cause.CHECKPOINT), (1, 2, Cause.CHECKPOINT)}


def test_a_wait_within_the_residual_blames_nobody():
    ranks = three(3 * US)[1:]
    found = charged(ranks, [[{}, BUSY], [{}, BUSY | {StepClass.DATA_WAIT: 5 * MS}]], residual=4 * US)
    assert found == {(1, NOBODY, Cause.UNEXPLAINED): (3 * US, 3 * US)}
    assert set(charged(ranks, [[{}, BUSY], [{}, BUSY | {StepClass.DATA_WAIT: 5 * MS}]], residual=2 * US)) == {(1, 1, Cause.DATA_WAIT)}


def test_waiting_in_sends_and_receives_is_a_bubble():
    def side(number, start, operation):
        peers = Peers(np.array([0]), np.array([0]), np.array([0]), np.array([1]), np.array([64]))
        return rank(number, [(start, 100 * US)], operation=operation, source=0, destination=1, peers=peers, **SHARED)

    found = charged([side(0, 40 * US, Operation.SEND), side(1, 0, Operation.RECV)], [[{}], [{}]])
    assert found == {(1, NOBODY, Cause.BUBBLE): (40 * US, 40 * US)}


def test_nobody_waits_nobody_is_charged():
    assert charged(three(0), [[{}, BUSY]] * 3) == {}


# --- what a rank did ----------------------------------------------------------------------------------------------------


def test_time_between_adds_up_and_knows_classes_and_waiting():
    b = Build()
    for step in range(2):
        t = step * MS
        b.range(t, t + MS, f"ProfilerStep#{step}")
        b.kernel(t, t + 300 * US, launch=(t, t + 5 * US))
        b.activity(t + 200 * US, t + 600 * US, category=Category.COMMUNICATION, stream=20, name="ncclDevKernel_AllReduce")
        b.call(t + 600 * US, t + 950 * US, "cudaDeviceSynchronize")
        b.kernel(t + 980 * US, t + MS, launch=(t + 970 * US, t + 975 * US))
    _, steps, busy, idle, _ = analyse(b.trace())
    waits = intervals.union([400 * US], [550 * US])
    start, end = np.array([100 * US, -MS, 500 * US, 1900 * US]), np.array([700 * US, 500 * US, 400 * US, 3 * MS])
    found = time_between(steps, busy, idle, waits, start, end)
    assert np.array_equal(found.class_ns.sum(axis=1) + found.waiting_ns + found.outside_ns, np.maximum(end - start, 0))
    assert found.waiting_ns.tolist() == [150 * US, 100 * US, 0, 0]
    assert found.class_ns[0, StepClass.COMPUTE] == 200 * US
    assert found.class_ns[0, StepClass.EXPOSED_COMMUNICATION] == 150 * US  # 300 µs, half of it waiting
    assert found.outside_ns.tolist() == [0, MS, 0, MS]


def test_previous_is_that_of_the_same_group():
    matches = match(two_groups(0))
    assert previous(matches).tolist() == [-1, 0, -1, -1, 3, 2, -1, 6]


# --- shares -------------------------------------------------------------------------------------------------------------


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 1 << 50), st.tuples(*[st.integers(0, 1 << 40)] * 4)), min_size=1, max_size=5))
def test_shares_add_up_exactly_and_are_proportional(rows):
    amounts, weights = np.array([a for a, _ in rows], np.int64), np.array([w for _, w in rows], np.int64)
    shares = share_out(amounts, weights)
    for amount, weight, share in zip(amounts.tolist(), weights.tolist(), shares.tolist(), strict=True):
        total = sum(weight)
        assert sum(share) == (amount if total else 0)
        assert all(abs(s * total - amount * w) < total for s, w in zip(share, weight, strict=True) if total)


def test_leftovers_go_to_the_largest_remainder_then_the_first():
    assert share_out(np.array([10, 5]), np.array([[1, 1, 1], [0, 3, 1]])).tolist() == [[4, 3, 3], [0, 4, 1]]


# --- simulated ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("straggler-data", Cause.DATA_WAIT),
        ("straggler-compute", Cause.COMPUTE),
        ("straggler-host", Cause.LAUNCH_BOUND),
        ("straggler-sync", Cause.HOST_SYNC),
        ("straggler-gc", Cause.LAUNCH_BOUND),  # host work between launches
    ],
)
def test_simulated_waiting_is_charged_to_what_was_planted(name, cause):
    table = simulated(name, ranks=4, steps=4)[0].rank_table
    late, why, ns = table.lost[0]
    assert (late, why) == (2, cause)
    assert ns >= 0.9 * table.waiting_ns
    assert sum(part for *_, part in table.lost) == table.waiting_ns
