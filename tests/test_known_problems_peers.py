"""What people have reported against other tools that read traces, tried here; docs/known_problems/peers.toml says what each test is about.

Captures are built small, and read the way a user does it: a file, `traceread` on it, the answer.
"""

import gzip
import json
import os
import pickle
import re
import sqlite3
import subprocess
import sys
import tracemalloc
import weakref
from contextlib import closing, redirect_stderr, redirect_stdout
from io import BytesIO, StringIO
from pathlib import Path

import pytest
from building import Build
from kineto_builder import HOST_PID, MAIN, Kineto, exact
from nsys_builder import SCHEMAS, NsysExport

import traceread
from traceread.cli import main
from traceread.engine import Workers
from traceread.measurements.classes import CLASSES
from traceread.model import RangeKind
from traceread.readers.options import ReadOptions
from traceread.report import AnalysisOptions, analyze_trace
from traceread.units import duration

ROOT = Path(__file__).parents[1]
US, MS = 1_000, 1_000_000
YEAR = 365 * 86_400 * 10**9
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def steps(body, count=4, length=10 * MS, kineto=None):
    """A capture of `count` steps one after the other; `body(k, t, n)` adds what happens in step n from time t on."""
    k = kineto or Kineto()
    k.labels()
    for n in range(count):
        k.annotation(f"ProfilerStep#{n}", n * length, length)
        body(k, n * length, n)
    return k


def launch(k, at, name, start, length, *, call="cudaLaunchKernel", tid=MAIN, **args):
    """A kernel and the call of 5 µs that launches it at `at`."""
    correlation = args.pop("correlation", len(k.events) + 1)
    k.call(call, at, 5 * US, correlation=correlation, tid=tid)
    k.kernel(name, start, length, correlation=correlation, **args)


def analyzed(tmp_path, k, **options):
    return traceread.analyze(k.write(tmp_path / "rank0.json"), **options)


def exported(tmp_path, export, name="rank0.sqlite", **options):
    return traceread.analyze(export.write(tmp_path / name), **options)


