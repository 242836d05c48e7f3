import gzip
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from nsys_builder import UTC, NsysExport

from traceread.errors import CorruptTrace, InputError, SelectionError, TraceNotFound, UnknownFormat
from traceread.readers import discover, kineto
from traceread.readers.options import ReadOptions

REAL = Path(__file__).parents[2] / "shared" / "traces"
EPOCH_US = 1_700_000_000_000_000


def kineto_text(rank=None, *, pid=100, at=0, device=0, devices=1, tail=False, names=("gemm", "relu"), host=None):
    """A PyTorch trace of a launch and a kernel per name and device; `tail` puts distributedInfo behind the events."""
    events = []
    correlation = 1
    for gpu in range(device, device + devices):
        for i, name in enumerate(names):
            ts = EPOCH_US + at + 10 * i
            link = {"correlation": correlation}
            events += [
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": pid, "tid": pid, "ts": ts, "dur": 2, "args": link},
                {
                    "ph": "X", "cat": "kernel", "name": name, "pid": gpu, "tid": 7, "ts": ts + 3, "dur": 4,
                    "args": {"device": gpu, "stream": 7, **link},
                },
            ]  # fmt: skip
            correlation += 1
    job = {} if rank is None else {"distributedInfo": {"backend": "nccl", "pg_config": [{"ranks": [0]}], "rank": rank, "world_size": 8}}
    job |= {} if host is None else {"host_name": host}
    events = {"traceEvents": events}
    return json.dumps({"schemaVersion": 1} | (events | job if tail else job | events))


def put(folder, name, text):
    path = Path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def ranks(profile):
    return [(trace.rank, trace.rank_source) for trace in profile]


def slugs(profile):
    return [notice.slug for notice in profile.notices] + [notice.slug for trace in profile for notice in trace.notices]


def load(*paths, **options):
    return discover.load_traces(list(paths), **options)


@pytest.fixture
def job(tmp_path):
    """A directory with the traces of ranks 0 to 3, named so that the order of names is not that of ranks."""
    for rank, name in enumerate("dbca"):
        put(tmp_path, f"{name}.json", kineto_text(rank, pid=100 + rank))
    return tmp_path


@pytest.fixture
def opened(monkeypatch):
    """The names of the files that were read whole."""
    names = []

    def spy(path, options):
        names.append(path.name)
        return kineto.read(path, options)

    monkeypatch.setitem(discover.READERS, "kineto", spy)
    return names


# --- paths -------------------------------------------------------------------------------------------------------------------


def test_a_directory_is_read_in_order_of_rank(job):
    profile = load(job)
    assert ranks(profile) == [(rank, "distributedInfo") for rank in range(4)]
    assert [trace.files[0].name for trace in profile] == ["d.json", "b.json", "c.json", "a.json"]
    assert (profile.source, profile.title, profile.notices, profile.skipped) == ("kineto", str(job), (), ())


def test_files_and_patterns(job):
    assert len(load(job / "a.json")) == 1
    assert len(load(job / "a.json", job / "b.json")) == 2
    assert len(load(str(job / "[ab].json"))) == 2
    assert load(job / "a.json", job / "b.json").title == f"{job / 'a.json'} and 1 more"


def test_a_pattern_may_match_directories(tmp_path):
    put(tmp_path, "node0/a.json", kineto_text(0))
    put(tmp_path, "node1/a.json", kineto_text(1))
    assert [trace.rank for trace in load(str(tmp_path / "node*"))] == [0, 1]


def test_a_name_that_looks_like_a_pattern_is_a_name_first(tmp_path):
    put(tmp_path, "run[1].json", kineto_text(0))
    put(tmp_path, "run1.json", kineto_text(1))
    assert [trace.rank for trace in load(tmp_path / "run[1].json")] == [0]


def test_the_home_directory_may_be_short(tmp_path, monkeypatch):
    put(tmp_path, "a.json", kineto_text(2))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert [trace.rank for trace in load("~/a.json")] == [2]


def test_subdirectories_are_not_read(tmp_path):
    put(tmp_path, "a.json", kineto_text(0))
    put(tmp_path, "older/b.json", kineto_text(1))
    assert [trace.rank for trace in load(tmp_path)] == [0]


def test_only_subdirectories_is_said(tmp_path):
    put(tmp_path, "older/b.json", kineto_text(1))
    with pytest.raises(TraceNotFound) as error:
        load(tmp_path)
    assert str(tmp_path / "older") in error.value.hint


