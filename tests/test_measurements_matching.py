"""Which collectives of different ranks are one: by number, by order, across captures that are cut or damaged, per pair of ranks."""

from dataclasses import replace

import numpy as np
import pytest
from job import MS, US, moved, part, rank, steady

from traceread.measurements.collectives import Evidence, Peers
from traceread.measurements.matching import Unmatched, match
from traceread.model import Operation, ProcessGroup


def meetings(matches):
    """For each rank the numbers of its meetings."""
    return [matches.meeting[a:b].tolist() for a, b in zip(matches.first[:-1], matches.first[1:], strict=True)]


def wrong(matches, truth):
    """Rows that meet a row of another true operation than most of their meeting."""
    count = 0
    for number in np.unique(matches.meeting[matches.meeting >= 0]):
        found = truth[matches.meeting == number]
        count += len(found) - np.unique(found, return_counts=True)[1].max()
    return count


def test_equal_sequences_match_one_by_one():
    matches = match(steady(4, 10))
    assert meetings(matches) == [list(range(10))] * 4
    assert matches.counts() == {Unmatched.MATCHED: 40}
    assert [g.loaded for g in matches.groups] == [(0, 1, 2, 3)]


def test_one_rank_has_no_partner():
    assert match(steady(1, 5)).counts() == {Unmatched.NO_PARTNER: 5}
    assert match([]).counts() == {}


@pytest.mark.parametrize("numbered", [True, False])
def test_captures_start_at_different_operations(numbered):
    numbers = np.arange(7, 47) if numbered else -1
    a, b, c = steady(3, kinds=7, sequence=numbers)
    matches = match([part(a, 5, 33), moved(part(b, 0, 30), 50 * MS), part(c, 12)])
    truth = np.concatenate((np.arange(5, 33), np.arange(30), np.arange(12, 40)))
    assert wrong(matches, truth) == 0
    # the first five are only on the second rank, the last seven only on the third
    assert matches.counts() == {Unmatched.MATCHED: 74, Unmatched.OUTSIDE: 12}


def test_operations_that_repeat_are_told_apart_by_their_times():
    """All forty are alike, nothing numbers them, and the captures have equal lengths: only the rhythm tells."""
    a, b = steady(2, apart=MS)
    matches = match([part(a, 0, 30), moved(part(b, 10, 40), 13 * MS)])
    assert wrong(matches, np.concatenate((np.arange(30), np.arange(10, 40)))) == 0
    assert matches.counts() == {Unmatched.MATCHED: 40, Unmatched.OUTSIDE: 20}


def test_step_numbers_tell_them_apart_even_without_any_rhythm():
    spans = [(i * MS, i * MS + 100 * US) for i in range(12)]
    a, b = (rank(r, spans, step=np.repeat(np.arange(4), 3)) for r in range(2))
    matches = match([part(a, 0, 9), moved(part(b, 3, 12), 5 * MS)])
    assert wrong(matches, np.concatenate((np.arange(9), np.arange(3, 12)))) == 0


def test_a_missing_record_costs_no_more_than_itself():
    a, b = steady(2, kinds=3)
    keep = np.ones(40, bool)
    keep[17] = False
    b = replace(b, collectives=b.collectives.take(keep))
    matches = match([a, moved(b, -3 * MS)])
    assert wrong(matches, np.concatenate((np.arange(40), np.flatnonzero(keep)))) == 0
    assert matches.counts() == {Unmatched.MATCHED: 78, Unmatched.OUTSIDE: 1}


def test_numbers_do_not_help_an_operation_that_differs():
    a, b = steady(2, 10, sequence=np.arange(10))
    c = b.collectives
    elements = c.elements_in.copy()
    elements[4] = 5
    matches = match([a, replace(b, collectives=c.replace(elements_in=elements))])
    assert meetings(matches)[1].count(-1) == 1
    assert matches.counts() == {Unmatched.MATCHED: 18, Unmatched.OUTSIDE: 1, Unmatched.DIFFERENT: 1}


