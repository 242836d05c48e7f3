"""Calls and ranges as one table of host rows, and what a thread was doing over time."""

import numpy as np
from building import MS, Build

from traceread.categories.host import Blocker, HostNames
from traceread.measurements.host_time import EXECUTING, SILENT, host_rows
from traceread.measurements.launches import find_launches


def rows_of(build):
    trace = build.trace()
    return trace, host_rows(trace, find_launches(trace), HostNames())


def test_times_are_held_once():
    trace, rows = rows_of(Build().kernel(5 * MS, 6 * MS, launch=(3 * MS, 4 * MS)).range(0, 9 * MS, "ProfilerStep#0").op(MS, 2 * MS))
    for mine, given in ((rows.trace.calls, trace.calls), (rows.trace.ranges, trace.ranges)):
        assert np.shares_memory(mine.start_ns, rows.start)
        assert np.shares_memory(mine.end_ns, rows.end)
        assert np.shares_memory(mine.thread, rows.thread)
        for name, values in given.columns():
            assert np.array_equal(dict(mine.columns())[name], values)


def test_a_thread_executes_while_any_call_or_op_is_open():
    b = Build().call(0, 2 * MS, "cudaLaunchKernel").call(4 * MS, 5 * MS, "cudaStreamSynchronize")
    _, rows = rows_of(b.op(MS, 3 * MS).op(7 * MS, 8 * MS))
    thread = int(rows.thread[0])
    seen = rows.timeline(thread).state_at(np.array([-1, 0, 1, 2, 3, 4, 5, 6, 7, 8]) * MS).tolist()
    executing = [SILENT, EXECUTING, EXECUTING, EXECUTING, SILENT, Blocker.HOST_SYNC, SILENT, SILENT, EXECUTING, SILENT]
    assert seen == executing
