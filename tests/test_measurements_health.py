from building import MS, US, Build, analyse

from traceread.measurements.health import check_health, without_impossible
from traceread.model import ActivityKind, Category


def notices(b, **more):
    trace = b.trace(**more)
    launches, steps, busy, idle, _ = analyse(trace)
    return {n.slug: n.message for n in check_health(trace, launches, steps, busy, idle)}


def healthy():
    b = Build().range(0, 10 * MS, "ProfilerStep#1")
    for i in range(10):
        b.kernel(i * MS + 20 * US, i * MS + 900 * US, launch=(i * MS, i * MS + 5 * US))
    return b


def test_a_healthy_trace_has_no_warning():
    assert notices(healthy()) == {}


def test_programmatic_dependent_launch_is_legal():
    b = healthy()
    for i in range(10):
        b.activity(i * MS + 897 * US, i * MS + 950 * US)  # starts 3 µs before its predecessor ends
    assert "stream-overlap" not in notices(b)


def test_long_overlaps_on_one_stream_are_named_with_their_number():
    b = healthy().activity(100 * US, 9 * MS)
    assert notices(b)["stream-overlap"].startswith("2 of 11 activities last")


def test_one_activity_longer_than_everything_else_does_not_hide_its_overlap():
    """It is most of the busy time itself; what follows on the stream is short."""
    assert "1800 s together" in notices(healthy().activity(5 * MS, 1800 * 10**9))["stream-overlap"]


def test_host_events_without_gpu_work():
    assert "no GPU work was recorded, only 1 API call;" in notices(Build().call(0, 5, "cudaLaunchKernel"))["no-gpu-work"]


def test_unrecorded_launches():
    b = healthy().activity(10 * MS, 40 * MS)
    b.ranges[0] = (0, 41 * MS, *b.ranges[0][2:])
    b.kernel(40 * MS, 41 * MS, launch=(39 * MS, 39 * MS + US))
    assert "only 24.6 % of the GPU time of ProfilerStep#1 has a record of its launch" in notices(b)["launches-not-recorded"]


def test_launches_whose_kernels_are_missing():
    b = healthy().call(4 * MS, 4 * MS + US, "cudaLaunchKernel", correlation=4242)
    assert notices(b)["launches-without-kernels"].startswith("1 of 11")


def test_graph_nodes_that_were_not_recorded():
    b = healthy().call(9 * MS + 5 * US, 9 * MS + 9 * US, "cudaGraphLaunch", correlation=777)
    for i in range(5):  # nodes that follow each other, then two millisecond-long holes
        b.activity(9 * MS + (910 + 11 * i) * US, 9 * MS + (920 + 11 * i) * US, correlation=777)
    b.activity(11 * MS, 12 * MS, correlation=777).activity(15 * MS, 16 * MS, correlation=777)
    assert "upper bound" in notices(b)["graph-nodes-not-recorded"]


def test_what_cannot_last_so_long_is_left_out_and_counted():
    year = 365 * 86_400 * 10**9
    trace = healthy().activity(5 * MS, 2 * year, ActivityKind.MEMSET, stream=99).trace()
    sound, [notice] = without_impossible(trace)
    assert len(sound.activities) == 10
    assert notice.slug == "impossible-duration"
    assert notice.message.startswith("1 of 11 activities (9.1 %) are left out")
    assert without_impossible(sound) == (sound, ())


def test_kernels_that_read_like_communication_and_are_not_known():
    b = healthy().activity(10 * MS, 12 * MS, name="my_all_reduce_v2")
    assert "my_all_reduce_v2" in notices(b)["possible-communication"]
    assert notices(b)["possible-communication"].startswith("18.5 %")
    b = healthy().activity(10 * MS, 10 * MS + 20 * US, name="my_all_reduce_v2")
    assert "possible-communication" not in notices(b)  # a hundredth of the busy time is not worth a warning


def test_collectives_without_any_communication_kernel():
    called = healthy().op(5 * MS, 6 * MS, "nccl:all_reduce").op(7 * MS, 8 * MS, "c10d::allreduce_")
    assert "nccl:all_reduce, c10d::allreduce_" in notices(called)["communication-not-recorded"]
    assert "communication-not-recorded" not in notices(called, world_size=1)  # a job of one rank moves nothing
    called.activity(20 * MS, 21 * MS, name="ncclDevKernel_AllReduce", category=Category.COMMUNICATION)
    assert "communication-not-recorded" not in notices(called)
    on_cpu = healthy().op(5 * MS, 6 * MS, "gloo:all_reduce").op(5 * MS, 6 * MS, "c10d::allreduce_")
    assert "communication-not-recorded" not in notices(on_cpu)


def test_kernels_before_their_launch():
    b = healthy().kernel(10 * MS, 11 * MS, launch=(10 * MS + 7 * US, 10 * MS + 9 * US))
    assert "by up to 7.00 µs" in notices(b)["kernel-before-launch"]


def test_repeating_launches_without_step_names_are_pointed_out():
    b = Build()
    for i in range(40):
        b.kernel(i * 100 * US + 20 * US, i * 100 * US + 90 * US, launch=(i * 100 * US, i * 100 * US + 5 * US), name=f"k{i % 10}")
    assert "--step-range infer would divide" in notices(b)["steps-not-named"]
    assert "steps-not-named" not in notices(healthy())


def test_steps_that_were_asked_for_and_not_found_are_missed():
    once = Build().kernel(20 * US, 90 * US, launch=(0, 5 * US))
    for i, (b, expected) in enumerate(((once, ["steps-not-inferred"]), (healthy(), []))):
        trace = b.trace()
        launches, steps, busy, idle, _ = analyse(trace)
        assert [n.slug for n in check_health(trace, launches, steps, busy, idle, infer=True)] == expected, i
