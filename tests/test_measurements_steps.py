import numpy as np
import pytest
from building import MS, US, Build, analyse

from traceread.categories.host import HostNames
from traceread.errors import SelectionError
from traceread.measurements.classes import Reason, StepClass
from traceread.measurements.steps import StepSource, WindowKind
from traceread.model import ActivityKind, CopyKind, Elsewhere, RangeKind


def windows(trace, **more):
    return [(w.label, w.start_ns, w.end_ns) for w in analyse(trace, **more)[1].windows]


def two_steps(first="ProfilerStep#4", second="ProfilerStep#5", kind=RangeKind.ANNOTATION):
    """The host runs 60 µs ahead of the GPU."""
    b = Build().range(0, 90 * US, first, kind).range(100 * US, 190 * US, second, kind)
    b.kernel(60 * US, 140 * US, launch=(10 * US, 15 * US))
    b.kernel(140 * US, 250 * US, launch=(110 * US, 115 * US), thread=2)  # backward: another thread of the process
    return b


def test_windows_follow_the_gpu_not_the_host():
    assert windows(two_steps().trace()) == [("ProfilerStep#4", 0, 140 * US), ("ProfilerStep#5", 140 * US, 250 * US)]


def test_a_profiler_step_reaches_to_the_start_of_the_next():
    b = two_steps().kernel(255 * US, 260 * US, launch=(95 * US, 97 * US))  # launched between the ranges, by prof.step()
    assert windows(b.trace())[0] == ("ProfilerStep#4", 0, 260 * US)


def test_a_step_overtaken_by_the_one_before_is_empty_partial_and_listed():
    b = two_steps().kernel(255 * US, 260 * US, launch=(95 * US, 97 * US))
    steps = analyse(b.trace())[1]
    assert steps.windows[1].start_ns == steps.windows[1].end_ns == 260 * US
    assert steps.windows[1].partial
    assert (1, steps.windows[1].partial) in steps.excluded


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("train_step 3", True),
        ("Step 7", True),
        ("iteration 12 of 40", True),
        ("iter_5", True),
        ("Warm-up Step 1", True),
        ("steps 3", False),
        ("TrainStep 3", False),
        ("Optimizer.step#SGD.step", False),
        ("lr_step 1", False),
        ("scheduler step", False),
        ("zero_grad step", False),
        ("forward", False),
        ("stepping", False),
    ],
)
def test_which_names_say_step(name, counts):
    b = Build().range(0, 100, name).kernel(50, 90, launch=(10, 20))
    assert (analyse(b.trace())[1].source is StepSource.RECORDED) == counts


@pytest.mark.parametrize("kind", [RangeKind.PYTHON, RangeKind.OP, RangeKind.OS])
def test_frames_ops_and_os_calls_never_name_steps(kind):
    assert windows(two_steps("step 1", "step 2", kind).trace()) == [("whole capture", 60 * US, 250 * US)]


def test_profiler_steps_win_over_other_families():
    b = two_steps().range(0, 500 * US, "my step 1").range(500 * US, 900 * US, "my step 2")
    assert [w[0] for w in windows(b.trace())] == ["ProfilerStep#4", "ProfilerStep#5"]


def test_overlapping_families_are_no_steps_and_the_longest_of_the_rest_wins():
    b = two_steps("iter 1", "iter 2").range(0, 300 * US, "step 1").range(200 * US, 400 * US, "step 2").range(0, 9, "tiny step 1")
    assert [w[0] for w in windows(b.trace())] == ["iter 1", "iter 2"]


def test_ranges_that_hold_their_launches_are_taken_as_they_are_with_windows_between():
    b = Build().range(0, 100 * US, "step 1").range(300 * US, 400 * US, "step 2")
    b.kernel(20 * US, 120 * US, launch=(10 * US, 12 * US)).kernel(320 * US, 420 * US, launch=(310 * US, 312 * US))
    b.kernel(150 * US, 160 * US, launch=(140 * US, 141 * US))  # evaluation between the steps: 10 of 210 µs
    assert windows(b.trace()) == [
        ("step 1", 0, 120 * US),
        ("between steps", 120 * US, 300 * US),  # no earlier than the next range starts
        ("step 2", 300 * US, 420 * US),
    ]
    steps = analyse(b.trace())[1]
    assert steps.windows[1].kind is WindowKind.BETWEEN
    assert steps.used == (False, False, True)


