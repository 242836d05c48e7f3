"""What is said about a host that launches too slowly, where kernels run in CUDA graphs and where they do not."""

import pytest
from scripting import MS, US, ActivityKind, Script

NODE = 5 * US


def replay(s, nodes, *, call="cudaGraphLaunch", whole=False):
    """One launch of a graph of so many kernels, recorded one by one or as a whole."""
    called, number = s.now, s.b.next_id
    s.b.next_id += 1
    s.b.call(called, called + 8 * US, call, thread=1, correlation=number)
    at = max(called + 10 * US, s.tail.get(7, 0) + 1 * US)
    if whole:
        s.b.activity(at, at + nodes * NODE, ActivityKind.GRAPH, correlation=number, name="CUDA graph 1")
    else:
        for i in range(nodes):
            s.b.activity(at + i * NODE, at + (i + 1) * NODE, correlation=number)
    s.tail[7] = at + nodes * NODE
    s.now = called + 10 * US


def one_by_one(s, count):
    for _ in range(count):
        s.launch(NODE, between=30 * US)


def found(body):
    [finding] = [f for f in Script().steps(4, lambda s, n: body(s)).report().findings if f.rule == "launch-bound"]
    return finding


@pytest.mark.parametrize("call", ["cudaGraphLaunch", "hipGraphLaunch"])
@pytest.mark.parametrize("whole", [False, True])
def test_many_graphs_with_host_time_between_them_should_be_fewer(call, whole):
    finding = found(lambda s: [(replay(s, 12, call=call, whole=whole), s.host(200 * US)) for _ in range(10)])
    assert "before 10 CUDA graph launches a step, which run most kernels." in finding.why
    assert "fewer and larger graphs" in finding.fix
    assert "make_graphed_callables" not in finding.fix


def test_kernels_beside_a_large_graph_should_be_captured_too():
    finding = found(lambda s: (replay(s, 100), one_by_one(s, 40)))
    assert "before 1 CUDA graph launch a step, which runs most kernels, and" in finding.why
    assert "before what is launched one by one (40 kernels)." in finding.why
    assert "capture that too" in finding.fix


@pytest.mark.parametrize("whole", [False, True])
def test_a_graph_of_a_few_kernels_is_no_reason_not_to_advise_graphs(whole):
    finding = found(lambda s: (replay(s, 12, whole=whole), one_by_one(s, 100)))
    assert "CUDA graph" not in finding.why
    assert "make_graphed_callables" in finding.fix


def test_graphs_that_keep_the_gpu_busy_lose_nothing():
    report = Script().steps(4, lambda s, n: [(replay(s, 400), s.host(MS)) for _ in range(5)]).report()
    assert [f.rule for f in report.findings if f.rule == "launch-bound"] == []


def test_half_of_an_even_number_of_kernels_may_be_as_long_as_the_middle():
    assert "half of them no longer than 5.00 µs." in found(lambda s: one_by_one(s, 10)).why
