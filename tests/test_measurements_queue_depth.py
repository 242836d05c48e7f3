from building import US, Build
from hypothesis import given
from strategies import builds

from traceread.measurements.launches import find_launches
from traceread.measurements.queue_depth import find_queue_depth


def depth_of(trace, start, end, columns=400):
    return find_queue_depth(trace, find_launches(trace), start, end, columns)


def test_work_is_queued_from_its_launch_until_it_begins():
    b = Build()
    b.kernel(10 * US, 20 * US, launch=(0, US)).kernel(20 * US, 30 * US, launch=(2 * US, 3 * US)).kernel(
        30 * US, 40 * US, launch=(35 * US - US, 35 * US)
    )
    found = depth_of(b.trace(), 0, 40 * US, columns=8)
    assert found.edges_ns.tolist() == [i * 5 * US for i in range(9)]
    assert found.most.tolist() == [2, 2, 1, 1, 0, 0, 0, 0]
    assert found.least.tolist() == [1, 2, 1, 1, 0, 0, 0, 0]
    assert (found.known, found.total, found.empty_ns) == (3, 3, 20 * US)


def test_work_without_a_launch_is_counted_but_never_queued():
    found = depth_of(Build().kernel(10, 20).kernel(30, 40, launch=(5, 6)).trace(), 0, 50, columns=5)
    assert found.most.tolist() == [1, 1, 1, 0, 0]
    assert (found.known, found.total) == (1, 2)


def test_columns_are_no_shorter_than_a_nanosecond():
    assert len(depth_of(Build().kernel(2, 3).trace(), 0, 3).most) == 3
    assert len(depth_of(Build().trace(), 5, 5).most) == 1


@given(builds())
def test_depth_is_what_counting_says(b):
    trace = b.trace()
    launches = find_launches(trace)
    found = find_queue_depth(trace, launches, 0, 3_000_000, columns=37)
    pairs = [
        (s, a)
        for s, a, k in zip(launches.start_ns.tolist(), trace.activities.start_ns.tolist(), launches.known, strict=True)
        if k and s < a
    ]
    instants = sorted({0, *(t for pair in pairs for t in pair), *found.edges_ns.tolist()})
    for lo, hi, least, most in zip(
        found.edges_ns[:-1].tolist(), found.edges_ns[1:].tolist(), found.least.tolist(), found.most.tolist(), strict=True
    ):
        counts = [sum(s <= t < a for s, a in pairs) for t in instants if lo <= t < hi]
        assert (min(counts), max(counts)) == (least, most)
