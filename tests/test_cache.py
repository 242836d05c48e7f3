"""What was read once is read from columns the next time, with the same result, and no fault of the cache reaches a report."""

import dataclasses
import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from nsys_builder import NsysExport
from test_readers_discover import kineto_text, put

import traceread
from traceread import cache as cache_module
from traceread.cache import Cache
from traceread.errors import LimitExceeded, TraceNotFound
from traceread.model import Table
from traceread.readers import discover, kineto, nsys
from traceread.readers.options import ReadOptions

REAL = Path(__file__).parents[2] / "shared" / "traces"


@pytest.fixture
def store(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def opened(monkeypatch):
    """The names of the files that readers opened."""
    names = []
    for kind, read in (("kineto", kineto.read), ("nsys", nsys.read)):
        monkeypatch.setitem(discover.READERS, kind, lambda path, options, read=read: names.append(path.name) or read(path, options))
    return names


def load(path, store, **options):
    return traceread.load(path, options=ReadOptions(cache=store, **options))


def slugs(profile):
    return [n.slug for n in profile.notices] + [n.slug for t in profile for n in t.notices]


def entries(store):
    return [p for p in store.iterdir() if p.name != "files"]


def assert_same(a, b):
    """Two traces, field for field."""
    for field in dataclasses.fields(a):
        one, other = getattr(a, field.name), getattr(b, field.name)
        if isinstance(one, Table):
            for (name, left), (_, right) in zip(one.columns(), other.columns(), strict=True):
                assert left.dtype == right.dtype
                np.testing.assert_array_equal(left, right, f"{field.name}.{name}")
        elif field.name == "names":
            assert list(one) == list(other)
        else:
            assert one == other, field.name
            assert type(one) is type(other), field.name


def test_a_second_read_takes_the_columns(tmp_path, store, opened):
    path = put(tmp_path, "rank3.json", kineto_text(3, names=("gemm", "ä\ud800 \0", "relu"), host="node"))
    first, second = load(path, store), load(path, store)
    assert opened == ["rank3.json"]
    assert_same(first.traces[0], second.traces[0])
    assert slugs(second) == slugs(first)


def test_several_ranks_and_shared_tables(tmp_path, store, opened):
    path = put(tmp_path, "a.json", kineto_text(devices=3))
    first, second = load(path, store), load(path, store)
    assert opened == ["a.json"]
    for one, other in zip(first, second, strict=True):
        assert_same(one, other)
    [entry] = entries(store)
    assert len(list(entry.glob("*.correlation.npy"))) < 3 * 4  # calls are one table for all


@pytest.mark.parametrize("name", ["kineto/ddp_nccl_metadata.json.gz", "kineto/cpu_only.json.gz", "nsys/fsdp_2gpu_before.sqlite"])
def test_real_traces(name, store, opened):
    if not (REAL / name).exists():
        pytest.skip("no real traces beside the repository")
    first, second = load(REAL / name, store), load(REAL / name, store)
    assert len(opened) == 1
    for one, other in zip(first, second, strict=True):
        assert_same(one, other)
    assert json.dumps(traceread.analyze(second).to_dict()) == json.dumps(traceread.analyze(first).to_dict())


def test_exports(tmp_path, store, opened):
    export = NsysExport().launch(0, 10, 20, correlation=1).launch(30, 40, 50, correlation=2, pid=101).nvtx(0, 60, "step")
    export.write(tmp_path / "a.sqlite")
    first, second = load(tmp_path / "a.sqlite", store), load(tmp_path / "a.sqlite", store)
    assert opened == ["a.sqlite"]
    for one, other in zip(first, second, strict=True):
        assert_same(one, other)


# Which content


def test_other_content_is_read_again(tmp_path, store, opened):
    path = put(tmp_path, "a.json", kineto_text(0, names=("gemm", "relu")))
    assert "relu" in load(path, store).traces[0].names
    status = path.stat()
    put(tmp_path, "a.json", kineto_text(0, names=("gemm", "silu")))  # as long, and as old
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert "silu" in load(path, store).traces[0].names
    assert opened == ["a.json"] * 2


def test_a_copy_elsewhere_is_the_same_content(tmp_path, store, opened):
    put(tmp_path, "a/rank0.json", kineto_text(0))
    put(tmp_path, "b/rank0.json", kineto_text(0))
    load(tmp_path / "a", store)
    [trace] = load(tmp_path / "b", store)
    assert opened == ["rank0.json"]
    assert trace.files == (tmp_path / "b" / "rank0.json",)


def test_content_is_not_hashed_again_without_need(tmp_path, store, monkeypatch):
    path = put(tmp_path, "a.json", kineto_text(0))
    hashed = []
    real = cache_module.hashlib.file_digest
    monkeypatch.setattr(cache_module.hashlib, "file_digest", lambda *args: hashed.append(1) or real(*args))
    load(path, store)
    load(path, store)
    assert len(hashed) == 2  # it was just written: a change within the clock's resolution would not be seen
    monkeypatch.setattr(cache_module, "_RACY_NS", -(10**12))
    load(path, store)
    assert len(hashed) == 2
    put(tmp_path, "a.json", kineto_text(1))
    load(path, store)
    assert len(hashed) == 3


def test_another_version_of_the_code_reads_again(tmp_path, store, opened, monkeypatch):
    path = put(tmp_path, "a.json", kineto_text(0))
    load(path, store)
    monkeypatch.setattr(cache_module, "_code", lambda: "another")
    load(path, store)
    assert len(opened) == 2


def test_limits_hold_for_what_is_stored_too(tmp_path, store):
    path = put(tmp_path, "a.json", kineto_text(0))
    load(path, store)
    with pytest.raises(LimitExceeded):
        load(path, store, max_uncompressed_bytes=100)


def test_a_file_that_changes_while_it_is_read_is_not_stored(tmp_path, store, monkeypatch):
    path = put(tmp_path, "a.json", kineto_text(0))

    def read(path, options):
        traces = kineto.read(path, options)
        put(tmp_path, "a.json", kineto_text(1, names=("other",)))
        return traces

    monkeypatch.setitem(discover.READERS, "kineto", read)
    load(path, store)
    monkeypatch.setitem(discover.READERS, "kineto", kineto.read)
    assert load(path, store).traces[0].rank == 1


# Faults


def damage(kind, entry):
    columns = max(entry.glob("*.start_ns.npy"), key=lambda p: p.stat().st_size)
    if kind == "a flipped bit":
        data = bytearray(columns.read_bytes())
        data[-3] ^= 4
        columns.write_bytes(data)
    elif kind == "a cut column":
        columns.write_bytes(columns.read_bytes()[:-8])
    elif kind == "an empty column":
        columns.write_bytes(b"")
    elif kind == "a missing column":
        columns.unlink()
    elif kind == "another type":
        np.save(columns, np.load(columns).astype(np.int32))
    elif kind == "objects":
        np.save(columns, np.array([print], object), allow_pickle=True)
    elif kind == "no index":
        (entry / "index.json").unlink()
    elif kind == "an empty index":
        (entry / "index.json").write_bytes(b"")
    elif kind == "half an index":
        text = (entry / "index.json").read_bytes()
        (entry / "index.json").write_bytes(text[: len(text) // 2])
    elif kind == "an index of another format":
        text = (entry / "index.json").read_bytes()
        (entry / "index.json").write_bytes(text.replace(b'"format":1', b'"format":2'))


FAULTS = [
    "a flipped bit", "a cut column", "an empty column", "a missing column", "another type", "objects", "no index", "an empty index",
    "half an index", "an index of another format",
]  # fmt: skip


@pytest.mark.parametrize("kind", FAULTS)
def test_damaged_entries_are_made_anew(kind, tmp_path, store, opened):
    path = put(tmp_path, "a.json", kineto_text(0))
    whole = load(path, store)
    damage(kind, entries(store)[0])
    again = load(path, store)
    assert len(opened) == 2
    assert slugs(again) == [*slugs(whole), "cache"]
    [notice] = [n for n in again.traces[0].notices if n.slug == "cache"]
    assert "a.json is unusable" in notice.message
    for name in ("activities", "calls"):
        for (_, left), (_, right) in zip(getattr(whole.traces[0], name).columns(), getattr(again.traces[0], name).columns(), strict=True):
            np.testing.assert_array_equal(left, right)
    assert slugs(load(path, store)) == slugs(whole)
    assert len(opened) == 2


def test_an_entry_may_be_deleted_while_it_is_used(tmp_path, store):
    import shutil

    path = put(tmp_path, "a.json", kineto_text(0))
    whole = load(path, store)
    used = load(path, store)
    shutil.rmtree(store)
    assert_same(whole.traces[0], used.traces[0])


def test_what_is_done_to_columns_does_not_reach_the_entry(tmp_path, store):
    path = put(tmp_path, "a.json", kineto_text(0))
    load(path, store)
    used = load(path, store).traces[0]
    used.activities.start_ns[:] = 0
    assert load(path, store).traces[0].activities.start_ns.all()


def test_a_full_disk(tmp_path, store, monkeypatch):
    path = put(tmp_path, "a.json", kineto_text(0))
    real, written = np.save, []

    def save(file, *args, **options):
        written.append(file)
        if len(written) > 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file, *args, **options)

    monkeypatch.setattr(cache_module.np, "save", save)
    profile = load(path, store)
    [notice] = [n for n in profile.traces[0].notices if n.slug == "cache"]
    assert "a.json could not be stored (No space left on device)" in notice.message
    assert entries(store) == []  # nothing half-written is left
    monkeypatch.setattr(cache_module.np, "save", real)
    assert "cache" not in slugs(load(path, store))


def test_a_disk_that_is_really_full(tmp_path, store):
    """A limit on the size of files stands for it: the system refuses to write on in the middle of a column."""
    path = put(tmp_path, "a.json", kineto_text(0, names=("gemm",) * 2000))
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from traceread.cli import main\n"
        "sys.dont_write_bytecode = True  # modules imported from here on would be cut short on the disk, for everybody\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "report", str(path), "--json", "--cache", str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [w["slug"] for w in json.loads(done.stdout)["profile"]["warnings"] if w["slug"] == "cache"] == ["cache"]
    assert [p for p in store.iterdir() if p.name != "files"] == []


def test_a_place_that_cannot_be_written_to(tmp_path, opened):
    path = put(tmp_path, "a.json", kineto_text(0))
    store = put(tmp_path, "file", "no directory")
    assert "cache" in slugs(load(path, store))


def test_left_overs_of_killed_processes_go_after_a_day(tmp_path, store):
    store.mkdir()
    old, young = store / "x.1.tmp", store / "y.2.tmp"
    for left in (old, young):
        left.mkdir()
        put(left, "0.start_ns.npy", "x")
    os.utime(old, (0, 0))
    load(put(tmp_path, "a.json", kineto_text(0)), store)
    assert not old.exists()
    assert young.exists()


def test_many_at_once(tmp_path, store):
    path = put(tmp_path, "a.json", kineto_text(0, names=("gemm",) * 300))
    found = []
    threads = [threading.Thread(target=lambda: found.append(load(path, store))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("cache" not in slugs(profile) for profile in found)
    assert len(entries(store)) == 1
    for profile in found[1:]:
        assert_same(profile.traces[0], found[0].traces[0])


def test_a_file_that_is_gone_is_told_as_ever(tmp_path, store):
    path = put(tmp_path, "a.json", kineto_text(0))
    load(path, store)
    source = discover.find([path]).sources[0]
    path.unlink()
    with pytest.raises(TraceNotFound, match=r"a\.json does not exist"):
        discover.read(source, ReadOptions(cache=store))


def test_without_being_asked_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(Cache, "read", lambda *_: pytest.fail("a cache was used"))
    traceread.load(put(tmp_path, "a.json", kineto_text(0)))
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
