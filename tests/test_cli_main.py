import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import traceread
from traceread import cli
from traceread.cli import main, options
from traceread.errors import TraceNotFound


def python(code, *arguments, **more):
    """A fresh interpreter: what it printed and its exit code."""
    environment = {**os.environ, "PYTHONPATH": str(Path(traceread.__file__).parents[1]), **more.pop("env", {})}
    return subprocess.run(
        [sys.executable, *(["-c", code] if code else ["-m", "traceread"]), *arguments],
        capture_output=True,
        env=environment,
        check=False,
        **more,
    )


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for verb in ("report", "info", "steps", "kernels"):
        assert f"\n    {verb} " in out
    assert "traceread report run/" in out


@pytest.mark.parametrize("verb", ["report", "info", "steps", "kernels"])
def test_help_of_a_command_names_the_shared_options(verb, capsys):
    assert main([verb, "--help"]) == 0
    out = capsys.readouterr().out
    for option in (
        "--ranks",
        "--steps",
        "--step-range",
        "--format",
        "--config",
        "--max-uncompressed",
        "-o",
        "--json",
        "--no-color",
        "--debug",
    ):
        assert option in out


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"traceread {traceread.__version__}\n"


def test_help_is_quick_and_loads_nothing_heavy():
    code = """
import sys
from traceread.cli import main
assert main(["--help"]) == 0
heavy = {"numpy", "pandas", "msgspec", "rich", "jinja2", "plotly", "sqlite3", "sqlite_utils", "isal"}
sys.exit(", ".join(sorted(heavy & set(sys.modules))) or 0)
"""
    begun = time.monotonic()
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begun < 2  # 0.1 s on an idle machine


def test_at_its_end_nothing_is_looked_through_for_cycles():
    code = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count())); from traceread.cli import main; main(['--version'])"
    assert int(python(code).stdout.split()[-1]) > 1000


def test_the_library_still_has_its_names():
    done = python(
        "import traceread, sys; assert 'numpy' not in sys.modules; from traceread import Category, Profile, Trace, Report; dir(traceread)"
    )
    assert done.returncode == 0, done.stderr
    assert traceread.Profile.__name__ == "Profile"
    assert "Report" in dir(traceread)
    with pytest.raises(AttributeError, match="nothing"):
        _ = traceread.nothing


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["report"],
        ["no-such-command"],
        ["report", "x", "--no-such-option"],
        ["report", "x", "--ranks", "a-b"],
        ["report", "x", "--ranks", "3-1"],
        ["report", "x", "--steps", "5:5"],
        ["report", "x", "--step-range", "("],
        ["report", "x", "--max-uncompressed", "much"],
        ["report", "x", "--max-uncompressed", "0"],
        ["report", "x", "-f", "pdf"],
        ["info", "x", "-f", "csv"],
        ["report", "x", "--gaps", "-1"],
        ["kernels", "x", "--by", "colour"],
        ["kernels", "x", "--limit", "many"],
    ],
)
def test_wrong_usage_is_2_and_says_so_on_stderr(arguments, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: traceread" in captured.err


def test_a_path_in_place_of_a_command_gets_the_command(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert f"traceread report {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("64G", 64 << 30), ("10 MiB", 10 << 20), ("3kb", 3 << 10), ("2TB", 2 << 40)])
def test_sizes(text, size):
    parser = argparse.ArgumentParser()
    options.add_input(parser)
    assert parser.parse_args(["x", "--max-uncompressed", text]).max_uncompressed == size


def test_global_options_stand_before_or_after_the_command():
    parser, _ = cli._parser()
    for arguments in (["-v", "--no-color", "report", "x"], ["report", "x", "-v", "--no-color"], ["-v", "report", "--no-color", "x"]):
        args = parser.parse_args(arguments)
        assert (args.verbose, args.no_color, args.quiet, args.debug) == (True, True, False, False)


class Verb:
    """A command that ends as told."""

    def __init__(self, outcome):
        self.outcome = outcome

    def run(self, args):
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


def run(outcome, debug=False):
    return cli._run(Verb(outcome), SimpleNamespace(debug=debug))


def test_exit_codes():
    assert run(0) == 0
    assert run(3) == 3
    assert run(KeyboardInterrupt()) == 130
    assert (cli.DONE, cli.COULD_NOT, cli.USAGE, cli.GATE) == (0, 1, 2, 3)


def test_an_error_is_a_line_and_a_hint(capsys):
    assert run(TraceNotFound("no \x1b[31mfile x", "traceread report y")) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "traceread: error: no file x [trace-not-found]\ntraceread: hint: traceread report y\n"


def test_a_bug_is_a_line_too(capsys):
    assert run(ZeroDivisionError("division")) == 1
    assert capsys.readouterr().err.startswith("traceread: error: unexpected ZeroDivisionError: division [internal]\ntraceread: hint: ")


def test_debug_shows_where():
    with pytest.raises(TraceNotFound):
        run(TraceNotFound("x"), debug=True)
    with pytest.raises(ZeroDivisionError):
        run(ZeroDivisionError(), debug=True)


def test_missing_file_has_no_traceback():
    done = python(None, "report", "/no/such/trace.json")
    assert done.returncode == 1
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr
    assert b"/no/such/trace.json" in done.stderr
    assert b"traceread: error: " in done.stderr


def test_the_text_report_loads_no_pandas(tmp_path):
    trace = tmp_path / "trace.json"
    trace.write_text(
        json.dumps([{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"stream": 7, "device": 0}}])
    )
    for how in ([], ["--json"], ["-f", "csv"], ["-f", "markdown"]):
        code = f"""
import sys
from traceread.cli import main
assert main(["report", {str(trace)!r}, *{how!r}]) == 0
sys.exit(", ".join(sorted({{"pandas", "plotly", "sqlite_utils", "jinja2", "IPython"}} & set(sys.modules))) or 0)
"""
        done = python(code)
        assert done.returncode == 0, done.stderr
