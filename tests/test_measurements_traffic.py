import numpy as np
import pytest

from traceread.measurements.traffic import OperationTraffic, Traffic, sent_bytes
from traceread.model import Operation


def sent(operation, group, size):
    [result] = sent_bytes(np.array([operation], np.uint8), np.array([group]), np.array([size])).tolist()
    return result


@pytest.mark.parametrize(
    ("operation", "bytes_"),
    [
        (Operation.ALL_REDUCE, 1750),
        (Operation.ALL_GATHER, 875),
        (Operation.REDUCE_SCATTER, 875),
        (Operation.ALL_TO_ALL, 875),
        (Operation.GATHER, 875),
        (Operation.SCATTER, 875),
        (Operation.BROADCAST, 1000),
        (Operation.REDUCE, 1000),
        (Operation.SEND, 1000),
        (Operation.RECV, 1000),
    ],
)
def test_bytes_on_the_link_of_a_rank_among_eight(operation, bytes_):
    assert sent(operation, 8, 1000) == bytes_


def test_what_is_not_recorded_stays_so():
    assert sent(Operation.ALL_REDUCE, -1, 1000) == -1
    assert sent(Operation.ALL_REDUCE, 8, -1) == -1
    assert sent(Operation.SEND, -1, 1000) == 1000
    assert sent(Operation.UNKNOWN, 8, 1000) == -1


def test_a_rank_alone_sends_nothing():
    assert sent(Operation.ALL_REDUCE, 1, 1000) == 0


def test_sizes_that_do_not_divide():
    assert sent(Operation.ALL_GATHER, 3, 10) == 6  # 10 // 3 * 2 + 1 * 2 // 3
    assert sent(Operation.ALL_REDUCE, 1000, 1 << 59) <= 2 << 59


def row(operation=Operation.ALL_REDUCE, group=8, count=4, ns=400, sent=4_000, sized=4, sized_ns=400):
    return OperationTraffic(operation, group, count, ns, sent, sized, sized_ns)


def test_means_of_a_step():
    traffic = Traffic((row(), row(ns=100, sent=0, sized=0, sized_ns=0)), 2)
    assert (traffic.ns, traffic.sent) == (250, 2_000)
    assert traffic.coverage == (400, 500)


def test_the_least_time_of_a_step():
    traffic = Traffic((row(sent=39_200_000_000, count=2, sized=2),), 1)
    assert traffic.least_ns(50e9) == 784_000_000
    assert traffic.least_ns(50e9, 5_000) == 784_000_000 + 2 * 3 * 5_000
    assert Traffic().least_ns(50e9) == 0


@pytest.mark.parametrize(("group", "rounds"), [(-1, 1), (1, 0), (2, 1), (8, 3), (9, 4), (32, 5)])
def test_rounds_of_messages(group, rounds):
    assert row(group=group).rounds == rounds
