"""Reports made rank by rank are those of loaded profiles, whoever makes them and whatever happens on the way."""

import gzip
import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from test_readers_discover import kineto_text, put

import traceread
from traceread import job
from traceread.cli import main
from traceread.engine import Workers
from traceread.errors import CorruptTrace, InputError, SelectionError, TraceNotFound, TracereadError, WorkerLost
from traceread.readers import discover
from traceread.reporters.answer import report_document
from traceread.reporters.capture import capture_document
from traceread.reporters.waiting import ranks_document
from traceread.reporters.windows import windows_document
from traceread.simulate import Capture, scenarios, simulate, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Simulated runs, written once: name → directory."""
    folder = tmp_path_factory.mktemp("runs")
    made = {}

    def run(scenario, capture, **options):
        key = f"{scenario}-{abs(hash((capture, *options.items())))}"
        if key not in made:
            write_run(simulate(scenarios()[scenario], **options), folder / key, capture)
            made[key] = folder / key
        return made[key]

    return run


@pytest.fixture
def four(runs):
    return runs("straggler-data", Capture(), ranks=4, steps=3)


def answer(report):
    return json.dumps(report.to_dict(), sort_keys=True)


def alike(path, workers=Workers(), **options):  # noqa: B008 - frozen
    """The JSON of a report made rank by rank, which must be that of the loaded profile."""
    loaded = traceread.analyze(traceread.load(path, **options))
    streamed = traceread.analyze(path, workers=workers, **options)
    assert answer(streamed) == answer(loaded)
    assert streamed.notices == loaded.notices
    return streamed


@pytest.mark.parametrize("workers", [Workers(), Workers(3)], ids=["here", "processes"])
@pytest.mark.parametrize(
    "capture",
    [Capture(), Capture("nsys"), Capture("nsys", files="job"), Capture("nsys", files="host", schema="old")],
    ids=["kineto", "nsys", "nsys, one file", "nsys, old"],
)
def test_reports_are_those_of_loaded_profiles(runs, capture, workers):
    report = alike(runs("straggler-data", capture, ranks=4, steps=3), workers)
    assert [r.rank for r in report.ranks] == [0, 1, 2, 3]


def test_only_some_ranks(four):
    report = alike(four, ranks=[1, 3])
    assert [r.rank for r in report.ranks] == [1, 3]


def test_a_rank_that_is_not_there(four):
    with pytest.raises(SelectionError, match=r"no rank 7 in .*: it holds 0-3"):
        traceread.analyze(four, ranks=[1, 7])


def test_a_name_that_says_another_rank_than_the_trace(tmp_path):
    put(tmp_path, "rank0.json", kineto_text(1, tail=True))
    put(tmp_path, "rank1.json", kineto_text(0, tail=True, at=50))
    for ranks in (None, [0], [0, 1]):
        report = alike(tmp_path, ranks=ranks)
        assert [r.rank for r in report.ranks] == (ranks or [0, 1])
        assert report.rank(0).files == (tmp_path / "rank1.json",)


@pytest.mark.parametrize("workers", [Workers(), Workers(2)], ids=["here", "processes"])
def test_ranks_that_nothing_states_are_numbered_as_loading_does(tmp_path, workers):
    put(tmp_path, "a.json", kineto_text(pid=1))
    put(tmp_path, "b.json", kineto_text(pid=2, devices=2))  # two ranks, so that what follows is taken for another first
    put(tmp_path, "c.json", kineto_text(pid=3))
    put(tmp_path, "d.json", kineto_text(2, pid=4))
    report = alike(tmp_path, workers)
    assert [(r.rank, r.files[0].name) for r in report.ranks] == [(0, "a.json"), (1, "b.json"), (2, "d.json"), (3, "b.json"), (4, "c.json")]
    assert "rank-order" in [n.slug for n in report.notices]


def test_successive_captures_are_joined(tmp_path):
    put(tmp_path, "rank0.1.json", kineto_text(0))
    put(tmp_path, "rank0.2.json", kineto_text(0, at=5000))
    put(tmp_path, "rank1.1.json", kineto_text(1, pid=101))
    report = alike(tmp_path)
    assert [len(r.files) for r in report.ranks] == [2, 1]


def test_successive_captures_without_a_rank_are_joined(tmp_path):
    for name, pid, at in (("a.json", 1, 0), ("b.json", 2, 0), ("c.json", 1, 5000), ("d.json", 2, 5000)):
        put(tmp_path, name, kineto_text(pid=pid, at=at))
    report = alike(tmp_path, Workers(2))
    assert [[f.name for f in r.files] for r in report.ranks] == [["a.json", "c.json"], ["b.json", "d.json"]]


def test_two_files_of_one_rank_are_refused(tmp_path):
    put(tmp_path, "a.json", kineto_text(0))
    put(tmp_path, "b.json", kineto_text(0, pid=7))
    with pytest.raises(InputError, match="two files claim rank 0"):
        traceread.analyze(tmp_path)


def test_user_patterns_and_steps_reach_the_workers(four, tmp_path):
    config = put(tmp_path, "traceread.toml", '[[kernels]]\npattern = "gemm"\ncategory = "communication"\n')
    options = {"config": config, "steps": "4:6"}
    loaded = traceread.analyze(traceread.load(four, config=config), **options)
    assert answer(traceread.analyze(four, workers=Workers(2), **options)) == answer(loaded)


def test_progress_reaches_the_end(four):
    from traceread.readers.options import ReadOptions

    total = sum(f.stat().st_size for f in four.glob("rank*"))
    for workers in (Workers(), Workers(2)):
        seen = []
        traceread.analyze(four, workers=workers, options=ReadOptions(progress=lambda done, of: seen.append((done, of))))  # noqa: B023
        assert seen[-1] == (total, total)
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)


# Dask


def test_dask_gives_the_same(four):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        alike(four, Workers(cluster=cluster.scheduler_address))


def test_workers_of_another_version_are_refused(four, monkeypatch):
    monkeypatch.setattr(traceread, "__version__", "0.0.1")  # what runs here is started with it; "workers" are this process
    real = job.Request
    monkeypatch.setattr(job, "Request", lambda **options: real(**options | {"version": "9.9"}))
    with pytest.raises(TracereadError, match=r"a worker has traceread 0\.0\.1, this is 9\.9"):
        traceread.analyze(four, keep_going=True)


# Faults


@pytest.fixture
def damaged(four, tmp_path):
    """A copy of the run in which rank 2 cannot be read."""
    folder = tmp_path / "run"
    shutil.copytree(four, folder)
    [file] = folder.glob("rank2.*")
    file.write_bytes(gzip.compress(b'{"traceEvents": ['))
    return folder


@pytest.mark.parametrize("workers", [Workers(), Workers(2)], ids=["here", "processes"])
def test_a_rank_that_cannot_be_read_is_named(damaged, workers):
    with pytest.raises(CorruptTrace, match=r"^rank 2: .*rank2\.pt\.trace\.json\.gz"):
        traceread.analyze(damaged, workers=workers)


@pytest.mark.parametrize("workers", [Workers(), Workers(2)], ids=["here", "processes"])
def test_going_on_without_a_rank(damaged, workers):
    report = traceread.analyze(damaged, workers=workers, keep_going=True)
    assert [r.rank for r in report.ranks] == [0, 1, 3]
    [missing] = [n for n in report.notices if n.slug == "rank-missing"]
    assert missing.rank == 2
    assert missing.message.startswith("not in this report: rank 2: ")
    next(damaged.glob("rank2.*")).unlink()
    without = traceread.analyze(damaged)
    assert report.partition.to_dict() == without.partition.to_dict()
    assert report.rank_table.to_dict() == without.rank_table.to_dict()


def test_going_on_without_a_rank_that_was_asked_for(damaged):
    assert [r.rank for r in traceread.analyze(damaged, ranks=[1, 2], keep_going=True).ranks] == [1]


def test_nothing_that_can_be_read_is_an_error_all_the_same(damaged):
    with pytest.raises(CorruptTrace, match="rank 2"):
        traceread.analyze(damaged, ranks=[2], keep_going=True)


@pytest.fixture
def vanishing(damaged, monkeypatch):
    """A run of ranks 0 to 2, of which the file of rank 1 is gone when it is read."""
    find = discover.find

    def find_and_lose(*args, **options):
        found = find(*args, **options)
        next(damaged.glob("rank1.*")).unlink()
        return found

    put(damaged, "rank2.pt.trace.json.gz", next(damaged.glob("rank3.*")).read_bytes())
    next(damaged.glob("rank3.*")).unlink()
    monkeypatch.setattr(discover, "find", find_and_lose)
    return damaged


@pytest.mark.parametrize("workers", [Workers(), Workers(2)], ids=["here", "processes"])
def test_a_file_that_vanishes(vanishing, workers):
    with pytest.raises(TraceNotFound, match=r"^rank 1: .*rank1\.pt\.trace\.json\.gz does not exist"):
        traceread.analyze(vanishing, workers=workers)


@pytest.mark.parametrize("workers", [Workers(), Workers(2)], ids=["here", "processes"])
def test_going_on_without_a_file_that_vanishes(vanishing, workers):
    report = traceread.analyze(vanishing, workers=workers, keep_going=True)
    [missing] = [n for n in report.notices if n.slug == "rank-missing"]
    assert missing.rank == 1
    assert "rank1.pt.trace.json.gz does not exist" in missing.message
    assert 1 not in [r.rank for r in report.ranks]
    assert len(report.ranks) == 2


def test_killed_workers(four):
    stop = threading.Event()

    def kill_all():
        while not stop.wait(0.01):
            for child in multiprocessing.active_children():
                with suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_all)
    killer.start()
    try:
        begun = time.monotonic()
        with pytest.raises(WorkerLost, match=r"^rank \d \(rank\d\.pt\.trace\.json\.gz\): .* killed by signal 9"):
            traceread.analyze(four, workers=Workers(2))
        assert time.monotonic() - begun < 60
    finally:
        stop.set()
        killer.join()


def test_one_killed_worker_costs_its_rank(four, monkeypatch):
    killed = []

    def kill_one():
        while not killed:
            for child in multiprocessing.active_children()[:1]:
                os.kill(child.pid, signal.SIGKILL)
                killed.append(child.pid)
            time.sleep(0.01)

    killer = threading.Thread(target=kill_one)
    killer.start()
    report = traceread.analyze(four, workers=Workers(2), keep_going=True)
    killer.join()
    [missing] = [n for n in report.notices if n.slug == "rank-missing"]
    assert sorted([missing.rank, *(r.rank for r in report.ranks)]) == [0, 1, 2, 3]
    present = [r.rank for r in report.ranks]
    assert report.partition.to_dict() == traceread.analyze(four, ranks=present).partition.to_dict()


def test_the_command_says_which_rank_is_missing(damaged, capsys):
    assert main(["report", str(damaged), "--json"]) == 1
    assert "rank 2: " in capsys.readouterr().err
    assert main(["report", str(damaged), "--json", "--keep-going"]) == 0
    said = json.loads(capsys.readouterr().out)["profile"]["warnings"]
    assert [(w["slug"], w["rank"]) for w in said if w["slug"] == "rank-missing"] == [("rank-missing", 2)]


def test_tasks_travel_without_progress_and_with_their_share_of_the_cpus():
    request = job.Request(paths=["a"], read=replace(job.ReadOptions(), progress=print))
    [task] = job._first_tasks(request, [discover.Source(Path("a.json"), "kineto", 3, "file name")])
    sent = job._for_others(task, 1).request.read
    assert (sent.progress, sent.threads) == (None, 1)


SAMPLES = Path(__file__).parents[1] / "sample_traces"


@pytest.mark.parametrize("sample", ["launch-bound", "llama7b/before-nsys", "straggler-compute"])
def test_the_answer_needs_no_details(sample):
    whole, brief = (traceread.analyze(SAMPLES / sample, details=details) for details in (True, False))
    for document in (report_document, windows_document, ranks_document, capture_document):
        assert document(brief) == document(whole)
    assert whole.ranks[0].ranges
    assert whole.ranks[0].timeline is not None
    assert any(row.op for row in whole.ranks[0].kernels.rows)
    for rank in brief.ranks:
        assert rank.timeline is None
        assert rank.ranges == ()
        assert not any(row.op for row in rank.kernels.rows)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["report"], False),
        (["report", "-f", "markdown"], False),
        (["report", "-f", "json"], True),
        (["report", "-f", "html"], True),
        (["report", "-f", "csv"], True),
        (["report", "--db", "history.db"], True),
        (["kernels"], True),
        (["steps"], False),
        (["ranks"], False),
        (["info"], False),
    ],
)
def test_details_are_worked_out_for_what_shows_them(arguments, wanted, monkeypatch, tmp_path, capsys):
    asked = []
    analyze = traceread.analyze
    monkeypatch.setattr(traceread, "analyze", lambda *args, **kwargs: asked.append(kwargs["details"]) or analyze(*args, **kwargs))
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, "-q", str(SAMPLES / "launch-bound")]) == 0
    assert asked == [wanted]
    assert capsys.readouterr().out
