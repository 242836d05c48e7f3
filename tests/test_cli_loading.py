from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from kineto_builder import two_steps

from traceread import engine
from traceread.cli import loading, main
from traceread.cli.loading import LoadProgress
from traceread.readers import file_parts, scanner
from traceread.readers.options import ReadOptions


@pytest.fixture
def clock(monkeypatch):
    """The time, which stands still until it is set."""
    now = [100.0]
    monkeypatch.setattr(loading, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def terminal(monkeypatch):
    """The rich progress bars that are made, each drawn into a string."""
    import io

    from rich import console

    out = io.StringIO()
    real = console.Console
    monkeypatch.setattr(console, "Console", lambda **_: real(file=out, force_terminal=True, width=80))
    return out


def test_short_loads_show_nothing(clock, terminal):
    with LoadProgress(wanted=True) as progress:
        clock[0] += 0.9
        progress.update(5, 10)
    assert terminal.getvalue() == ""


def test_long_loads_show_a_bar_and_take_it_away(clock, terminal):
    with LoadProgress(wanted=True) as progress:
        clock[0] += 1.1
        progress.update(5 << 20, 10 << 20)
        progress.update(6 << 20, 10 << 20)
    assert "reading" in terminal.getvalue()
    assert "10.0 MiB" in terminal.getvalue()


def test_no_bar_where_it_is_not_wanted(clock, terminal):
    with LoadProgress(wanted=False) as progress:
        clock[0] += 60
        progress.update(5, None)
    assert terminal.getvalue() == ""


def test_an_unknown_total_is_no_failure(clock, terminal):
    with LoadProgress(wanted=True) as progress:
        clock[0] += 2
        progress.update(5, None)


@pytest.fixture
def begun(monkeypatch):
    """Which files are begun early, whatever their size: name → whether the reader took what was begun."""
    seen = {}
    real = file_parts.head_start

    @contextmanager
    def head_start(path, options):
        with real(path, replace(options, threads=2), 0) as begun:
            yield begun
            seen[path.name] = begun is not None and begun.taken(0, None) is None and begun._parts is None

    monkeypatch.setattr(file_parts, "head_start", head_start)
    monkeypatch.setattr(ReadOptions, "scanning_threads", 2)
    return seen


@pytest.mark.skipif(not scanner.is_available(), reason="the compiled scanner was not built")
def test_one_file_is_begun_while_its_reader_is_imported(tmp_path, capsys, begun, monkeypatch):
    trace = two_steps().write(tmp_path / "a.json")
    small = ReadOptions(chunk_bytes=200)
    monkeypatch.setattr(loading, "limits_of", lambda _: small)
    assert main(["report", str(trace)]) == 0
    assert begun == {"a.json": True}
    early = capsys.readouterr().out
    assert main(["report", "--cache", str(tmp_path / "cache"), str(trace)]) == 0
    assert capsys.readouterr().out == early
    assert main(["report", str(tmp_path)]) == 0
    assert begun == {"a.json": True}


def test_a_file_that_cannot_be_begun_is_read_all_the_same(tmp_path, capsys, monkeypatch):
    trace = two_steps().write(tmp_path / "a.json")

    @contextmanager
    def head_start(path, options):
        raise PermissionError(13, "Permission denied", str(path))
        yield

    monkeypatch.setattr(file_parts, "head_start", head_start)
    assert main(["report", str(trace)]) == 0
    assert "a.json" in capsys.readouterr().out


def test_what_cannot_be_begun_is_reported_as_ever(tmp_path, capsys):
    assert main(["report", str(tmp_path / "none.json")]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_who_joins_many_ranks_does_not_keep_freed_memory(capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(engine, "keep_freed_memory", lambda: asked.append(1))
    samples = Path(__file__).parents[1] / "sample_traces" / "straggler-compute"
    assert main(["report", "--jobs", "2", str(samples)]) == 0
    assert asked == []
    assert main(["report", str(next(samples.glob("rank0*")))]) == 0
    assert asked
