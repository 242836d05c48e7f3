"""One step as bars on lanes: exact in class times, bounded, every merged bar counted."""

import numpy as np
import pytest
from building import MS, US, Build, analyse
from hypothesis import given, settings
from strategies import builds

from traceread.categories.host import HostNames
from traceread.measurements.classes import StepClass
from traceread.measurements.evidence import name_idle
from traceread.measurements.host_time import host_rows
from traceread.measurements.step_timeline import PLAIN, LaneKind, choose_window, draw_step
from traceread.model import RangeKind

settings.register_profile("quick", max_examples=100, deadline=None, derandomize=True)
settings.load_profile("quick")


def drawn(trace, window=None):
    launches, steps, busy, idle, partition = analyse(trace)
    window = choose_window(steps) if window is None else window
    rows = host_rows(trace, launches, HostNames())
    return partition, draw_step(trace, launches, steps, busy, idle, name_idle(trace, steps, idle), rows, window)


def lane(timeline, kind, position=0):
    """The bars of the n-th lane of a kind."""
    at = [i for i, lane in enumerate(timeline.lanes) if lane.kind is kind][position]
    return timeline.bars.take(timeline.bars.lane == at)


def names(timeline, bars):
    return [timeline.names[c] for c in bars.name.tolist()]


def small():
    b = Build()
    b.range(0, 10 * MS, "ProfilerStep#0").range(MS, 3 * MS, "enumerate(DataLoader)#x.__next__").range(MS + US, 2 * MS, "inside")
    b.op(4 * MS, 6 * MS, "aten::linear").op(4 * MS + US, 5 * MS, "aten::addmm")
    b.kernel(5 * MS, 7 * MS, launch=(4 * MS + 2 * US, 4 * MS + 9 * US), name="gemm")
    b.kernel(7 * MS, 9 * MS, launch=(5 * MS, 5 * MS + 5 * US), name="ring", category=1, stream=20)
    return b.trace()


def test_lanes_of_a_small_step():
    _, timeline = drawn(small())
    assert [(lane.kind.name, lane.title, lane.rows) for lane in timeline.lanes] == [
        ("CLASSES", "GPU", 7),
        ("STREAM", "stream 7", 1),
        ("STREAM", "stream 20", 1),
        ("RANGES", "thread 1", 1),
        ("OPS", "thread 1", 1),
        ("CALLS", "thread 1", 2),
    ]
    assert timeline.merged_ns == (0, 0, 0)
    assert (timeline.streams_left, timeline.threads_left, timeline.rows_left) == (0, 0, 0)
    ranges = lane(timeline, LaneKind.RANGES)
    assert names(timeline, ranges) == ["enumerate(DataLoader)#x.__next__"]
    assert ranges.cls.tolist() == [StepClass.DATA_WAIT]
    assert lane(timeline, LaneKind.OPS).cls.tolist() == [PLAIN]
    assert lane(timeline, LaneKind.STREAM, 1).cls.tolist() == [StepClass.EXPOSED_COMMUNICATION]
    classes = lane(timeline, LaneKind.CLASSES)
    assert [(StepClass(c).key, e - s) for c, s, e in zip(classes.cls, classes.start_ns, classes.end_ns, strict=True)] == [
        ("launch_bound", MS),
        ("data_wait", 2 * MS),
        ("launch_bound", MS),
        ("launch_bound", 2 * US),
        ("launch_bound", 998 * US),
        ("compute", 2 * MS),
        ("exposed_communication", 2 * MS),
    ]
    assert names(timeline, classes)[:5] == ["", "enumerate(DataLoader)#x.__next__", "", "", "cudaLaunchKernel"]


def test_rows_are_clipped_to_the_window():
    b = Build()
    b.op(0, 50 * MS, "long").kernel(10 * MS, 20 * MS, launch=(MS, MS + US)).kernel(15 * MS, 30 * MS, launch=(2 * MS, 2 * MS + US), stream=9)
    _, timeline = drawn(b.trace())
    assert (timeline.start_ns, timeline.end_ns) == (10 * MS, 30 * MS)
    assert (timeline.bars.start_ns >= timeline.start_ns).all()
    assert (timeline.bars.end_ns <= timeline.end_ns).all()
    assert lane(timeline, LaneKind.OPS).end_ns.tolist() == [30 * MS]


def busy_step(kernels, streams=1, threads=1, length=2 * US, pause=US):
    b = Build()
    b.range(0, (kernels + 2) * (length + pause), "ProfilerStep#0")
    for i in range(kernels):
        at = i * (length + pause) + pause
        b.kernel(at, at + length, launch=(at - pause, at - pause + 500), stream=7 + i % streams, thread=1 + i % threads, name=f"k{i % 3}")
    return b.trace()


