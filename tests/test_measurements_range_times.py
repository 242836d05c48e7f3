"""Host and GPU time of the user's ranges, and the ops behind kernels."""

from building import MS, Build

from traceread.categories.host import HostNames
from traceread.measurements.kernel_ops import launching_ops
from traceread.measurements.launches import find_launches
from traceread.measurements.range_times import DEEPEST, sum_ranges
from traceread.measurements.steps import StepOptions, find_steps
from traceread.model import RangeKind


def found(b, measure=sum_ranges):
    trace = b.trace()
    launches = find_launches(trace)
    return measure(trace, launches, find_steps(trace, launches, StepOptions(), HostNames()))


def two_steps(fill):
    """Steps 1 and 2 of 10 ms each after a first one; `fill` says what happens in one that begins at an instant."""
    b = Build()
    for number in range(3):
        at = number * 10 * MS
        b.range(at, at + 9 * MS, f"ProfilerStep#{number}")
        fill(b, at)
        b.kernel(at + 8 * MS, at + 9 * MS, launch=(at + 7 * MS, at + 7 * MS + 1000))
    return b


def test_time_is_summed_over_used_steps_by_path():
    def fill(b, at):
        b.range(at, at + 6 * MS, "forward").range(at + MS, at + 3 * MS, "attention 3").range(at + 4 * MS, at + 5 * MS, "attention 4")
        b.kernel(at + 2 * MS, at + 4 * MS, launch=(at + MS + 1, at + MS + 2))
        b.kernel(at + 5 * MS, at + 6 * MS, launch=(at + 4 * MS + 1, at + 4 * MS + 2))
        b.kernel(at + 6 * MS, at + 8 * MS, launch=(at + 5 * MS + 1, at + 5 * MS + 2))

    forward, attention = found(two_steps(fill))
    assert (forward.path, forward.count, forward.host_ns, forward.gpu_ns) == (("forward",), 2, 12 * MS, 10 * MS)
    assert (attention.path, attention.count, attention.host_ns, attention.gpu_ns) == (("forward", "attention #"), 4, 6 * MS, 6 * MS)


def test_kernels_that_overlap_count_once():
    def fill(b, at):
        b.range(at, at + 2 * MS, "f")
        for stream in (1, 2):
            b.kernel(at + 2 * MS, at + 5 * MS, launch=(at + stream, at + stream + 1), stream=stream)

    [only] = found(two_steps(fill))
    assert only.gpu_ns == 6 * MS


def test_launches_of_other_threads_belong_to_the_range_that_is_open_meanwhile():
    def fill(b, at):
        b.range(at, at + 5 * MS, "backward")
        b.kernel(at + 3 * MS, at + 4 * MS, launch=(at + 2 * MS, at + 2 * MS + 1), thread=9)

    [only] = found(two_steps(fill))
    assert (only.path, only.gpu_ns) == (("backward",), 2 * MS)


def test_ranges_of_other_threads_ops_and_steps_are_no_paths():
    def fill(b, at):
        b.range(at, at + 5 * MS, "pin memory", thread=9).op(at, at + MS, "aten::mm")

    assert found(two_steps(fill)) == ()


def test_deep_paths_are_folded_into_the_range_around_them():
    def fill(b, at):
        for depth in range(DEEPEST + 3):
            b.range(at + depth, at + 5 * MS - depth, f"level {'abcdefghij'[depth]}")
        b.range(at + 6 * MS, at + 7 * MS, "again").range(at + 6 * MS + 1, at + 7 * MS - 1, "again")

    paths = {t.path: t for t in found(two_steps(fill))}
    assert max(len(p) for p in paths) == DEEPEST
    assert paths[("again",)].count == 2
    assert ("again", "again") not in paths


def test_kernels_are_launched_by_the_op_the_user_wrote():
    def fill(b, at):
        b.range(at, at + 2 * MS, "forward")
        b.op(at + 10, at + MS, "aten::linear").op(at + 20, at + MS - 20, "aten::addmm")
        b.kernel(at + 2 * MS, at + 3 * MS, launch=(at + 30, at + 40), name="gemm a")
        b.kernel(at + 3 * MS, at + 4 * MS, launch=(at + MS + 10, at + MS + 20), name="custom")

    ops = found(two_steps(fill), launching_ops)
    assert ops == {"gemm a": "aten::linear", "custom": "forward"}  # the last kernel of a step is launched in none


def test_without_launches_nothing_is_known():
    b = Build().range(0, 10 * MS, "forward").kernel(0, MS)
    assert found(b, launching_ops) == {}
    assert [t.gpu_ns for t in found(b)] in ([], [0])


def test_python_frames_are_no_ranges():
    def fill(b, at):
        b.range(at, at + MS, "train.py(3): step", RangeKind.PYTHON)

    assert found(two_steps(fill)) == ()
