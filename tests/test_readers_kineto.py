import gzip
import json
import os
import random
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_builder import BASE_NS, HOST_PID, MAIN, Kineto, exact, two_steps

from traceread.errors import CorruptTrace, InputError, LimitExceeded, TraceNotFound, TracereadError, UnknownFormat
from traceread.model import ActivityKind, Capability, Category, CopyKind, Device, RangeKind, Thread
from traceread.readers import kineto
from traceread.readers.options import ReadOptions

TRACES = Path(__file__).parents[2] / "shared" / "traces" / "kineto"


def read(path, **options):
    return kineto.read(path, ReadOptions(**options))


def read_one(k, tmp_path, **how):
    (trace,) = read(k.write(tmp_path / "trace.json", **how))
    return trace


def table_rows(trace, table):
    """The rows of a table with names and threads instead of codes."""
    values = dict(getattr(trace, table).columns())
    if "name" in values:
        values["name"] = [trace.names[code] for code in values["name"].tolist()]
    if "thread" in values:
        values["thread"] = [trace.threads[code] if code >= 0 else None for code in values["thread"].tolist()]
    return list(zip(*(list(v) if isinstance(v, list) else v.tolist() for v in values.values()), strict=True))


def content(trace):
    """All a trace says but where it comes from, comparable."""
    tables = {table: table_rows(trace, table) for table in ("activities", "calls", "ranges", "stream_waits", "collective_records")}
    return tables | {
        key: getattr(trace, key)
        for key in (
            "rank",
            "rank_source",
            "device",
            "host",
            "pid",
            "world_size",
            "recorded",
            "versions",
            "notices",
            "capture_ns",
            "clock",
            "truncated",
        )
    }


def named(trace, table, name):
    return [row for row in table_rows(trace, table) if name in row]


# --- what events mean ---------------------------------------------------------------------------------------------------


