"""How quickly the host of a rank launches, so that a slow host can be told from a slow GPU."""

from __future__ import annotations

import numpy as np

from traceread import intervals
from traceread.measurements.launches import Launches
from traceread.measurements.steps import Steps
from traceread.model import Trace

LONGEST_NS = 1_000_000
"""A longer time between two launches is something else than launching."""


def launch_pace(trace: Trace, launches: Launches, steps: Steps) -> int:
    """Median time in ns from one launch to the next on the same thread, in the host time of the used steps; -1 without launches.

    Times longer than LONGEST_NS are left out.
    """
    calls = np.flatnonzero(launches.owners > 0)
    start, thread = trace.calls.start_ns[calls], trace.calls.thread[calls]
    windows = [window for window, used in zip(steps.windows, steps.used, strict=True) if used]
    inside = intervals.holds(intervals.union([w.host_start_ns for w in windows], [w.host_end_ns for w in windows]), start)
    order = intervals.group_order(thread, len(trace.threads))  # calls are in order of start
    order = order[inside[order]]
    between = np.diff(start[order])[np.diff(thread[order]) == 0]
    between = between[between <= LONGEST_NS]
    middle = (len(between) - 1) // 2
    return int(np.partition(between, middle)[middle]) if len(between) else -1
