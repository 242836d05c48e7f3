"""Commands that are killed, interrupted or run out of disk at some moment, and what must be true of what they leave."""

import contextlib
import csv
import gzip
import io
import json
import multiprocessing
import os
import resource
import signal
import sqlite3
import sys
import time
from contextlib import closing

from kineto_builder import two_steps

import traceread
from traceread.cli import main
from traceread.readers.options import ReadOptions
from traceread.reporters.tables import TABLES

OLD = b"what was there before"


def trace(folder):
    """A small capture in a folder of its own."""
    folder.mkdir(exist_ok=True)
    return two_steps().write(folder / "trace.json")


def _text(path):
    return path.read_bytes()


def _json(path):
    return json.loads(path.read_bytes())["format"]


def _gzip(path):
    return len(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"])


def _database(path):
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        return [(name, db.execute(f"select count(*) from {name}").fetchone()[0]) for name in TABLES]


TARGETS = {
    "report.md": (["report"], _text),
    "page.html": (["report"], _text),
    "report.json": (["report"], _json),
    "export.json.gz": (["export"], _gzip),
    "export.sqlite": (["export"], _database),
}
"""Files that commands write: the command, and what tells a whole one."""


def arguments(name, folder):
    """The command line that writes a target, or fills a database, a cache or a folder."""
    given = str(folder / "in" / "trace.json")
    if name == "history.db":
        return [
            "report",
            given,
            "--db",
            str(folder / name),
            "--job",
            "job",
            "--commit",
            str(time.time_ns()),
            "-o",
            os.devnull,
            "-f",
            "text",
        ]
    if name == "cache":
        return ["report", given, "--cache", str(folder / name), "-o", os.devnull, "-f", "text"]
    if name == "tables":
        return ["export", given, "-f", "csv", "-o", str(folder / name)]
    return [*TARGETS[name][0], given, "-o", str(folder / name)]


EVERYTHING = (*TARGETS, "history.db", "cache", "tables")


class State:
    """What a command leaves in a folder, before and after a fault."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.path = folder / name
        trace(folder / "in")
        assert main([*arguments(name, folder), "-q"]) == 0
        if name in TARGETS:
            self.whole = TARGETS[name][1](self.path)
            self.path.write_bytes(OLD)
        elif name == "tables":
            self.whole = {file.name: file.read_bytes() for file in self.path.iterdir()}
            for file in self.path.iterdir():
                file.write_bytes(OLD)
        elif name == "history.db":
            self.whole = self._rows()
        else:
            self.whole = None

    def _rows(self):
        with closing(sqlite3.connect(self.path)) as db:
            assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
            return db.execute("select count(*) from reports").fetchone()[0]

    def check(self, done=False):
        """Fails unless what is there is what was there, or whole; whole it must be if the command says that it is done."""
        if self.name in TARGETS:
            if self.path.read_bytes() == OLD:
                assert not done
            else:
                assert TARGETS[self.name][1](self.path) == self.whole
                self.path.write_bytes(OLD)
        elif self.name == "tables":
            for name, content in self.whole.items():
                found = (self.path / name).read_bytes()
                assert found == content or (found == OLD and not done)
                (self.path / name).write_bytes(OLD)
                assert list(csv.reader(io.StringIO(content.decode())))
        elif self.name == "history.db":
            rows = self._rows()
            assert rows == self.whole + 1 or (rows == self.whole and not done)
            self.whole = rows
        else:
            profile = traceread.load(self.folder / "in", options=ReadOptions(cache=self.path))
            assert len(profile.traces[0].activities) == 6
            assert not [n for n in profile.traces[0].notices if n.slug == "cache"]
            entries = [p for p in self.path.iterdir() if p.name != "files"]
            assert all((p / "index.json").exists() or p.name.endswith(".tmp") for p in entries)
            for entry in entries:
                if not entry.name.endswith(".tmp"):
                    for file in entry.iterdir():
                        file.unlink()
                    entry.rmdir()

    def left_over(self):
        """Names beside the final ones that a killed command left; none of them is ever read."""
        return sorted(p.name for p in self.folder.rglob("*") if p.name.endswith((".part", ".tmp", "-journal")))


def _child(ready, command, largest_file, errors):
    with errors.open("w") as err, contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        os.dup2(err.fileno(), 2)
        if largest_file is not None:
            sys.dont_write_bytecode = True  # modules imported from here on would be cut short on the disk, for everybody
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
        code = 130
        with contextlib.suppress(KeyboardInterrupt):
            ready.send(b"")
            code = main(command)
    os._exit(code)


_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["fault_states", "traceread.report", "traceread.job", "traceread.reporters.page", "sqlite_utils", "plotly"])


def begin(command, folder, number=0, largest_file=None):
    """A process that has begun a command, and the file its stderr goes to."""
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    errors = folder / f"stderr-{number}"
    process = _CONTEXT.Process(target=_child, args=(theirs, command, largest_file, errors))
    process.start()
    ours.recv()
    return process, errors


def end(process, errors):
    """Exit code and stderr of a process."""
    process.join(100)
    code = process.exitcode
    process.close()
    text = errors.read_text("utf-8")
    errors.unlink()
    return code, text


def run(command, folder, *, after_s=None, how=signal.SIGKILL, largest_file=None):
    """Exit code and stderr of a command; sent a signal after so many seconds, or allowed files of so many bytes."""
    process, errors = begin(command, folder, largest_file=largest_file)
    if after_s is not None:
        process.join(after_s)
        if process.is_alive():
            os.kill(process.pid, how)
    return end(process, errors)


def together(commands, folder):
    """Exit code and stderr of commands that run at the same time."""
    return [end(*begun) for begun in [begin(command, folder, number) for number, command in enumerate(commands)]]
