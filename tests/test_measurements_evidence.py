from building import MS, US, Build, analyse

from traceread.measurements.classes import StepClass
from traceread.measurements.evidence import longest_gaps
from traceread.model import RangeKind


def gaps(b, count=5):
    trace = b.trace()
    launches, steps, _, idle, _ = analyse(trace)
    return longest_gaps(trace, launches, steps, idle, count)


def synced():
    b = Build().range(0, 10 * MS, "ProfilerStep#1")
    b.kernel(100 * US, 1 * MS, launch=(50 * US, 60 * US))
    b.range(0, 10 * MS, "/home/u/train.py(41): main", RangeKind.PYTHON).range(
        60 * US, 3 * MS, "torch/_tensor.py(9): item", RangeKind.PYTHON
    )
    b.op(70 * US, 3 * MS, "aten::item").call(80 * US, int(1.5 * MS), "cudaStreamSynchronize")
    b.kernel(int(3.1 * MS), 4 * MS, launch=(3 * MS, int(3.05 * MS)), name="next kernel")
    b.kernel(int(4.02 * MS), 5 * MS, launch=(4 * MS, int(4.01 * MS)))
    return b


def test_the_longest_gap_comes_first_with_what_blocked_the_host():
    first, second, *_ = gaps(synced())
    assert (first.start_ns, first.end_ns) == (1 * MS, int(3.1 * MS))
    assert first.duration_ns > second.duration_ns
    by_class = {c.step_class: c for c in first.causes}
    assert by_class[StepClass.HOST_SYNC].duration_ns >= MS // 2
    assert any("cudaStreamSynchronize" in c.names for c in first.causes)
    assert sum(c.duration_ns for c in first.causes) == first.duration_ns
    assert (first.next_activity, first.launch_call, first.thread) == ("next kernel", "cudaLaunchKernel", "thread 1")
    assert first.step == "ProfilerStep#1"


def test_the_source_line_is_the_users_own_code():
    assert gaps(synced())[0].source == "/home/u/train.py:41 main"


def handed_over():
    """synced(), with the launch after the wait on a thread of its own, as those of a backward."""
    b = Build().range(0, 10 * MS, "ProfilerStep#1")
    b.kernel(100 * US, 1 * MS, launch=(50 * US, 60 * US))
    b.range(0, 10 * MS, "/home/u/train.py(41): main", RangeKind.PYTHON)
    b.op(70 * US, int(1.6 * MS), "aten::item").call(80 * US, int(1.5 * MS), "cudaStreamSynchronize")
    b.range(0, 10 * MS, "backward", thread=2)
    b.kernel(int(2.1 * MS), 4 * MS, launch=(2 * MS, int(2.05 * MS)), thread=2, name="next kernel")
    return b


def test_a_wait_on_another_thread_than_the_next_launch_is_where_it_waited():
    gap = gaps(handed_over())[0]
    assert gap.thread == "thread 2"
    assert gap.ranges == ("ProfilerStep#1", "aten::item")
    assert gap.source == "/home/u/train.py:41 main"


def test_a_gap_without_a_wait_is_where_the_launching_thread_was():
    b = handed_over()
    b.kernel(int(4.5 * MS), 5 * MS, launch=(int(4.4 * MS), int(4.45 * MS)), thread=2)
    assert [gap.ranges for gap in gaps(b, 2)] == [("ProfilerStep#1", "aten::item"), ("backward",)]


def test_ranges_open_at_the_gaps_start_stand_outermost_first():
    assert gaps(synced())[0].ranges == ("ProfilerStep#1", "aten::item")


def test_the_count_is_kept():
    assert len(gaps(synced(), 1)) == 1
    assert gaps(Build()) == ()


def test_silence_is_named_by_what_covers_it():
    b = Build().kernel(10 * US, 100 * US, launch=(0, 5 * US)).kernel(5 * MS, 6 * MS, launch=(5 * MS - 20 * US, 5 * MS - 10 * US))
    b.range(50 * US, 5 * MS - 30 * US, "poll", RangeKind.OS)
    silent = [c for c in gaps(b)[0].causes if c.step_class is StepClass.UNATTRIBUTED]
    assert silent[0].names == ("poll",) or silent[0].names == ()
    b = Build().kernel(10 * US, 100 * US, launch=(0, 5 * US)).kernel(5 * MS, 6 * MS, launch=(5 * MS - 20 * US, 5 * MS - 10 * US))
    b.range(50 * US, 6 * MS, "futex", RangeKind.OS)
    assert [c.names for c in gaps(b)[0].causes if c.step_class is StepClass.UNATTRIBUTED] == [("futex",)]
