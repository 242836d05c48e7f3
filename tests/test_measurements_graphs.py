"""Launches of CUDA graphs that were not recorded to their end."""

import numpy as np
import pytest
from building import MS, US, Build

from traceread.measurements.graphs import FEWEST, cut_graphs
from traceread.measurements.launches import find_launches


def cut(*launches, node_ids=False):
    """For each launch, given by the names of its nodes, whether it is cut."""
    b = Build()
    for i, names in enumerate(launches):
        b.call(i * MS, i * MS + 10 * US, "cudaGraphLaunch", correlation=i + 1)
        for n, name in enumerate(names):
            b.activity(i * MS + (20 + n) * US, i * MS + (21 + n) * US, name=name, correlation=i + 1, node=n + 1 if node_ids else 0)
    trace = b.trace()
    return cut_graphs(trace, find_launches(trace), np.ones(len(trace.calls), bool)).tolist()


WHOLE = "abcdefghijklmnop"


def test_a_launch_that_is_the_beginning_of_another_is_cut():
    assert cut(WHOLE, WHOLE[:12], WHOLE, WHOLE[:FEWEST]) == [False, True, False, True]


def test_what_begins_alike_and_ends_otherwise_is_another_graph():
    assert cut(WHOLE, WHOLE[:10] + "z", WHOLE[1:]) == [False, False, False]


def test_a_shorter_graph_that_begins_alike_is_another_one_if_it_is_as_long_each_time():
    assert cut(WHOLE, WHOLE[:9], WHOLE, WHOLE[:9]) == [False, False, False, False]
    assert cut(WHOLE, WHOLE[:9], WHOLE, WHOLE[:9], node_ids=True) == [False, True, False, True]


def test_a_few_equal_nodes_are_no_evidence():
    assert cut(WHOLE, WHOLE[: FEWEST - 1], WHOLE[:1]) == [False, False, False]


def test_ids_of_nodes_go_before_their_names():
    assert cut(WHOLE, WHOLE[:12], node_ids=True) == [False, True]
    assert cut(WHOLE, "z" * 12, node_ids=True) == [False, True]


@pytest.mark.parametrize("launches", [(), ("",), (WHOLE,), ("", WHOLE)])
def test_one_launch_has_nothing_to_be_compared_with(launches):
    assert not any(cut(*launches))


def test_each_graph_is_compared_with_its_own_longest_launch():
    other = WHOLE.upper()
    assert cut(WHOLE, other + "Z", other, WHOLE[:9], other[:8]) == [False, False, True, True, True]
