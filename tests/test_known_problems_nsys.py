"""What people have reported about Nsight Systems exports, tried here; docs/known_problems/nsys.toml says what each test is about."""

import json
import sqlite3
import tracemalloc
from itertools import pairwise

import pytest
from nsys_builder import MIDDLE, NEW, OLD, SCHEMAS, UTC, NsysExport

import traceread
from traceread.cli import main
from traceread.errors import InputError, SelectionError
from traceread.measurements.classes import CLASSES

US, MS = 1_000, 1_000_000
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def training(steps=4, *, pid=100, device=0, stream=7, kind=59, named=True, at=0, each=180 * US, export=None):
    """Steps of 1 ms: 900 µs of kernels, and 100 µs in which the GPU waits for the host."""
    export = export or NsysExport()
    export.thread_name("python", pid=pid)
    for step in range(steps):
        begin = at + step * MS
        if named:
            export.nvtx(begin, begin + 990 * US, f"train_step {step + 3}", pid=pid, kind=kind)
        for i in range(5):
            place = {"pid": pid, "device": device, "stream": stream, "correlation": 1 + 5 * step + i}
            start = begin + 20 * US + i * each
            export.launch(begin + 10 * US * (i + 1), start, start + each, GEMM, **place)
    return export


def analyzed(tmp_path, export, schema=NEW, **options):
    return traceread.analyze(export.write(tmp_path / "a.sqlite", schema), **options)


def classes(report, rank=None):
    """The class times that are not zero, summed over the used windows of a rank (the critical one)."""
    rank = report.summary.critical_rank if rank is None else rank
    rows = [row for row in report.to_dict()["partition"] if row["rank"] == rank and row["used"]]
    assert all(sum(row["classes"].values()) == row["end_ns"] - row["start_ns"] for row in rows)
    return {name: total for name in CLASSES if (total := sum(row["classes"][name] for row in rows))}


def labels(report, rank=0):
    return [w.label for w in report.rank(rank).steps.windows]


def slugs(report):
    return [notice.slug for notice in report.all_notices]


THREE_STEPS = {"compute": 2_700 * US, "launch_bound": 300 * US}


# --- processes and GPUs -----------------------------------------------------------------------------------------------------


def two_ranks(device=1, **more):
    return training(pid=200, device=device, export=training(pid=100), **more)


@pytest.mark.parametrize("device", [0, 1])  # each process may see its own GPU as the first
def test_two_processes_may_use_the_same_correlation_ids(tmp_path, device):
    report = analyzed(tmp_path, two_ranks(device, at=300 * US))
    assert [classes(report, rank) for rank in (0, 1)] == [THREE_STEPS] * 2
    first, second = (report.rank(rank).steps.windows for rank in (0, 1))
    assert [b.start_ns - a.start_ns for a, b in zip(first[1:], second[1:], strict=True)] == [300 * US] * 3


def test_equal_stream_numbers_of_two_gpus_are_two_streams(tmp_path):
    export = NsysExport()
    for step in range(4):
        export.nvtx(step * MS, step * MS + 990 * US, f"train_step {step}")
        for device in (0, 1):  # one process: data parallel without a process of its own for each GPU
            begin = step * MS + 20 * US + 5 * US * device
            export.launch(step * MS + 5 * US, begin, begin + 900 * US, GEMM, correlation=1 + 2 * step + device, device=device, stream=7)
    report = analyzed(tmp_path, export)
    assert [r.device.index for r in report.ranks] == [0, 1]
    assert [classes(report, rank) for rank in (0, 1)] == [THREE_STEPS] * 2
    assert slugs(report) == ["rank-order"]  # and no launch of the other GPU is missing on this one


@pytest.mark.parametrize("verb", ["report", "steps", "info", "ranks", "kernels"])
def test_no_gpu_of_the_file_stays_hidden(tmp_path, capsys, verb):
    export = NsysExport()
    for device in range(4):
        training(pid=100 + device, device=device, export=export)
    assert main([verb, str(export.write(tmp_path / "a.sqlite"))]) == 0
    out = capsys.readouterr().out
    assert "4 ranks" in out
    if verb == "info":
        assert all(f"\n{rank:5} " in out for rank in range(4))
    assert [r.device.index for r in traceread.analyze(tmp_path / "a.sqlite").ranks] == [0, 1, 2, 3]