def test_many_rows_are_merged_and_counted():
    _, timeline = drawn(busy_step(6000))
    bars = lane(timeline, LaneKind.STREAM)
    assert 600 < len(bars) <= 1200
    assert int(bars.rows.sum()) == 6000
    assert int(bars.busy_ns.sum()) == 6000 * 2 * US
    assert timeline.merged_ns[1] > 2 * US
    assert (bars.busy_ns < bars.end_ns - bars.start_ns).all()
    assert int(lane(timeline, LaneKind.CALLS).rows.sum()) == timeline.lanes[-1].rows
    assert len(timeline.bars) <= 400 + 1200 + 800


def test_a_long_row_keeps_its_own_bar_among_merged_ones():
    b = Build()
    for i in range(4000):
        b.kernel(i * 10 * US, i * 10 * US + 5 * US, name="short")
    b.kernel(40_000 * US, 60_000 * US, name="long")
    _, timeline = drawn(b.trace())
    bars = lane(timeline, LaneKind.STREAM)
    assert names(timeline, bars)[-1] == "long"
    assert bars.rows.tolist()[-1] == 1


def test_what_has_no_lane_is_counted():
    _, timeline = drawn(busy_step(300, streams=15, threads=5))
    streams = [lane for lane in timeline.lanes if lane.kind is LaneKind.STREAM]
    assert (len(streams), timeline.streams_left, timeline.threads_left) == (10, 5, 2)
    shown = sum(lane.rows for lane in timeline.lanes if lane.kind in (LaneKind.STREAM, LaneKind.CALLS))
    assert shown + timeline.rows_left == 300 + 300


@given(builds())
def test_class_times_of_the_first_lane_are_those_of_the_partition(b):
    trace = b.trace()
    _, steps, *_ = analyse(trace)
    for window in range(len(steps.windows)):
        partition, timeline = drawn(trace, window)
        bars = lane(timeline, LaneKind.CLASSES)
        total = np.zeros(partition.class_ns.shape[1], np.int64)
        np.add.at(total, bars.cls, bars.end_ns - bars.start_ns)
        assert total.tolist() == partition.class_ns[window].tolist()
        assert bars.start_ns.tolist()[1:] == bars.end_ns.tolist()[:-1]
        for lane_at, shown in enumerate(timeline.lanes):
            assert int(timeline.bars.rows[timeline.bars.lane == lane_at].sum()) <= shown.rows


@pytest.mark.parametrize(("pause", "share"), [(100, 400), (1_900, 4_000)])
def test_merged_classes_stay_exact_and_near_their_place(pause, share):
    trace = busy_step(6000, pause=pause)
    partition, timeline = drawn(trace)
    bars = lane(timeline, LaneKind.CLASSES)
    assert len(bars) <= 400
    total = np.zeros(partition.class_ns.shape[1], np.int64)
    np.add.at(total, bars.cls, bars.end_ns - bars.start_ns)
    assert total.tolist() == partition.class_ns[0].tolist()
    # half of the kernels' time has passed in the middle of the step, give or take what one merged bar holds
    middle = (timeline.start_ns + timeline.end_ns) // 2
    compute = bars.take(bars.cls == StepClass.COMPUTE)
    before = int(np.clip(middle - compute.start_ns, 0, compute.end_ns - compute.start_ns).sum())
    assert abs(before - 6000 * US) <= 3 * timeline.merged_ns[0]


def test_the_window_shown_is_the_one_with_evidence_then_the_median():
    b = Build()
    for i, length in enumerate((9, 4, 6, 5)):
        at = 20 * MS * i
        b.range(at, at + 20 * MS - US, f"ProfilerStep#{i}")
        b.kernel(at + 10 * MS, at + 10 * MS + length * MS, launch=(at + MS, at + MS + US))
    _, steps, *_ = analyse(b.trace())
    labels = [w.label for w in steps.windows]
    assert [w.duration_ns // MS for w in steps.windows][1:] == [15, 22, 19]
    assert labels[choose_window(steps)] == "ProfilerStep#3"
    assert labels[choose_window(steps, ["ProfilerStep#1", "ProfilerStep#1", "ProfilerStep#3", "ProfilerStep#0"])] == "ProfilerStep#1"


def test_nothing_to_show_without_gpu_work():
    _, steps, *_ = analyse(Build().op(0, 5).trace())
    assert choose_window(steps) == -1


def test_blocking_frames_stand_with_the_ranges():
    b = Build().kernel(10 * MS, 12 * MS, launch=(9 * MS, 9 * MS + US)).kernel(0, MS, launch=(0, US))
    b.range(MS, 8 * MS, "torch/utils/data/dataloader.py(628): __next__", RangeKind.PYTHON).range(
        0, 12 * MS, "train.py(3): f", RangeKind.PYTHON
    )
    _, timeline = drawn(b.trace())
    bars = lane(timeline, LaneKind.RANGES)
    assert names(timeline, bars) == ["torch/utils/data/dataloader.py(628): __next__"]
    assert bars.cls.tolist() == [StepClass.DATA_WAIT]