def test_nothing_launched_between_leaves_the_wait_to_the_step_that_waited():
    b = Build().range(0, 100 * US, "step 1").range(300 * US, 400 * US, "step 2")
    b.kernel(20 * US, 120 * US, launch=(10 * US, 12 * US)).kernel(320 * US, 420 * US, launch=(310 * US, 312 * US))
    assert windows(b.trace()) == [("step 1", 0, 120 * US), ("step 2", 120 * US, 420 * US)]


def test_ranges_that_hold_too_little_reach_to_the_next():
    b = Build().range(0, 100 * US, "step 1").range(300 * US, 400 * US, "step 2")
    b.kernel(20 * US, 120 * US, launch=(10 * US, 12 * US)).kernel(320 * US, 420 * US, launch=(310 * US, 312 * US))
    b.kernel(150 * US, 180 * US, launch=(140 * US, 141 * US))  # 30 of 230 µs launched outside
    assert windows(b.trace()) == [("step 1", 0, 180 * US), ("step 2", 180 * US, 420 * US)]


def test_nothing_after_the_last_range_has_a_window():
    b = two_steps().kernel(500 * US, 600 * US, launch=(400 * US, 410 * US))
    assert windows(b.trace())[-1] == ("ProfilerStep#5", 140 * US, 250 * US)


def test_the_first_window_begins_after_the_work_launched_before_its_range():
    b = Build().range(100 * US, 200 * US, "ProfilerStep#1")
    b.kernel(50 * US, 130 * US, launch=(10 * US, 12 * US)).kernel(130 * US, 180 * US, launch=(110 * US, 111 * US))
    assert windows(b.trace()) == [("ProfilerStep#1", 130 * US, 180 * US)]


def test_the_first_window_begins_after_the_work_launched_before_the_capture():
    b = Build().range(100 * US, 200 * US, "ProfilerStep#1")
    b.activity(90 * US, 120 * US).activity(120 * US, 150 * US)  # no launch record, ahead on the stream
    b.kernel(150 * US, 180 * US, launch=(110 * US, 111 * US))
    b.activity(185 * US, 190 * US)  # no launch record later on: by time only
    assert windows(b.trace()) == [("ProfilerStep#1", 150 * US, 180 * US)]


def test_a_stream_without_any_launch_record_counts_before_the_devices_first():
    b = Build().range(100 * US, 300 * US, "ProfilerStep#1")
    b.activity(140 * US, 155 * US, stream=20).activity(200 * US, 210 * US, stream=20)
    b.kernel(150 * US, 180 * US, launch=(110 * US, 111 * US))
    assert windows(b.trace()) == [("ProfilerStep#1", 155 * US, 180 * US)]


def test_copies_do_not_hold_a_window_open():
    b = Build().range(0, 50 * US, "ProfilerStep#1").range(50 * US, 100 * US, "ProfilerStep#2")
    b.kernel(10 * US, 40 * US, launch=(1 * US, 2 * US))
    b.copy(40 * US, 500 * US, CopyKind.DEVICE_TO_HOST, launch=(30 * US, 31 * US), stream=9)  # asynchronous checkpoint
    b.kernel(60 * US, 95 * US, launch=(55 * US, 56 * US))
    assert windows(b.trace()) == [("ProfilerStep#1", 0, 40 * US), ("ProfilerStep#2", 40 * US, 95 * US)]


def test_a_step_of_copies_only_ends_with_them():
    b = Build().range(0, 50 * US, "ProfilerStep#1").copy(10 * US, 80 * US, launch=(5 * US, 6 * US))
    assert windows(b.trace()) == [("ProfilerStep#1", 0, 80 * US)]


