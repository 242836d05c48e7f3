"""What people have reported about PyTorch traces, tried here; docs/known_problems/kineto.toml says what each test is about."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kineto_builder import HOST_PID, Kineto, exact, us

import traceread
from traceread.cli import main
from traceread.measurements.classes import CLASSES

US, MS = 1_000, 1_000_000
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def launch(k, at, start, length, name=GEMM, *, call="cudaLaunchKernel", stream=7, **args):
    """A kernel and the call of 5 µs that launches it at `at`."""
    correlation = len(k.events) + 1
    k.call(call, at, 5 * US, correlation=correlation)
    k.kernel(name, start, length, correlation=correlation, stream=stream, **args)


def training(steps=4, *, kernels=5, each=180 * US, lost=(), call="cudaLaunchKernel", kineto=None):
    """Steps of 1 ms: 900 µs of kernels, and 100 µs in which the GPU waits for the host. Steps in `lost` have launches only."""
    k = kineto or Kineto()
    k.labels()
    for step in range(steps):
        at = step * MS
        k.annotation(f"ProfilerStep#{step + 3}", at, 990 * US)
        for i in range(kernels):
            launch(k, at + 10 * US * (i + 1), at + 20 * US + i * each, each, call=call)
            if step in lost:
                k.events.pop()
    return k


def collectives(k, *spans, stream=20, name=NCCL, steps=4):
    """Communication kernels at these (start, length) of every step, launched early in it."""
    for step in range(steps):
        for start, length in spans:
            launch(k, step * MS + 65 * US, step * MS + start, length, name, stream=stream)
    return k


def analyzed(tmp_path, k, **options):
    return traceread.analyze(k.write(tmp_path / "trace.json"), **options)


def classes(report):
    """The class times that are not zero in the mean used step of the critical rank."""
    return {name: ns for name, ns in zip(CLASSES, report.summary.class_ns, strict=True) if ns}


def slugs(report):
    return [notice.slug for notice in report.all_notices]


def windows(report):
    return {w.label: (w.start_ns - report.base_ns, w.end_ns - report.base_ns) for w in report.ranks[0].steps.windows}


EACH_STEP = {"compute": 900 * US, "launch_bound": 100 * US}


# --- what is GPU work -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("category", "name", "tid"),
    [
        ("cuda_sync", "Stream Sync", 7),
        ("cuda_sync", "Context Sync", 1),
        ("cuda_sync", "Event Sync", -1),
        ("cuda_sync", "Stream Sync", 1_000_007),
        ("cuda_event", "cudaEventRecord", 7),
        ("gpu_user_annotation", "forward", 7),
        ("overhead", "ncclKernel", 7),
    ],
)
def test_rows_on_the_gpu_tracks_fill_no_idle_time(tmp_path, category, name, tid):
    k = training()
    for step in range(4):
        k.complete(category, name, step * MS + 900 * US, 120 * US, pid=0, tid=tid, device=0, stream=7, correlation=1)
    assert classes(analyzed(tmp_path, k)) == EACH_STEP


@pytest.mark.parametrize("category", ["cuda_sync", "cuda_event", "gpu_user_annotation"])
def test_rows_on_the_gpu_tracks_hide_no_communication(tmp_path, category):
    k = collectives(training(), (910 * US, 70 * US))
    for step in range(4):
        k.complete(category, "Stream Sync", step * MS + 800 * US, 190 * US, pid=0, tid=7, device=0, stream=7)
    report = analyzed(tmp_path, k)
    assert classes(report)["exposed_communication"] == 60 * US  # 10 µs run beside the last kernel
    assert report.summary.hidden_communication_ns == 10 * US


@pytest.mark.parametrize(
    "name",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymkDevWorkArgs)",
        "ncclSymDevKernel_AllGather_LL(ncclSymDevArgs)",
        "NCCLDevKernel_SendRecv",
    ],
)
def test_kernels_of_every_nccl_are_communication(tmp_path, name):
    found = classes(analyzed(tmp_path, collectives(training(), (920 * US, 60 * US), name=name)))
    assert found == {"compute": 900 * US, "exposed_communication": 60 * US, "launch_bound": 40 * US}


# --- one GPU, small and odd captures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [["report"], ["ranks"], ["kernels"], ["report", "-f", "markdown"], ["report", "--json"]])
def test_one_gpu_without_communication_divides_by_nothing(tmp_path, capsys, verb):
    path = training().write(tmp_path / "trace.json")
    assert main([*verb, str(path)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "exposed communication  " not in out
    assert "nan" not in out.lower()
    if "--json" in verb:
        told = json.loads(out)
        assert told["summary"]["class_ns"]["exposed_communication"] == 0
        assert all(row["classes"]["exposed_communication"] == 0 for row in told["partition"])


def one_kernel(length=2 * US, called=True):
    k = Kineto()
    if called:
        launch(k, 0, 10 * US, length, "add")
    else:
        k.kernel("add", 10 * US, length)
    return k


@pytest.mark.parametrize("verb", ["report", "info", "steps", "kernels", "ranks"])
@pytest.mark.parametrize(("length", "called"), [(2 * US, True), (2 * US, False), (0, True), (1, True)])
def test_a_toy_trace_of_one_kernel_is_answered(tmp_path, capsys, verb, length, called):
    path = one_kernel(length, called).write(tmp_path / "toy.json")
    assert main([verb, str(path)]) == 0
    assert capsys.readouterr().err == ""
    assert classes(traceread.analyze(path)) == ({"compute": length} if length else {})


@pytest.mark.parametrize("dropped", [{"gpu_memset"}, {"gpu_memcpy"}, {"cpu_op"}, {"cuda_runtime"}, {"user_annotation", "python_function"}])
def test_what_is_absent_is_no_mistake(tmp_path, capsys, dropped):
    k = training()
    k.memset(905 * US, 2 * US, correlation=999)
    k.memcpy("Memcpy HtoD (Pinned -> Device)", 908 * US, 2 * US, correlation=998, bytes=64)
    k.op("aten::mm", 0, 10 * US)
    k.python("train.py(1): main", 0, 4 * MS)
    k.events = [e for e in k.events if e.get("cat") not in dropped]
    assert main(["report", str(k.write(tmp_path / "trace.json"))]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "compute" in out


# --- which rank -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("info", "source"), [(None, "order"), ({"backend": "nccl"}, "order"), ({"rank": 0}, "distributedInfo"), ({}, "order")]
)
def test_a_trace_without_a_rank_is_rank_0(tmp_path, info, source):
    k = training()
    if info is not None:
        k.top["distributedInfo"] = info
    report = analyzed(tmp_path, k)
    assert [(r.rank, r.rank_source) for r in report.ranks] == [(0, source)]
    assert (classes(report), slugs(report)) == (EACH_STEP, [])


def test_names_that_say_no_rank_leave_nobody_out(tmp_path):
    names = [f"r{node}t{gpu:02d}.json" for node in range(3) for gpu in range(2)]
    for name in names:
        training().write(tmp_path / name)  # equal process ids, as on three machines
    report = traceread.analyze(tmp_path)
    assert [r.files[0].name for r in report.ranks] == names
    assert slugs(report) == ["rank-order"]
    assert classes(report) == EACH_STEP


@pytest.mark.parametrize(("verb", "says"), [("report", "2 of 4 ranks"), ("info", "not here: 1, 2"), ("ranks", "Not loaded: ranks 1, 2")])
def test_ranks_that_are_missing_are_named(tmp_path, capsys, verb, says):
    for rank in (0, 3):
        k = training()
        k.top["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 4}
        k.write(tmp_path / f"dp0_pp0_tp{rank}_rank{rank}.pt.trace.json")
    assert main([verb, str(tmp_path)]) == 0
    assert says in capsys.readouterr().out


# --- CUDA and HIP graphs, and kernels that are missing ----------------------------------------------------------------------


def graphs(nodes, *, steps=4, call="hipGraphLaunch", named=True):
    """One graph launch a step whose nodes stand at these (start, length) of the step; a step may have nodes of its own."""
    k = Kineto()
    k.labels()
    for step in range(steps):
        at = step * MS
        if named:
            k.annotation(f"ProfilerStep#{step}", at, 990 * US)
        k.op("execute_graph", at + 1 * US, 20 * US)
        k.call(call, at + 5 * US, 10 * US, correlation=step + 1)
        for i, (start, length) in enumerate(nodes(step) if callable(nodes) else nodes):
            k.kernel(f"decode_{i}", at + start, length, correlation=step + 1)
    return k


WHOLE_GRAPH = [(20 * US + 96 * i * US, 96 * US) for i in range(10)]


@pytest.mark.parametrize("call", ["cudaGraphLaunch", "hipGraphLaunch"])
def test_every_node_of_a_graph_counts(tmp_path, call):
    report = analyzed(tmp_path, graphs(WHOLE_GRAPH, call=call))
    assert classes(report) == {"compute": 960 * US, "launch_bound": 40 * US}
    assert {(k.name, k.count) for k in report.ranks[0].kernels.rows} == {(f"decode_{i}", 3) for i in range(10)}  # of three used steps
    assert slugs(report) == []


def test_holes_in_a_graph_are_no_idle_time_of_the_host(tmp_path):
    report = analyzed(tmp_path, graphs([*WHOLE_GRAPH[:3], *WHOLE_GRAPH[7:]]))
    assert classes(report) == {"compute": 576 * US, "launch_bound": 40 * US, "unattributed": 384 * US}
    assert slugs(report) == ["graph-nodes-not-recorded"]
    assert "upper bound" in report.all_notices[0].message


@pytest.mark.parametrize("call", ["cudaGraphLaunch", "hipGraphLaunch"])
@pytest.mark.parametrize("named", [True, False])
def test_graph_launches_that_own_nothing_make_no_verdict_on_the_host(tmp_path, call, named):
    k = Kineto()
    k.labels()
    for step in range(4):
        if named:
            k.annotation(f"ProfilerStep#{step}", step * MS, 990 * US)
        for i in range(10):
            at = step * MS + 95 * i * US
            k.op("execute_graph", at, 20 * US)
            k.call(call, at + 1 * US, 5 * US, correlation=1 + 10 * step + i)
            if i % 2 == 0:
                k.kernel("decode", at + 10 * US, 80 * US, correlation=1 + 10 * step + i)
    report = analyzed(tmp_path, k)
    assert set(classes(report)) == {"compute", "unattributed"}
    assert "launches-without-kernels" in slugs(report)
    assert [finding.rule for finding in report.findings] == ["kernels-not-recorded"]


def test_a_graph_of_many_nodes_is_one_launch_that_lacks_nothing(tmp_path):
    k = graphs([(20 * US + 2 * i * US, 2 * US) for i in range(480)])
    k.events = [e for e in k.events if e.get("args", {}).get("correlation") != 3 or e["cat"] == "cuda_runtime"]  # no node of one graph
    report = analyzed(tmp_path, k)
    windows = report.ranks[0].steps.windows
    assert [w.launch_coverage for w in windows] == [(1, 1), (1, 1), (0, 1), (1, 1)]
    assert [bool(w.partial) for w in windows] == [False, False, True, False]


def test_steps_without_gpu_rows_are_looked_at_one_by_one(tmp_path):
    report = analyzed(tmp_path, training(32, lost=set(range(32)) - {10, 11}))
    steps = report.ranks[0].steps
    assert [w.label for w, used in zip(steps.windows, steps.used, strict=True) if used] == ["ProfilerStep#13", "ProfilerStep#14"]
    assert classes(report)["compute"] == 900 * US
    assert 900 * US < report.summary.mean_ns <= 1 * MS
    [notice] = [n for n in report.all_notices if n.slug == "launches-without-kernels"]
    assert "and of 29 more" in notice.message


def test_kernels_lost_at_the_beginning_make_the_first_step_partial(tmp_path):
    k = training()
    lost = [e for e in k.events if e.get("cat") == "kernel"][:3]
    k.events = [e for e in k.events if not any(e is gone for gone in lost)]
    report = analyzed(tmp_path, k)
    assert report.ranks[0].steps.excluded == ((0, "3 of its 5 kernel launches lack kernels in the trace"),)
    assert (classes(report), slugs(report)) == (EACH_STEP, ["launches-without-kernels"])


def test_where_no_gpu_row_is_in_range_nothing_is_said_of_the_gpu(tmp_path, capsys):
    path = training(lost=range(4)).write(tmp_path / "trace.json")
    assert main(["report", str(path)]) == 0
    out = capsys.readouterr().out
    assert "No GPU work was recorded: this says nothing about whether the GPU was idle." in out
    assert "launch-bound" not in out
    assert traceread.analyze(path).summary is None


def test_work_launched_before_the_capture_is_not_the_first_steps(tmp_path):
    k = training()
    for i in range(10):
        k.kernel("before", -300 * US + 30 * i * US, 30 * US, correlation=5_000_000 + i)  # launched by calls before the window
    k.kernel("before", 0, 19 * US, correlation=5_000_010)
    report = analyzed(tmp_path, k)
    assert windows(report)["ProfilerStep#3"][0] == k.base_ns - report.base_ns + 19 * US
    assert report.ranks[0].outside_ns == 319 * US
    assert classes(report) == EACH_STEP


# --- where a step begins and ends -------------------------------------------------------------------------------------------


def test_annotations_of_the_gpu_bound_no_step(tmp_path):
    k = training()
    expected = windows(analyzed(tmp_path, k))
    for step in range(4):
        for stream, length in ((7, 18 * US), (20, 2 * MS)):  # the hull of what one thread launched: too short, too long, or missing
            name = f"ProfilerStep#{step + 3}"
            k.complete("gpu_user_annotation", name, step * MS + 300 * US, length, pid=0, tid=stream, stream=stream)
    report = analyzed(tmp_path, k)
    assert (windows(report), classes(report)) == (expected, EACH_STEP)


def behind(by, steps=4):
    """Steps whose kernels run so long after their launches; the GPU never waits."""
    k = Kineto()
    k.labels()
    for step in range(steps):
        k.annotation(f"ProfilerStep#{step}", step * MS, 900 * US)
        for i in range(5):
            launch(k, step * MS + 50 * i * US, by + step * MS + 200 * i * US, 200 * US)
    return k


@pytest.mark.parametrize("by", [10 * US, 950 * US, 2_500 * US])
def test_a_step_has_the_kernels_it_launched_wherever_they_run(tmp_path, by):
    report = analyzed(tmp_path, behind(by))
    assert [row["classes"]["compute"] for row in report.to_dict()["partition"]] == [1 * MS] * 4
    assert classes(report) == {"compute": 1 * MS}


def test_steps_add_up_to_the_time_that_passed(tmp_path):
    report = analyzed(tmp_path, behind(2_500 * US))
    spans = list(windows(report).values())
    assert [end for _, end in spans[:-1]] == [start for start, _ in spans[1:]]
    host_end = 3 * MS + 900 * US
    assert spans[-1][1] - (report.ranks[0].first_ns - report.base_ns) == 6_500 * US > host_end  # the end of the last kernel


def test_the_closing_synchronisation_of_the_profiler_is_nobodys_work(tmp_path):
    k = training()
    k.call("cudaDeviceSynchronize", 3 * MS + 995 * US, 16 * MS)
    k.span(0, 20 * MS)
    report = analyzed(tmp_path, k)
    assert classes(report) == EACH_STEP
    k.events = [e for e in k.events if not e["name"].startswith("ProfilerStep")]
    assert "host_sync" not in classes(analyzed(tmp_path, k))


# --- communication ----------------------------------------------------------------------------------------------------------


def test_the_host_side_of_a_collective_is_not_its_time(tmp_path):
    k = collectives(training(each=100 * US), (530 * US, 400 * US))
    for step in range(4):
        k.annotation("nccl:all_reduce", step * MS + 64 * US, 7 * US)
        k.op("c10d::allreduce_", step * MS + 62 * US, 30 * US)
    report = analyzed(tmp_path, k)
    assert classes(report)["exposed_communication"] == 400 * US
    assert report.summary.hidden_communication_ns == 0


@pytest.mark.parametrize("kernel", [NCCL, "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"])
def test_compute_that_one_launch_queue_holds_back_is_exposed_communication(tmp_path, kernel):
    k = Kineto()
    k.labels()
    for step in range(4):  # all launched in 40 µs; the product behind the all-reduce needs nothing of it and waits all the same
        k.annotation(f"ProfilerStep#{step}", step * MS, 990 * US)
        for i, (name, stream) in enumerate([(GEMM, 7), (kernel, 20), (GEMM, 7), (GEMM, 7)]):
            launch(k, step * MS + 10 * (i + 1) * US, step * MS + 20 * US + 240 * i * US, 240 * US, name, stream=stream)
    report = analyzed(tmp_path, k)
    assert classes(report) == {"compute": 720 * US, "exposed_communication": 240 * US, "launch_bound": 40 * US}
    assert report.summary.hidden_communication_ns == 0
    assert "exposed-communication" in [finding.rule for finding in report.findings]


def test_overlap_is_compute_plus_communication_minus_their_union(tmp_path):
    k = collectives(training(), (850 * US, 130 * US))  # 70 µs beside the last kernel, 60 µs alone
    report = analyzed(tmp_path, k)
    for row in report.to_dict()["partition"]:
        union = row["classes"]["compute"] + row["classes"]["exposed_communication"]
        assert row["hidden_communication"] == 900 * US + 130 * US - union == 70 * US


def test_what_runs_at_once_counts_once(tmp_path):
    k = collectives(training(), (920 * US, 50 * US))
    k = collectives(k, (930 * US, 50 * US), stream=21)
    k = collectives(k, (100 * US, 300 * US), stream=22, name="elementwise_kernel")
    report = analyzed(tmp_path, k)
    assert classes(report) == {"compute": 900 * US, "exposed_communication": 60 * US, "launch_bound": 40 * US}
    assert report.summary.mean_ns == 1 * MS
    totals = {k.name: k.total_ns for k in report.ranks[0].kernels.rows}
    assert totals[NCCL] == 300 * US  # beside the partition the kernels keep their own times: 2 of 50 µs in three steps


def test_what_is_exposed_can_be_audited_interval_by_interval(tmp_path):
    report = analyzed(tmp_path, collectives(training(), (850 * US, 130 * US), (300 * US, 20 * US)))
    frame = report.intervals()
    shown = frame[(frame["class"] == "exposed_communication") & (frame["step"] == "ProfilerStep#4")]
    at = report.ranks[0].first_ns + MS
    assert list(zip(shown.start_ns, shown.end_ns, strict=True)) == [(at + 920 * US, at + 980 * US)]
    sums = frame.groupby(["step", "class"]).duration_ns.sum()
    for row in report.to_dict()["partition"]:
        assert {name: ns for name, ns in row["classes"].items() if ns} == sums[row["step"]].to_dict()


def late_rank(rank, arrives):
    """Two steps in which this rank reaches an all-reduce at `arrives`; the data has moved 30 µs after the last rank came."""
    k = Kineto()
    k.top["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
    k.labels()
    told = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1024, "Out msg nelems": 1024, "Group size": 2}
    told |= {"Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1]"}
    for step in range(4):
        at = step * MS
        k.annotation(f"ProfilerStep#{step}", at, 990 * US)
        launch(k, at + 5 * US, at + 20 * US, arrives - 20 * US)
        k.op("record_param_comms", at + 40 * US, 20 * US, **told)
        launch(k, at + 45 * US, at + arrives, 930 * US - arrives, NCCL, stream=20, **told)
    return k


def test_an_all_reduce_that_waits_for_a_peer_is_told_from_one_that_moves_data(tmp_path):
    for rank, arrives in ((0, 300 * US), (1, 900 * US)):
        late_rank(rank, arrives).write(tmp_path / f"rank{rank}.json")
    report = traceread.analyze(tmp_path)
    rows = [row for row in report.to_dict()["partition"] if row["step"] == "ProfilerStep#2"]
    assert [(row["exposed_wait"], row["exposed_transfer"], row["exposed_not_split"]) for row in rows] == [
        (600 * US, 30 * US, 0),
        (0, 30 * US, 0),
    ]
    assert report.summary.critical_rank == 1
    (alone,) = [r for r in traceread.analyze(tmp_path, ranks=[0]).to_dict()["partition"] if r["step"] == "ProfilerStep#2"]
    assert (alone["exposed_wait"], alone["exposed_not_split"]) == (None, 630 * US)


# --- why the GPU was idle ---------------------------------------------------------------------------------------------------


def idle_between(*calls):
    """Two kernels 2 ms apart in every step; `calls` are what the host does meanwhile."""
    k = Kineto()
    k.labels()
    for step in range(4):
        at = step * 3 * MS
        k.annotation(f"ProfilerStep#{step}", at, 3 * MS - 10 * US)
        launch(k, at + 10 * US, at + 20 * US, 400 * US)
        for kind, name, start, length in calls:
            getattr(k, kind)(name, at + start, length)
        launch(k, at + 2_410 * US, at + 2_420 * US, 580 * US)
    return k


BUSY_HOST = [("op", "aten::view", (30 + 40 * i) * US, 35 * US) for i in range(58)]


def test_a_drained_queue_is_told_from_a_slow_host(tmp_path):
    drained = classes(analyzed(tmp_path, idle_between(("call", "cudaStreamSynchronize", 30 * US, 2_300 * US))))
    assert drained["host_sync"] > 1_900 * US
    slow = classes(analyzed(tmp_path, idle_between(*BUSY_HOST)))
    assert slow.keys() == {"compute", "launch_bound"}
    assert slow["launch_bound"] > 1_900 * US


def test_a_single_slow_launch_is_named(tmp_path):
    k = training(6)
    k.call("cudaLaunchKernel", 5 * MS + 60 * US, 4 * MS, correlation=777)
    k.kernel(GEMM, 9 * MS + 70 * US, 100 * US, correlation=777)
    report = analyzed(tmp_path, k)
    assert "slow-launches" in [finding.rule for finding in report.findings]
    last = report.to_dict()["partition"][-1]
    assert (last["step"], last["classes"]["launch_bound"]) == ("ProfilerStep#8", 3_150 * US + 100 * US)
    longest = report.ranks[0].gaps[0]
    assert longest.end_ns - longest.start_ns == 3_150 * US


def test_a_loader_that_the_gpu_does_not_wait_for_costs_nothing(tmp_path):
    k = behind(950 * US)
    for step in range(4):  # 60 % of the host's time
        k.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", step * MS + 260 * US, 600 * US)
    report = analyzed(tmp_path, k)
    assert classes(report) == {"compute": 1 * MS}
    assert "data-loading" not in [finding.rule for finding in report.findings]


def test_idle_time_is_of_the_device_not_of_its_streams(tmp_path):
    k = Kineto()
    k.labels()
    for step in range(4):
        k.annotation(f"ProfilerStep#{step}", step * MS, 990 * US)
        for i in range(10):  # ten streams take turns: each is idle for nine tenths of the time
            launch(k, step * MS + 5 * i * US, step * MS + 60 * US + 94 * i * US, 94 * US, stream=7 + i)
    assert classes(analyzed(tmp_path, k)) == {"compute": 940 * US, "launch_bound": 60 * US}


# --- times ------------------------------------------------------------------------------------------------------------------


def test_kernels_that_overlap_on_one_stream_are_legal(tmp_path):
    k = training()
    for e in k.events:
        if e.get("cat") == "kernel":
            e["dur"] = us(182 * US)  # programmatic dependent launch: the next one starts before the end
    report = analyzed(tmp_path, k)
    assert classes(report) == {"compute": 902 * US, "launch_bound": 98 * US}
    assert slugs(report) == []


def test_a_kernel_that_starts_before_its_launch_stays_where_it_is(tmp_path):
    k = training()
    k.call("cudaLaunchKernel", 2 * MS + 950 * US, 5 * US, correlation=777)
    k.kernel("ncclDevKernel_SendRecv(ncclDevComm*)", 2 * MS + 946 * US, 30 * US, correlation=777, stream=20)
    report = analyzed(tmp_path, k)
    rows = {row["step"]: row["classes"] for row in report.to_dict()["partition"]}
    assert rows["ProfilerStep#5"]["exposed_communication"] == 30 * US
    assert rows["ProfilerStep#5"]["launch_bound"] >= 0
    [notice] = report.all_notices
    assert (notice.slug, "by up to 4.00 µs" in notice.message) == ("kernel-before-launch", True)


@pytest.mark.parametrize("era", ["base", "epoch"])
def test_a_nanosecond_is_never_lost(tmp_path, era):
    k = Kineto(era=era)
    k.labels()
    for step in range(3):
        k.annotation(f"ProfilerStep#{step}", step * MS, 990 * US)
        launch(k, step * MS + 7, step * MS + 10_003, 500_001)
        launch(k, step * MS + 6_011, step * MS + 510_005, 1)
    report = analyzed(tmp_path, k)
    assert classes(report)["compute"] == 500_002
    assert windows(report)["ProfilerStep#1"][1] + report.base_ns == k.base_ns + MS + 510_006


def test_times_written_as_text_are_the_same_times(tmp_path):
    k = training()
    for e in k.events:
        e |= {key: e[key].strip("@") for key in ("ts", "dur") if key in e}
    assert classes(analyzed(tmp_path, k)) == EACH_STEP


PEAK = """
import sys
import traceread.readers.kineto as kineto
from pathlib import Path

