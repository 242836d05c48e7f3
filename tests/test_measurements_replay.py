import numpy as np
import pytest
from building import MS, US, Build
from hypothesis import given, settings
from rule_cases import busy, logs
from scripting import ADD, BACKWARD, GEMM, Script, facts_of
from strategies import builds

from traceread.categories.host import Blocker, HostNames
from traceread.measurements.replay import Removal, Replay, prioritise
from traceread.measurements.replay_graph import COMFORTABLE, HostIntervals, blocked_by, build_graph
from traceread.model import ActivityKind, Category, RangeKind


def graph_of(trace):
    facts = facts_of(trace)
    return build_graph(facts.trace, facts.launches, facts.steps, facts.partition, facts.rows, HostNames()), facts


def replayed(script):
    graph, facts = graph_of(script.trace())
    return Replay(graph), facts


def gone(facts, replay, blocker):
    """The time in which the host was blocked by this."""
    graph = replay.graph
    return Removal(host=blocked_by(graph.nodes, facts.rows, blocker, graph.start_ns, int(graph.spans.end_ns[-1])))


def ends_of(replay, *removals):
    """The end of every activity when nobody on other ranks is waited for."""
    program = replay.program(removals)
    try:
        next(program)
    except StopIteration as stop:
        return stop.value[0]


def exposed(facts):
    rows = np.flatnonzero(facts.trace.activities.category == Category.COMMUNICATION)
    return Removal(activities=rows, off_ns=facts.exposed_ns[rows])


def loop(body, count=4, **more):
    return Script(**more).steps(count, body)


# Nothing removed


def test_the_unchanged_steps_come_out_as_measured():
    replay, _ = replayed(loop(lambda s, n: (busy(s, 8), s.item(), logs(s), s.collective(1 * MS), s.copy(200 * US))))
    assert replay.step_ns == replay.measured_ns
    assert replay.error == 0.0
    assert replay.trusted


def test_steps_that_were_not_used_do_not_count():
    replay, facts = replayed(loop(lambda s, n: busy(s, 4), 5))
    assert len(replay.measured_ns) == 4 == facts.step_count


def test_two_threads_that_take_turns():
    def body(s, n):
        busy(s, 6, 100 * US)
        with s.on(2):
            for _ in range(12):
                with s.inside(BACKWARD, RangeKind.OP):
                    s.launch(50 * US, between=60 * US)
        busy(s, 3, 100 * US)

    replay, _ = replayed(loop(body))
    assert replay.error == 0.0
    nodes = replay.graph.nodes
    handed = np.flatnonzero(nodes.giver >= 0)
    assert len(handed) == 8  # to and fro in each of three steps and the one before
    assert (nodes.thread[handed] != nodes.thread[nodes.giver[handed]]).all()


@given(builds())
@settings(max_examples=150, deadline=None)
def test_any_trace_can_be_replayed_and_less_work_never_ends_later(b):
    graph, facts = graph_of(b.trace())
    if graph is None:
        return
    replay = Replay(graph)
    everything = [
        Removal(host=graph.working),
        *(gone(facts, replay, blocker) for blocker in Blocker if blocker is not Blocker.NONE),
        exposed(facts),
    ]
    unchanged = ends_of(replay)
    for removal in everything:
        ends = ends_of(replay, removal)
        assert all(a <= b for a, b in zip(ends, unchanged, strict=True))
    assert all(ns >= 0 for ns in replay.steps_without(everything))


# What each removal does


def test_without_the_fetch_the_host_is_ahead():
    def body(s, n):
        with s.inside("load_batch"):
            s.host(15 * MS)
        busy(s, 20)

    replay, facts = replayed(loop(body))
    saving = replay.saving([gone(facts, replay, Blocker.DATA_WAIT)])
    step = sum(replay.measured_ns) // len(replay.measured_ns)
    assert step - saving == pytest.approx(20 * 501 * US, rel=0.01)