def test_a_file_given_twice_is_read_once(job):
    (job / "link.json").symlink_to(job / "a.json")
    assert len(load(job / "a.json", job / "a.json", job / "link.json")) == 1
    assert len(load(job)) == 4


def test_what_is_not_there_is_told_with_what_is(job):
    with pytest.raises(TraceNotFound, match=r"e\.json does not exist") as error:
        load(job / "e.json")
    assert "a.json, b.json, c.json, d.json" in error.value.hint
    with pytest.raises(TraceNotFound, match="no file matches") as error:
        load(str(job / "*.gz"))
    assert "a.json" in error.value.hint
    with pytest.raises(TraceNotFound) as error:
        load(job / "x" / "y" / "e.json")
    assert str(job) in error.value.hint
    (job / "gone.json").symlink_to(job / "nowhere")
    with pytest.raises(TraceNotFound, match="link to a file that does not exist"):
        load(job / "gone.json")


def test_nothing_at_all(tmp_path):
    with pytest.raises(TraceNotFound, match="no path"):
        load()
    with pytest.raises(TraceNotFound, match="no files"):
        load(tmp_path)


def test_a_directory_without_traces_lists_what_is_there(tmp_path):
    put(tmp_path, "notes.txt", "hello")
    put(tmp_path, "config.json", '{"a": 1}')
    with pytest.raises(TraceNotFound) as error:
        load(tmp_path)
    assert "notes.txt: neither JSON nor SQLite" in error.value.message
    assert "config.json: JSON, but not a trace" in error.value.message


# --- what a file is ----------------------------------------------------------------------------------------------------------


def test_unrelated_files_are_listed_with_the_reason(job):
    put(job, "notes.txt", "hello")
    put(job, "config.json", '{"a": 1}')
    put(job, "list.json", "[1, 2, 3]")
    put(job, "pyproject.toml", "[build-system]\nx = 1\n")
    put(job, "empty.json", "")
    put(job, "cut.json.tmp", kineto_text(9))
    put(job, "broken.gz", b"\x1f\x8b\x08nonsense")
    put(job, "rank0.qdstrm", b"QDSTRM")
    put(job, "packed.sqlite.gz", gzip.compress(b"SQLite format 3\0" + bytes(100)))
    os.mkfifo(job / "pipe")
    (job / "device").symlink_to("/dev/zero")
    (job / "gone").symlink_to(job / "nowhere")
    (job / "loop").symlink_to(job / "loop")
    profile = load(job)
    assert len(profile) == 4
    assert {path.name: reason for path, reason in profile.skipped} == {
        "notes.txt": "neither JSON nor SQLite",
        "config.json": "JSON, but not a trace",
        "list.json": "neither JSON nor SQLite",
        "pyproject.toml": "neither JSON nor SQLite",
        "empty.json": "empty",
        "cut.json.tmp": "left behind by a profiler that did not finish; it is read if its name is given",
        "broken.gz": "neither JSON nor SQLite",
        "rank0.qdstrm": "what nsys leaves where it finds no importer; its QdstrmImporter -i FILE makes a report of it",
        "packed.sqlite.gz": "a compressed SQLite file, which has to be unpacked first",
        "pipe": "not a regular file",
        "device": "not a regular file",
        "gone": "cannot be read: No such file or directory",
        "loop": "cannot be read: Too many levels of symbolic links",
    }


def test_files_of_ours_are_not_mentioned(job):
    for name in ("run.json", "run.rank3.json", "steps.segment0.jsonl", "truth.json", "traceread.toml"):
        put(job, name, '{"format": 1, "traceEvents": []}')
    assert load(job).skipped == ()


def test_another_database_is_not_an_export(job):
    import sqlite3

    with sqlite3.connect(job / "history.db") as db:
        db.execute("CREATE TABLE reports (id)")
    db.close()
    assert [reason for _, reason in load(job).skipped] == ["a SQLite database, but not an export of Nsight Systems"]


@pytest.mark.parametrize("text", ["hello", b"\x00\x01", "[build-system]"])
def test_a_file_given_by_name_that_is_no_trace_is_an_error(tmp_path, text):
    with pytest.raises(UnknownFormat, match=r"x\.json is neither a PyTorch trace nor"):
        load(put(tmp_path, "x.json", text))


def test_a_device_or_a_pipe_given_by_name_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(UnknownFormat, match="not a regular file"):
            load(path)