def classes(report, rank=0):
    """The times that are not zero in a mean step of a rank's used windows, and nothing else."""
    used = [row for row in report.to_dict()["partition"] if row["rank"] == rank and row["used"]]
    for row in used:
        assert sum(row["classes"].values()) == row["end_ns"] - row["start_ns"]
    total = {name: sum(row["classes"][name] for row in used) // len(used) for name in CLASSES}
    return {name: ns for name, ns in total.items() if ns}


def slugs(report):
    return [notice.slug for notice in report.all_notices]


def says(slug, report):
    [message] = [notice.message for notice in report.all_notices if notice.slug == slug]
    return message


def run(*arguments):
    """Exit code, standard output and standard error of a command."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main([str(a) for a in arguments])
    return code, out.getvalue(), err.getvalue()


def numbers_of(value):
    """Every number in a JSON answer."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [n for item in value for n in numbers_of(item)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def strictly(text):
    """A JSON answer; NaN and infinities are none."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} in the answer"))


# --- what a kernel is ------------------------------------------------------------------------------------------------------------


COLLECTIVES = [
    NCCL,
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)",
    "ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs4K)",
    "void rcclGenericKernel<1, false>(ncclDevComm*, unsigned long, ncclWork*)",
    "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*, vllm::RankSignals)",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)",
    "void nvshmemi_transfer_rma<2>(int, void*)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<8>(int)",
]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_of_any_library_are_communication(tmp_path, name):
    def body(k, t, n):
        launch(k, t, "sgemm", t + 1 * MS, 4 * MS)
        launch(k, t + 10 * US, name, t + 5 * MS, 3 * MS, stream=20)

    report = analyzed(tmp_path, steps(body))
    assert classes(report)["exposed_communication"] == 3 * MS
    assert [k.category for k in report.ranks[0].kernels.rows] == ["compute", "communication"]
    assert report.ranks[0].collectives.collectives.start_ns.size == 4  # one classification: the comparison of ranks sees the same kernels


def test_a_kernel_that_reads_like_communication_is_said_with_its_share(tmp_path):
    def body(k, t, n):
        launch(k, t, "sgemm", t + 1 * MS, 4 * MS)
        launch(k, t + 10 * US, "acme_ring_allgather_v7", t + 5 * MS, 1 * MS, stream=20)

    report = analyzed(tmp_path, steps(body))
    assert says("possible-communication", report).startswith("20.0 % of the GPU's busy time")
    (tmp_path / "traceread.toml").write_text('[[kernels]]\npattern = "acme_ring"\ncategory = "communication"\n', "utf-8")
    named = analyzed(tmp_path, steps(body))
    assert classes(named)["exposed_communication"] == 1 * MS
    assert "possible-communication" not in slugs(named)


def test_without_communication_it_is_zero_and_what_was_called_is_said(tmp_path):
    def body(k, t, n):
        launch(k, t, "sgemm", t + 1 * MS, 4 * MS)
        k.op("nccl:all_reduce", t + 5 * MS, 100 * US)

    path = steps(body).write(tmp_path / "rank0.json")
    answer = strictly(run("report", path, "--json")[1])
    assert answer["summary"]["class_ns"]["exposed_communication"] == 0
    assert answer["summary"]["shares"]["exposed_communication"] == 0.0
    assert "communication-not-recorded" in [w["slug"] for w in answer["profile"]["warnings"]]
    assert "nccl:all_reduce" in run("report", path)[1]


def test_one_gpu_has_no_communication_anywhere(tmp_path):
    path = steps(lambda k, t, n: launch(k, t, "sgemm", t + 1 * MS, 4 * MS)).write(tmp_path / "trace.json")
    for verb in ("report", "ranks", "kernels", "steps", "info"):
        code, text, err = run(verb, path)
        assert (code, err) == (0, "")
        assert "nan" not in text.lower().replace("nanosecond", "")
        strictly(run(verb, path, "--json")[1])
    assert "communication-not-recorded" not in run("report", path)[1]


def test_synchronisations_on_gpu_tracks_are_no_work(tmp_path):
    def body(k, t, n):
        launch(k, t, "sgemm", t + 1 * MS, 2 * MS)
        k.gpu("cuda_sync", "Stream Sync", t + 3 * MS, 5 * MS, stream=7)
        k.gpu("cuda_sync", "Event Sync", t + 3 * MS, 6 * MS, stream=-1)
        k.complete("cpu_op", "aten::linear", t + 3 * MS, 1 * MS, pid=HOST_PID, tid=MAIN, stream=7)

    report = analyzed(tmp_path, steps(body))
    assert classes(report)["compute"] == 2 * MS
    assert [k.name for k in report.ranks[0].kernels.rows] == ["sgemm"]


# --- times ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["base", "epoch"])
def test_kernels_of_a_microsecond_and_less_keep_every_nanosecond(tmp_path, era):
    def body(k, t, n):
        for i in range(500):
            launch(k, t + i * 4 * US, "tiny", t + 100 * US + i * 4 * US + 1, 1_901)
            k.kernel("tinier", t + 100 * US + i * 4 * US + 2_001, 333)

    report = analyzed(tmp_path, steps(body, kineto=Kineto(era=era)))
    rows = {k.name: (k.count, k.total_ns, k.exposed_ns) for k in report.ranks[0].kernels.rows}
    assert rows["tiny"] == (1500, 1500 * 1_901, 1500 * 1_901)
    assert rows["tinier"] == (1500, 1500 * 333, 1500 * 333)
    assert classes(report)["compute"] == 500 * (1_901 + 333)


@pytest.mark.parametrize("length", [1 * 3600 * 10**9 + 1, 2 * YEAR, 236 * YEAR], ids=["an hour", "two years", "236 years"])
def test_an_end_that_was_never_written_changes_no_step(tmp_path, length):
    def body(k, t, n):
        launch(k, t, "sgemm", t + 1 * MS, 4 * MS)

    sound = analyzed(tmp_path, steps(body))
    k = steps(body)
    k.kernel("sgemm", 17 * MS, length)
    k.memcpy("Memcpy DtoH (Device -> Pinned)", 27 * MS, length)
    report = analyzed(tmp_path, k)
    assert classes(report) == classes(sound)
    assert [w.duration_ns for w in report.ranks[0].steps.windows] == [w.duration_ns for w in sound.ranks[0].steps.windows]
    warned = {"impossible-duration": "2 of 6 activities (33.3 %) are left out", "bad-times": "2 events of rank0.json dropped"}
    [slug] = set(slugs(report)) & set(warned)
    assert warned[slug] in says(slug, report)


def test_what_goes_on_after_the_capture_was_not_recorded_to_its_end(tmp_path):
    """A copy of two minutes in a capture of 40 ms: the profiler waits for what runs and stops, so it cannot have seen that."""
    sound = steps(sgemm)
    sound.span(0, 50 * MS)
    k = steps(sgemm)
    k.span(0, 50 * MS)
    k.memcpy("Memcpy DtoH (Device -> Pinned)", 17 * MS, 120 * 10**9, stream=30)
    report = analyzed(tmp_path, k)
    assert classes(report) == classes(analyzed(tmp_path, sound))
    assert "1 of 5 activities (20.0 %) are left out" in says("impossible-duration", report)


@pytest.mark.parametrize("row", ["call", "range", "launch"])
def test_a_host_row_whose_end_was_never_written_is_not_what_the_host_did_ever_since(tmp_path, row):
    def body(k, t, n):
        launch(k, t, "bf16_gemm", t + 1 * MS, 4 * MS)
        k.op("aten::linear", t + 100 * US, 9 * MS)

    sound = analyzed(tmp_path, steps(body))
    k = steps(body)
    if row == "call":
        k.call("cudaStreamSynchronize", 16 * MS, 2 * YEAR, correlation=777)
    elif row == "range":
        k.annotation("get_batch", 16 * MS, 2 * YEAR)
    else:
        k.call("cudaLaunchKernel", 16 * MS, 2 * YEAR, correlation=777)
        k.kernel("bf16_gemm", 15 * MS - 1, 1, correlation=777)
    report = analyzed(tmp_path, k)
    assert classes(report) == classes(sound)
    assert says("impossible-duration", report).startswith("1 call or range of the host last")


def test_an_end_that_was_never_written_in_an_export(tmp_path):
    export = NsysExport()
    for n in range(4):
        export.nvtx(n * 10 * MS, (n + 1) * 10 * MS, f"step {n}")
        export.launch(n * 10 * MS, n * 10 * MS + 1 * MS, n * 10 * MS + 5 * MS, correlation=n + 1)
    export.kernel(17 * MS, 7_200 * 10**9)
    report = exported(tmp_path, export)
    assert classes(report)["compute"] == 4 * MS
    assert "1 of 5 activities (20.0 %) are left out" in says("impossible-duration", report)


def test_durations_that_run_into_the_next_kernel_are_counted(tmp_path):
    """Seven of many rows that hold most of the time: nobody may read them as work without being told."""

    def body(k, t, n):
        for i in range(40):
            launch(k, t + i * 200 * US, "sgemm", t + 100 * US + i * 200 * US, 100 * US)

    k = steps(body)
    for i in range(7):
        k.kernel("late_flush", (12 + i) * MS, 5 * MS)
    path = k.write(tmp_path / "rank0.json")
    assert says("stream-overlap", traceread.analyze(path)).startswith("7 of 167 activities")
    assert "Good enough to decide on with care: " in run("info", path)[1]


def test_programmatic_launches_may_overlap(tmp_path):
    def body(k, t, n):
        for i in range(20):  # each begins 4 µs before the one before it ends
            launch(k, t + i * 10 * US, "sm100_gemm", t + 1 * MS + i * 96 * US, 100 * US)

    report = analyzed(tmp_path, steps(body))
    assert classes(report)["compute"] == 19 * 96 * US + 100 * US
    assert "stream-overlap" not in slugs(report)


def test_lost_times_are_dropped_and_said(tmp_path):
    def body(k, t, n):
        launch(k, t, "sgemm", t + 1 * MS, 4 * MS)
        k.event(ph="X", cat="kernel", name="lost", pid=0, tid=7, ts=0, dur=0, args={"device": 0, "stream": 7, "correlation": 0})

    report = analyzed(tmp_path, steps(body))
    assert classes(report)["compute"] == 4 * MS
    assert [k.name for k in report.ranks[0].kernels.rows] == ["sgemm"]
    assert "4 GPU records" in says("lost-records", report)


@pytest.mark.parametrize("era", ["epoch", "us"])
@pytest.mark.parametrize("start", ["0", "1.5", "9999999999999"])
def test_a_row_decades_away_is_no_part_of_the_capture(tmp_path, era, start):
    """Its time was lost; as a whole, the capture would otherwise last since 1970."""
    k = steps(sgemm, kineto=Kineto(era=era))
    k.event(
        ph="X", cat="kernel", name="lost", pid=0, tid=7, ts=exact(start), dur=exact("5"), args={"device": 0, "stream": 7, "correlation": 0}
    )
    report = analyzed(tmp_path, k, step_range="none")
    assert sum(classes(report).values()) == 34 * MS
    assert says("bad-times", report).startswith("1 event of rank0.json dropped")


def test_a_kernel_that_begins_before_its_launch(tmp_path):
    """Clocks of host and GPU that disagree: said with the amount, and nothing becomes negative."""

    def body(k, t, n):
        launch(k, t + 1 * MS, "sgemm", t + 1 * MS - 30 * US, 4 * MS)

    path = steps(body).write(tmp_path / "rank0.json")
    report = traceread.analyze(path)
    assert "4 of 4 activities start before the call that launched them, by up to 30.0 µs" in says("kernel-before-launch", report)
    assert classes(report)["compute"] == 4 * MS
    assert min(numbers_of(report.to_dict()["partition"])) >= 0
    assert min(numbers_of(report.to_dict()["kernels"])) >= 0


@pytest.mark.parametrize("era", ["base", "us"])
def test_children_that_leave_their_parent_by_a_rounding(tmp_path, era):
    beyond = 1_000 if era == "us" else 700

    def body(k, t, n):
        k.op("aten::item", t + 1 * MS, 500 * US)
        k.op("aten::first", t + 1 * MS + 10 * US, 100 * US)
        k.op("aten::_local_scalar_dense", t + 1 * MS + 110 * US - beyond, 390 * US + 2 * beyond)  # begins before its sibling ends
        launch(k, t + 1 * MS + 300 * US, "sgemm", t + 2 * MS, 6 * MS)

    report = analyzed(tmp_path, steps(body, kineto=Kineto(era=era)))
    assert classes(report)["compute"] == 6 * MS
    [row] = report.to_dict()["kernels"]
    assert row["op"] == "aten::item"


# --- launches, graphs, streams -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [20, -1], ids=["recorded", "not recorded"])
def test_an_event_is_waited_for_on_the_stream_that_recorded_it(tmp_path, stream):
    """Something small is launched on a third stream just before the event is recorded; the wait is not for that."""

    def body(k, t, n):
        launch(k, t, "first_gemm", t + 100 * US, 1 * MS, stream=7)
        launch(k, t + 20 * US, NCCL, t + 100 * US, 5 * MS, stream=20)
        launch(k, t + 40 * US, "side", t + 100 * US, 200 * US, stream=30)
        k.call("cudaEventRecord", t + 60 * US, 2 * US, correlation=1000 * n + 901)
        k.call("cudaStreamWaitEvent", t + 70 * US, 2 * US, correlation=1000 * n + 902)
        wait = {"wait_on_stream": stream, "wait_on_cuda_event_record_corr_id": 1000 * n + 901, "correlation": 1000 * n + 902}
        k.gpu("cuda_sync", "Stream Wait Event", t + 71 * US, 1 * US, stream=7, **wait)
        launch(k, t + 80 * US, "second_gemm", t + 5_102 * US, 4 * MS, stream=7)

    graph = analyzed(tmp_path, steps(body)).ranks[0].inspection.graph
    recorded = graph.edges.recorded == 1
    work = graph.work.activity
    names = [NCCL, "second_gemm"] if stream == 20 else ["side", "second_gemm"]
    trace = traceread.load(tmp_path / "rank0.json").traces[0]
    pairs = zip(work[graph.edges.source[recorded]].tolist(), work[graph.edges.target[recorded]].tolist(), strict=True)
    assert [[trace.names[trace.activities.name[row]] for row in pair] for pair in pairs] == [names] * 4


def graphs(k, t, nodes, *, call="cudaGraphLaunch", recorded=10):
    """Ten graph launches of a step, of which the kernels of the first few were recorded."""
    for g in range(10):
        correlation = len(k.events) + 1
        k.call(call, t + g * MS, 50 * US, correlation=correlation)
        for n in range(nodes if g < recorded else 0):
            k.kernel(f"node_{n % 4}", t + g * MS + 100 * US + n * 800 * US // nodes, 800 * US // nodes, correlation=correlation)


@pytest.mark.parametrize("call", ["cudaGraphLaunch", "hipGraphLaunch"])
def test_kernels_of_graphs_bear_their_own_names(tmp_path, call):
    def body(k, t, n):
        k.op("CompiledFxGraph", t, 10 * MS)
        graphs(k, t, 40, call=call)

    report = analyzed(tmp_path, steps(body))
    rows = report.to_dict()["kernels"]
    assert [(row["name"], row["count"], row["op"]) for row in rows] == [(f"node_{n}", 300, "CompiledFxGraph") for n in range(4)]
    assert sum(row["total_ns"] for row in rows) == 3 * 10 * 800 * US
    assert call not in run("kernels", tmp_path / "rank0.json")[1]


def test_a_graph_launch_that_the_gpu_waits_for_is_charged_once(tmp_path):
    """200 µs between graphs: 50 of them in the call that launches the next, whose 40 kernels share it."""
    report = analyzed(tmp_path, steps(lambda k, t, n: graphs(k, t, 40)))
    assert classes(report) == {"compute": 8 * MS, "launch_bound": 2 * MS}
    assert [f.rule for f in report.findings] == ["launch-bound"]
    names = [reason for row in report.to_dict()["idle_reasons"] for reason in [(row["class"], row["name"])] if row["total_ns"]]
    assert ("launch_bound", "cudaGraphLaunch") in names


def test_kernels_of_graphs_are_on_the_critical_path(tmp_path):
    def body(k, t, n):
        k.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t + 200 * US, 4 * MS)
        correlation = 1000 + n
        k.call("cudaGraphLaunch", t + 4_300 * US, 50 * US, correlation=correlation)
        for i in range(8):
            k.kernel(f"node_{i}", t + 4_400 * US + i * 500 * US, 500 * US, correlation=correlation)
        k.call("cudaDeviceSynchronize", t + 4_400 * US, 4_010 * US, correlation=2000 + n)

    report = analyzed(tmp_path, steps(body))
    answer = report.what_if("data_wait=0")
    assert answer.trusted
    assert answer.saving_ns == pytest.approx(4 * MS, rel=0.01)  # the fetch goes, the 4 ms of graph nodes stay
    graph = report.ranks[0].inspection.graph
    assert len(graph.work.activity) >= 3 * 8


@pytest.mark.parametrize("recorded", [1, 8])
def test_graphs_of_which_kernels_are_missing_give_no_verdict(tmp_path, recorded):
    path = steps(lambda k, t, n: graphs(k, t, 40, recorded=recorded)).write(tmp_path / "rank0.json")
    report = traceread.analyze(path)
    assert f"{10 - recorded} of 10" in says("launches-without-kernels", report)
    assert {step_class.key for f in report.findings for step_class, _ in f.loss_ns} == {"unattributed"}
    assert set(classes(report)) == {"compute", "unattributed"}
    assert "the idle time is an upper bound" in " ".join(run("info", path)[1].split())


def test_steps_without_any_kernel_are_not_the_typical_ones(tmp_path):
    """The buffer is full after two of five steps: what the others look like is not known, and not called idle."""
    report = analyzed(tmp_path, steps(lambda k, t, n: graphs(k, t, 40, recorded=10 if n < 2 else 0), count=5))
    assert [row["step"] for row in report.to_dict()["partition"] if row["used"]] == ["ProfilerStep#1"]
    assert "10 of 10" in says("launches-without-kernels", report)
    assert classes(report) == {"compute": 8 * MS, "launch_bound": 2 * MS}


@pytest.mark.parametrize("format", ["kineto", "nsys"])
def test_graphs_that_were_not_recorded_to_their_end_give_no_verdict(tmp_path, format):
    """Of 40 nodes the first dozen, in every other step; the host waits for the graph, which looks like a synchronisation of an idle GPU."""
    if format == "kineto":

        def body(k, t, n):
            k.call("cudaGraphLaunch", t, 50 * US, correlation=1000 + n)
            for i in range(40 if n % 2 else 12 + n):
                k.kernel(f"node_{i}", t + 100 * US + i * 200 * US, 200 * US, correlation=1000 + n)
            k.call("cudaStreamSynchronize", t + 60 * US, 8_060 * US, correlation=5000 + n)

        report = analyzed(tmp_path, steps(body, count=6))
    else:
        export = NsysExport()
        for n in range(6):
            t = n * 10 * MS
            export.nvtx(t, t + 10 * MS, f"step {n}").call(t, t + 50 * US, "cudaGraphLaunch", correlation=1000 + n)
            for i in range(40 if n % 2 else 12 + n):
                start = t + 100 * US + i * 200 * US
                export.kernel(start, start + 200 * US, f"node_{i}", correlation=1000 + n, node=(1 << 32) + i)
            export.call(t + 60 * US, t + 8_120 * US, "cudaStreamSynchronize", correlation=5000 + n)
        report = exported(tmp_path, export)
    rows = report.to_dict()["partition"]
    assert [row["partial"] for row in rows] == [True, False] * 3
    assert all(row["classes"]["host_sync"] == 0 for row in rows)
    assert "1 of 1" in says("launches-without-kernels", report)
    assert classes(report)["compute"] == 8 * MS


def test_gpu_work_that_no_op_or_call_launched_is_counted(tmp_path):
    """From a C++ extension, from before the capture, or with a launch that was not recorded: all of it was GPU time."""

    def body(k, t, n):
        k.kernel("from_an_extension", t + 1 * MS, 2 * MS, correlation=9000 + n)
        launch(k, t + 100 * US, "without_an_op", t + 3 * MS, 3 * MS)
        k.op("aten::mm", t + 200 * US, 50 * US)
        launch(k, t + 210 * US, "linked", t + 6 * MS, 3 * MS)

    k = steps(body)
    k.kernel("of_the_step_before", 100 * US, 800 * US, correlation=77_777)
    report = analyzed(tmp_path, k)
    assert classes(report)["compute"] == 8 * MS
    assert {(k.name, k.total_ns // k.count) for k in report.ranks[0].kernels.rows} == {
        ("from_an_extension", 2 * MS), ("without_an_op", 3 * MS), ("linked", 3 * MS),
    }  # fmt: skip
    whole = analyzed(tmp_path, k, step_range="none")
    assert classes(whole)["compute"] == 4 * 8 * MS + 800 * US
    assert "launches-not-recorded" in slugs(report)


def test_streams_that_take_turns_are_no_idle_gpu(tmp_path):
    def body(k, t, n):
        for i in range(20):
            launch(k, t + i * 20 * US, "left" if i % 2 else "right", t + i * 500 * US, 500 * US, stream=7 + i % 2)

    report = analyzed(tmp_path, steps(body))
    assert classes(report) == {"compute": 10 * MS}
    assert report.findings == ()
    assert [w.duration_ns for w in report.ranks[0].steps.windows] == [10 * MS] * 4


def test_idle_time_of_several_streams_is_counted_once(tmp_path):
    def body(k, t, n):
        for stream in (7, 20, 21, 22):
            launch(k, t + 2 * MS + stream, f"kernel_{stream}", t + 4 * MS, 5 * MS, stream=stream)

    report = analyzed(tmp_path, steps(body))
    times = classes(report)
    assert times.pop("compute") == 5 * MS
    assert sum(times.values()) == 5 * MS  # not once per stream
    for finding in report.findings:
        assert sum(ns for _, ns in finding.loss_ns) <= 5 * MS


def test_copies_are_no_idle_time(tmp_path):
    """300 µs of H2D between two kernels."""
    export = NsysExport()
    for n in range(4):
        t = n * MS
        export.nvtx(t, t + MS, f"iteration {n}")
        export.launch(t, t + 10 * US, t + 310 * US, correlation=10 * n + 1)
        export.call(t + 20 * US, t + 30 * US, "cudaMemcpyAsync", correlation=10 * n + 2)
        export.copy(t + 310 * US, t + 610 * US, kind=1, correlation=10 * n + 2)
        export.launch(t + 40 * US, t + 610 * US, t + 1010 * US, correlation=10 * n + 3)
    report = exported(tmp_path, export)
    assert classes(report)["exposed_copy"] == 300 * US
    assert sum(ns for name, ns in classes(report).items() if name not in ("compute", "exposed_copy")) == 0


# --- steps ---------------------------------------------------------------------------------------------------------------------------


def test_every_whole_step_counts_and_none_is_dropped_silently(tmp_path):
    """By the numbers that the capture gives them: a schedule that skipped and waited, and nothing assumed about it."""
    k = Kineto()
    k.labels()
    for i, n in enumerate((40, 41, 42, 43, 44)):
        k.annotation(f"ProfilerStep#{n}", i * 10 * MS, 10 * MS)
        launch(k, i * 10 * MS, "sgemm", i * 10 * MS + 1 * MS, 4 * MS)
    path = k.write(tmp_path / "rank0.json")
    steps_said = strictly(run("report", path, "--json")[1])["steps"]
    assert steps_said["used"] == [f"ProfilerStep#{n}" for n in (41, 42, 43, 44)]
    assert [(e["step"], e["reason"]) for e in steps_said["excluded"]] == [("ProfilerStep#40", "first step")]
    chosen = strictly(run("report", path, "--steps", "43:44", "--json")[1])["steps"]
    assert chosen["used"] == ["ProfilerStep#43"]


def test_the_gpus_step_is_not_the_hosts(tmp_path):
    """The host queues a step in 3 ms that takes the GPU 20 ms: the report is about the 20, and the page says why."""

    def body(k, t, n):
        for i in range(10):
            launch(k, n * 3 * MS + i * 100 * US, "sgemm", n * 20 * MS + 1 * MS + i * 2 * MS, 2 * MS)

    k = Kineto()
    k.labels()
    for n in range(5):
        k.annotation(f"ProfilerStep#{n}", n * 3 * MS, 3 * MS)
        body(k, 0, n)
    report = analyzed(tmp_path, k)
    assert report.summary.step_ns == (20 * MS,) * 4
    assert [row["step"] for row in report.to_dict()["partition"]] == [f"ProfilerStep#{n}" for n in range(5)]
    assert "A step takes 20.0 ms" in run("report", tmp_path / "rank0.json")[1]
    model = (ROOT / "docs" / "time-model.md").read_text("utf-8")
    assert "host ranges" in model.lower()


def test_ranges_of_libraries_are_no_steps(tmp_path):
    """NVTX of CUB in an export without any of the user's: hundreds of ranges, no step."""
    export = NsysExport()
    for i in range(325):
        export.nvtx(i * 100 * US, i * 100 * US + 60 * US, "cub::DeviceReduce::Sum" if i % 2 else "cub::DeviceScan::ExclusiveSum", domain=3)
        export.launch(i * 100 * US + 10 * US, i * 100 * US + 30 * US, i * 100 * US + 90 * US, correlation=i + 1)
    path = export.write(tmp_path / "rank0.sqlite")
    answer = strictly(run("report", path, "--json")[1])
    assert answer["steps"]["source"] == "whole capture"
    assert [row["step"] for row in answer["partition"]] == ["whole capture"]
    assert "whole capture (it names no steps)" in " ".join(run("report", path)[1].split())


LOADERS = {
    "loader without workers": lambda k, t: k.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t + 2 * MS, 5 * MS),
    "loader with workers": lambda k, t: k.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", t + 2 * MS, 5 * MS),
    "as an operator of old torch": lambda k, t: k.op("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", t + 2 * MS, 5 * MS),
    "stacks alone": lambda k, t: k.python("torch/utils/data/dataloader.py(631): __next__", t + 2 * MS, 5 * MS),
    "the user's own range": lambda k, t: k.annotation("get_batch", t + 2 * MS, 5 * MS),
}


