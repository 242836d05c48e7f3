"""Nothing half-written under a final name, nothing good lost: processes that are killed, full disks, files that change, locks, Ctrl-C.

`fuzz/faults.py` does the same at many more moments; docs/security.md lists the cases.
"""

import contextlib
import errno
import io
import os
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import fault_states as faults
import pytest
from kineto_builder import two_steps
from nsys_builder import NsysExport

import traceread
from traceread.cli import main
from traceread.errors import CorruptTrace, InputError, OutputError, TracereadError
from traceread.history import database
from traceread.readers.options import ReadOptions
from traceread.reporters.tables import save_csv

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and limits of POSIX")


@pytest.mark.parametrize("name", faults.EVERYTHING)
def test_a_command_that_is_killed_or_interrupted_leaves_what_was_there(name, tmp_path):
    state = faults.State(name, tmp_path)
    command = faults.arguments(name, tmp_path)
    begun = time.monotonic()
    assert faults.run(command, tmp_path)[0] == 0
    whole = time.monotonic() - begun
    state.check(done=True)
    for how, share in ((signal.SIGKILL, 0.5), (signal.SIGKILL, 0.9), (signal.SIGINT, 0.7)):
        command = faults.arguments(name, tmp_path)
        code, err = faults.run(command, tmp_path, after_s=share * whole, how=how)
        assert code in ({signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130}[how], 0)
        assert code == 0 or "Error" not in err
        state.check(done=code == 0)


@pytest.mark.parametrize("name", faults.EVERYTHING)
def test_a_full_disk_leaves_what_was_there(name, tmp_path):
    state = faults.State(name, tmp_path)
    code, err = faults.run(faults.arguments(name, tmp_path), tmp_path, largest_file=500)
    if name == "cache":  # costs time and a warning, never the report
        assert code == 0
    else:
        assert code == 1
        assert "cannot" in err
        assert "[internal]" not in err
    state.check(done=False)
    assert not [left for left in state.left_over() if left.endswith(".part")]


def test_processes_share_a_cache_and_a_database(tmp_path):
    faults.trace(tmp_path / "in")
    cache, db = tmp_path / "cache", tmp_path / "history.db"
    shared = ["report", str(tmp_path / "in"), "--cache", str(cache), "--db", str(db), "--job", "job", "-q", "-f", "text"]
    commands = [[*shared, "-o", str(tmp_path / "one.txt"), "--commit", str(number)] for number in range(4)]
    assert faults.together(commands, tmp_path) == [(0, "")] * 4
    assert database.jobs_in(db) == {"job": 4}
    assert len([p for p in cache.iterdir() if p.name != "files"]) == 1
    assert "rank 3 of 8" in (tmp_path / "one.txt").read_text("utf-8")
    assert not list(tmp_path.glob(".*.part"))


# --- full disks and places that cannot be written -----------------------------------------------------------------------------


class Full(io.RawIOBase):
    """A disk without room."""

    def writable(self):
        return True

    def write(self, _):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("arguments", [["report"], ["report", "--json"], ["info"], ["steps", "-f", "csv"], ["explain"]])
def test_a_full_disk_under_stdout_is_no_bug(arguments, tmp_path, monkeypatch, capsys):
    trace = [str(two_steps().write(tmp_path / "a.json"))] if arguments != ["explain"] else []
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(Full(), "utf-8", write_through=True))
    assert main([*arguments, *trace]) == 1
    err = capsys.readouterr().err
    assert "No space left on device [output]" in err
    assert "make room" in err


def test_a_closed_stdout_is_no_bug(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["report", str(two_steps().write(tmp_path / "a.json"))]) == 1
    assert "-o report.md" in capsys.readouterr().err


@pytest.fixture(params=["read-only", "no file system for files"])
def closed(request, tmp_path):
    """A directory in which nothing can be made."""
    if request.param == "no file system for files":
        if not Path("/proc/self").exists():
            pytest.skip("there is no /proc")
        return Path("/proc")
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0o500)
    return folder


@pytest.mark.parametrize("name", ["a.md", "a.html", "a.json", "a.csv"])
def test_reports_into_a_directory_that_cannot_be_written(name, closed, tmp_path, capsys):
    trace = two_steps().write(tmp_path / "a.json")
    assert main(["report", str(trace), "-o", str(closed / name)]) == 1
    err = capsys.readouterr().err
    assert f"cannot write {closed / name}" in err
    assert "hint: choose another place" in err