def test_json_given_by_name_goes_to_its_reader(tmp_path):
    with pytest.raises(UnknownFormat, match="without a list called traceEvents"):
        load(put(tmp_path, "x.json", '{"a": 1}'))


def test_a_leftover_of_the_profiler_is_read_by_name(tmp_path):
    assert [trace.rank for trace in load(put(tmp_path, "cut.json.tmp", kineto_text(9)))] == [9]


def test_the_content_decides_not_the_name(tmp_path):
    put(tmp_path, "plain.json.gz", kineto_text(0))
    put(tmp_path, "packed.json", gzip.compress(kineto_text(1).encode()))
    with zipfile.ZipFile(tmp_path / "zipped", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("trace.json", kineto_text(2))
    put(tmp_path, "with a mark.txt", "\ufeff" + kineto_text(3))
    put(tmp_path, "list form", json.dumps(json.loads(kineto_text())["traceEvents"]))
    assert [trace.rank for trace in load(tmp_path)] == [0, 1, 2, 3, 4]


def test_an_unreadable_file_is_skipped_in_a_directory_and_an_error_by_name(job):
    locked = put(job, "locked.json", kineto_text(7))
    locked.chmod(0)
    if os.access(locked, os.R_OK):
        pytest.skip("this user may read everything")
    assert [reason for _, reason in load(job).skipped] == ["cannot be read: Permission denied"]
    with pytest.raises(InputError, match=r"locked\.json"):
        load(locked)


# --- both formats ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(tmp_path):
    put(tmp_path, "rank0.json", kineto_text(0))
    NsysExport().kernel(0, 5).environment("RANK=0").write(tmp_path / "rank0.sqlite")
    return tmp_path


def test_both_formats_in_one_directory_are_an_error_that_names_both(mixed):
    with pytest.raises(InputError, match="both formats") as error:
        load(mixed)
    assert "rank0.json" in error.value.message
    assert "rank0.sqlite" in error.value.message
    assert "--format kineto" in error.value.hint
    assert "--format nsys" in error.value.hint
    assert error.value.slug == "mixed-formats"


@pytest.mark.parametrize(("source", "other"), [("kineto", "rank0.sqlite"), ("nsys", "rank0.json")])
def test_the_format_asked_for_is_read(mixed, source, other):
    profile = load(mixed, source=source)
    assert (profile.source, len(profile)) == (source, 1)
    assert [path.name for path, _ in profile.skipped] == [other]


def test_a_format_that_is_not_there(job):
    with pytest.raises(TraceNotFound, match="no Nsight Systems export in"):
        load(job, source="nsys")
    with pytest.raises(SelectionError, match="no format 'perfetto'"):
        load(job, source="perfetto")


def test_a_report_beside_its_export_is_not_exported_again(tmp_path):
    NsysExport().kernel(0, 5).write(tmp_path / "run.sqlite")
    put(tmp_path, "run.nsys-rep", b"no public format")
    profile = load(tmp_path)
    assert len(profile) == 1
    assert profile.skipped == ((tmp_path / "run.nsys-rep", "its export run.sqlite is read instead"),)


def test_a_report_alone_says_how_to_export_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    put(tmp_path, "rank3.nsys-rep", b"no public format")
    with pytest.raises(InputError, match=r"rank 3: .*rank3\.nsys-rep") as error:
        load(tmp_path)
    assert error.value.hint.startswith("nsys export")


# --- ranks -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank3.json", 3),
        ("rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 0),
        ("graph_capture_rank_12.1733.json", 12),
        ("dp0_pp0_tp0_dcp0_ep0_rank5.17.pt.trace.json.gz", 5),
        ("graphed_rank1of2.json.gz", 1),
        ("Rank7.sqlite", 7),
        ("worker3_step_12.1694128201557.pt.trace.json", 3),
        ("worker0.1623143089861.pt.trace.json", 0),
        ("r1t03.json", None),
        ("local_rank2.json", None),
        ("crank5.json", None),
        ("ranking_5.json", None),
        ("coworker1.json", None),
        ("host_1980917.1733767137045419368.pt.trace.json", None),
        ("trace.json", None),
    ],
)
def test_the_rank_in_a_name(name, rank):
    assert discover.rank_in_name(name) == rank