@pytest.mark.parametrize("loader", LOADERS)
def test_waiting_for_data_is_seen_however_the_loader_is_recorded(tmp_path, loader):
    def body(k, t, n):
        launch(k, t, "sgemm", t + 10 * US, 2 * MS - 10 * US)
        LOADERS[loader](k, t)
        launch(k, t + 7 * MS, "sgemm", t + 7 * MS + 10 * US, 3 * MS - 10 * US)

    report = analyzed(tmp_path, steps(body))
    assert classes(report)["data_wait"] == 5 * MS
    assert "data-loading" in [f.rule for f in report.findings]


def test_waiting_for_data_is_seen_in_an_export(tmp_path):
    export = NsysExport()
    for n in range(4):
        t = n * 10 * MS
        export.nvtx(t, t + 10 * MS, f"step {n}").nvtx(t + 2 * MS, t + 7 * MS, "DataLoader.__next__")
        export.call(t + 6 * MS, t + 7 * MS, "cudaMemcpyAsync", correlation=900 + n)  # one API call in the gap is not its cause
        export.launch(t, t + 10 * US, t + 2 * MS, correlation=10 * n + 1)
        export.launch(t + 7 * MS, t + 7 * MS + 10 * US, t + 10 * MS, correlation=10 * n + 2)
    assert classes(exported(tmp_path, export))["data_wait"] == 5 * MS