def test_an_opaque_graph_ends_a_step_like_a_kernel():
    b = Build().range(0, 50 * US, "ProfilerStep#1")
    b.kernel(10 * US, 80 * US, launch=(5 * US, 6 * US), kind=ActivityKind.GRAPH, call="cudaGraphLaunch")
    assert windows(b.trace()) == [("ProfilerStep#1", 0, 80 * US)]


def test_first_and_partial_steps_are_left_out_unless_nothing_remains():
    b = Build()
    for i in range(4):
        b.range(i * MS, (i + 1) * MS, f"ProfilerStep#{i}", open=int(i == 3))
        b.kernel(i * MS + 100, (i + 1) * MS, launch=(i * MS + 10, i * MS + 20))
    steps = analyse(b.trace())[1]
    assert steps.used == (False, True, True, False)
    assert steps.excluded == ((0, "first step"), (3, "still running when the capture ended"))
    assert not steps.fallback
    one = Build().range(0, MS, "ProfilerStep#0").kernel(100, MS, launch=(10, 20))
    steps = analyse(one.trace())[1]
    assert steps.used == (True,)
    assert steps.fallback


def test_the_last_step_is_partial_when_its_launches_have_no_kernels():
    b = Build()
    for i in range(3):
        b.range(i * MS, (i + 1) * MS, f"ProfilerStep#{i}").kernel(i * MS + 100, (i + 1) * MS, launch=(i * MS + 10, i * MS + 20))
    b.call(2 * MS + 500, 2 * MS + 510, "cudaLaunchKernel", correlation=999)
    assert "1 of its 2" in analyse(b.trace())[1].windows[2].partial


def test_no_steps_means_one_window_over_the_whole_capture():
    b = Build().kernel(10, 20, launch=(1, 2)).activity(5, 7).activity(30, 44)
    steps = analyse(b.trace())[1]
    assert (steps.source, steps.windows[0].start_ns, steps.windows[0].end_ns) == (StepSource.WHOLE_CAPTURE, 5, 44)
    assert steps.used == (True,)


def test_pattern_none_and_errors():
    assert windows(two_steps().trace(), pattern="none")[0][0] == "whole capture"
    assert windows(two_steps("batch 1", "batch 2").trace(), pattern="batch")[0][0] == "batch 1"
    with pytest.raises(SelectionError, match="matches no range"):
        windows(two_steps().trace(), pattern="nothing here")
    with pytest.raises(SelectionError, match="not a regular expression"):
        windows(two_steps().trace(), pattern="(")
    with pytest.raises(SelectionError, match="overlap"):
        windows(two_steps().range(5, 10, "ProfilerStep like").range(7, 9, "ProfilerStep like").trace(), pattern="like")


def test_the_users_own_step_name():
    host_names = HostNames({r"batch \d+": "step"})
    assert [w[0] for w in windows(two_steps("batch 1", "batch 2").trace(), host_names=host_names)] == ["batch 1", "batch 2"]


def test_micro_steps_are_joined():
    b = Build()
    for i in range(4):
        b.range(i * MS, (i + 1) * MS, f"step {i}").kernel(i * MS + 100, (i + 1) * MS, launch=(i * MS + 10, i * MS + 20))
    assert windows(b.trace(), micro_steps=2) == [("step 0", 0, 2 * MS), ("step 2", 2 * MS, 4 * MS)]


def test_numbers_are_the_steps_own():
    b = Build().range(0, MS, "epoch 2 step 17").kernel(10, MS, launch=(1, 2))
    assert analyse(b.trace())[1].windows[0].number == 17
    assert [w.number for w in analyse(two_steps().trace())[1].windows] == [4, 5]


def repeated(count, name=None):
    """`count` times the same ten kernels, with a pause of the host before the first of them."""
    b = Build()
    for i in range(count):
        at = i * MS
        if name:
            b.range(at, at + 900 * US, name)
        for k in range(10):
            b.kernel(at + k * 50 * US + 5 * US, at + k * 50 * US + 45 * US, launch=(at + k * 50 * US, at + k * 50 * US + US), name=f"k{k}")
    return b


