import pytest

from traceread.cli import loading
from traceread.cli.loading import LoadProgress


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