# --- ranks ---------------------------------------------------------------------------------------------------------------------------


def ranks_with_a_late_one(tmp_path, *, groups=True, count=2, name=NCCL):
    """Four all-reduces of two ranks; the last rank comes 1 ms late to each. Without `groups` no process group is recorded."""
    for rank in range(count):
        late = 1 * MS if rank == count - 1 else 0

        def body(k, t, n, late=late):
            launch(k, t, "sgemm", t + 1 * MS, 2 * MS + late)
            arguments = {
                "Collective name": "allreduce",
                "dtype": "Float",
                "In msg nelems": 1024,
                "Out msg nelems": 1024,
                "Group size": count,
            }
            if groups:
                arguments |= {"Process Group Name": "0", "Process Group Ranks": str(list(range(count)))}
            launch(k, t + 10 * US, name, t + 3 * MS + late, 2 * MS - late, stream=20, **(arguments if groups else {}))
            launch(k, t + 20 * US, "optimizer", t + 5 * MS, 4 * MS)

        k = Kineto()
        if groups:
            k.top["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": count}
        steps(body, kineto=k).write(tmp_path / f"rank{rank}.json")
    return tmp_path


@pytest.mark.parametrize("groups", [True, False], ids=["groups recorded", "nothing recorded"])
def test_waiting_is_told_from_moving_data(tmp_path, groups):
    """A long NCCL kernel is not a slow network: of 2 ms, 1 is waiting for the late rank."""
    folder = ranks_with_a_late_one(tmp_path, groups=groups)
    report = traceread.analyze(folder)
    assert report.summary.critical_rank == 1
    first, last = report.rank_table.lines
    assert (first.wait_ns, last.wait_ns) == (3 * MS, 0)
    used = [row for row in report.to_dict()["partition"] if row["rank"] == 0 and row["used"]]
    assert [(row["exposed_wait"], row["exposed_transfer"]) for row in used] == [(1 * MS, 1 * MS)] * 3
    assert "rank 1" in run("ranks", folder)[1]