def test_inferred_steps_follow_the_period_of_the_launches():
    steps = analyse(repeated(5).trace(), pattern="infer")[1]
    assert steps.source is StepSource.INFERRED
    assert [w.duration_ns for w in steps.windows[1:]] == [MS] * 4
    assert "10 launches" in steps.name


def test_projected_steps_follow_a_repeating_range():
    steps = analyse(repeated(4, "execute_model").trace(), pattern="infer")[1]
    assert steps.source is StepSource.PROJECTED
    assert [w.duration_ns for w in steps.windows[1:]] == [MS] * 3


def graphs(count, launches):
    """`count` times so many launches of a graph of twenty kernels, each graph with kernels of its own."""
    b = Build()
    for i in range(count * launches):
        b.call(i * MS, i * MS + 5 * US, "cudaGraphLaunch", correlation=1000 + i)
        for k in range(20):
            at = i * MS + 10 * US + k * 20 * US
            b.activity(at, at + 19 * US, correlation=1000 + i, name=f"graph {i % launches} k{k % 10}")
    return b


def test_a_graph_is_one_launch_however_often_its_kernels_repeat():
    assert analyse(graphs(1, 1).trace(), pattern="infer")[1].source is StepSource.WHOLE_CAPTURE
    steps = analyse(graphs(3, 8).trace(), pattern="infer")[1]
    assert steps.name == "period of 8 launches"
    assert [w.duration_ns for w in steps.windows[1:]] == [8 * MS] * 2


def test_nothing_repeats_nothing_is_inferred():
    b = Build()
    for k in range(30):
        b.kernel(k * 100 + 20, k * 100 + 60, launch=(k * 100, k * 100 + 5), name=f"k{k}")
    assert analyse(b.trace(), pattern="infer")[1].source is StepSource.WHOLE_CAPTURE


def two_captures():
    """Two captures of one rank, 100 ms apart, with two steps each."""
    b = Build()
    for start in (0, 100 * MS):
        for i in range(2):
            at = start + i * MS
            b.range(at, at + MS, f"ProfilerStep#{start // MS + i}").kernel(at + 100 * US, at + MS, launch=(at + 10 * US, at + 20 * US))
    return b.trace(windows_ns=((0, 3 * MS), (99 * MS, 103 * MS)))


def test_nothing_is_said_of_the_time_between_two_captures_of_a_rank():
    _, steps, _, idle, partition = analyse(two_captures())
    assert [(w.label, w.duration_ns) for w in steps.windows][2] == ("between captures", 98 * MS)
    assert [w.duration_ns for w in steps.windows if w.kind is WindowKind.STEP] == [MS, MS, MS, MS]
    assert {Reason(int(r)) for r in idle.reason[idle.window == 2]} == {Reason.BETWEEN_CAPTURES}
    assert partition.class_ns[2].sum() == partition.class_ns[2][StepClass.UNATTRIBUTED] == 98 * MS


def test_the_first_step_of_every_capture_is_left_out():
    steps = analyse(two_captures())[1]
    assert steps.used == (False, True, False, False, True)
    assert [reason for _, reason in steps.excluded] == ["first step", "first step"]
    assert steps.window_of.tolist() == [0, 1, 3, 4]


def test_several_captures_without_steps_are_several_windows():
    steps = analyse(two_captures(), pattern="none")[1]
    assert [w.label for w in steps.windows] == ["whole capture", "between captures", "whole capture"]
    assert steps.used == (True, False, True)


def test_a_step_is_told_from_its_layers():
    b, at = Build(), 0
    for _ in range(4):  # steps: an embedding, 6 equal layers of 9 kernels, a head
        for name in ["embedding", *[f"layer{k}" for _ in range(6) for k in range(9)], "head"]:
            b.kernel(at + 5 * US, at + 45 * US, launch=(at, at + US), name=name)
            at += 50 * US
    steps = analyse(b.trace(), pattern="infer")[1]
    assert "56 launches" in steps.name
    assert len(steps.windows) == 4