def test_the_name_counts_where_the_trace_says_nothing(tmp_path):
    put(tmp_path, "rank-10.json", kineto_text(pid=1))
    put(tmp_path, "rank-2.json", kineto_text(pid=1))
    profile = load(tmp_path)
    assert ranks(profile) == [(2, "file name"), (10, "file name")]
    assert slugs(profile) == []


def test_the_trace_counts_where_its_name_says_otherwise(tmp_path):
    profile = load(put(tmp_path, "rank0.json", kineto_text(3)))
    assert ranks(profile) == [(3, "distributedInfo")]
    assert slugs(profile) == ["rank-name"]
    assert "0" in profile.notices[0].message


def test_a_single_trace_without_a_rank_is_rank_0_and_no_alarm(tmp_path):
    profile = load(put(tmp_path, "trace.json", kineto_text()))
    assert ranks(profile) == [(0, "order")]
    assert slugs(profile) == []


def test_traces_without_ranks_are_numbered_in_order_and_that_is_said(tmp_path):
    for number in (10, 9, 2):
        put(tmp_path, f"t{number}.json", kineto_text(pid=number))
    profile = load(tmp_path)
    assert [(trace.rank, trace.pid) for trace in profile] == [(0, 2), (1, 9), (2, 10)]
    assert slugs(profile) == ["rank-order"]
    assert "0 is t2.json, pid 2" in profile.notices[0].message


def test_traces_without_ranks_get_the_numbers_that_are_free(tmp_path):
    put(tmp_path, "a.json", kineto_text(1, pid=1))
    put(tmp_path, "b.json", kineto_text(pid=2))
    put(tmp_path, "c.json", kineto_text(pid=3))
    assert [(trace.rank, trace.pid) for trace in load(tmp_path)] == [(0, 2), (1, 1), (2, 3)]


def test_an_export_of_several_processes_is_numbered_by_device(tmp_path):
    export = NsysExport().kernel(0, 5, pid=300, device=0).kernel(0, 5, pid=100, device=1)
    profile = load(export.write(tmp_path / "rank5.sqlite"))
    assert [(trace.rank, trace.pid, trace.rank_source) for trace in profile] == [(0, 300, "order"), (1, 100, "order")]


def test_two_gpus_of_one_process_do_not_share_its_rank(tmp_path):
    profile = load(put(tmp_path, "a.json", kineto_text(0, devices=2)))
    assert [(trace.rank, trace.device.index) for trace in profile] == [(0, 0), (1, 1)]
    assert slugs(profile) == ["rank-order"]


def test_notices_of_a_rank_carry_its_number_and_those_of_a_whole_file_stand_once(tmp_path):
    lossy = "Not all CUDA events might have been collected."
    both = NsysExport().kernel(0, 5, pid=100).kernel(0, 5, pid=200, device=1).diagnostic(lossy)
    profile = load(both.write(tmp_path / "a.sqlite"))
    assert [(notice.slug, notice.rank) for notice in profile.notices] == [("nsys-data-loss", None), ("rank-order", None)]
    assert [trace.notices for trace in profile] == [(), ()]
    one = load(NsysExport().kernel(0, 5).diagnostic(lossy).environment("RANK=4").write(tmp_path / "b.sqlite"))
    assert [(notice.slug, notice.rank) for notice in one.traces[0].notices] == [("nsys-data-loss", 4)]


def test_two_files_that_claim_one_rank_are_an_error_that_names_both(tmp_path):
    put(tmp_path, "a.json", kineto_text(3, pid=100))
    put(tmp_path, "b.json", kineto_text(3, pid=100, at=5))
    with pytest.raises(InputError, match="two files claim rank 3") as error:
        load(tmp_path)
    assert "a.json" in error.value.message
    assert "b.json" in error.value.message
    assert error.value.slug == "duplicate-rank"


def test_captures_of_different_processes_are_not_joined(tmp_path):
    put(tmp_path, "a.json", kineto_text(3, pid=100))
    put(tmp_path, "b.json", kineto_text(3, pid=101, at=1000))
    with pytest.raises(InputError, match="two files claim rank 3"):
        load(tmp_path)


def test_the_rank_is_found_however_long_the_list_of_process_groups(tmp_path, opened):
    groups = [{"pg_name": str(i), "ranks": list(range(2048))} for i in range(20)]
    events = json.loads(kineto_text())["traceEvents"]
    for rank in range(2):
        job = {"backend": "nccl", "rank": rank, "world_size": 2048, "pg_config": groups}
        put(tmp_path, f"{rank}.json", json.dumps({"schemaVersion": 1, "distributedInfo": job, "traceEvents": events}))
    assert [trace.rank for trace in load(tmp_path, ranks=[1])] == [1]
    assert opened == ["1.json"]