def test_all_gpus_of_a_file_are_read_unless_told_otherwise(tmp_path):
    export = NsysExport()
    for device in range(4):
        export.gpu(device)
        for n in range(4):
            t = n * 10 * MS
            export.nvtx(t, t + 10 * MS, f"step {n}", pid=100 + device)
            export.launch(t, t + 1 * MS, t + (5 + device) * MS, correlation=n + 1, pid=100 + device, device=device)
    path = export.write(tmp_path / "node.sqlite")
    report = traceread.analyze(path)
    assert [r.rank for r in report.ranks] == [0, 1, 2, 3]
    assert [classes(report, rank)["compute"] for rank in range(4)] == [4 * MS, 5 * MS, 6 * MS, 7 * MS]
    assert [r["rank"] for r in strictly(run("report", path, "--ranks", "2", "--json")[1])["profile"]["ranks"]] == [2]


def test_merged_traces_of_several_ranks_are_refused(tmp_path):
    merged = Kineto()
    for rank in range(2):
        for n in range(2):
            merged.annotation(f"ProfilerStep#{n}", n * MS, MS, pid=f"[rank{rank}] 4000")
            merged.call("cudaLaunchKernel", n * MS, 5 * US, correlation=n + 1, pid=f"[rank{rank}] 4000")
            merged.complete(
                "kernel", "sgemm", n * MS + 10 * US, 500 * US, pid=f"[rank{rank}] 0", tid=7, stream=7, device=0, correlation=n + 1
            )
    code, out, err = run("report", merged.write(tmp_path / "merged.json"))
    assert (code, out) == (1, "")
    assert "holds the merged events of 2 processes" in err
    assert "give the files as the profiler wrote them" in err