def test_without_the_synchronisation_the_host_works_beside_the_gpu():
    replay, facts = replayed(loop(lambda s, n: (busy(s, 10), s.item(), logs(s), busy(s, 10))))
    saving = replay.saving([gone(facts, replay, Blocker.HOST_SYNC)])
    assert saving == pytest.approx(3_100 * US, rel=0.02)  # what follows takes the host 3.1 ms


def test_a_synchronisation_that_costs_nothing_saves_nothing():
    def body(s, n):
        s.launch(20 * US, stream=9)
        busy(s)
        s.sync(stream=9)
        busy(s)

    replay, facts = replayed(loop(body))
    assert replay.saving([gone(facts, replay, Blocker.HOST_SYNC)]) == 0


def test_an_ideal_graph_keeps_fetches_and_synchronisations():
    def body(s, n):
        for _ in range(50):
            s.launch(8 * US, ADD, between=30 * US)
        with s.inside("load_batch"):
            s.host(1 * MS)

    replay, _ = replayed(loop(body))
    saving = replay.saving([Removal(host=replay.graph.working)])
    step = sum(replay.measured_ns) // len(replay.measured_ns)
    assert step - saving == pytest.approx(1 * MS, rel=0.2)  # the fetch is what is left, the kernels hide in it


def test_exposed_communication_goes_and_what_waits_for_it_moves_up():
    replay, facts = replayed(loop(lambda s, n: (busy(s, 6), s.collective(2 * MS), busy(s, 6))))
    assert replay.saving([exposed(facts)]) == pytest.approx(2 * MS, rel=0.01)


def test_ideal_overlap_needs_something_that_does_not_wait():
    def on_the_compute_stream(s, n):
        busy(s, 4)
        s.collective(2 * MS, stream=7, after=())
        busy(s, 6)

    def at_the_end(s, n):
        busy(s, 10)
        s.collective(2 * MS)
        s.launch(100 * US)

    for body, expected in ((on_the_compute_stream, 2 * MS), (at_the_end, 0)):
        replay, facts = replayed(loop(body))
        rows = np.flatnonzero(facts.trace.activities.category == Category.COMMUNICATION)
        assert replay.saving([Removal(activities=rows, beside=True)]) == pytest.approx(expected, abs=20 * US)


def test_half_of_a_cause_saves_about_half():
    replay, facts = replayed(loop(lambda s, n: (busy(s, 6), s.collective(2 * MS), busy(s, 6))))
    whole = exposed(facts)
    half = Removal(activities=whole.activities, off_ns=whole.off_ns, keep=500)
    assert replay.saving([half]) == pytest.approx(1 * MS, rel=0.01)


def test_a_removed_range_takes_the_waits_inside_it_along():
    def body(s, n):
        busy(s, 10)
        with s.inside("save_checkpoint"):
            s.sync(stream=7)
            s.host(10 * MS)
        busy(s, 10)

    replay, facts = replayed(loop(body))
    step = sum(replay.measured_ns) // len(replay.measured_ns)
    assert step - replay.saving([gone(facts, replay, Blocker.CHECKPOINT)]) == pytest.approx(20 * 501 * US, rel=0.01)


def test_a_slow_launch_call_that_goes_lets_its_kernel_start():
    def body(s, n):
        busy(s, 4)
        s.launch(100 * US, call_ns=5 * MS)
        busy(s, 4)

    replay, _ = replayed(loop(body))
    nodes = replay.graph.nodes
    slow = np.flatnonzero(nodes.end_ns - nodes.start_ns > 1 * MS)
    host = HostIntervals(nodes.start_ns[slow], nodes.end_ns[slow], nodes.thread[slow])
    step = sum(replay.measured_ns) // len(replay.measured_ns)
    assert step - replay.saving([Removal(host=host)]) == pytest.approx(4_100 * US, rel=0.02)


# The launch queue