def test_the_rank_behind_the_process_groups_is_found_too(tmp_path):
    job = {"backend": "nccl", "pg_config": [{"ranks": [0, 1]}], "rank": 1}
    events = json.loads(kineto_text())["traceEvents"]
    path = put(tmp_path, "a.json", json.dumps({"distributedInfo": job, "traceEvents": events}))
    assert discover.find([path]).sources[0].rank == 1


# --- a rank filter -----------------------------------------------------------------------------------------------------------


def test_only_the_files_of_the_ranks_asked_for_are_read(job, opened):
    assert [trace.rank for trace in load(job, ranks=[3, 1])] == [1, 3]
    assert sorted(opened) == ["a.json", "b.json"]


def test_the_name_is_enough_to_leave_a_file_alone(tmp_path, opened):
    for rank in range(3):
        put(tmp_path, f"rank{rank}.json", kineto_text(rank, pid=rank + 1, tail=True))
    assert [trace.rank for trace in load(tmp_path, ranks={2})] == [2]
    assert opened == ["rank2.json"]


def test_a_name_that_says_another_rank_hides_nothing(tmp_path, opened):
    put(tmp_path, "rank0.json", kineto_text(5, pid=1, tail=True))
    put(tmp_path, "rank1.json", kineto_text(1, pid=2, tail=True))
    assert [trace.rank for trace in load(tmp_path, ranks={5})] == [5]


def test_numbers_given_in_order_do_not_depend_on_the_filter(tmp_path):
    put(tmp_path, "a.json", kineto_text(0, pid=1))
    put(tmp_path, "b.json", kineto_text(pid=2))
    put(tmp_path, "c.json", kineto_text(pid=3))
    assert {trace.rank: trace.pid for trace in load(tmp_path)} == {0: 1, 1: 2, 2: 3}
    assert {trace.rank: trace.pid for trace in load(tmp_path, ranks=[1])} == {1: 2}
    assert {trace.rank: trace.pid for trace in load(tmp_path, ranks=[2])} == {2: 3}


def test_a_rank_that_is_not_there_is_an_error_with_those_that_are(job):
    with pytest.raises(SelectionError, match="no rank 7") as error:
        load(job, ranks=[1, 7])
    assert "0-3" in error.value.message
    assert error.value.hint == "--ranks 0-3"


# --- successive captures -----------------------------------------------------------------------------------------------------


def test_successive_captures_of_a_rank_are_joined(tmp_path):
    put(tmp_path, "host_100.2.json", kineto_text(0, pid=100, at=1000, names=("relu", "softmax")))
    put(tmp_path, "host_100.1.json", kineto_text(0, pid=100, at=0, names=("gemm", "relu")))
    profile = load(tmp_path)
    [trace] = profile.traces
    assert [trace.names[code] for code in trace.activities.name] == ["gemm", "relu", "relu", "softmax"]
    assert [path.name for path in trace.files] == ["host_100.1.json", "host_100.2.json"]
    assert len(trace.windows_ns) == 2
    assert trace.windows_ns[0][1] < trace.windows_ns[1][0]
    assert trace.capture_ns == (trace.windows_ns[0][0], trace.windows_ns[1][1])
    assert slugs(profile) == ["joined-windows"]
    assert "host_100.1.json, host_100.2.json" in trace.notices[0].message
    assert len(trace.threads) == 1
    assert (np.diff(trace.activities.start_ns) > 0).all()


def test_correlation_ids_that_start_anew_are_kept_apart(tmp_path):
    for window in range(3):
        put(tmp_path, f"w{window}.json", kineto_text(0, pid=100, at=1000 * window))
    [trace] = load(tmp_path).traces
    assert len(set(trace.calls.correlation.tolist())) == 6
    assert trace.activities.correlation.tolist() == trace.calls.correlation.tolist()


def test_correlation_ids_that_go_on_are_left_alone(tmp_path):
    for window, first in enumerate((1, 50)):
        export = NsysExport().environment("RANK=0")
        export.launch(10_000 * window, 10_000 * window + 10, 10_000 * window + 20, correlation=first, tid=100 + window)
        export.write(tmp_path / f"w{window}.sqlite")
    [trace] = load(tmp_path).traces
    assert trace.activities.correlation.tolist() == [1, 50]
    assert [trace.threads[i].tid for i in trace.calls.thread] == [100, 101]
    assert trace.capture_ns == (UTC, UTC + 15_000)