def test_the_step_thread_is_the_one_that_launches_most_however_many_kernels_a_graph_holds():
    b = Build().kernel(100, 110, launch=(0, 5)).kernel(120, 130, launch=(10, 15))
    b.call(20, 25, "cudaGraphLaunch", thread=2, correlation=9)
    for k in range(5):
        b.kernel(140 + 10 * k, 150 + 10 * k, correlation=9, node=k + 1)
    trace = b.trace()
    assert trace.threads[analyse(trace, pattern="none")[1].step_thread].tid == 1


def launching(lost=(), *, steps=4, each=10, call="cudaLaunchKernel", named=True):
    """Steps of 1 ms with ten launches, a kernel of 80 µs behind each; launches in `lost` (step, number) have none."""
    b = Build()
    for step in range(steps):
        at = step * MS
        if named:
            b.range(at, at + 990 * US, f"ProfilerStep#{step + 3}")
        for k in range(each):
            launch = (at + 95 * US * k, at + 95 * US * k + 5 * US)
            if (step, k) in lost:
                b.call(*launch, call, correlation=10_000 + 100 * step + k)
            else:
                b.kernel(launch[0] + 10 * US, launch[0] + 90 * US, launch=launch, call=call)
    return b


HALF_OF_THE_THIRD = {(2, k) for k in range(1, 10, 2)}


@pytest.mark.parametrize("call", ["cudaLaunchKernel", "cudaGraphLaunch", "hipGraphLaunch"])
def test_a_step_that_lacks_kernels_is_partial_and_names_no_host_cause(call):
    _, steps, _, idle, partition = analyse(launching(HALF_OF_THE_THIRD, call=call).trace())
    assert steps.windows[2].partial == "5 of its 10 kernel launches lack kernels in the trace"
    assert steps.used == (False, True, False, True)
    assert {Reason(int(r)) for r in idle.reason[idle.window == 2]} == {Reason.KERNELS_NOT_RECORDED}
    assert partition.class_ns[2][StepClass.LAUNCH_BOUND] == 0
    # The missing kernels ran until the next step began, as far as is known, so nothing of their time falls into it.
    assert steps.windows[2].end_ns == 3 * MS
    assert partition.class_ns[3][StepClass.UNATTRIBUTED] == 0


def test_a_step_whose_last_kernel_is_there_ends_with_it():
    _, steps, _, _, partition = analyse(launching({(2, k) for k in range(0, 9, 2)}).trace())
    assert steps.windows[2].partial
    assert steps.windows[2].end_ns == 2 * MS + 945 * US
    assert partition.class_ns[3][StepClass.LAUNCH_BOUND] == partition.class_ns[1][StepClass.LAUNCH_BOUND]


def test_steps_without_kernels_are_not_time_of_the_next_one():
    steps = analyse(launching({(s, k) for s in (0, 1) for k in range(10)}).trace())[1]
    assert [w.start_ns for w in steps.windows] == [0, MS, 2 * MS, 2 * MS + 945 * US]
    assert steps.used == (False, False, True, True)


def test_where_every_step_lacks_kernels_the_steps_are_used_and_it_is_said():
    lost = {(s, k) for s in range(4) for k in range(0, 9, 2)}
    _, steps, _, _, partition = analyse(launching(lost).trace())
    assert (steps.used, steps.fallback) == ((True,) * 4, "no step is complete")
    assert partition.class_ns[:, StepClass.LAUNCH_BOUND].sum() == 0


def test_without_steps_the_whole_capture_may_lack_kernels():
    lost = {(s, k) for s in range(4) for k in range(1, 10, 2)}
    _, steps, _, idle, _ = analyse(launching(lost, named=False).trace())
    assert steps.windows[0].launch_coverage == (20, 39)  # the last one was launched after all that is recorded
    assert {Reason(int(r)) for r in idle.reason} == {Reason.KERNELS_NOT_RECORDED}


def test_a_tenth_of_the_kernels_may_be_missing():
    steps = analyse(launching({(2, 1)}).trace())[1]
    assert (steps.windows[2].launch_coverage, steps.windows[2].partial) == ((9, 10), "")