def deep(depth, fetch):
    """A loop with a queue of `depth` launches in front of kernels of 500 µs, and a fetch per step."""

    def body(s, n):
        if fetch:
            with s.inside("load_batch"):
                s.host(fetch)
        for _ in range(30):
            ends = s.__dict__.setdefault("ends", [])
            room = ends[-depth] if len(ends) >= depth else 0
            begin = s.now + 2 * US
            held = max(room - begin, 0)
            s.launch(500 * US, GEMM, call_ns=4 * US + held)
            s.b.calls[-1] = (begin, begin + held + 4 * US, *s.b.calls[-1][2:])
            ends.append(s.tail[7])

    return loop(body, 5)


def test_the_depth_of_a_full_queue_is_seen():
    replay, _ = replayed(deep(10, 0))
    assert replay.graph.depth_seen
    assert replay.graph.depth == 10
    assert replay.error < 0.001


def test_a_queue_that_was_never_full_is_assumed_deep():
    replay, _ = replayed(loop(lambda s, n: busy(s, 5)))
    assert not replay.graph.depth_seen
    assert replay.graph.depth >= 1024


def test_a_full_queue_bounds_how_far_the_host_gets_ahead():
    replay, facts = replayed(deep(10, 20 * MS))
    saving = replay.saving([gone(facts, replay, Blocker.DATA_WAIT)])
    assert saving == pytest.approx(20 * MS - 10 * 501 * US, rel=0.05)  # the rest was hidden behind ten kernels


# Order of the list


def test_the_largest_next_saving_comes_first():
    replay, facts = replayed(loop(lambda s, n: (busy(s, 6), s.item(), logs(s), busy(s, 6), s.collective(1 * MS), busy(s, 2))))
    order = prioritise(replay, [exposed(facts), gone(facts, replay, Blocker.HOST_SYNC)])
    assert [i for i, _ in order] == [1, 0]
    assert sum(ns for _, ns in order) == replay.saving([exposed(facts), gone(facts, replay, Blocker.HOST_SYNC)])


# What cannot be replayed


def test_no_launches_no_graph():
    b = Build()
    for i in range(5):
        b.kernel(i * 100 * US, i * 100 * US + 50 * US)
    assert graph_of(b.trace())[0] is None
    assert graph_of(Build().trace())[0] is None


def test_pauses_that_nothing_explains_are_the_error_of_the_replay():
    def body(s, n):
        for _ in range(5):
            s.launch(200 * US)
            s.tail[7] += 100 * US  # as if the stream had waited for something that was not recorded

    replay, _ = replayed(loop(body))
    assert replay.graph.unexplained_ns > 0
    assert 0.2 < replay.error < 0.4
    assert not replay.trusted


def test_work_without_launch_records_keeps_its_place_on_the_stream():
    s = loop(lambda s, n: busy(s, 4, 200 * US))
    start, end, *rest = s.b.activities[-3]
    s.b.activities[-3] = (start, end, *rest[:3], 0, *rest[4:])
    replay, _ = replayed(s)
    assert replay.error == 0.0


def test_of_a_long_capture_a_typical_stretch_is_replayed():
    per_step = COMFORTABLE // 4
    b = Build()
    at = 0
    for number in range(6):
        length = per_step * 2 * US
        b.range(at, at + length, f"ProfilerStep#{number}")
        for i in range(per_step):
            b.kernel(at + i * 2 * US + 1_500, at + i * 2 * US + 2_500, launch=(at + i * 2 * US, at + i * 2 * US + 1_000))
        at += length
    graph, _ = graph_of(b.trace())
    assert 1 <= len(graph.used_windows) < 5
    assert Replay(graph).error < 0.01


def test_kernels_of_one_graph_launch_keep_their_distance():
    b = Build()
    for number in range(4):
        at = number * 10 * MS
        b.range(at, at + 9 * MS, f"ProfilerStep#{number}")
        correlation = 1000 + number
        b.call(at, at + 50 * US, "cudaGraphLaunch", correlation=correlation)
        for i in range(10):
            b.activity(at + 60 * US + i * 800 * US, at + 60 * US + i * 800 * US + 500 * US, ActivityKind.KERNEL, correlation=correlation)
    graph, _ = graph_of(b.trace())
    assert Replay(graph).error == 0.0