def test_work_on_other_gpus_is_known_in_every_capture(tmp_path):
    for window in range(2):
        export = NsysExport()
        for device in range(2):
            at = 10_000 * window + 100 * device
            export.launch(at, at + 10, at + 20, correlation=1 + device, device=device)
        export.write(tmp_path / f"w{window}.sqlite")
    for trace in load(tmp_path).traces:
        both = np.concatenate((trace.activities.correlation, trace.elsewhere.correlation))
        assert len(trace.elsewhere) == 2
        assert sorted(both.tolist()) == sorted(trace.calls.correlation.tolist())


def test_successive_captures_without_a_rank_are_one_rank(tmp_path):
    for window in range(2):
        for pid in (100, 200):
            put(tmp_path, f"host_{pid}.{window}.pt.trace.json", kineto_text(pid=pid, at=1000 * window))
    profile = load(tmp_path)
    assert [(trace.rank, trace.pid, len(trace.activities)) for trace in profile] == [(0, 100, 4), (1, 200, 4)]


def test_equal_process_ids_on_two_hosts_are_two_ranks(tmp_path):
    put(tmp_path, "a.json", kineto_text(pid=1, host="node0"))
    put(tmp_path, "b.json", kineto_text(pid=1, host="node1", at=1000))
    assert [trace.host for trace in load(tmp_path)] == ["node0", "node1"]


def test_equal_process_ids_at_the_same_time_are_two_ranks(tmp_path):
    put(tmp_path, "a.json", kineto_text(pid=1))
    put(tmp_path, "b.json", kineto_text(pid=1, at=5))
    assert [trace.files[0].name for trace in load(tmp_path)] == ["a.json", "b.json"]


# --- errors and progress -----------------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_read_is_named_with_its_rank(job):
    put(job, "e.json", '{"schemaVersion": 1, "distributedInfo": {"rank": 4}, "traceEvents": [{"ph": "X", "na')
    with pytest.raises(CorruptTrace, match=r"^rank 4: .*e\.json") as error:
        load(job)
    assert error.value.hint


def test_a_file_that_vanishes_is_named(job, monkeypatch):
    def vanish(path, options):
        raise OSError(5, "Input/output error")

    monkeypatch.setitem(discover.READERS, "kineto", vanish)
    with pytest.raises(InputError, match=r"d\.json cannot be read: Input/output error"):
        load(job)


def test_progress_counts_over_all_files(job):
    seen = []
    load(job, options=ReadOptions(progress=lambda done, total: seen.append((done, total))))
    total = sum(path.stat().st_size for path in job.iterdir())
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)
    assert len(seen) >= 4


def test_find_says_what_is_there_without_reading(job, opened):
    put(job, "rank9.json", kineto_text())
    found = discover.find([job])
    assert [(s.path.name, s.format, s.rank, s.rank_source) for s in found.sources] == [
        ("d.json", "kineto", 0, "distributedInfo"),
        ("b.json", "kineto", 1, "distributedInfo"),
        ("c.json", "kineto", 2, "distributedInfo"),
        ("a.json", "kineto", 3, "distributedInfo"),
        ("rank9.json", "kineto", 9, "file name"),
    ]
    assert opened == []


# --- real captures -----------------------------------------------------------------------------------------------------------


def test_a_real_job_of_eight_ranks():
    if not (REAL / "kineto" / "dlrm_8rank").exists():
        pytest.skip("no real captures beside the repository")
    profile = load(REAL / "kineto" / "dlrm_8rank")
    assert ranks(profile) == [(rank, "distributedInfo") for rank in range(8)]
    assert slugs(profile) == []
    some = load(REAL / "kineto" / "dlrm_8rank", ranks=[5])
    assert np.array_equal(some.traces[0].activities.start_ns, profile.traces[5].activities.start_ns)


def test_a_real_export_of_two_processes():
    if not (REAL / "nsys" / "fsdp_2gpu_before.sqlite").exists():
        pytest.skip("no real captures beside the repository")
    profile = load(REAL / "nsys" / "fsdp_2gpu_before.sqlite")
    assert [(trace.rank, trace.pid, trace.device.index) for trace in profile] == [(0, 144, 0), (1, 145, 1)]
    assert slugs(profile) == ["rank-order"]
