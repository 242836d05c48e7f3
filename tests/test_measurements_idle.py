"""What the table of timelines cannot say in both formats; see test_timelines.py for the rules."""

import numpy as np
from building import MS, US, Build, analyse, class_times

from traceread.measurements.classes import Reason
from traceread.measurements.idle import launch_share
from traceread.model import RangeKind


def silent_gap(*frames):
    """The GPU idles 1.8 ms, launched into by thread 2; thread 1 has most launches. Nothing but the frames is recorded."""
    b = Build().kernel(20 * US, 100 * US, launch=(0, 5 * US))
    b.kernel(100 * US, 101 * US, launch=(6 * US, 8 * US)).kernel(1_907 * US, 1_957 * US, launch=(1_900 * US, 1_905 * US), thread=2)
    for thread, start, end in frames:
        b.range(start, end, "train.py(1): f", RangeKind.PYTHON, thread=thread)
    return b.trace()


def test_frame_edges_of_every_host_thread_show_that_the_host_is_alive():
    assert class_times(silent_gap())[0]["unattributed"] > 1_700 * US
    for thread in (1, 2):
        assert "unattributed" not in class_times(silent_gap((thread, 1_000 * US, 1_001 * US)))[0]
    assert "unattributed" in class_times(silent_gap((3, 1_000 * US, 1_001 * US)))[0]


def test_gaps_keep_their_whole_length_and_next_activity():
    _, _, _, idle, _ = analyse(silent_gap())
    longest = int(idle.gap_ns.max())
    assert longest == 1_806 * US
    rows = idle.gap_ns == longest
    assert int((idle.end_ns - idle.start_ns)[rows].sum()) == longest
    assert set(idle.next_activity[rows].tolist()) == {2}


def test_a_stream_wait_before_a_graph_holds_up_its_first_node_only():
    b = Build().kernel(10 * US, 100 * US, launch=(0, US), stream=7)
    for i in range(4):  # short queued gaps, so that the median is short
        b.kernel((101 + 11 * i) * US, (111 + 11 * i) * US, launch=(2 * US + i, 3 * US + i), stream=7)
    b.waits.append((5 * US, 7, 0, -1))
    b.call(6 * US, 9 * US, "cudaGraphLaunch", correlation=900)
    b.activity(200 * US, 210 * US, correlation=900).activity(300 * US, 310 * US, correlation=900)
    _, _, _, idle, _ = analyse(b.trace())
    reasons = {int(start): Reason(int(reason)) for start, reason in zip(idle.start_ns, idle.reason, strict=True)}
    assert reasons[144 * US] is Reason.DEPENDENCY
    assert reasons[210 * US] is Reason.GRAPH_NODES_NOT_RECORDED


def test_launch_share_counts_activities_where_they_ran():
    b = Build().range(0, 10 * MS, "ProfilerStep#1").range(10 * MS, 20 * MS, "ProfilerStep#2")
    b.kernel(MS, 11 * MS, launch=(0, US)).activity(11 * MS, 14 * MS).kernel(14 * MS, 19 * MS, launch=(12 * MS, 12 * MS + US))
    trace = b.trace()
    launches, steps, *_ = analyse(trace)
    known, total = launch_share(trace, launches, steps)
    assert known.tolist() == [10 * MS, 5 * MS]
    assert total.tolist() == [10 * MS, 8 * MS]


def test_an_empty_trace():
    _, steps, _, idle, partition = analyse(Build().trace())
    assert (len(steps.windows), len(idle), partition.class_ns.shape) == (0, 0, (0, 12))


def test_sums_of_times_do_not_overflow():
    base = 1_700_000_000_000_000_000
    b = Build().activity(base, base + 10**15).activity(base, base + 10**15, stream=9)
    trace = b.trace()
    launches, steps, *_ = analyse(trace)
    assert launch_share(trace, launches, steps)[1].tolist() == [2 * 10**15]
    assert np.all(launch_share(trace, launches, steps)[0] == 0)