def test_launches_that_a_graph_captures_lack_no_kernel():
    b = launching(HALF_OF_THE_THIRD)
    for k in range(1, 10, 2):
        at = 2 * MS + 95 * US * k
        b.call(at - 2 * US, at - US, "cudaStreamBeginCapture", thread=2).call(at + 6 * US, at + 7 * US, "cudaStreamEndCapture", thread=2)
    assert analyse(b.trace())[1].windows[2].launch_coverage == (5, 5)
    b = launching(HALF_OF_THE_THIRD).call(2 * MS + 90 * US, 2 * MS + 91 * US, "cudaStreamBeginCapture")
    assert analyse(b.trace())[1].windows[2].launch_coverage == (1, 1)  # a capture that never ended


def test_two_calls_with_one_id_are_one_launch():
    b = launching()
    for start, end, thread, _, correlation in list(b.calls):
        b.calls.append((start + US, end - US, thread, b.code("cuLaunchKernel"), correlation))
    assert [w.launch_coverage for w in analyse(b.trace())[1].windows] == [(20, 20)] * 4


def test_a_capture_that_lacks_kernels_at_its_end_reaches_no_further_than_itself():
    b = Build()
    for start in (0, 100 * MS):
        for i in range(2):
            at = start + i * MS
            b.range(at, at + MS, f"ProfilerStep#{start // MS + i}")
            b.kernel(at + 100 * US, at + 900 * US, launch=(at + 10 * US, at + 20 * US))
            b.call(at + 30 * US, at + 40 * US, "cudaLaunchKernel", correlation=5000 + at)
    steps = analyse(b.trace(windows_ns=((0, 3 * MS), (99 * MS, 103 * MS))))[1]
    assert [(w.label, w.duration_ns) for w in steps.windows][2] == ("between captures", 98 * MS + 100 * US)


def test_work_on_other_gpus_of_the_process_is_not_missing():
    b = launching(HALF_OF_THE_THIRD)
    elsewhere = Elsewhere(np.array([10_200 + k for k in range(1, 10, 2)]))
    assert analyse(b.trace(elsewhere=elsewhere))[1].windows[2].launch_coverage == (5, 5)


def test_kernels_that_do_not_say_their_launch_are_not_missing():
    b = launching(HALF_OF_THE_THIRD)
    for k in range(1, 10, 2):
        b.activity(2 * MS + (95 * k + 10) * US, 2 * MS + (95 * k + 90) * US, name="ncclDevKernel_Generic")
    steps = analyse(b.trace())[1]
    assert (steps.windows[2].launch_coverage, steps.windows[2].partial) == ((10, 10), "")
    b.activities.pop()
    assert analyse(b.trace())[1].windows[2].launch_coverage == (5, 10)


@pytest.mark.parametrize("ahead", [300 * US, 1_500 * US, 50 * MS])
def test_a_gpu_whose_clock_is_behind_that_of_the_host_has_its_steps(ahead):
    b = launching()
    expected = analyse(b.trace())
    b.activities = [(start - ahead, end - ahead, *more) for start, end, *more in b.activities]
    _, steps, _, _, partition = analyse(b.trace())
    assert [w.duration_ns for w in steps.windows[1:]] == [w.duration_ns for w in expected[1].windows[1:]]
    assert partition.class_ns[:, StepClass.COMPUTE].tolist() == expected[-1].class_ns[:, StepClass.COMPUTE].tolist()
    assert partition.class_ns.sum(axis=1).tolist() == [w.duration_ns for w in steps.windows]


def test_the_first_step_with_time_is_the_first():
    b = launching()
    trimmed = set(range(1, 23))  # the calls of two steps and some of the third are not in the file
    b.calls = [call for call in b.calls if call[-1] not in trimmed]
    steps = analyse(b.trace())[1]
    assert [w.start_ns == w.end_ns for w in steps.windows] == [True, True, False, False]
    assert steps.used == (False, False, False, True)
    assert steps.excluded[-1] == (2, "first step")