def test_tables_caches_and_histories_in_a_directory_that_cannot_be_written(closed, tmp_path, capsys):
    trace = two_steps().write(tmp_path / "a.json")
    for target in ("x.sqlite", "x.json.gz"):
        assert main(["export", str(trace), "-o", str(closed / target)]) == 1
    with pytest.raises(OutputError):
        save_csv(traceread.analyze(trace), closed / "folder")
    assert main(["report", str(trace), "--db", str(closed / "x.db")]) == 1
    err = capsys.readouterr().err
    assert "[internal]" not in err
    assert "nothing in it is lost" in err
    [notice] = [n for n in traceread.load(trace, options=ReadOptions(cache=closed / "cache")).traces[0].notices if n.slug == "cache"]
    assert "could not be stored" in notice.message


# --- files that change while they are read ---------------------------------------------------------------------------------------


def many_events(path):
    k = two_steps()
    for i in range(3000):
        k.kernel(f"k{i % 7}", 3_000_000 + 10_000 * i, 5_000, correlation=100 + i)
    return k.write(path)


def many_rows(path):
    x = NsysExport()
    for i in range(3000):
        x.launch(10_000 * i, 10_000 * i + 5_000, 10_000 * i + 9_000, f"k{i % 7}", correlation=i + 1)
    return x.write(path)


def changing(path, change, **options):
    """The traces of a file that is changed once while it is read."""
    changed = []

    def progress(done, total):
        if not changed:
            changed.append(True)
            change()

    try:
        return traceread.load(path, options=ReadOptions(progress=progress, threads=1, chunk_bytes=4096, **options)).traces
    finally:
        assert changed


@pytest.mark.parametrize("compiled", [True, False])
def test_a_trace_that_shrinks_is_read_as_far_as_it_goes(compiled, tmp_path):
    path = many_events(tmp_path / "a.json")
    size = path.stat().st_size
    [trace] = changing(path, lambda: os.truncate(path, size // 2), compiled=compiled)
    assert 0 < len(trace.activities) < 3006
    assert trace.truncated


@pytest.mark.parametrize("compiled", [True, False])
def test_a_trace_that_grows_is_read_with_what_is_added(compiled, tmp_path):
    path = many_events(tmp_path / "a.json")

    def grow():
        with path.open("ab") as file:
            file.write(b"x" * 10_000)

    [trace] = changing(path, grow, compiled=compiled)
    assert len(trace.activities) == 3006


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("kept", [0, 4096, 50_000])
def test_an_export_that_shrinks_is_read_or_refused_kindly(compiled, kept, tmp_path):
    path = many_rows(tmp_path / "a.sqlite")
    with contextlib.suppress(CorruptTrace):
        [trace] = changing(path, lambda: os.truncate(path, kept), compiled=compiled)
        assert len(trace.activities) <= 3000


@pytest.mark.parametrize("compiled", [True, False])
def test_an_export_that_is_written_anew_is_read_or_refused_kindly(compiled, tmp_path):
    path, other = many_rows(tmp_path / "a.sqlite"), NsysExport().kernel(0, 5).write(tmp_path / "b.sqlite")
    with contextlib.suppress(TracereadError):
        changing(path, lambda: path.write_bytes(other.read_bytes()), compiled=compiled)


def test_an_export_that_grows_is_read_as_it_was(tmp_path):
    path = many_rows(tmp_path / "a.sqlite")

    def grow():
        with path.open("ab") as file:
            file.write(b"x" * 100_000)

    [trace] = changing(path, grow)
    assert len(trace.activities) == 3000


# --- locks ---------------------------------------------------------------------------------------------------------------------


def test_a_history_that_another_process_holds(tmp_path, monkeypatch, capsys):
    trace, db = two_steps().write(tmp_path / "a.json"), tmp_path / "history.db"
    assert main(["report", str(trace), "--db", str(db), "--job", "job", "-q"]) == 0
    monkeypatch.setattr(database, "_PATIENCE_S", 0.05)
    with closing(sqlite3.connect(db, isolation_level=None)) as other:
        other.execute("begin exclusive")
        capsys.readouterr()
        assert main(["report", str(trace), "--db", str(db), "--job", "job", "--commit", "b"]) == 1
        assert "held by another process" in capsys.readouterr().err
        with pytest.raises(InputError, match="held by another process"):
            database.jobs_in(db)
        other.execute("rollback")
    assert main(["report", str(trace), "--db", str(db), "--job", "job", "--commit", "b"]) == 0
    assert database.jobs_in(db) == {"job": 2}
