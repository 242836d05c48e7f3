"""How far the host ran ahead: work that was launched and had not begun, over the time of one window."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.measurements.launches import Launches
from traceread.model import IntColumn, Trace
from traceread.records import record


@record(eq=False)
class QueueDepth:
    """The launch queue of one rank over a window that is cut into columns of equal length.

    Attributes:
        start_ns, end_ns: the window.
        edges_ns: where the columns begin, and the end of the last; one longer than the other arrays.
        least, most: the smallest and the largest number of activities that were launched and had not begun, per column.
        empty_ns: time in which it was empty.
        known, total: activities of the window with a recorded launch, and all of them.
    """

    start_ns: int
    end_ns: int
    edges_ns: IntColumn
    least: IntColumn
    most: IntColumn
    empty_ns: int
    known: int
    total: int


def find_queue_depth(trace: Trace, launches: Launches, start_ns: int, end_ns: int, columns: int = 400) -> QueueDepth:
    """The launch queue over `[start_ns, end_ns)`. An activity is in it from the start of its launch until it begins itself."""
    a = trace.activities
    inside = (a.start_ns >= start_ns) & (a.start_ns < end_ns)
    columns = max(min(columns, end_ns - start_ns), 1)
    edges = start_ns + (end_ns - start_ns) * np.arange(columns + 1) // columns
    waits = launches.known & (launches.start_ns < a.start_ns) & (a.start_ns > start_ns) & (launches.start_ns < end_ns)
    at, depth = _steps(launches.start_ns[waits], a.start_ns[waits])
    least, most = _per_column(at, depth, edges)
    waiting = intervals.union(launches.start_ns[waits], a.start_ns[waits])
    empty = intervals.gaps(waiting, start_ns, end_ns).total
    return QueueDepth(start_ns, end_ns, edges, least, most, empty, int((inside & launches.known).sum()), int(inside.sum()))


def _steps(enter: IntColumn, leave: IntColumn) -> tuple[IntColumn, IntColumn]:
    """When the depth changes, and what it is from then on; entries that leave at an instant go before those that enter."""
    instants = np.concatenate((enter, leave))
    change = np.concatenate((np.ones(len(enter), np.int64), np.full(len(leave), -1)))
    at, of = np.unique(instants, return_inverse=True)
    total = np.zeros(len(at), np.int64)
    np.add.at(total, of, change)
    return at, np.cumsum(total)


def _per_column(at: IntColumn, depth: IntColumn, edges: IntColumn) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The least and the most depth of each column; what holds at a column's start counts in it."""
    if not len(at):
        none = np.zeros(len(edges) - 1, np.int64)
        return none, none
    before = np.searchsorted(at, edges[:-1], side="right") - 1
    entering = np.where(before >= 0, depth[np.maximum(before, 0)], 0)
    inner = (at > edges[0]) & (at < edges[-1])
    instant = np.concatenate((edges[:-1], at[inner]))
    values = np.concatenate((entering, depth[inner]))
    order = np.argsort(instant, kind="stable")
    begins = np.searchsorted(instant[order], edges[:-1], side="left")
    return np.minimum.reduceat(values[order], begins), np.maximum.reduceat(values[order], begins)