def test_two_steps(tmp_path):
    trace = read_one(two_steps(), tmp_path)
    t = BASE_NS
    main, nobody = Thread(HOST_PID, MAIN, "pt_main_thread"), Thread(-1, 0, "")
    uncategorised = (Category.UNCLASSIFIED, 0, 0)
    assert table_rows(trace, "activities")[:3] == [
        (
            t + 130_000,
            t + 430_000,
            ActivityKind.KERNEL,
            0,
            7,
            1,
            'ampere_sgemm<"f32"> {lambda(float)#1}',
            -1,
            CopyKind.UNKNOWN,
            -1,
            0,
            *uncategorised,
        ),
        (
            t + 450_000,
            t + 470_000,
            ActivityKind.MEMCPY,
            0,
            7,
            2,
            "Memcpy HtoD (Pageable -> Device)",
            4096,
            CopyKind.HOST_TO_DEVICE,
            1,
            0,
            *uncategorised,
        ),
        (t + 480_000, t + 482_000, ActivityKind.MEMSET, 0, 7, 3, "Memset (Device)", 512, CopyKind.UNKNOWN, -1, 0, *uncategorised),
    ]
    assert table_rows(trace, "calls")[:3] == [
        (t + 110_000, t + 118_000, main, "cudaLaunchKernel", 1),
        (t + 160_000, t + 169_000, main, "cudaMemcpyAsync", 2),
        (t + 170_000, t + 173_000, main, "cudaMemsetAsync", 3),
    ]
    assert table_rows(trace, "ranges")[:6] == [
        (t, t + 900_000, main, "ProfilerStep#5", RangeKind.ANNOTATION, 0),
        (t + 1_000, t + 881_000, main, "train.py(41): main", RangeKind.PYTHON, 0),
        (t + 10_000, t + 100_000, main, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", RangeKind.ANNOTATION, 0),
        (t + 100_000, t + 150_000, main, "aten::mm", RangeKind.OP, 0),
        (t + 210_000, t + 240_000, main, "record_param_comms", RangeKind.OP, 0),
        (t + 300_000, t + 340_000, nobody, "Activity Buffer Request", RangeKind.PROFILER, 0),
    ]
    assert table_rows(trace, "stream_waits") == [(t + 200_000, 20, 4, 1, 7), (t + 1_200_000, 20, 14, 11, 7)]
    assert (len(trace.activities), len(trace.calls), len(trace.ranges)) == (6, 6, 12)
    assert trace.device == Device(0, "NVIDIA H100 80GB HBM3", 85018279936, 132)
    assert (trace.rank, trace.rank_source, trace.world_size, trace.host, trace.pid) == (3, "distributedInfo", 8, "node17", HOST_PID)
    assert trace.versions == {"CUDA runtime": "12.4", "CUDA driver": "13.0", "CUPTI": "22", "NCCL": "2.27.5"}
    assert trace.capture_ns == (t, t + 2_000_000)
    assert (trace.clock, trace.truncated, trace.notices, trace.source) == ("epoch", False, (), "kineto")
    assert trace.recorded == frozenset(Capability) - {Capability.OS_CALLS, Capability.GRAPH_NODES}


@pytest.mark.parametrize("era", ["base", "epoch", "us"])
@pytest.mark.parametrize("layout", ["kineto", "compact", "indent", "shuffled"])
@pytest.mark.parametrize("metadata", ["first", "last"])
def test_eras_and_layouts_give_equal_traces(tmp_path, era, layout, metadata):
    expected = content(read_one(two_steps(), tmp_path))
    assert content(read_one(two_steps(era), tmp_path, layout=layout, metadata=metadata)) == expected


@pytest.mark.parametrize("chunk", [1024, 10_000, 64 << 20])
@pytest.mark.parametrize("packing", ["plain", "gzip", "members", "zip"])
def test_packing_and_chunks_change_nothing(tmp_path, packing, chunk):
    (trace,) = read(two_steps().write(tmp_path / "trace.json", packing), chunk_bytes=chunk)
    assert content(trace) == content(read_one(two_steps(), tmp_path))


def test_a_bare_list_has_the_tables_and_no_metadata(tmp_path):
    whole, bare = (content(read_one(two_steps("epoch"), tmp_path, form=form)) for form in ("object", "list"))
    for key in ("activities", "calls", "ranges", "stream_waits", "capture_ns", "pid", "clock"):
        assert bare[key] == whole[key]
    assert (bare["rank"], bare["rank_source"], bare["world_size"], bare["host"], bare["versions"]) == (-1, "", None, None, {})
    assert bare["device"] == Device(0)


def test_names_from_before_torch_1_12(tmp_path):
    old = {
        "kernel": "Kernel",
        "gpu_memcpy": "Memcpy",
        "gpu_memset": "Memset",
        "cuda_runtime": "Runtime",
        "cpu_op": "Operator",
        "user_annotation": "Operator",
    }
    k = two_steps("us")
    k.annotation("Optimizer.step#SGD.step", 700_000, 5_000)
    k.annotation("my own annotation", 710_000, 5_000)
    expected = content(read_one(k, tmp_path))
    for e in k.events:
        e["cat"] = old.get(e.get("cat"), e.get("cat"))
        if e["cat"] in ("Kernel", "Memcpy", "Memset"):
            e["tid"] = f"stream {e['tid']}"
        elif e["ph"] == "X" and e["tid"] == MAIN:
            e["tid"] = str(MAIN)  # the labels keep the number
    trace = read_one(k, tmp_path)
    assert {row[3]: row[4] for row in table_rows(trace, "ranges")}["my own annotation"] == RangeKind.OP
    found = content(trace)
    found["ranges"] = [tuple(1 if row[3] == "my own annotation" and i == 4 else v for i, v in enumerate(row)) for row in found["ranges"]]
    assert found == expected


def test_rows_on_gpu_tracks_that_are_no_work(tmp_path):
    k = two_steps()
    before = read_one(k, tmp_path)
    for cat in (
        "gpu_user_annotation",
        "cuda_sync",
        "cuda_event",
        "external_correlation",
        "ac2g",
        "python_function",
        "cpu_op",
        "user_annotation",
    ):
        k.complete(cat, "ncclKernel", 500_000, 10_000, pid=0, tid=7, device=0, stream=7, correlation=1)
    k.event(ph="i", cat="kernel", name="instant", ts=k.time(0), pid=0, tid=7)
    k.event(ph="B", cat="kernel", name="begin", ts=k.time(0), pid=0, tid=7)
    k.event(ph="C", cat="kernel", name="counter", ts=k.time(0), pid=0, tid=7, args={"stream": 7})
    after = read_one(k, tmp_path)
    assert table_rows(after, "activities") == table_rows(before, "activities")
    assert len(after.ranges) == len(before.ranges) + 3


@pytest.mark.parametrize(
    ("name", "direction", "pageable"),
    [
        ("Memcpy HtoD (Pinned -> Device)", CopyKind.HOST_TO_DEVICE, 0),
        ("Memcpy HtoD (Pageable -> Device)", CopyKind.HOST_TO_DEVICE, 1),
        ("Memcpy DtoH (Device -> Pageable)", CopyKind.DEVICE_TO_HOST, 1),
        ("Memcpy DtoH (Device -> Pinned)", CopyKind.DEVICE_TO_HOST, 0),
        ("Memcpy DtoD (Device -> Device)", CopyKind.DEVICE_TO_DEVICE, -1),
        ("Memcpy AtoD (Array -> Device)", CopyKind.DEVICE_TO_DEVICE, -1),
        ("Memcpy HtoA (Pinned -> Array)", CopyKind.HOST_TO_DEVICE, 0),
        ("Memcpy HtoH (Pageable -> Pinned)", CopyKind.HOST_TO_HOST, 1),
        ("Memcpy PtoP (Device -> Device)", CopyKind.PEER, -1),
        ("Memcpy HtoD (Host -> Device)", CopyKind.HOST_TO_DEVICE, -1),  # AMD
        ("Memcpy Unknown (Unknown -> Unknown)", CopyKind.UNKNOWN, -1),
    ],
)
def test_copy_names(tmp_path, name, direction, pageable):
    k = Kineto()
    k.memcpy(name, 0, 1_000)
    trace = read_one(k, tmp_path)
    assert trace.activities.copy_kind.tolist() == [direction]
    assert trace.activities.pageable.tolist() == [pageable]
    assert trace.activities.bytes.tolist() == [-1]  # not recorded is not zero
    assert (Capability.COPY_KINDS in trace.recorded) == (pageable >= 0)


def test_copies_between_devices_say_so_in_their_arguments(tmp_path):
    k = Kineto()
    k.memcpy("Memcpy DtoD (Device -> Device)", 0, 1_000, fromDevice=0, toDevice=1, bytes=7)
    k.memcpy("Memcpy DtoD (Device -> Device)", 10_000, 1_000, fromDevice=1, toDevice=1, bytes=0)
    trace = read_one(k, tmp_path)
    assert trace.activities.copy_kind.tolist() == [CopyKind.PEER, CopyKind.DEVICE_TO_DEVICE]
    assert trace.activities.bytes.tolist() == [7, 0]


def test_overhead_rows_by_whose_they_are(tmp_path):
    k = two_steps()
    k.events = [e for e in k.events if e.get("cat") != "overhead"]
    kinds = {
        "Buffer Flush": RangeKind.PROFILER,
        "Instrumentation": RangeKind.PROFILER,
        "Resource": RangeKind.PROFILER,
        "UVM Activity Init": RangeKind.PROFILER,
        "Lazy Function Loading": RangeKind.LOADING,
        "Runtime Triggered Module Loading": RangeKind.LOADING,
        "Driver Compiler": RangeKind.LOADING,
        "Command Buffer Full": RangeKind.QUEUE_FULL,
    }
    for name in [*kinds, "Something new"]:
        k.overhead(name, 0, 1_000)
    trace = read_one(k, tmp_path)
    assert {row[3]: row[4] for row in table_rows(trace, "ranges") if row[2].pid == -1} == kinds
    assert [n.slug for n in trace.notices] == ["unread-events"]
    assert "overhead: Something new (1)" in trace.notices[0].message
    assert Capability.OVERHEAD in trace.recorded


def test_version_suffixes_of_calls_go(tmp_path):
    k = Kineto()
    k.call("cudaLaunchKernel_v7000", 0, 1_000)
    k.call("cudaStreamGetCaptureInfo_v2", 10_000, 1_000)
    k.call("cudaLaunchKernel", 20_000, 1_000)
    k.op("aten::conv_v7000", 30_000, 1_000)
    trace = read_one(k, tmp_path)
    assert [row[3] for row in table_rows(trace, "calls")] == ["cudaLaunchKernel", "cudaStreamGetCaptureInfo_v2", "cudaLaunchKernel"]
    assert len(set(trace.calls.name.tolist())) == 2
    assert [row[3] for row in table_rows(trace, "ranges")] == ["aten::conv_v7000"]


def test_ids_in_any_spelling(tmp_path):
    k = Kineto()
    k.complete("kernel", "a", 0, 1_000, pid=0, tid="stream 7", Correlation=5)
    k.complete("kernel", "b", 10_000, 1_000, pid="2", tid=9, correlation="6")
    k.complete("kernel", "c", 20_000, 1_000, pid=0, tid=9, correlation=7.0, stream=None, device=None)
    k.complete("kernel", "d", 30_000, 1_000, pid=0, tid=9, correlation=2**64 - 1, stream=2**70, device="x")
    k.complete("kernel", "e", 40_000, 1_000, pid=0, tid=9, **{"graph node id": 8589934603})
    rows = [(t.device.index, *row) for t in read(k.write(tmp_path / "t.json")) for row in table_rows(t, "activities")]
    assert [(r[7], r[0], r[5], r[6], r[11]) for r in rows] == [
        ("a", 0, 7, 5, 0),
        ("c", 0, 9, 7, 0),
        ("d", 0, 9, -1, 0),
        ("e", 0, 9, -1, 8589934603),
        ("b", 2, 9, 6, 0),
    ]


def test_threads_of_any_id(tmp_path):
    k = Kineto()
    k.label("thread_name", HOST_PID, 1, name="thread 1 (python3)")
    k.label("thread_name", HOST_PID, 1, name="thread 1 (pt_autograd_0)")
    k.label("thread_name", HOST_PID, -1029147072, name="watchdog")
    for tid in (1, -1029147072, 2**63 + 5, "77", 77, "main loop", None):
        k.op("aten::mm", 0, 1_000, tid=tid)
    trace = read_one(k, tmp_path)
    assert trace.threads == (
        Thread(HOST_PID, 1, "pt_autograd_0"),
        Thread(HOST_PID, -1029147072, "watchdog"),
        Thread(HOST_PID, -1, ""),  # beyond 64 bits, and none at all
        Thread(HOST_PID, 77, ""),
        Thread(HOST_PID, -1, "main loop"),
    )
    assert trace.ranges.thread.tolist() == [0, 1, 2, 3, 3, 4, 2]


# --- GPUs and processes -------------------------------------------------------------------------------------------------


def test_one_trace_per_gpu_that_worked(tmp_path):
    k = two_steps()
    k.top["deviceProperties"].append({"id": 1, "name": "NVIDIA L4", "totalGlobalMem": 24, "numSms": 58})
    k.kernel("other", 10_000, 5_000, device=1, stream=9, correlation=77)
    k.wait_event(20_000, stream=9, correlation=78, record=-1, device=1)
    first, second = read(k.write(tmp_path / "trace.json"))
    alone = read_one(two_steps(), tmp_path)
    assert content(first) == content(alone)
    assert table_rows(second, "activities")[0][:6] == (BASE_NS + 10_000, BASE_NS + 15_000, ActivityKind.KERNEL, 1, 9, 77)
    assert table_rows(second, "stream_waits") == [(BASE_NS + 20_000, 9, 78, -1, 7)]
    assert second.device == Device(1, "NVIDIA L4", 24, 58)
    assert second.calls is first.calls
    assert second.ranges is first.ranges
    assert first.elsewhere.correlation.tolist() == [77]
    assert second.elsewhere.correlation.tolist() == [1, 2, 3, 11, 12, 13]
    assert Capability.COPY_KINDS not in second.recorded


def test_amd_numbers_gpus_by_agent(tmp_path):
    k = Kineto()
    k.top = {"deviceProperties": [{"id": i, "name": "AMD Instinct MI300X", "totalGlobalMem": 206, "numSms": 304} for i in range(2)]}
    k.top["hip_runtime_version"] = 60443483
    k.complete("kernel", "Cijk", 0, 1_000, pid=9, tid=0, device=2, stream=0, correlation=1)
    trace = read_one(k, tmp_path)
    assert trace.device == Device(2, "AMD Instinct MI300X", 206, 304)  # not listed, but all that are listed are alike
    assert trace.versions == {"HIP runtime": "6.4.43483"}
    k.top["deviceProperties"][1]["name"] = "AMD Instinct MI210"
    assert read_one(k, tmp_path).device == Device(2)


def test_a_nameless_device_has_no_name(tmp_path):
    k = two_steps()
    k.top["deviceProperties"][0]["name"] = ""
    assert read_one(k, tmp_path).device == Device(0, None, 85018279936, 132)


def test_host_rows_alone_make_a_trace_without_gpu(tmp_path):
    k = Kineto()
    k.op("aten::mm", 0, 1_000)
    trace = read_one(k, tmp_path)
    assert len(trace.activities) == 0
    assert trace.device == Device(-1)
    assert trace.recorded == {Capability.OPS}


def test_gpu_rows_alone_make_a_trace_without_host(tmp_path):
    k = Kineto()
    k.kernel("k", 0, 1_000)
    trace = read_one(k, tmp_path)
    assert (len(trace.calls), len(trace.ranges), trace.threads, trace.pid) == (0, 0, (), None)


def test_python_frames_on_process_zero_are_another_thread(tmp_path):
    k = two_steps()
    k.python("<module>", 0, 2_000_000, pid=0, tid=0)
    trace = read_one(k, tmp_path)
    assert trace.pid == HOST_PID
    assert named(trace, "ranges", "<module>")[0][2] == Thread(0, 0, "")


@pytest.mark.parametrize(
    "second",
    [
        {"pid": 5000},  # another process with host rows, labelled CPU
        {"pid": "[rank1] 4000"},
    ],
)
def test_merged_ranks_are_refused(tmp_path, second):
    k = two_steps()
    k.label("process_labels", second["pid"], 0, labels="CPU")
    k.call("cudaLaunchKernel", 0, 1_000, **second)
    with pytest.raises(InputError, match="merged events of 2 processes") as caught:
        read(k.write(tmp_path / "merged.json"))
    assert caught.value.slug == "merged-ranks"
    assert "merged.json" in caught.value.message


def test_merged_ranks_are_refused_without_labels(tmp_path):
    k = Kineto()
    for pid in (10, 20):
        k.call("cudaLaunchKernel", 0, 1_000, pid=pid)
        k.kernel("k", 5_000, 1_000)
    with pytest.raises(InputError, match="merged"):
        read(k.write(tmp_path / "merged.json"))


def test_tags_of_gpu_rows_tell_merged_ranks(tmp_path):
    k = Kineto()
    for tag in ("[rank0]", "[rank1]"):
        k.complete("kernel", "k", 0, 1_000, pid=f"{tag} 0", tid=7)
    with pytest.raises(InputError, match="rank0, rank1"):
        read(k.write(tmp_path / "merged.json"))


def test_one_rank_of_a_merged_file_is_read(tmp_path):
    k = two_steps()
    k.label("process_labels", 5000, 0, labels="CPU")  # declared, but its events are not here
    assert read_one(k, tmp_path).pid == HOST_PID
    k = Kineto()
    k.call("cudaLaunchKernel", 0, 1_000, pid="[rank1] 4711")
    k.complete("kernel", "k", 5_000, 1_000, pid="[rank1] 0", tid=7)
    trace = read_one(k, tmp_path)
    assert (trace.pid, trace.threads, trace.device.index) == (4711, (Thread(4711, MAIN),), 0)


@pytest.mark.parametrize(
    ("job", "rank", "world_size"),
    [
        ({"rank": 0, "world_size": 1}, 0, 1),
        ({"rank": "5"}, 5, None),
        ({"backend": "nccl"}, -1, None),
        ({"rank": None, "world_size": "x"}, -1, None),
        ({"rank": -1, "world_size": 0}, -1, None),
        ({"rank": True}, -1, None),
        ([1], -1, None),
        ("rank", -1, None),
    ],
)
def test_rank_only_where_the_file_states_one(tmp_path, job, rank, world_size):
    k = two_steps()
    k.top["distributedInfo"] = job
    trace = read_one(k, tmp_path)
    assert (trace.rank, trace.rank_source, trace.world_size) == (rank, "distributedInfo" if rank >= 0 else "", world_size)


def test_versions_hold_versions_only(tmp_path):
    k = two_steps()
    k.top |= {
        "cupti_version": "/home/somebody/lib",
        "distributedInfo": {"nccl_version": "unknown"},
        "username": "somebody",
        "cuda_driver_version": None,
    }
    k.top |= {"roctracer_version": 4.1, "PT_PROFILER_JOB_NAME": "secret"}
    assert read_one(k, tmp_path).versions == {"CUDA runtime": "12.4", "roctracer": "4.1"}


def test_graph_nodes_are_recorded_where_one_launch_owns_several_activities(tmp_path):
    k = two_steps()
    k.call("cudaGraphLaunch", 0, 5_000, correlation=90)
    k.kernel("node", 600_000, 1_000, correlation=90)
    assert Capability.GRAPH_NODES not in read_one(k, tmp_path).recorded
    k.kernel("node", 602_000, 1_000, correlation=90)
    assert Capability.GRAPH_NODES in read_one(k, tmp_path).recorded


def test_tables_are_sorted_whatever_the_order_of_events(tmp_path):
    k = two_steps()
    expected = content(read_one(k, tmp_path))
    random.Random(3).shuffle(k.events)
    assert {key: sorted(v, key=str) if isinstance(v, list) else v for key, v in content(read_one(k, tmp_path)).items()} == {
        key: sorted(v, key=str) if isinstance(v, list) else v for key, v in expected.items()
    }
    trace = read_one(k, tmp_path)
    activities = list(zip(trace.activities.start_ns, trace.activities.end_ns, strict=True))
    assert activities == sorted(activities)
    for table in (trace.calls, trace.ranges):
        nested = list(zip(table.start_ns, -table.end_ns, strict=True))
        assert nested == sorted(nested)


# --- times --------------------------------------------------------------------------------------------------------------


def test_times_come_from_the_text(tmp_path):
    k = Kineto(era="epoch")
    k.kernel("k", 0, 0)
    k.events[0] |= {"ts": exact("1712195495519689.047"), "dur": exact("2.001")}
    trace = read_one(k, tmp_path)
    assert trace.activities.start_ns.tolist() == [1712195495519689047]
    assert trace.activities.end_ns.tolist() == [1712195495519691048]


@pytest.mark.parametrize(("ts", "start_ns"), [("-5.5", BASE_NS - 5_500), ("1e3", BASE_NS + 1_000_000), ("7.0006", BASE_NS + 7_001)])
def test_unusual_numbers(tmp_path, ts, start_ns):
    k = Kineto()
    k.kernel("k", 0, 1_000)
    k.events[0]["ts"] = exact(ts)
    assert read_one(k, tmp_path).activities.start_ns.tolist() == [start_ns]


def test_times_as_strings(tmp_path):
    k = two_steps()
    expected = content(read_one(k, tmp_path))
    for e in k.events:
        e |= {key: json.loads(f'"{e[key][1:-1]}"') for key in ("ts", "dur") if key in e}
    assert content(read_one(k, tmp_path)) == expected


def test_unusable_times_are_dropped_and_counted(tmp_path):
    k = two_steps()
    expected = content(read_one(k, tmp_path))
    for ts, dur in (("null", "1"), ("1e30", "1"), ("5", "null"), ("5", "1e19"), ("-4611686018427387", "1"), ("4611686018427387", "1")):
        k.kernel("k", 0, 1_000, correlation=1)
        k.events[-1] |= {"ts": json.loads(ts) if ts == "null" else exact(ts), "dur": json.loads(dur) if dur == "null" else exact(dur)}
    del k.call("cudaLaunchKernel", 0, 1_000)["dur"]
    k.complete("gpu_user_annotation", "unread", 0, 1_000, pid=0, tid=7)["ts"] = None
    found = content(read_one(k, tmp_path))
    (notice,) = found.pop("notices")
    expected.pop("notices")
    assert (notice.slug, notice.message) == ("bad-times", "7 events of trace.json dropped: no usable time or duration")
    assert found == expected


def test_lost_records_and_negative_durations_are_counted(tmp_path):
    k = two_steps()
    expected = content(read_one(k, tmp_path))
    k.kernel("lost", 0, 0)
    k.op("not lost", 0, 0)
    k.kernel("backwards", 700_000, -5_000)
    found = content(read_one(k, tmp_path))
    assert [n.slug for n in found["notices"]] == ["lost-records", "negative-durations"]
    assert len(found["activities"]) == len(expected["activities"]) + 1
    assert [(r[0], r[1]) for r in found["activities"] if r[6] == "backwards"] == [(BASE_NS + 700_000, BASE_NS + 700_000)]
    assert any(r[3] == "not lost" for r in found["ranges"])


@pytest.mark.parametrize(
    ("base", "clock"),
    [
        (BASE_NS, "epoch"),
        (None, "relative"),
        (0, "relative"),
        ("x", "relative"),
        (-5, "relative"),
        (1 << 63, "relative"),
        (str(BASE_NS), "epoch"),
    ],
)
def test_the_clock_is_an_epoch_only_with_a_base(tmp_path, base, clock):
    k = two_steps()
    text = k.text(metadata="last")
    (tmp_path / "t.json").write_bytes(
        text.replace(b'"baseTimeNanoseconds": %d' % BASE_NS, b'"baseTimeNanoseconds": ' + json.dumps(base).encode())
    )
    (trace,) = read(tmp_path / "t.json")
    assert trace.clock == clock
    assert trace.activities.start_ns[0] == 130_000 + (BASE_NS if clock == "epoch" else 0)


# --- damage and errors --------------------------------------------------------------------------------------------------


def test_damage_is_said_with_its_numbers(tmp_path):
    text = (
        two_steps()
        .text(metadata="last")
        .replace(b"aten::mm", b"aten\x01::mm")
        .replace(b'"node17"', b'"no"de"')
        .replace(b'"bytes": 512', b'"bytes": ]')
    )
    (tmp_path / "t.json").write_bytes(text)
    (trace,) = read(tmp_path / "t.json")
    assert [(n.slug, n.message) for n in trace.notices] == [
        ("damaged-events", "t.json is damaged: 4 events mended"),
        ("damaged-metadata", "t.json: what stands beside the list of events could be read only in part"),
    ]
    assert trace.rank == 3


def test_damage_names_only_what_there_was(tmp_path):
    text = two_steps().text().replace(b'"ph": "X"', b'"ph": "X', 1).replace(b'"cat": "Trace"', b'"cat": {"Trace"')
    (tmp_path / "t.json").write_bytes(text.replace(b'"f"', b'"f",,').replace(b'\n  },\n  {\n    "name"', b'\n  },,\n  {\n    "name"', 1))
    (notice,) = read(tmp_path / "t.json")[0].notices
    expected = "t.json is damaged: 2 events mended, 2 events dropped, commas or other text wrong between events in 1 place"
    assert (notice.slug, notice.message) == ("damaged-events", expected)


@pytest.mark.parametrize("packing", ["plain", "gzip"])
def test_a_cut_file_is_marked(tmp_path, packing):
    path = two_steps().write(tmp_path / "t.json", packing)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * 0.8)])
    (trace,) = read(path)
    assert trace.truncated
    (notice,) = trace.notices
    assert notice.slug == "truncated"
    assert ("the gzip data ends early" in notice.message) == (packing == "gzip")
    assert 0 < len(trace.ranges) < 12