def test_a_trace_without_a_rank(tmp_path):
    def body(k, t, n):
        launch(k, t, "sgemm", t + 1 * MS, 4 * MS)

    alone = steps(body).write(tmp_path / "trace.json")
    report = traceread.analyze(alone)
    assert [(r.rank, r.rank_source) for r in report.ranks] == [(0, "order")]
    (tmp_path / "run").mkdir()
    for rank in (3, 11):
        steps(body).write(tmp_path / "run" / f"worker_rank{rank}.pt.trace.json")
    assert [(r.rank, r.rank_source) for r in traceread.analyze(tmp_path / "run").ranks] == [(3, "file name"), (11, "file name")]
    assert "file name" in run("info", tmp_path / "run")[1]


class Rows(pickle.Pickler):
    """Pickles, and counts the rows of traces among what it is given."""

    rows = 0

    def persistent_id(self, value):
        self.rows += sum(map(len, (value.activities, value.calls, value.ranges))) if isinstance(value, traceread.Trace) else 0


def four_ranks(folder):
    def body(k, t, n):
        for i in range(100):
            k.op("aten::add", t + i * 20 * US, 15 * US)
            launch(k, t + i * 20 * US, f"kernel_{i % 40}", t + 100 * US + i * 20 * US, 15 * US)

    for rank in range(4):
        steps(body).write(folder / f"rank{rank}.json")
    return folder


def test_ranks_are_read_one_after_the_other_and_let_go(tmp_path, monkeypatch):
    read, at_once = [], []

    def seen(trace, *arguments):
        read.append(weakref.ref(trace))
        at_once.append(sum(1 for rank in read if rank() is not None))
        return analyze_trace(trace, *arguments)

    monkeypatch.setattr("traceread.report.analyze_trace", seen)
    report = traceread.analyze(four_ranks(tmp_path))
    assert [r.rank for r in report.ranks] == [0, 1, 2, 3]
    assert at_once == [1, 1, 1, 1]


def test_other_processes_send_answers_and_no_rows(tmp_path):
    report = traceread.analyze(four_ranks(tmp_path), workers=Workers(2))
    assert [r.rank for r in report.ranks] == [0, 1, 2, 3]
    for sent in (report, *report.ranks):
        pickler = Rows(BytesIO())
        pickler.dump(sent)
        assert pickler.rows == 0
    pickler = Rows(BytesIO())
    pickler.dump(traceread.load(tmp_path))
    assert pickler.rows == 4 * 4 * 301


# --- files ---------------------------------------------------------------------------------------------------------------------------


def sgemm(k, t, n):
    launch(k, t, "sgemm", t + 1 * MS, 4 * MS)


