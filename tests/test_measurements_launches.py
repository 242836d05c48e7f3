from building import Build

from traceread.measurements.launches import find_launches


def test_a_graph_launch_owns_all_its_nodes():
    b = Build().call(0, 10, "cudaGraphLaunch", correlation=5)
    b.activity(20, 30, correlation=5).activity(30, 40, correlation=5)
    launches = find_launches(b.trace())
    assert launches.call.tolist() == [0, 0]
    assert launches.owners.tolist() == [2]


def test_ids_of_zero_or_less_join_nothing():
    b = Build().call(0, 10, "cudaLaunchKernel", correlation=0).call(0, 9, "cudaLaunchKernel", correlation=-1)
    b.activity(20, 30, correlation=0).activity(30, 40, correlation=-1)
    assert find_launches(b.trace()).call.tolist() == [-1, -1]


def test_runtime_and_driver_call_with_one_id_are_one_launch():
    b = Build().call(100, 130, "cuMemcpyDtoH_v2", correlation=5).call(102, 140, "cudaMemcpy", correlation=5)
    b.activity(120, 130, correlation=5)
    trace = b.trace()
    launches = find_launches(trace)
    assert (launches.start_ns.tolist(), launches.end_ns.tolist()) == ([100], [140])
    assert trace.names[trace.calls.name[launches.call[0]]] == "cudaMemcpy"


def test_calls_of_another_thread_with_the_same_id_do_not_stretch_the_launch():
    b = Build().call(100, 130, "cudaLaunchKernel", correlation=5).call(90, 500, "cuLaunchKernel", correlation=5, thread=2)
    b.activity(120, 130, correlation=5)
    launches = find_launches(b.trace())
    assert (launches.start_ns.tolist(), launches.end_ns.tolist(), launches.thread.tolist()) == ([100], [130], [0])


def test_sparse_ids_join_like_dense_ones():
    ids = [3, 10**12, 2**61, 17]
    b = Build()
    for i, id_ in enumerate(ids):
        b.call(10 * i, 10 * i + 1, "cudaLaunchKernel", correlation=id_)
        b.activity(100 + 10 * i, 105 + 10 * i, correlation=id_)
    b.activity(200, 210, correlation=10**12 + 1)
    assert find_launches(b.trace()).start_ns.tolist() == [0, 10, 20, 30, 0]
    assert find_launches(b.trace()).known.tolist() == [True, True, True, True, False]


def test_a_trace_without_calls():
    launches = find_launches(Build().activity(0, 5, correlation=3).trace())
    assert launches.call.tolist() == [-1]
    assert launches.thread.tolist() == [-1]