def test_a_gzip_without_its_last_bytes_lost_nothing(tmp_path):
    path = two_steps().write(tmp_path / "t.json", "gzip")
    path.write_bytes(path.read_bytes()[:-4])
    (trace,) = read(path)
    assert not trace.truncated
    assert [n.slug for n in trace.notices] == ["damaged-file"]
    assert len(trace.ranges) == 12


def test_kinds_that_are_not_read_are_named(tmp_path):
    k = two_steps()
    for name in ("mtia_ccp_events", "mtia_ccp_events", "hpu_op", "\x1b[31m" + "x" * 99):
        k.complete(name, "n", 0, 1_000, pid=0, tid=0)
    del k.complete("", "n", 0, 1_000, pid=0, tid=0)["cat"]
    (notice,) = read_one(k, tmp_path).notices
    assert notice.slug == "unread-events"
    assert "mtia_ccp_events (2), hpu_op (1), ?[31m" in notice.message
    assert "and 1 more" in notice.message


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"", CorruptTrace, "is empty"),
        (b" \n", CorruptTrace, "is empty"),
        (gzip.compress(b"x", mtime=0)[:5], CorruptTrace, r"is empty \(the gzip data ends early\)"),
        (b"hello", UnknownFormat, "is no JSON: it starts with b'hello'"),
        (b"SQLite format 3\x00", UnknownFormat, "is no JSON"),
        (b"17", UnknownFormat, "is no JSON"),
        (b"{}", UnknownFormat, "without a list called traceEvents"),
        (b'{"a": [1, {"b": 2}]}', UnknownFormat, "without a list called traceEvents"),
        (b'{"traceEvents": null}', UnknownFormat, "without a list called traceEvents"),
        (b'{"schemaVersion": 1, "dev', CorruptTrace, "ends before its events begin"),
        (b"[1, 2, 3]", UnknownFormat, "a JSON list, but not of trace events"),
        (b'[{"a": 1}]', UnknownFormat, "a JSON list, but not of trace events"),
        (b"[]", CorruptTrace, "holds no events"),
        (b'{"traceEvents": []}', CorruptTrace, "holds no events"),
        (b'{"traceEvents": [', CorruptTrace, "damaged beyond use"),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1', CorruptTrace, "damaged beyond use"),
        (
            b'{"traceEvents": [{"ph": "M", "name": "process_name", "args": {}}]}',
            CorruptTrace,
            "no events of use: none of its 1 is GPU work",
        ),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 0, "dur": 0}]}', CorruptTrace, "no events of use"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_hint(tmp_path, content, error, message):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(error, match=message) as caught:
        read(path)
    assert "trace.json" in caught.value.message
    assert caught.value.hint