def test_all_to_alls_may_differ_in_counts_and_all_reduces_may_not():
    spans = [(i * MS, i * MS + 100) for i in range(4)]
    for operation, matched in ((Operation.ALL_TO_ALL, 8), (Operation.ALL_REDUCE, 0)):
        ranks = [rank(r, spans, operation=operation, elements_in=10 + r, elements_out=20 - r) for r in range(2)]
        assert match(ranks).counts().get(Unmatched.MATCHED, 0) == matched


def test_a_kernel_of_which_nothing_is_known_matches_what_stands_beside_it():
    a, b = steady(2, 6)
    c = b.collectives
    evidence, operation = c.evidence.copy(), c.operation.copy()
    evidence[0], operation[0] = Evidence.NOTHING, Operation.UNKNOWN
    assert match([a, replace(b, collectives=c.replace(evidence=evidence, operation=operation))]).counts() == {Unmatched.MATCHED: 12}


def test_groups_of_one_name_and_other_ranks_are_different():
    spans = [(i * MS, i * MS + 100) for i in range(3)]
    groups = [(ProcessGroup("1", "mesh_tp", pair, 2),) for pair in ((0, 1), (0, 1), (2, 3), (2, 3))]
    matches = match([rank(r, spans, groups=groups[r]) for r in range(4)])
    assert [g.loaded for g in matches.groups] == [(0, 1), (2, 3)]
    first, second, third, fourth = meetings(matches)
    assert first == second != third == fourth


def test_operations_without_a_group_are_matched_stream_by_stream():
    spans = [(i * MS, i * MS + 100) for i in range(6)]
    streams = np.array([20, 24] * 3)
    sizes = np.where(streams == 20, 10, 99)
    ranks = [rank(r, spans, groups=(), group=-1, stream=streams + 7 * r, elements_in=sizes, elements_out=sizes) for r in range(2)]
    matches = match(ranks)
    assert matches.counts() == {Unmatched.MATCHED: 12}
    assert [g.stream for g in matches.groups] == [0, 1]


def sends(number, spans, pairs, **columns):
    """A rank with one send or receive per span; `pairs` are (source, destination)."""
    source, destination = np.array(pairs).T
    operation = np.where(source == number, Operation.SEND, Operation.RECV)
    peers = Peers(np.arange(len(spans)), np.zeros(len(spans)), source, destination, np.full(len(spans), 64))
    return rank(number, spans, operation=operation, source=source, destination=destination, peers=peers, **columns)


def test_sends_meet_receives_pair_by_pair_in_order():
    spans = [(i * MS, i * MS + 100) for i in range(4)]
    a = sends(0, spans, [(0, 1), (1, 0), (0, 1), (0, 2)])
    b = sends(1, spans[:3], [(0, 1), (1, 0), (0, 1)])
    matches = match([a, b])
    pairs = set(zip(matches.sender.tolist(), matches.receiver.tolist(), strict=True))
    assert pairs == {(0, 4), (5, 1), (2, 6)}
    assert matches.unmatched[3] == Unmatched.NO_PARTNER
    assert (matches.meeting == -1).all()


def test_a_send_whose_other_end_is_not_recorded_stays_alone():
    spans = [(0, 100)]
    ranks = [rank(r, spans, operation=o, sends=1 - r, receives=r) for r, o in ((0, Operation.SEND), (1, Operation.RECV))]
    assert match(ranks).counts() == {Unmatched.UNKNOWN_PEER: 2}


def test_an_exchange_with_unknown_ends_is_one_of_the_whole_group():
    spans = [(0, 100), (MS, MS + 100)]
    ranks = [rank(r, spans, operation=Operation.SEND_RECV, parts=4, sends=2, receives=2) for r in range(2)]
    assert match(ranks).counts() == {Unmatched.MATCHED: 4}
