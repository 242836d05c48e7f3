"""Traces behind URLs are those of this machine: the same reports, errors that name the URL, nothing left behind."""

import errno
import json
import os
import pickle
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from nsys_builder import NsysExport
from test_readers_discover import kineto_text

import traceread
from traceread.cli import main
from traceread.errors import CorruptTrace, InputError, SelectionError, TraceNotFound, UnknownFormat
from traceread.readers import discover
from traceread.readers.options import ReadOptions
from traceread.remote import RemotePath, is_url

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def bucket():
    """A file system in memory, empty; URLs begin with memory://."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The directory for temporary files, which must be empty again in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def run(bucket, here, tmp_path):
    """Two ranks behind a URL, and the same in a directory."""
    for rank in (0, 1):
        text = kineto_text(rank, pid=rank + 1, at=10 * rank).encode()
        bucket.pipe(f"/run/rank{rank}.json", text)
        (tmp_path / f"rank{rank}.json").write_bytes(text)
    bucket.pipe("/run/notes.txt", b"hello")
    bucket.pipe("/run/older/rank0.json", b"{}")
    return tmp_path


def comparable(report, folder, url):
    return json.dumps(report.to_dict(), sort_keys=True).replace(url, str(folder))


def test_a_directory_behind_a_url_is_the_run_it_holds(run):
    remote, local = traceread.analyze("memory://run"), traceread.analyze([run / "rank0.json", run / "rank1.json"])
    assert [r.files for r in remote.ranks] == [(RemotePath.of(f"memory:///run/rank{i}.json"),) for i in (0, 1)]
    assert remote.partition.to_dict() == local.partition.to_dict()
    assert [(str(path), why) for path, why in remote.skipped_files] == [("memory:///run/notes.txt", "neither JSON nor SQLite")]
    assert [r.rank_source for r in remote.ranks] == ["distributedInfo"] * 2


@pytest.mark.parametrize("url", ["memory://run/rank1.json", "memory://run/*1.json", "memory:///run/rank[1].json"])
def test_files_and_patterns(run, url):
    [trace] = traceread.load(url)
    assert trace.rank == 1
    assert str(trace.files[0]).startswith("memory://")


def test_streaming_and_loading_give_the_same(run):
    loaded, streamed = traceread.analyze(traceread.load("memory://run")), traceread.analyze("memory://run")
    assert json.dumps(loaded.to_dict()) == json.dumps(streamed.to_dict())


def test_exports_and_zips(bucket, here, tmp_path):
    NsysExport().launch(0, 10, 20, correlation=1).write(tmp_path / "rank3.sqlite")
    bucket.put_file(str(tmp_path / "rank3.sqlite"), "/nsys/rank3.sqlite")
    [trace] = traceread.load("memory://nsys")
    assert (trace.source, trace.rank, len(trace.activities)) == ("nsys", 3, 1)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr("a.json", kineto_text(2, names=("gemm",) * 2000))
    bucket.put_file(str(tmp_path / "a.zip"), "/zip/a.zip")
    [trace] = traceread.load("memory://zip/a.zip")
    assert (trace.rank, len(trace.activities)) == (2, 2000)


def test_only_heads_are_fetched_of_what_is_not_wanted(run, bucket, monkeypatch):
    fetched = []
    real = type(bucket).get_file
    monkeypatch.setattr(type(bucket), "get_file", lambda self, key, *args, **more: fetched.append(key) or real(self, key, *args, **more))
    traceread.load("memory://run", ranks=[1])
    assert fetched == ["/run/rank1.json"]


def test_progress_counts_stored_bytes(run):
    seen = []
    traceread.load("memory://run", options=ReadOptions(progress=lambda done, total: seen.append((done, total))))
    total = sum((run / f"rank{i}.json").stat().st_size for i in (0, 1))
    assert seen[-1] == (total, total)


def test_the_cache_saves_the_way(run, bucket, tmp_path, monkeypatch):
    options = ReadOptions(cache=tmp_path / "cache")
    first = traceread.analyze("memory://run", options=options)
    monkeypatch.setattr(type(bucket), "get_file", lambda *_: pytest.fail("it was fetched again"))
    assert json.dumps(traceread.analyze("memory://run", options=options).to_dict()) == json.dumps(first.to_dict())
    monkeypatch.undo()
    bucket.pipe("/run/rank1.json", kineto_text(1, pid=2, names=("other",)).encode())
    assert "other" in traceread.load("memory://run/rank1.json", options=options).traces[0].names


# What goes wrong


def test_what_is_not_there(bucket, here):
    with pytest.raises(TraceNotFound, match=r"memory://nowhere/rank0\.json does not exist"):
        traceread.load("memory://nowhere/rank0.json")
    bucket.makedirs("/empty")
    with pytest.raises(TraceNotFound, match="no file at memory://empty"):
        traceread.load("memory://empty")
    with pytest.raises(TraceNotFound, match="no file at memory://empty/"):
        traceread.load("memory://empty/*.json")


def test_what_is_no_trace_is_told_by_its_url(bucket, here):
    bucket.pipe("/a/notes.txt", b"hello")
    with pytest.raises(UnknownFormat, match=r"^memory://a/notes\.txt is neither"):
        traceread.load("memory://a/notes.txt")


@pytest.mark.parametrize("keep_going", [False, True])
def test_damage_is_told_by_rank_and_url(run, bucket, keep_going):
    bucket.pipe("/run/rank1.json", b'{"distributedInfo": {"rank": 1}, "traceEvents": [')
    if keep_going:
        report = traceread.analyze("memory://run", keep_going=True)
        [missing] = [n for n in report.notices if n.slug == "rank-missing"]
        assert missing.message.startswith("not in this report: rank 1: memory:///run/rank1.json")
    else:
        with pytest.raises(CorruptTrace, match=r"^rank 1: memory:///run/rank1\.json"):
            traceread.analyze("memory://run")


def test_a_file_that_vanishes(run, bucket, monkeypatch):
    find = discover.find

    def find_and_lose(*args, **options):
        found = find(*args, **options)
        bucket.rm("/run/rank1.json")
        return found

    monkeypatch.setattr(discover, "find", find_and_lose)
    with pytest.raises(TraceNotFound, match=r"^rank 1: memory:///run/rank1\.json does not exist"):
        traceread.analyze("memory://run")


def test_no_room_for_what_is_fetched(run, bucket, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(type(bucket), "get_file", full)
    with pytest.raises(InputError, match=r"^rank 0: memory:///run/rank0\.json cannot be read: No space left on device") as error:
        traceread.analyze("memory://run")
    assert "TMPDIR" in error.value.hint


def test_errors_of_a_kind_that_only_the_library_knows(run, bucket, monkeypatch):
    class NoCredentials(Exception):
        pass

    def refuse(*_, **__):
        raise NoCredentials("Unable to locate credentials\nmore")

    monkeypatch.setattr(type(bucket), "isdir", refuse)
    with pytest.raises(InputError, match=r"^memory://run cannot be read: Unable to locate credentials$"):
        traceread.load("memory://run")


def test_a_protocol_that_is_not_installed():
    with pytest.raises(InputError, match=r"^nosuch://bucket/run cannot be read: Protocol not known: nosuch"):
        traceread.load("nosuch://bucket/run")


def test_without_fsspec_the_way_to_get_it_is_said(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    assert main(["report", "s3://bucket/run"]) == 1
    assert "pip install 'traceread[cluster]'" in capsys.readouterr().err


def test_a_rank_that_is_not_there(run):
    with pytest.raises(SelectionError, match="no rank 7 in memory://run: it holds 0-1"):
        traceread.analyze("memory://run", ranks=[7])


# Paths


def test_urls_and_paths_are_told_apart():
    assert all(map(is_url, ["s3://b/k", "gs://b", "memory://", "simplecache::s3://b/k", RemotePath.of("s3://b/k")]))
    assert not any(map(is_url, ["a.json", "/a/b", "C:\\a", "C:/a", "run:1/a", Path("s3:/b"), "~/x", "a//b"]))


def test_remote_paths_stay_what_they_are():
    path = RemotePath.of("s3://bucket/run/rank3.json.gz", 7)
    again = pickle.loads(pickle.dumps(path))
    assert (str(again), again.size, again) == (str(path), 7, path)
    assert (path.name, path.suffix, str(path)) == ("rank3.json.gz", ".gz", "s3://bucket/run/rank3.json.gz")
    assert len({path, again, RemotePath.of("s3://bucket/run/rank4.json.gz")}) == 2