def test_a_missing_file(tmp_path):
    with pytest.raises(TraceNotFound):
        read(tmp_path / "trace.json")


def test_a_bomb(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * 10_000_000))
    with pytest.raises(LimitExceeded) as caught:
        read(path, max_uncompressed_bytes=1_000_000)
    assert "--max-uncompressed" in caught.value.hint


@given(
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 300), st.binary(max_size=4)), min_size=1, max_size=8),
    st.sampled_from(["plain", "gzip", "zip"]),
)
@settings(derandomize=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_raises_anything_but_our_errors(tmp_path, changes, packing):
    path = two_steps().write(tmp_path / "trace.json", packing)
    data = path.read_bytes()
    for where, removed, added in changes:
        at = int(where * len(data))
        data = data[:at] + added + data[at + removed :]
    path.write_bytes(data)
    try:
        traces = read(path)
    except TracereadError:
        return
    for trace in traces:
        assert (trace.activities.end_ns >= trace.activities.start_ns).all()
        assert (trace.calls.thread >= 0).all()
        assert (trace.ranges.thread >= 0).all()


# --- real traces --------------------------------------------------------------------------------------------------------

KINDS = {
    "kernel": "gpu", "gpu_memcpy": "gpu", "gpu_memset": "gpu", "Kernel": "gpu", "Memcpy": "gpu", "Memset": "gpu",
    "cuda_runtime": "call", "cuda_driver": "call", "Runtime": "call",
    "cpu_op": "op", "Operator": "op", "user_annotation": "annotation", "python_function": "python", "overhead": "overhead",
}  # fmt: skip
FILES = [
    "b200_eager_8rank_job", "compile_graph_a100", "cpu_only", "cuda_sync_multi_stream", "cuda_sync_simple_add", "ddp_nccl_metadata",
    *(f"dlrm_8rank/rank{r}" for r in range(8)), "dlrm_graph_pair/graphed_rank1of2", "dlrm_graph_pair/ungraphed_rank3of8",
    "gpu_only_mi210", "h100_qwen", "mi250_train", "mi300_resnet_ddp", "no_rank", "resnet_v100_ns_epoch", "torch18_list_form",
    "torch19_workers0", "torch19_workers4", "u64_args", "vllm_hip_graph",
]  # fmt: skip


def real(name):
    path = TRACES / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("the real traces are not beside this repository")
    return path


@pytest.mark.parametrize("name", FILES)
def test_real_traces_hold_what_plain_json_says(name):
    path = real(name)
    whole = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    events = whole if isinstance(whole, list) else whole["traceEvents"]
    base = 0 if isinstance(whole, list) else whole.get("baseTimeNanoseconds", 0)
    wanted = {kind: [] for kind in KINDS.values()}
    for e in events:
        kind = KINDS.get(e.get("cat")) if e["ph"] == "X" else None
        if kind == "op" and e["name"].startswith(("ProfilerStep#", "enumerate(DataLoader)#", "Optimizer.")):
            kind = "annotation"
        if kind:
            start = base + int(e["ts"] * 1000)
            wanted[kind].append((start, start + int(e["dur"] * 1000), e["name"]))
    del whole, events
    traces = read(path)
    trace = traces[0]
    found = {kind: [] for kind in wanted}
    for t in traces:
        found["gpu"] += [(row[0], row[1], row[6]) for row in table_rows(t, "activities")]
    found["call"] = [(row[0], row[1], row[3]) for row in table_rows(trace, "calls")]
    names = {RangeKind.OP: "op", RangeKind.ANNOTATION: "annotation", RangeKind.PYTHON: "python"}
    for start, end, _, range_name, kind, _ in table_rows(trace, "ranges"):
        found[names.get(kind, "overhead")].append((start, end, range_name))
    assert {kind: Counter(rows) for kind, rows in found.items()} == {kind: Counter(rows) for kind, rows in wanted.items()}
    assert trace.notices == ()
    steps = Counter(n for _, _, n in wanted["annotation"] if n.startswith("ProfilerStep#"))
    assert steps == Counter(
        row[3] for row in table_rows(trace, "ranges") if row[3].startswith("ProfilerStep#") and row[4] == RangeKind.ANNOTATION
    )


@pytest.mark.parametrize("name", ["cuda_sync_simple_add", "mi250_train", "dlrm_8rank/rank5", "gpu_only_mi210"])
def test_real_traces_read_alike_in_every_layout_and_chunk(tmp_path, name):
    path = real(name)
    expected = [content(t) for t in read(path)]
    text = gzip.decompress(path.read_bytes())
    for chunk in (1 << 10, 1 << 16, 64 << 20):
        assert [content(t) for t in read(path, chunk_bytes=chunk)] == expected
    whole = json.loads(text, parse_float=lambda number: exact(number))
    whole["traceEvents"] = [{key: e[key] for key in random.Random(i).sample(list(e), len(e))} for i, e in enumerate(whole["traceEvents"])]
    for indent in (None, 4):
        copy = tmp_path / "copy.json"
        copy.write_bytes(json.dumps(whole, indent=indent).replace('"@', "").replace('@"', "").encode())
        assert [content(t) for t in read(copy)] == expected


@pytest.mark.parametrize("fraction", [0.3, 0.7, 0.999])
def test_a_real_trace_cut_short_is_the_beginning_of_the_whole(tmp_path, fraction):
    path = real("mi300_resnet_ddp")
    text = gzip.decompress(path.read_bytes())
    (tmp_path / "cut.json").write_bytes(text[: int(len(text) * fraction)])
    (whole,), (cut,) = read(path), read(tmp_path / "cut.json")
    assert cut.truncated
    base = int(json.loads(text)["baseTimeNanoseconds"])  # stands at the end of this file
    rows = {(row[0] - base, *row[3:]) for row in table_rows(whole, "ranges")}
    assert {(row[0], *row[3:]) for row in table_rows(cut, "ranges")} <= rows
    assert len(cut.ranges) > 0.5 * fraction * len(whole.ranges)


MEASURE = """
import sys
from pathlib import Path
from traceread.readers import kineto

def peak_bytes():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

before = peak_bytes()
kineto.read(Path(sys.argv[1]))
print(peak_bytes() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is asked of Linux")
@pytest.mark.parametrize("packing", ["plain", "gzip"])
def test_memory_grows_with_the_columns_not_with_the_text(tmp_path, packing):
    path = real("torch19_workers0")
    text = gzip.decompress(path.read_bytes())
    if packing == "plain":
        path = tmp_path / "t.json"
        path.write_bytes(text)
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", MEASURE, path], env=env, capture_output=True, text=True, check=True)
    assert int(done.stdout) < len(text)  # 15 of 35 MB; as dicts it is 250