DAMAGE = {
    "integers beyond 64 bits": lambda text: text.replace(b'"device": 0', b'"Ev Idx": 99999999999999999999999999, "device": 0'),
    "bytes that are not UTF-8": lambda text: text.replace(b"sgemm", b"sgemm\xff\xfe", 1),
    "quotes that are not escaped": lambda text: text.replace(b'"name": "sgemm"', b'"name": "sgemm "fast""', 1),
    "control characters": lambda text: text.replace(b"sgemm", b"sgemm\x01\t\n", 1),
    "backslashes": lambda text: text.replace(b"sgemm", b"C:\\sgemm\\x", 1),
    "NaN": lambda text: text.replace(b'"device": 0', b'"memory bandwidth (GB/s)": NaN, "device": 0'),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_text_costs_nothing_but_a_name(tmp_path, damage):
    sound = steps(sgemm).text()
    broken = DAMAGE[damage](sound)
    assert broken != sound
    (tmp_path / "sound.json").write_bytes(sound)
    (tmp_path / "broken.json").write_bytes(broken)
    code, out, err = run("report", tmp_path / "broken.json", "--json")
    assert (code, err) == (0, "")
    expected, found = strictly(run("report", tmp_path / "sound.json", "--json")[1]), strictly(out)
    assert found["partition"] == expected["partition"]
    assert sum(k["total_ns"] for k in found["kernels"]) == sum(k["total_ns"] for k in expected["kernels"])
    assert run("report", tmp_path / "broken.json")[0] == 0


def test_what_stands_after_the_events_counts(tmp_path):
    k = Kineto()
    k.top = {"distributedInfo": {"rank": 5, "world_size": 8}, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
    path = tmp_path / "trace.json"
    path.write_bytes(steps(sgemm, kineto=k).text(metadata="last"))
    [rank] = traceread.analyze(path).ranks
    assert (rank.rank, rank.rank_source, rank.world_size, rank.device.name) == (5, "distributedInfo", 8, "NVIDIA H100 80GB HBM3")


def test_other_files_in_the_directory(tmp_path):
    steps(sgemm).write(tmp_path / "rank0.json.gz", "gzip")
    (tmp_path / "checkpoint.gz").write_bytes(gzip.compress(b"\x80\x02 no trace"))
    (tmp_path / "metrics.json").write_text('{"loss": [1, 2]}')
    (tmp_path / "notes.txt").write_text("warm-up was off")
    code, out, err = run("report", tmp_path, "-v")
    assert code == 0
    assert [r.rank for r in traceread.analyze(tmp_path).ranks] == [0]
    for name in ("checkpoint.gz", "metrics.json", "notes.txt"):
        assert name in out + err


def test_without_gpu_work_nothing_is_empty_without_a_word(tmp_path):
    k = Kineto()
    k.labels()
    for n in range(4):
        k.annotation(f"ProfilerStep#{n}", n * MS, MS)
        k.op("aten::mm", n * MS, 900 * US)
    path = k.write(tmp_path / "trace.json")
    code, out, _ = run("report", path)
    assert code == 0
    text = " ".join(out.split())
    assert "no GPU work was recorded" in text
    assert "ProfilerActivity.CUDA" in " ".join(run("info", path)[1].split())
    answer = strictly(run("report", path, "--json")[1])
    assert answer["summary"] is None
    assert answer["partition"] == []


def test_traces_of_other_tools(tmp_path):
    """The few fields that docs/capture.md asks for are enough; without them the answer says what is read."""
    [minimal] = re.findall(r"^```json\n(.*?)^```$", (ROOT / "docs" / "capture.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    (tmp_path / "minimal.json").write_text(minimal)
    report = traceread.analyze(tmp_path / "minimal.json")
    assert report.summary.steps == ("step 1",)
    assert classes(report) == {"compute": 80 * US, "launch_bound": 20 * US}
    other = {"traceEvents": [{"ph": "X", "name": "openvino::infer", "cat": "task", "pid": 1, "tid": 1, "ts": 1, "dur": 9}]}
    (tmp_path / "other.json").write_text(json.dumps(other))
    code, out, err = run("report", tmp_path / "other.json")
    assert (code, out) == (1, "")
    assert "none of its 1 is GPU work, a CUDA call or a host range" in err


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("nvtx", ["NVTX_EVENTS", "NVTX_EVENTS_V2", "none"])
def test_tables_come_and_go_with_versions(tmp_path, schema, nvtx):
    export = NsysExport()
    for n in range(4):
        if nvtx != "none":
            export.nvtx(n * 10 * MS, (n + 1) * 10 * MS, f"step {n}")
        export.launch(n * 10 * MS, n * 10 * MS + 1 * MS, n * 10 * MS + 5 * MS, correlation=n + 1)
    path = export.write(tmp_path / "rank0.sqlite", schema)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DROP TABLE NVTX_EVENTS" if nvtx == "none" and schema == "2.9.1" else f"-- {nvtx}")
        if nvtx.endswith("V2"):
            db.execute("ALTER TABLE NVTX_EVENTS RENAME TO NVTX_EVENTS_V2")
            db.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO CUPTI_ACTIVITY_KIND_KERNEL_V3")
    report = traceread.analyze(path)
    assert report.summary.steps == (("whole capture",) if nvtx == "none" else ("step 1", "step 2", "step 3"))
    assert classes(report)["compute"] == (16 * MS if nvtx == "none" else 4 * MS)


# --- work that must not explode --------------------------------------------------------------------------------------------------


def python_calls(work):
    """How many Python functions were entered: the same for every machine, unlike a time."""
    count = 0

    def seen(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def peak_bytes(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def deep(rows):
    """Ranges nested eight deep around launches of graphs of 40 kernels each."""
    b = Build()
    b.code("kernel")
    for i in range(rows // 40):
        t = i * MS
        for depth in range(8):
            b.range(t + depth, t + MS - depth, f"level {depth}", RangeKind.ANNOTATION)
        b.call(t + 20, t + 50 * US, "cudaGraphLaunch", correlation=i + 1)
        for n in range(40):
            b.activity(t + 100 * US + n * 20 * US, t + 118 * US + n * 20 * US, correlation=i + 1, node=n + 1)
    return b.trace()


def test_ranges_and_graphs_are_joined_without_looking_at_every_pair():
    """Four times the rows: hardly more steps of the interpreter, and memory by the row."""
    small, large = deep(2_000), deep(8_000)
    options = AnalysisOptions()
    analyze_trace(small, options)  # what is done once is done
    calls = [python_calls(lambda t=t: analyze_trace(t, options)) for t in (small, large)]
    assert calls[1] < 2 * calls[0]
    assert peak_bytes(lambda: analyze_trace(large, options)) < 5 * peak_bytes(lambda: analyze_trace(small, options))


def test_a_trace_full_of_stacks_is_read_in_less_memory_than_its_text(tmp_path):
    """Python frames, arrows and annotations drawn on GPU rows are most of such a file; what no measurement reads is not kept."""

    def body(k, t, n):
        for i in range(2_000):
            k.python(f"model.py({i % 50}): forward", t + i * 4 * US, 3 * US)
            k.flow("s", i, t + i * 4 * US)
            k.complete("gpu_user_annotation", "forward", t + i * 4 * US, 3 * US, pid=0, tid=7, stream=7)
            launch(k, t + i * 4 * US, "kernel", t + 1 * MS + i * 4 * US, 2 * US)

    path = steps(body).write(tmp_path / "rank0.json")
    options = ReadOptions(chunk_bytes=1 << 16, threads=1)
    traceread.load(path, options=options)  # what is imported once is imported
    assert peak_bytes(lambda: traceread.load(path, options=options)) < path.stat().st_size // 2
    [trace] = traceread.load(path).traces
    assert (len(trace.activities), len(trace.calls), len(trace.ranges)) == (8_000, 8_000, 8_004)


def test_nothing_is_negative_where_launches_are_missing(tmp_path):
    """Bandwidths, depths of queues, latencies, shares: neither from kernels without a launch nor from launches without a kernel."""

    def body(k, t, n):
        k.memcpy("Memcpy HtoD (Pinned -> Device)", t + 100 * US, 50 * US, bytes=1 << 20, correlation=0)
        k.kernel("early", t + 200 * US, 2 * MS, correlation=50_000 + n)
        launch(k, t + 3 * MS, "behind_its_kernel", t + 2_990 * US, 1 * MS)
        k.call("cudaLaunchKernel", t + 4 * MS, 5 * US, correlation=60_000 + n)
        k.kernel(NCCL, t + 5 * MS, 1 * MS, stream=20, correlation=0)

    path = steps(body).write(tmp_path / "rank0.json")
    for verb in ("report", "ranks", "kernels", "steps"):
        assert min(numbers_of(strictly(run(verb, path, "--json")[1]))) >= 0
    depth = traceread.analyze(path).ranks[0].timeline.depth
    assert min(depth.least.tolist()) >= 0


# --- findings --------------------------------------------------------------------------------------------------------------------


def ahead(body, count=4):
    """Steps that the host queues in 100 µs each, long before the GPU gets to them; `body(k, at, t)` has the host's time and the GPU's."""
    k = Kineto()
    k.labels()
    for n in range(count):
        k.annotation(f"ProfilerStep#{n}", n * 100 * US, 100 * US)
        body(k, n * 100 * US, 1 * MS + n * 10 * MS)
    return k


def overlapping(tmp_path, hidden):
    """Steps of 10 ms with 5 ms of communication, of which so many tenths stand beside computing."""

    def body(k, at, t):
        alone, beside = 5 * MS - hidden * 500 * US, hidden * 500 * US
        launch(k, at, "bf16_gemm_1", t, alone)
        launch(k, at + 10 * US, NCCL, t + alone, 5 * MS, stream=20)
        launch(k, at + 20 * US, "bf16_gemm_2", t + alone, beside)
        launch(k, at + 30 * US, "layer_norm", t + alone + 5 * MS, 5 * MS - alone)

    tmp_path.mkdir(exist_ok=True)
    return analyzed(tmp_path, ahead(body))


@pytest.mark.parametrize("hidden", range(11))
def test_what_findings_claim_is_there_once_at_any_overlap(tmp_path, hidden):
    report = overlapping(tmp_path, hidden)
    exposed = classes(report).get("exposed_communication", 0)
    assert exposed == (10 - hidden) * 500 * US
    claimed = [ns for f in report.findings for c, ns in f.loss_ns if c.key == "exposed_communication"]
    assert len(claimed) == (exposed > 0)  # neither claimed twice nor, between two thresholds, by nobody
    assert sum(claimed) == exposed
    assert sum(f.saving_ns for f in report.findings) <= report.summary.mean_ns


@pytest.mark.parametrize("hidden", [2, 9])
def test_headline_table_and_list_agree_on_what_holds_the_step_back(tmp_path, hidden):
    report = overlapping(tmp_path, hidden)
    answer = report.to_dict()
    losses = {name: ns for name, ns in answer["summary"]["class_ns"].items() if name != "compute" and ns}
    assert max(losses, key=losses.get) == "exposed_communication"
    said = "The largest loss is " + duration(losses["exposed_communication"])
    assert any(sentence.startswith(said) for sentence in answer["headline"])
    assert answer["findings"][0]["class"] == "exposed_communication"
    assert sum(k["exposed_ns"] for k in answer["kernels"] if k["category"] == "communication") == 3 * losses["exposed_communication"]


def test_four_hundred_gaps_of_one_cause_are_one_finding(tmp_path):
    def body(k, t, n):
        for i in range(100):
            launch(k, t + i * 100 * US, "small", t + i * 100 * US + 10 * US, 30 * US)
            k.op("aten::add", t + i * 100 * US + 6 * US, 93 * US)

    report = analyzed(tmp_path, steps(body))
    assert len(report.ranks[0].idle) >= 400
    assert len([f for f in report.findings if f.rule == "launch-bound"]) == 1
    assert len(report.findings) <= 2


def test_a_healthy_capture_has_nothing_to_say(tmp_path):
    """0.9 % idle."""

    def body(k, at, t):
        for i in range(10):
            launch(k, at + i * 5 * US, "bf16_gemm", t + i * MS, MS - (90 * US if i == 9 else 0))

    path = ahead(body).write(tmp_path / "rank0.json")
    report = traceread.analyze(path)
    assert report.summary.class_ns[0] == 10 * MS - 90 * US
    assert report.findings == ()
    assert report.all_notices == ()
    assert "warnings" not in run("report", path)[1]


# --- answers -----------------------------------------------------------------------------------------------------------------------


def test_the_same_capture_gives_the_same_bytes_in_any_process(tmp_path):
    path = overlapping(tmp_path / "run", 3).ranks[0].files[0]
    answers = set()
    for seed in ("0", "4321"):
        command = (
            "import sys; from traceread.cli import main; [main(['report', sys.argv[1], '-f', f]) for f in ('text', 'markdown', 'json')]"
        )
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        answers.add(subprocess.run([sys.executable, "-c", command, path], env=environment, capture_output=True, check=True).stdout)
    assert len(answers) == 1
    assert len(answers.pop()) > 5_000


def test_the_page_does_not_grow_with_the_trace(tmp_path):
    """A browser gets a report, not the trace: twenty times the events are no larger a page."""

    def body(events):
        def add(k, t, n):
            for i in range(events):
                k.op("aten::add", t + i * 2 * US, 2 * US)
                launch(k, t + i * 2 * US, f"kernel_{i % 400}", t + 1 * MS + i * 2 * US, 1_500)

        return add

    sizes = []
    for events in (200, 4_000):
        folder = tmp_path / str(events)
        folder.mkdir()
        path = steps(body(events), kineto=Kineto()).write(folder / "rank0.json")
        assert run("report", path, "-o", folder / "report.html")[0] == 0
        sizes.append((folder / "report.html").stat().st_size)
    trace = (tmp_path / "4000" / "rank0.json").stat().st_size
    library = sizes[0] - 400_000  # the figures' script
    assert library > 0
    assert sizes[1] - library < 1_500_000 < trace
    assert sizes[1] < 2 * sizes[0]


def test_tables_hold_plain_whole_numbers_whatever_pandas_is(tmp_path):
    report = overlapping(tmp_path, 3)
    frames = {
        "partition": report.partition.to_frame(),
        "kernels": report.ranks[0].kernels.to_frame(),
        "intervals": report.intervals(),
    }
    for frame in frames.values():
        times = [name for name in frame.columns if name.endswith("_ns") and name != "mean_ns"]
        assert times
        assert {str(frame[name].dtype) for name in times} == {"int64"}
    used = frames["partition"].query("step != 'ProfilerStep#0'")
    assert used.groupby("step")["duration_ns"].sum().tolist() == [w.duration_ns for w in report.ranks[0].steps.windows[1:]]


def test_one_command_says_how_much_communication_is_exposed(tmp_path):
    """Without torch, TensorBoard or a notebook; `--json` for logs."""
    path = overlapping(tmp_path / "run", 4).ranks[0].files[0]
    command = (
        "import sys; from traceread.cli import main; code = main(['report', sys.argv[1], '--json'])\n"
        "heavy = {'torch', 'pandas', 'plotly', 'matplotlib', 'tensorboard', 'jupyterlab', 'IPython', 'networkx'} & set(sys.modules)\n"
        "sys.exit(code or bool(heavy) * 9)"
    )
    done = subprocess.run([sys.executable, "-c", command, path], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    summary = strictly(done.stdout)["summary"]
    assert summary["class_ns"]["exposed_communication"] == 3 * MS
    assert summary["hidden_communication_ns"] == 2 * MS


# --- before and after ----------------------------------------------------------------------------------------------------------


def side(folder, *, count=6, kernel="sgemm", length=4 * MS, device="NVIDIA H100 80GB HBM3", body=None):
    k = Kineto()
    k.top = {"deviceProperties": [{"id": 0, "name": device}]}
    folder.mkdir()
    body = body or (lambda k, t, n: launch(k, t, kernel, t + 1 * MS + n % 2 * 1_000, length))
    return steps(body, count, kineto=k).write(folder / "rank0.json")


def test_an_empty_after_is_no_win(tmp_path):
    def nothing(k, t, n):
        k.op("aten::mm", t, 100 * US)

    before = side(tmp_path / "before")
    after = side(tmp_path / "after", body=nothing)
    code, out, err = run("diff", before, after, "--fail-if-slower", "2%")
    assert code not in (0, 3)
    assert out == ""
    assert "no GPU work" in err
    assert run("diff", before, tmp_path / "nowhere.json", "--fail-if-slower", "2%")[0] == 1


def test_captures_of_different_length_are_compared_by_the_step(tmp_path):
    """Three equal steps against five: no regression, and the gate passes."""
    before, after = side(tmp_path / "before", count=4), side(tmp_path / "after", count=6)
    code, out, _ = run("diff", before, after, "--fail-if-slower", "2%", "--json")
    assert code == 0
    answer = strictly(out)
    assert answer["step"]["steps"] == [3, 5]
    assert abs(answer["step"]["difference_ns"]) < 1 * US
    assert "no difference" in answer["verdict"]


def test_other_kernels_and_other_gpus_are_compared_and_said(tmp_path):
    before = side(tmp_path / "before", kernel="ampere_sgemm_128x64", device="NVIDIA A100-SXM4-80GB")
    after = side(tmp_path / "after", kernel="sm90_gemm_tf32", length=2 * MS)
    code, out, _ = run("diff", before, after)
    text = " ".join(out.split())
    assert code == 0
    assert "NVIDIA A100-SXM4-80GB" in text
    assert "sm90_gemm_tf32" in text
