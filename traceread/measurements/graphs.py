"""Launches of CUDA graphs that the profiler did not record to their end."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceread.measurements.launches import Launches
from traceread.model import IntColumn, Trace

FEWEST = 8
"""Graphs that begin with so many equal nodes are taken for one graph."""


def cut_graphs(trace: Trace, launches: Launches, graph_launch: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """For each call whether it launched a graph of whose nodes only the first were recorded.

    The same graph launched again has the same nodes. A launch is cut if its nodes, at least `FEWEST` of them, are the first of those of
    another launch: by their ids where these are recorded, else by their names. By names a graph may just be shorter than another that
    begins alike; then it has as many nodes each time it is launched, which one that is cut has not.

    Args:
        trace: one rank.
        launches: the launch of each activity.
        graph_launch: for each call whether it launches a graph.
    """
    cut = np.zeros(len(trace.calls), bool)
    a = trace.activities
    rows = np.flatnonzero(launches.known)
    rows = rows[graph_launch[launches.call[rows]]]
    rows = rows[np.lexsort((a.start_ns[rows], launches.call[rows]))]
    call, first, count = np.unique(launches.call[rows], return_index=True, return_counts=True)
    long = count >= FEWEST
    if long.sum() < 2:
        return cut
    sums = _running_sums(np.where(a.graph_node[rows] > 0, a.graph_node[rows], -1 - a.name[rows].astype(np.int64)), first, count)
    call, first, count = call[long], first[long], count[long]
    _, graph = np.unique(sums[first + FEWEST] - sums[first], return_inverse=True)
    by_count = np.lexsort((count, graph))
    last_of_graph = np.append(np.flatnonzero(np.diff(graph[by_count])), len(by_count) - 1)
    longest = by_count[last_of_graph][graph]
    begins_alike = sums[first + count] - sums[first] == sums[first[longest] + count] - sums[first[longest]]
    _, length, launched = np.unique(np.stack((graph, count)), axis=1, return_inverse=True, return_counts=True)
    is_known_by_ids = a.graph_node[rows][first] > 0
    cut[call[begins_alike & (count < count[longest]) & (is_known_by_ids | (launched[length.reshape(-1)] == 1))]] = True
    return cut


def _running_sums(nodes: IntColumn, first: npt.NDArray[np.intp], count: npt.NDArray[np.intp]) -> npt.NDArray[np.uint64]:
    """Sums whose differences tell sequences of nodes apart: those of the first n nodes of two launches agree if the nodes do.

    Each node counts with a number of its own times one of its place, modulo 2^64.
    """
    values, of = np.unique(nodes, return_inverse=True)
    numbers = _scattered(len(values) + int(count.max(initial=0)))
    number, of_place = numbers[: len(values)], numbers[len(values) :]
    place = np.arange(len(nodes)) - np.repeat(first, count)
    return np.append(np.uint64(0), np.cumsum(number[of] * of_place[place], dtype=np.uint64))


def _scattered(count: int) -> npt.NDArray[np.uint64]:
    """So many numbers without a pattern: those of SplitMix64. numpy's own take longer to import than all else here."""
    x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