def test_a_gpu_without_rows_is_not_answered_with_another(tmp_path, capsys):
    path = training().write(tmp_path / "a.sqlite")
    assert main(["report", "--ranks", "1", str(path)]) == 1
    assert "no rank 1" in capsys.readouterr().err


# --- what is missing --------------------------------------------------------------------------------------------------------


def test_a_rank_without_gpu_rows_is_named_with_what_records_it(tmp_path, capsys):
    export = training()
    for i in range(9):
        export.call(i * US, i * US + 500, "cudaLaunchKernel_v7000", pid=200, correlation=1 + i)
    report = analyzed(tmp_path, export)
    [notice] = report.all_notices
    assert notice.slug == "gpu-not-recorded"
    assert "1 process launched GPU work without any GPU rows (pid 200)" in notice.message
    assert classes(report) == THREE_STEPS


def test_ranks_of_a_job_that_are_not_in_the_file_are_counted(tmp_path, capsys):
    path = training().environment("RANK=1", "WORLD_SIZE=4").write(tmp_path / "a.sqlite")
    assert main(["info", str(path)]) == 0
    out = capsys.readouterr().out
    assert "rank 1 of 4" in out
    assert "not here: 0, 2, 3" in out


@pytest.mark.parametrize("rows", ["nothing", "os calls", "profiler calls"])
def test_a_capture_of_nothing_is_an_error_that_says_how_to_record(tmp_path, capsys, rows):
    export = NsysExport().gpu(0).thread_name("python").collected(60 * 10**9)
    if rows == "os calls":
        export.os_call(0, 5 * MS)
    elif rows == "profiler calls":  # a capture range whose window stayed empty
        export.call(0, 5 * US, "cudaProfilerStart").call(5 * MS, 5 * MS + 9, "cudaProfilerStop")
    assert main(["report", str(export.write(tmp_path / "a.sqlite"))]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "nothing was recorded" in err
    assert "--trace-fork-before-exec=true" in err


def test_calls_without_kernels_are_no_idle_gpu(tmp_path, capsys):
    export = NsysExport()
    for i in range(9):
        export.call(i * MS, i * MS + 5 * US, correlation=1 + i)
    path = export.write(tmp_path / "a.sqlite")
    assert main(["report", str(path)]) == 0
    out = capsys.readouterr().out
    assert "this says nothing about whether the GPU was idle" in out
    assert "gpu-not-recorded" in out
    assert "launch-bound" not in out
    assert traceread.analyze(path).summary is None


def test_every_window_of_a_repeating_capture_range_is_read(tmp_path):
    for window in range(3):
        training(export=NsysExport(utc=UTC + window * 10**9)).write(tmp_path / f"run.{window + 1}.sqlite")
    report = traceread.analyze(tmp_path)
    assert [r.rank for r in report.ranks] == [0]
    assert slugs(report) == ["joined-windows"]
    assert classes(report) == {name: 3 * ns for name, ns in THREE_STEPS.items()}  # without the time between them
    assert labels(report).count("between captures") == 2


def test_what_nsys_says_it_lost_stands_beside_the_numbers(tmp_path, capsys):
    export = training().diagnostic("Not all NVTX events might have been collected.", pid=100)
    assert main(["report", str(export.write(tmp_path / "a.sqlite"))]) == 0
    assert "NVTX events may be missing [nsys-data-loss]" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("schema", SCHEMAS)
def test_captures_without_any_annotation_are_one_window(tmp_path, capsys, schema):
    path = training(named=False).write(tmp_path / "a.sqlite", schema)
    assert (b"NVTX_EVENTS" in path.read_bytes()) == (schema == "2.9.1")  # whose exporter writes empty tables too
    assert main(["report", str(path)]) == 0
    assert "whole capture (it names no steps)" in capsys.readouterr().out
    assert classes(traceread.analyze(path)) == {"compute": 3_600 * US, "launch_bound": 300 * US}


# --- ranges and steps -------------------------------------------------------------------------------------------------------


def test_kernels_outside_every_range_have_a_place(tmp_path):
    export = training()
    for step in range(4):
        export.launch(step * MS + 992 * US, step * MS + 994 * US, step * MS + 998 * US, "between", correlation=900 + step)
    export.launch(5 * MS, 5 * MS + 10 * US, 5 * MS + 400 * US, "after", correlation=990)
    report = analyzed(tmp_path, export)
    steps = [f"train_step {n}" for n in (3, 4, 5, 6)]
    assert labels(report) == [label for step in steps for label in ("between steps", step)][1:]
    rows = report.to_dict()["partition"]
    assert [row["classes"]["compute"] for row in rows if row["step"] == "between steps"] == [4 * US] * 3
    assert report.ranks[0].outside_ns == 3 * 4 * US + (4 + 390) * US  # between the steps, and after the last


@pytest.mark.parametrize("kind", [59, 60, 70, 71])
def test_ranges_of_either_kind_name_steps(tmp_path, kind):
    report = analyzed(tmp_path, training(kind=kind))
    assert labels(report) == [f"train_step {n}" for n in (3, 4, 5, 6)]
    assert classes(report) == THREE_STEPS


def test_many_ranges_are_joined_in_little_memory(tmp_path):
    export, count = NsysExport(), 12_000
    for i in range(200):
        export.nvtx(-1_000 + i, 10 * count + 1_000 - i, f"outer {i}", tid=100 + i % 5)
    for i in range(count):  # every launch stands inside 40 ranges of its thread
        export.nvtx(10 * i, 10 * i + 8, f"inner {i % 50}", tid=100 + i % 5)
        if i % 3 == 0:
            export.launch(10 * i + 1, 10 * i + 2, 10 * i + 9, correlation=i + 1, tid=100 + i % 5)
    path = export.write(tmp_path / "a.sqlite")
    traceread.analyze(path)
    tracemalloc.start()
    report = traceread.analyze(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.ranks[0].counts["ranges"] == count + 200
    assert peak < 20_000_000  # ranges times launches would be 48 million pairs


def repeating(steps=12):
    """Launches that repeat ten by ten, and nothing that names steps; one pause in the middle."""
    export = NsysExport()
    for i in range(10 * steps):
        at = i * 100 * US + (5 * MS if i > 60 else 0)
        export.launch(at, at + 20 * US, at + 90 * US, f"k{i % 10}", correlation=i + 1)
    return export


def test_steps_that_nobody_named_are_not_invented(tmp_path, capsys):
    path = repeating().write(tmp_path / "a.sqlite")
    report = traceread.analyze(path)
    assert labels(report) == ["whole capture"]
    assert slugs(report) == ["steps-not-named"]
    inferred = traceread.analyze(path, step_range="infer")
    assert len(labels(inferred)) > 5
    assert inferred.to_dict()["steps"]["source"] == "inferred"
    assert main(["report", str(path), "--step-range", "infer"]) == 0
    assert "inferred step" in capsys.readouterr().out


def test_steps_that_are_not_there_are_not_an_empty_answer(tmp_path, capsys):
    path = training(at=155 * 10**9).write(tmp_path / "a.sqlite")  # the clock of the session had run for minutes
    assert classes(traceread.analyze(path)) == THREE_STEPS
    for selection in ("0:1", "100:110"):
        assert main(["report", str(path), "--steps", selection]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert "steps there are: 3, 4, 5, 6" in err
    with pytest.raises(SelectionError):
        traceread.analyze(path, steps="0:1")


def test_a_kernel_belongs_to_the_innermost_range_not_to_a_word_of_its_path(tmp_path):
    export = training(2)
    for step in range(2):
        begin = step * MS
        export.nvtx(begin + 1 * US, begin + 985 * US, "## Call CompiledFxGraph fxyz ##").nvtx(
            begin + 60 * US, begin + 80 * US, "reduce gradients"
        )
        export.nvtx(begin + 61 * US, begin + 79 * US, "c10d::allreduce_, op_id = 7")
        export.launch(begin + 65 * US, begin + 920 * US, begin + 970 * US, NCCL, correlation=900 + step, stream=20)
    report = analyzed(tmp_path, export)
    assert classes(report) == {"compute": 900 * US, "exposed_communication": 50 * US, "launch_bound": 50 * US}
    ops = {k.name: k.op for k in report.ranks[0].kernels.rows}
    assert ops[NCCL] == "c10d::allreduce_"


# --- CUDA graphs ------------------------------------------------------------------------------------------------------------


def graphs(nodes):
    """A graph launch a step, recorded node by node or as one row; the steps take turns with two graphs."""
    export = NsysExport()
    for step in range(5):
        begin = step * MS
        export.nvtx(begin, begin + 990 * US, f"train_step {step}").call(
            begin + 5 * US, begin + 15 * US, "cudaGraphLaunch_v10000", correlation=1 + step
        )
        if nodes:
            for i in range(10):
                start = begin + 20 * US + 96 * i * US
                export.kernel(start, start + 96 * US, f"node {i}", correlation=1 + step, node=1 + i)
        else:
            export.graph(begin + 20 * US, begin + 980 * US, 4 + step % 2, correlation=1 + step)
    return export


@pytest.mark.parametrize("nodes", [True, False])
def test_graphs_are_busy_time_in_either_mode(tmp_path, nodes):
    report = analyzed(tmp_path, graphs(nodes))
    assert classes(report) == {"compute": 4 * 960 * US, "launch_bound": 4 * 40 * US}
    assert slugs(report) == []


def test_two_graphs_are_two_rows(tmp_path):
    rows = analyzed(tmp_path, graphs(False)).ranks[0].kernels.rows
    assert {(row.name, row.count) for row in rows} == {("CUDA graph 4", 2), ("CUDA graph 5", 2)}
    assert len(analyzed(tmp_path, graphs(True)).ranks[0].kernels.rows) == 10


def test_graphs_that_an_exporter_could_not_write_are_no_idle_gpu(tmp_path):
    export = graphs(False)
    for step in range(5):
        export.kernel(step * MS + 16 * US, step * MS + 18 * US, "small", correlation=900 + step)
        export.call(step * MS + 1 * US, step * MS + 4 * US, correlation=900 + step)
    report = analyzed(tmp_path, export, MIDDLE)
    assert set(slugs(report)) == {"graphs-not-recorded", "launches-without-kernels"}
    assert set(classes(report)) == {"compute", "unattributed"}


# --- sums that are no time --------------------------------------------------------------------------------------------------


def test_idle_streams_beside_a_busy_one_are_no_idle_gpu(tmp_path):
    export = NsysExport()
    for step in range(4):
        export.nvtx(step * MS, step * MS + 990 * US, f"train_step {step}")
        for i in range(10):  # ten streams take turns
            start = step * MS + 20 * US + 98 * i * US
            export.launch(step * MS + 5 * US, start, start + 98 * US, GEMM, correlation=1 + 10 * step + i, stream=7 + i)
    assert classes(analyzed(tmp_path, export)) == {"compute": 2_940 * US, "launch_bound": 60 * US}


def test_no_two_findings_are_paid_with_the_same_time(tmp_path):
    export = training(each=100 * US)
    for step in range(4):
        begin = step * MS
        export.nvtx(begin + 60 * US, begin + 80 * US, "ncclAllReduce", registered=True)
        export.launch(begin + 62 * US, begin + 520 * US, begin + 980 * US, NCCL, correlation=900 + step, stream=20)
        export.call(begin + 530 * US, begin + 985 * US, "cudaStreamSynchronize", correlation=950 + step)
    report = analyzed(tmp_path, export)
    mean = report.summary.mean_ns
    savings = [finding.saving_ns for finding in report.findings if finding.saving_ns]
    assert savings
    assert sum(savings) <= mean - report.summary.class_ns[0]
    after = [mean, *(finding.step_ns_after for finding in report.findings if finding.step_ns_after is not None)]
    assert all(a >= b for a, b in pairwise(after))


def test_overhead_counts_only_where_the_gpu_waits_for_it(tmp_path):
    export = training().overhead(-90 * 10**9, -80 * 10**9, "CUPTI Buffer flush").overhead(2_900 * US, 70 * 10**9, "CUPTI Buffer flush")
    report = analyzed(tmp_path, export)
    assert classes(report) == {"compute": 2_700 * US, "launch_bound": 200 * US, "profiler": 100 * US}


def test_threads_that_wait_at_once_wait_no_longer_than_the_time_there_is(tmp_path):
    export = training()
    for tid in range(101, 111):
        for step in range(4):
            export.call(step * MS + 60 * US, step * MS + 985 * US, "cudaStreamSynchronize_v3020", tid=tid, correlation=1_000 * tid + step)
    assert classes(analyzed(tmp_path, export)) == THREE_STEPS  # none of them launches anything
    for step in range(4):
        export.call(step * MS + 66 * US, step * MS + 985 * US, "cudaStreamSynchronize_v3020", correlation=90_000 + step)
    found = classes(analyzed(tmp_path, export))
    assert found.keys() == {"compute", "host_sync", "launch_bound"}
    assert found["host_sync"] + found["launch_bound"] == 300 * US


def test_a_collective_that_is_long_because_a_rank_is_late_says_so(tmp_path):
    export = NsysExport()
    for rank, arrives in ((0, 300 * US), (1, 900 * US)):
        pid = 100 * (rank + 1)
        for step in range(4):
            begin, place = step * MS, {"pid": pid, "device": rank}
            export.nvtx(begin, begin + 990 * US, f"train_step {step}", pid=pid)
            export.launch(begin + 5 * US, begin + 20 * US, begin + arrives, GEMM, correlation=1 + step, **place)
            export.nvtx(begin + 40 * US, begin + 60 * US, "ncclAllReduce", pid=pid, registered=True)
            export.launch(begin + 45 * US, begin + arrives, begin + 930 * US, NCCL, correlation=100 + step, stream=20, **place)
    report = analyzed(tmp_path, export)
    rows = [row for row in report.to_dict()["partition"] if row["step"] == "train_step 2"]
    assert [(row["exposed_wait"], row["exposed_transfer"]) for row in rows] == [(600 * US, 30 * US), (0, 30 * US)]


# --- files and commands -----------------------------------------------------------------------------------------------------


def test_the_exporter_does_not_change_the_answer(tmp_path):
    answers = [analyzed(tmp_path, training().copy(925 * US, 935 * US, correlation=99), schema).to_dict() for schema in SCHEMAS]
    for answer in answers:
        assert answer["partition"] == answers[0]["partition"]
        assert answer["summary"] == answers[0]["summary"]


@pytest.mark.parametrize("name", ["nccl_op_sum", "gpukernsum"])
def test_a_name_that_nobody_knows_is_an_error_not_an_empty_answer(tmp_path, capsys, name):
    path = training().write(tmp_path / "a.sqlite")
    assert main(["explain", name]) == 1
    assert main([name, str(path)]) == 2
    assert capsys.readouterr().out == ""


def test_times_stay_whole_numbers_of_nanoseconds(tmp_path):
    export, far = NsysExport(), (1 << 53) // 10 + 1
    for step in range(3):
        begin = far + step * 1_000_001
        export.nvtx(begin, begin + 990_007, f"train_step {step}").launch(
            begin + 1, begin + 10_003, begin + 510_006, GEMM, correlation=1 + step
        )
    report = analyzed(tmp_path, export)
    told = report.to_dict()
    assert classes(report)["compute"] == 2 * 500_003
    assert int(told["profile"]["base_ns"]) + told["partition"][1]["end_ns"] == UTC + far + 1_000_001 + 510_006
    json.dumps(told, allow_nan=False)
    assert main(["export", str(tmp_path / "a.sqlite"), "-o", str(tmp_path / "out.db")]) == 0
    with sqlite3.connect(tmp_path / "out.db") as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        named = [(t, c) for t in tables for (_, c, *_) in db.execute(f'PRAGMA table_info("{t}")') if c.endswith("_ns") and c != "mean_ns"]
        kinds = {kind for t, c in named for (kind,) in db.execute(f'SELECT DISTINCT typeof("{c}") FROM "{t}"')}
    db.close()
    assert named
    assert kinds <= {"integer", "null"}


def test_a_file_that_is_locked_or_cannot_be_written_beside_is_read(tmp_path):
    path = training().write(tmp_path / "a.sqlite")
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    try:
        assert classes(traceread.analyze(path)) == THREE_STEPS
    finally:
        db.close()
    assert [file.name for file in tmp_path.iterdir()] == ["a.sqlite"]


def test_ninety_tables_and_one_command(tmp_path, capsys):
    path = training().write(tmp_path / "a.sqlite")
    with sqlite3.connect(path) as db:
        for i in range(80):
            db.execute(f"CREATE TABLE ENUM_SOMETHING_{i} (id INTEGER, name TEXT, label TEXT)")
            db.execute(f"INSERT INTO ENUM_SOMETHING_{i} VALUES ({i}, 'X', 'x')")
    db.close()
    assert main(["report", str(path)]) == 0
    assert "A step takes 1.00 ms" in capsys.readouterr().out
    assert classes(traceread.analyze(path)) == THREE_STEPS


def test_an_old_export_without_a_version_is_read_and_a_newer_major_one_refused(tmp_path):
    assert classes(analyzed(tmp_path, training(), OLD)) == THREE_STEPS
    with pytest.raises(InputError) as refused:
        analyzed(tmp_path, training(), "4.0.0")
    assert refused.value.slug == "unsupported-schema"