def peak_bytes():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

before = peak_bytes()
kineto.read(Path(sys.argv[1]))
print(peak_bytes() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is asked of Linux")
def test_memory_does_not_grow_with_what_is_not_kept(tmp_path):
    path = tmp_path / "large.json"
    head, tail = training().text().rsplit(b"\n  ]", 1)
    flow = (
        b'  {\n    "ph": "s",\n    "id": 7,\n    "pid": 4000,\n    "tid": 4000,\n    "ts": 5.0,\n    "cat": "ac2g",\n    "name": "%s"\n  }'
    )
    flow %= b"ac2g" * 50
    with path.open("wb") as file:
        file.write(head)
        for _ in range(130):
            file.write(b",\n" + b",\n".join([flow] * 2000))
        file.write(b"\n  ]" + tail)
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", PEAK, path], env=env, capture_output=True, text=True, check=True)
    assert path.stat().st_size > 70_000_000
    assert int(done.stdout) < 35_000_000


def test_the_host_process_may_have_the_number_of_a_gpu(tmp_path):
    k = training()
    for e in k.events:
        if e.get("pid") == HOST_PID:
            e["pid"] = 0  # in a container
    assert classes(analyzed(tmp_path, k)) == EACH_STEP


def test_digits_that_are_not_padded_are_read_as_written(tmp_path):
    k = one_kernel()
    k.events[-1]["ts"] = exact("10.7")  # some nightly builds of 2024 wrote 10.007 so: nothing in the file tells them apart
    assert analyzed(tmp_path, k).ranks[0].steps.windows[0].start_ns == k.base_ns + 10_700


def test_a_gate_is_not_passed_by_kernels_that_are_missing(tmp_path, capsys):
    paths = [tmp_path / "before.json", tmp_path / "after.json"]
    for path, every in zip(paths, (1, 2), strict=True):
        k = training(12)
        kernels = [e for e in k.events if e.get("cat") == "kernel"]
        k.events = [e for e in k.events if e.get("cat") != "kernel"] + kernels[::every]
        k.write(path)
    command = ["diff", *map(str, paths), "--fail-if", "launch_bound>5%"]
    assert main(command) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "after" in err
    assert "has no complete step" in err
    assert main([*command, "--allow-mismatch", "incomplete"]) == 0
