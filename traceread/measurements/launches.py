"""Which call launched each activity (section 1 of the time model)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from traceread.model import Calls, IntColumn, Trace
from traceread.records import record


@record(eq=False)
class Launches:
    """The launch of each activity of a trace; arrays are parallel to `trace.activities`.

    Attributes:
        call: position of the launch in `trace.calls`, -1 where the trace has none.
        start_ns, end_ns: the launch; the union over the calls of one thread that carry the id. 0 where none.
        thread: launching thread, -1 where none.
        owners: for each call the number of activities it owns.
    """

    call: npt.NDArray[np.int64]
    start_ns: IntColumn
    end_ns: IntColumn
    thread: npt.NDArray[np.int32]
    owners: npt.NDArray[np.int64]

    @cached_property
    def known(self) -> npt.NDArray[np.bool_]:
        """True for activities with a launch record."""
        return self.call >= 0


def find_launches(trace: Trace) -> Launches:
    """The launch of every activity, looked up by correlation id among the calls of the trace's own process.

    One call may own many activities (a CUDA graph). Ids of zero or less join nothing. Where several calls carry one id the
    launch is their union on the thread of the runtime call (else of the first).
    """
    activities, calls = trace.activities, trace.calls
    ids, call, start, end = _unique_launches(calls, trace)
    position = _positions(ids, activities.correlation)
    found = position >= 0
    at = np.where(found, position, 0)
    if not len(ids):
        none = np.zeros(len(activities), np.int64)
        return Launches(none - 1, none, none, np.full(len(activities), -1, np.int32), np.zeros(len(calls), np.int64))
    owner = np.where(found, call[at], -1)
    return Launches(
        call=owner,
        start_ns=np.where(found, start[at], 0),
        end_ns=np.where(found, end[at], 0),
        thread=np.where(found, calls.thread[np.maximum(owner, 0)], -1).astype(np.int32),
        owners=np.bincount(owner[found], minlength=len(calls)),
    )


def _unique_launches(calls: Calls, trace: Trace) -> tuple[IntColumn, npt.NDArray[np.int64], IntColumn, IntColumn]:
    """Sorted distinct correlation ids with the call that represents each and the start and end of its launch."""
    joinable = np.flatnonzero(calls.correlation > 0)
    order = joinable[np.argsort(calls.correlation[joinable], kind="stable")]
    ids = calls.correlation[order]
    if not len(ids):
        return ids, order, ids, ids
    first = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1])))
    if len(first) == len(ids):
        return ids, order, calls.start_ns[order], calls.end_ns[order]
    # Several calls carry one id (an exporter writes the runtime call and the driver call it makes): runtime names win.
    driver = np.array([name.startswith("cu") and not name.startswith("cuda") for name in trace.names], bool)[calls.name[order]]
    group = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(ids))))
    by_rank = np.lexsort((np.arange(len(ids)), driver, group))
    chosen = order[by_rank[first]]
    same_thread = calls.thread[order] == calls.thread[chosen][group]
    far = np.iinfo(np.int64)
    start = np.minimum.reduceat(np.where(same_thread, calls.start_ns[order], far.max), first)
    end = np.maximum.reduceat(np.where(same_thread, calls.end_ns[order], far.min), first)
    return ids[first], chosen, start, end


def _positions(ids: IntColumn, wanted: IntColumn) -> npt.NDArray[np.int64]:
    """For each wanted id its position in the sorted distinct ids, -1 where absent.

    Dense ids go through a look-up table (14 times faster than a binary search), sparse ones through the search.
    """
    if not len(ids):
        return np.full(len(wanted), -1, np.int64)
    low, high = int(ids[0]), int(ids[-1])
    inside = (wanted >= low) & (wanted <= high)
    if high - low < 8 * (len(ids) + len(wanted)) + 1024:
        table = np.full(high - low + 1, -1, np.int64)
        table[ids - low] = np.arange(len(ids))
        return np.where(inside, table[np.where(inside, wanted - low, 0)], -1)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where(ids[at] == wanted, at, -1)
