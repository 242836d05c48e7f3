"""Section 8 of the time model, for any input."""

from dataclasses import replace

import numpy as np
from building import analyse
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import builds

from traceread import intervals
from traceread.measurements.partition import class_intervals
from traceread.measurements.steps import WindowKind
from traceread.model import Activities, Category

settings.register_profile("quick", max_examples=150, deadline=None, derandomize=True)
settings.load_profile("quick")


def times(trace, **more):
    return analyse(trace, **more)[-1].class_ns.tolist()


@given(builds())
def test_classes_sum_to_the_window_and_windows_tile(b):
    _, steps, busy, idle, partition = analyse(b.trace())
    assert partition.class_ns.sum(axis=1).tolist() == [w.duration_ns for w in steps.windows]
    assert (partition.class_ns >= 0).all()
    assert all(a.end_ns == c.start_ns for a, c in zip(steps.windows, steps.windows[1:], strict=False))
    if steps.windows:
        device = intervals.gaps(busy.any, steps.windows[0].start_ns, steps.windows[-1].end_ns)
        found = intervals.union(idle.start_ns, idle.end_ns)
        assert (found.start.tolist(), found.end.tolist()) == (device.start.tolist(), device.end.tolist())
        assert int((idle.end_ns - idle.start_ns).sum()) == device.total


@given(builds())
def test_the_intervals_tile_the_windows_and_sum_to_the_partition(b):
    _, steps, busy, idle, partition = analyse(b.trace())
    rows = class_intervals(steps, busy, idle)
    assert (rows["end_ns"] > rows["start_ns"]).all()
    assert (rows["start_ns"][1:] == rows["end_ns"][:-1]).all()
    sums = np.zeros_like(partition.class_ns)
    np.add.at(sums, (rows["window"], rows["class"]), rows["end_ns"] - rows["start_ns"])
    assert (sums == partition.class_ns).all()


@given(builds(), st.sampled_from([-7_000_000, 1, 10**9, 1_712_195_495_519_689_047]))
def test_shifting_all_times_changes_nothing(b, by):
    trace = b.trace()

    def moved(table):
        return table.replace(**{n: v + by for n, v in table.columns() if n.endswith("_ns")})

    shifted = replace(trace, activities=moved(trace.activities), calls=moved(trace.calls), ranges=moved(trace.ranges))
    assert times(shifted) == times(trace)


@given(builds(), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(b, random):
    before = times(b.trace())
    for rows in (b.activities, b.calls, b.ranges):
        random.shuffle(rows)
    assert times(b.trace()) == before


@given(builds())
def test_names_of_streams_change_nothing(b):
    trace = b.trace()
    a = trace.activities
    renamed = replace(trace, activities=a.replace(stream=a.stream + 1000))
    assert times(renamed) == times(trace)


@given(builds(), st.integers(0, 30), st.integers(1, 10**6))
def test_two_touching_halves_are_one_activity(b, which, where):
    trace = b.trace()
    a = trace.activities
    if not len(a):
        return
    i = which % len(a)
    length = int(a.end_ns[i] - a.start_ns[i])
    if length < 2:
        return
    middle = int(a.start_ns[i]) + 1 + where % (length - 1)
    first = a.replace(end_ns=np.where(np.arange(len(a)) == i, middle, a.end_ns))
    second = a.take(np.array([i])).replace(start_ns=np.array([middle]))
    both = {n: np.concatenate((v, dict(second.columns())[n])) for n, v in first.columns()}
    order = np.lexsort((both["end_ns"], both["start_ns"]))
    halves = replace(trace, activities=Activities(**{n: v[order] for n, v in both.items()}))
    assert times(halves, pattern="none") == times(trace, pattern="none")


@given(
    builds(), st.integers(0, 2_000_000), st.integers(0, 500_000), st.sampled_from([Category.COMPUTE, Category.COMMUNICATION, Category.COPY])
)
def test_one_more_activity_never_lowers_the_busy_time_of_a_fixed_window(b, start, length, category):
    trace = b.trace()
    before = intervals.covered(intervals.union(trace.activities.start_ns, trace.activities.end_ns), np.array([0]), np.array([4_000_000]))
    b.activity(start, start + length, category=category)
    more = b.trace().activities
    after = intervals.covered(intervals.union(more.start_ns, more.end_ns), np.array([0]), np.array([4_000_000]))
    assert (after >= before).all()


@given(builds())
def test_a_window_is_a_step_a_stretch_between_steps_or_everything(b):
    steps = analyse(b.trace())[1]
    kinds = [w.kind for w in steps.windows]
    assert kinds.count(WindowKind.WHOLE) in (0, len(kinds))
    assert not kinds or any(steps.used)
    assert not any(used and w.kind is WindowKind.BETWEEN for used, w in zip(steps.used, steps.windows, strict=True))
